use super::document::TomlText;
use super::*;

fn parse(text: &str) -> Result<Suite, String> {
    let source = TomlText {
        label: "s.toml".to_owned(),
        text: text.to_owned(),
    };
    super::plan::read("s", &source, &load).map_err(|error| error.to_string())
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
    let single = |case: &&Case| case.problem.batch * case.problem.heads == 1;
    assert!(quick.cases.iter().any(|case| single(&case)));
    assert_eq!(quick.settings.invocations, 5);
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

#[test]
fn complaints_name_file_line_key_value_and_fix() {
    let cases = [
        (
            "seq = 64\nhead_dim = 64\nmaks = \"full\"\n",
            "s.toml:6: sweep[0].maks = \"full\": unknown key; did you mean `mask`?",
        ),
        (
            "seq = 64\nhead_dim = 64\ndirection = \"backwards\"\n",
            "s.toml:6: sweep[0].direction = \"backwards\": `backwards` is no direction; use `forward`, `backward`, `both`",
        ),
        (
            "seq = []\nhead_dim = 64\n",
            "s.toml:4: sweep[0].seq: an empty list makes no case; give at least one value",
        ),
        (
            "seq = 0\nhead_dim = 64\n",
            "s.toml:4: sweep[0].seq = 0: must be from 1 to 16777216",
        ),
        (
            "seq = \"long\"\nhead_dim = 64\n",
            "s.toml:4: sweep[0].seq = \"long\": expected a whole number, found string",
        ),
        (
            "seq = 64\n",
            "s.toml:2: sweep[0]: `head_dim` has no default; give it in the sweep (at seq = 64)",
        ),
        (
            "seq = 64\nhead_dim = 64\nheads = 3\nkv_heads = 2\n",
            "s.toml:2: sweep[0]: kv_heads = 2 does not divide heads = 3 (at head_dim = 64, heads = 3, kv_heads = 2, seq = 64)",
        ),
        (
            "seq_q = 64\nseq_k = 128\nhead_dim = 64\nmask = \"causal\"\n",
            "s.toml:2: sweep[0]: mask `causal` is ambiguous when seq_q != seq_k; write `causal-tl` (PyTorch's is_causal) or `causal-br` (FlashAttention's causal) (at head_dim = 64, mask = causal, seq_k = 128, seq_q = 64)",
        ),
    ];
    for (sweep, complaint) in cases {
        assert_eq!(suite_with(sweep).unwrap_err(), complaint);
    }
    assert_eq!(
        suite_with("seq = 64\nhead_dim = 64\nshapes = \"long\"\n[shapes.wide]\nheads = 4\n"),
        Err("s.toml:6: sweep[0].shapes = \"long\": unknown shape; known here: wide".to_owned())
    );
    assert!(
        parse("description = \n")
            .unwrap_err()
            .starts_with("s.toml:1: malformed TOML")
    );
    assert_eq!(
        suite_with("seq = 64\nhead_dim = 64\nseq = 32\n").unwrap_err(),
        "s.toml:6: seq: the key stands there twice; keep one of them"
    );
}

#[test]
fn a_policy_is_a_threshold_a_day_and_what_is_ignored() {
    use super::rules::{Ignored, Metric, Policy};
    use regatta_worker::units::Share;

    let policy = |text: &str| {
        let head = "description = \"d\"\n";
        let sweep = "[[sweep]]\nvariants = \"cpu/flash\"\nseq = 8\nhead_dim = 8\n";
        parse(&format!("{head}[policy]\n{text}\n{sweep}")).map(|suite| suite.rules.policy)
    };
    let of = |threshold: f64| Policy {
        threshold: Share(threshold),
        ..Policy::default()
    };
    let read = [
        ("", of(0.05)),
        ("threshold = 0.02", of(0.02)),
        ("threshold = 0", of(0.0)),
        (
            "threshold = { device = 0.02, host = 0.3, first_call = 4 }",
            Policy {
                thresholds: [(Metric::Host, Share(0.3)), (Metric::FirstCall, Share(4.0))].into(),
                ..of(0.02)
            },
        ),
        (
            "threshold = { host = 0.3 }",
            Policy {
                thresholds: [(Metric::Host, Share(0.3))].into(),
                ..of(0.05)
            },
        ),
        (
            "ignore = [\"host\", \"device_p90\"]\nday = 0.01",
            Policy {
                ignore: [Metric::Host, Metric::DeviceP90]
                    .map(Ignored::Metric)
                    .into(),
                day: Some(Share(0.01)),
                ..of(0.05)
            },
        ),
        (
            "ignore = \"cpu_time\"",
            Policy {
                ignore: [Ignored::Metric(Metric::CpuTime)].into(),
                ..of(0.05)
            },
        ),
        ("ignore = []", of(0.05)),
    ];
    for (text, wanted) in read {
        assert_eq!(policy(text), Ok(wanted), "{text}");
    }
    for (text, complaint) in [
        (
            "threshold = 2",
            "policy.threshold = 2: use a fraction from 0 to 1: 0.05 is 5 %",
        ),
        (
            "threshold = \"2 %\"",
            "policy.threshold = \"2 %\": expected a number, found string",
        ),
        (
            "threshold = { device = -0.1 }",
            "policy.threshold.device = -0.1: use a fraction from 0 to 1: 0.05 is 5 %",
        ),
        (
            "threshold = { host = 1001 }",
            "policy.threshold.host = 1001: use a relative change from 0 to 1000: 0.25 is a quarter \
             more",
        ),
        (
            "threshold = { hots = 0.3 }",
            "policy.threshold.hots = 0.3: unknown key; did you mean `host`?",
        ),
        (
            "day = 1.01",
            "policy.day = 1.01: use a fraction from 0 to 1: 0.05 is 5 %",
        ),
        (
            "ignore = [\"host\", \"devise\"]",
            "policy.ignore[1] = \"devise\": no such metric or kind of change; did you mean `device`?",
        ),
        (
            "ignore = \"xyz\"",
            "policy.ignore = \"xyz\": no such metric or kind of change; there are device, \
             device_p90, host, first_call, peak_memory, cpu_time; and fill, tasks, copies, spills, \
             counts, synchronisation, driver-memory, instructions, kernel-replaced, grid, block, \
             launches, registers, shared-memory, occupancy, threads, memory, parameters, \
             operators, functions",
        ),
        (
            "treshold = 0.02",
            "policy.treshold = 0.02: unknown key; did you mean `threshold`?",
        ),
    ] {
        assert_eq!(policy(text), Err(format!("s.toml:3: {complaint}")));
    }
}
