use proptest::prelude::*;

use super::document::TomlText;
use super::*;

pub(super) fn parse(text: &str) -> Result<Suite, String> {
    let source = TomlText {
        label: "s.toml".to_owned(),
        text: text.to_owned(),
    };
    super::plan::read("s", &source, std::path::Path::new(""), &load)
        .map_err(|error| error.to_string())
}

fn suite_with(sweep: &str) -> Result<Suite, String> {
    parse(&format!(
        "description = \"d\"\n[[sweep]]\nvariants = \"cpu/flash\"\n{sweep}"
    ))
}

#[test]
fn built_in_suites_are_sound() {
    for (name, _) in BUILTIN {
        let suite = load(name).unwrap();
        assert!(!suite.cases.is_empty(), "{name}");
        assert_eq!(suite.name, *name);
    }
    let quick = load("quick").unwrap();
    let single = |case: &&Case| ["batch", "heads"].iter().all(|axis| case.axis(axis) == "1");
    assert!(quick.cases.iter().any(|case| single(&case)));
    assert_eq!(quick.settings.invocations, 5);
}

#[test]
fn the_cache_is_hot_on_a_processor_unless_the_suite_says_otherwise() {
    let caches = |measure: &str| {
        let text = "description = \"d\"\nworkers.mine = \"mine.py\"\n\
             [[sweep]]\nvariants = [\"mine/f\", \"cpu/flash\"]\nseq = 8\nhead_dim = 8\n";
        let settings = parse(&(text.to_owned() + measure)).unwrap().settings;
        [DeviceKind::Cpu, DeviceKind::Cuda].map(|kind| settings.cache_on(Some(kind)))
    };
    assert_eq!(caches(""), [Cache::Hot, Cache::Cold]);
    assert_eq!(caches("[measure]\ncache = \"hot\""), [Cache::Hot; 2]);
    assert_eq!(caches("[measure]\ncache = \"cold\""), [Cache::Cold; 2]);
}

#[test]
fn axes_multiply_and_shapes_do_not() {
    let suite = suite_with(
        "shapes = [{ heads = 2, seq = 128 }, { heads = 4, seq = 64 }]\n\
         head_dim = [32, 64]\nmask = [\"full\", \"causal\"]\n",
    )
    .unwrap();
    let ids: Vec<String> = suite.cases.iter().map(ToString::to_string).collect();
    assert_eq!(ids.len(), 8, "{ids:?}");
    assert!(
        ids.contains(&"cpu/flash:h4,s64,d32,causal".to_owned()),
        "{ids:?}"
    );
}

#[test]
fn extending_keeps_the_case_ids_and_changes_what_is_handed_over() {
    let fixed = load("xformers-backward").unwrap();
    let broken = load("xformers-0.0.26").unwrap();
    assert_eq!(fixed.cases, broken.cases);
    let auto = |case: &&Case| case.params.is_empty();
    let case = broken.cases.iter().find(auto).unwrap();
    assert_eq!(
        broken.params_for(case).get("num_splits_key"),
        ParamValue::Int(-1)
    );
    assert!(fixed.params_for(case).get("num_splits_key").is_auto());
    let explicit = broken.cases.iter().find(|case| !auto(case)).unwrap();
    assert_eq!(broken.params_for(explicit), explicit.params);
}

/// `refused.txt` has suites that are refused, each below the beginning that it has with others,
/// and the message of each. `REGATTA_WRITE_VECTORS=1` rewrites the file.
#[test]
fn what_cannot_stand_is_refused_by_file_line_key_value_and_fix() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/suite/refused.txt");
    let there = std::fs::read_to_string(path).unwrap();
    let mut head = "";
    let refused = there.trim_end().split("\n\n").map(|block| {
        if let Some((_, beginning)) = block.strip_prefix("# ").and_then(|b| b.split_once('\n')) {
            head = beginning;
            return block.to_owned();
        }
        let (text, _) = block.split_once("\n=>").unwrap();
        format!(
            "{text}\n=> {}",
            parse(&format!("{head}\n{text}\n")).unwrap_err()
        )
    });
    let text = refused.collect::<Vec<_>>().join("\n\n") + "\n";
    if std::env::var_os("REGATTA_WRITE_VECTORS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, there);
}

#[test]
fn a_policy_is_a_threshold_a_day_and_what_is_ignored() {
    use super::{Ignored, Metric, Policy};
    use regatta_worker::units::Share;

    let policy = |text: &str| {
        let head = "description = \"d\"\n";
        let sweep = "[[sweep]]\nvariants = \"cpu/flash\"\nseq = 8\nhead_dim = 8\n";
        parse(&format!("{head}[policy]\n{text}\n{sweep}")).map(|suite| suite.rules.policy)
    };
    let ignored = |name: &str| Ignored::try_from(name.to_owned()).unwrap();
    let with_threshold = |threshold: f64| Policy {
        threshold: Share(threshold),
        ..Policy::default()
    };
    let read = [
        ("", with_threshold(0.05)),
        ("threshold = 0.02", with_threshold(0.02)),
        ("threshold = 0", with_threshold(0.0)),
        (
            "threshold = { device = 0.02, host = 0.3, first_call = 4 }",
            Policy {
                thresholds: [(Metric::Host, Share(0.3)), (Metric::FirstCall, Share(4.0))].into(),
                ..with_threshold(0.02)
            },
        ),
        (
            "threshold = { host = 0.3 }",
            Policy {
                thresholds: [(Metric::Host, Share(0.3))].into(),
                ..with_threshold(0.05)
            },
        ),
        (
            "ignore = [\"host\", \"device_p90\"]\nday = 0.01",
            Policy {
                ignore: ["host", "device_p90"].map(ignored).into(),
                day: Some(Share(0.01)),
                ..with_threshold(0.05)
            },
        ),
        (
            "ignore = \"cpu_time\"",
            Policy {
                ignore: [ignored("cpu_time")].into(),
                ..with_threshold(0.05)
            },
        ),
        ("ignore = []", with_threshold(0.05)),
    ];
    for (text, wanted) in read {
        assert_eq!(policy(text), Ok(wanted), "{text}");
    }
}

// Suites that must not be accepted: refused in words, before they cost anything.

/// A text as TOML writes it.
fn string(text: &str) -> String {
    toml::Value::from(text).to_string()
}

const HEAD: &str = "description = \"d\"\n";
const SWEEP: &str = "[[sweep]]\nvariants = \"cpu/flash\"\nseq = 64\nhead_dim = 64\n";

fn refused(text: &str) -> String {
    parse(&format!("{HEAD}{text}")).unwrap_err()
}

#[test]
fn words_that_would_make_two_cases_one_are_refused_where_they_stand() {
    for word in [
        "1,n=2", "a=b", "a:b", "a@b", "a b", "a\tb", "", "é", "a*", "\u{202e}",
    ]
    .map(string)
    {
        let error = refused(&format!("{SWEEP}params = {{ mode = [1, {word}] }}"));
        let expected = "s.toml:6: sweep[0].params.mode[1] = ";
        assert!(error.starts_with(expected), "{error}");
        assert!(error.contains("a parameter is a whole number, or a word"));
        for value in [
            word.clone(),
            format!("{{ {word} = 2 }}"),
            format!("{{ auto = {word} }}"),
        ] {
            let error = refused(&format!("{SWEEP}[set.\"cpu/flash\"]\nn = {value}"));
            assert!(error.starts_with("s.toml:7: set.cpu/flash.n"), "{error}");
        }
    }
    for name in ["a=b", "a,b", "a:b", "a b", "", "1st", "a.b"] {
        let error = refused(&format!("{SWEEP}params = {{ {name:?} = 1 }}"));
        assert!(
            error.starts_with("s.toml:6: sweep[0].params.") && error.contains("cannot name"),
            "{error}"
        );
        let error = refused(&format!("{SWEEP}[set.\"cpu/flash\"]\n{name:?} = 1"));
        assert!(error.starts_with("s.toml:7: set.cpu/flash."), "{error}");
    }
}

#[test]
fn cases_are_counted_before_they_are_made() {
    let list = (1..=100)
        .map(|n| n.to_string())
        .collect::<Vec<_>>()
        .join(", ");
    let axis = |name: &str| format!("{name} = [{list}]");
    let params: Vec<String> = ["a", "b", "c", "d", "e", "f"].map(axis).to_vec();
    let error = refused(&format!("{SWEEP}params = {{ {} }}", params.join(", ")));
    let expected = "s.toml:2: sweep[0]: makes 1000000000000 cases";
    assert!(error.starts_with(expected), "{error}");
    let axes: Vec<String> = ["batch", "heads", "seq_k", "head_dim_v"].map(axis).to_vec();
    let error = refused(&format!(
        "[[sweep]]\nvariants = \"cpu/flash\"\nseq_q = 8\nhead_dim = 8\n{}",
        axes.join("\n")
    ));
    assert!(error.contains("makes 100000000 cases"), "{error}");
}

#[test]
fn the_limit_on_cases_holds_for_the_suite_not_for_a_sweep() {
    let list = (1..=300)
        .map(|n| n.to_string())
        .collect::<Vec<_>>()
        .join(", ");
    let sweep = |head_dim: u32| {
        format!(
            "[[sweep]]\nvariants = \"cpu/flash\"\nhead_dim = {head_dim}\nseq = [{list}]\nbatch = [{list}]\n"
        )
    };
    let error = refused(&format!("{}{}", sweep(8), sweep(16)));
    let expected = "sweep[1]: makes 90000 cases beside the 90000 that are there already";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn bombs_of_depth_are_refused() {
    for text in [
        format!("a = {}", "[".repeat(200_000)),
        format!("a = {}", "{a=".repeat(200_000)),
        format!("{} = 1", vec!["a"; 200_000].join(".")),
        format!("[{}]", vec!["a"; 200_000].join(".")),
        format!("[[{}]]", vec!["a"; 200_000].join(".")),
        "description = 1\0".to_owned(),
        "description = \"d\"\ndescription = \"d\"".to_owned(),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(error.len() < 1000, "{error}");
    }
}

#[test]
fn names_of_environments_and_workers_stay_in_their_folder() {
    for name in [
        "../up", "..", ".", "a/b", "", "a b", "a@b", "-x", "é", "a\u{1b}",
    ]
    .map(string)
    {
        for (table, value) in [("environments", "{}"), ("workers", "[\"x\"]")] {
            let error = refused(&format!("{SWEEP}[{table}]\n{name} = {value}"));
            assert!(error.starts_with(&format!("s.toml:7: {table}.")), "{error}");
            assert!(error.contains("this cannot name a"), "{error}");
        }
    }
    let long = "n".repeat(65);
    assert!(refused(&format!("{SWEEP}[environments.{long}]")).contains("at most 64"));
    for line in [
        "python = \"a\\u0000\"",
        "env = { A = \"\\u0000\" }",
        "env = { \"A=B\" = \"c\" }",
        "env = { \"\" = \"c\" }",
        "paths = [\"\\u0000\"]",
    ] {
        let error = refused(&format!("{SWEEP}[environments.e]\n{line}"));
        let expected = "s.toml:7: environments.e.";
        assert!(error.starts_with(expected), "{line}: {error}");
    }
}

#[test]
fn a_chain_of_suites_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = |n: usize| folder.path().join(format!("s{n}.toml"));
    for n in 0..3000 {
        let text = format!("{HEAD}extends = \"s{}\"\n{SWEEP}", n + 1);
        std::fs::write(path(n), text).unwrap();
    }
    std::fs::write(path(3000), format!("{HEAD}{SWEEP}")).unwrap();
    let error = load(&path(0).to_string_lossy()).unwrap_err().to_string();
    let expected = "suites extend each other 32 deep";
    assert!(error.contains(expected), "{error}");
    assert!(error.len() < 10_000, "{} bytes", error.len());
    load(&path(2969).to_string_lossy()).unwrap();
}

proptest! {
    /// Whatever words a suite holds, it is refused, or each case has an id of its own
    /// that is read back as the case.
    #[test]
    fn every_id_reads_back(
        words in prop::collection::vec("[a-c0-9=,:@ ./+*_-]{0,4}", 1..4),
        names in prop::collection::btree_set("[a-c.=,_]{1,3}", 1..3),
        masks in prop::collection::vec(
            prop::sample::select(vec!["full", "causal", "window-4-0", "window-inf-2"]), 1..3),
        varlen in prop::option::of(prop::sample::select(vec!["4+8", "1+1:8+9", "8"])),
    ) {
        let params: Vec<String> =
            names.iter().map(|name| format!("{name:?} = {words:?}")).collect();
        let lengths = match &varlen {
            Some(lengths) => format!("varlen = {lengths:?}"),
            None => "seq = [8, 16]".to_owned(),
        };
        let text = format!(
            "{HEAD}[[sweep]]\nvariants = [\"cpu/flash\", \"cpu/flash@old\"]\n{lengths}\n\
             head_dim = [8, 16]\nmask = {masks:?}\nparams = {{ {} }}\n",
            params.join(", ")
        );
        if let Ok(suite) = parse(&text) {
            let ids: std::collections::BTreeSet<String> =
                suite.cases.iter().map(ToString::to_string).collect();
            prop_assert_eq!(ids.len(), suite.cases.len());
            for case in &suite.cases {
                prop_assert_eq!(&case.to_string().parse::<Case>().unwrap(), case);
            }
        }
    }
}
