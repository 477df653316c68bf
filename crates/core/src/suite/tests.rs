use std::path::Path;

use super::document::Source;
use super::*;

fn parse(text: &str) -> Result<Suite, String> {
    let source = Source {
        label: "s.toml".to_owned(),
        text: text.to_owned(),
    };
    super::parse::suite("s", &source, &load).map_err(|error| error.to_string())
}

fn suite_with(sweep: &str) -> Result<Suite, String> {
    parse(&format!(
        "schema = 1\ndescription = \"d\"\n[[sweep]]\nvariants = \"cpu/flash\"\n{sweep}"
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
fn what_a_sample_is_can_be_set_and_is_written_only_then() {
    let plain = load("quick").unwrap().settings;
    assert!(!plain.graph);
    let text = serde_json::to_string(&plain).unwrap();
    assert!(!text.contains("graph"));
    assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), plain);
    let with = |measure: &str| {
        let sweep = "[[sweep]]\nvariants = \"cpu/flash\"\nseq = 8\nhead_dim = 8\n";
        parse(&format!(
            "schema = 1\ndescription = \"d\"\n[measure]\n{measure}\n{sweep}"
        ))
    };
    assert!(with("graph = true").unwrap().settings.graph);
    let error = with("graph = \"yes\"").unwrap_err();
    assert!(
        error.contains("measure.graph = \"yes\": expected `true` or `false`"),
        "{error}"
    );
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
            "s.toml:7: sweep[0].maks = \"full\": unknown key; did you mean `mask`?",
        ),
        (
            "seq = 64\nhead_dim = 64\ndirection = \"backwards\"\n",
            "s.toml:7: sweep[0].direction = \"backwards\": `backwards` is no direction; use `forward`, `backward`, `both`",
        ),
        (
            "seq = []\nhead_dim = 64\n",
            "s.toml:5: sweep[0].seq: an empty list makes no case; give at least one value",
        ),
        (
            "seq = 0\nhead_dim = 64\n",
            "s.toml:5: sweep[0].seq = 0: must be from 1 to 16777216",
        ),
        (
            "seq = \"long\"\nhead_dim = 64\n",
            "s.toml:5: sweep[0].seq = \"long\": expected a whole number, found string",
        ),
        (
            "seq = 64\n",
            "s.toml:3: sweep[0]: `head_dim` has no default; give it in the sweep (at seq = 64)",
        ),
        (
            "seq = 64\nhead_dim = 64\nheads = 3\nkv_heads = 2\n",
            "s.toml:3: sweep[0]: kv_heads = 2 does not divide heads = 3 (at head_dim = 64, heads = 3, kv_heads = 2, seq = 64)",
        ),
        (
            "seq_q = 64\nseq_k = 128\nhead_dim = 64\nmask = \"causal\"\n",
            "s.toml:3: sweep[0]: mask `causal` is ambiguous when seq_q != seq_k; write `causal-tl` (PyTorch's is_causal) or `causal-br` (FlashAttention's causal) (at head_dim = 64, mask = causal, seq_k = 128, seq_q = 64)",
        ),
    ];
    for (sweep, complaint) in cases {
        assert_eq!(suite_with(sweep).unwrap_err(), complaint);
    }
    assert_eq!(
        parse("schema = 2\n").unwrap_err(),
        "s.toml:1: schema = 2: this regatta reads suites of schema 1"
    );
    assert!(
        parse("schema = \n")
            .unwrap_err()
            .starts_with("s.toml:1: malformed TOML")
    );
}

#[test]
fn an_expectation_that_selects_nothing_is_refused() {
    let expect = |case: &str| {
        suite_with(&format!(
            "seq = 64\nhead_dim = 64\nparams = {{ num_splits_key = [1, 2] }}\n\
             [[expect]]\nname = \"n\"\nwithin = 1.1\nagainst = {{ num_splits_key = 1 }}\ncase = {case}\n"
        ))
    };
    assert!(expect("{ num_splits_key = 2 }").is_ok());
    let error = expect("{ num_splits_key = 3 }").unwrap_err();
    assert!(error.contains("selects no case"), "{error}");
    let error = expect("{ head_dims = 64 }").unwrap_err();
    assert!(error.contains("did you mean `head_dim`"), "{error}");
}

#[test]
fn unknown_suites_name_the_nearest() {
    let error = load("quik").unwrap_err().to_string();
    assert!(error.contains("did you mean `quick`?"), "{error}");
}

#[test]
fn patterns_are_globs_or_parts() {
    let id = "cpu/flash:h2,s128,d64,bwd";
    for pattern in ["flash", "cpu/*", "*bwd", "cpu/*:*d64*", "*"] {
        assert!(matches_id(pattern, id), "{pattern}");
    }
    for pattern in ["naive", "torch/*", "*fwd", "cpu/*:s*"] {
        assert!(!matches_id(pattern, id), "{pattern}");
    }
}

#[test]
fn a_worker_runs_in_one_environment_and_the_nearest_declaration_says_which() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    let head = "schema = 1\ndescription = \"d\"\n";
    write(
        "base.toml",
        &format!(
            "{head}[environments.old]\nworkers = [\"torch\"]\n\
             [[sweep]]\nvariants = \"cpu/flash\"\nseq = 8\nhead_dim = 8\n"
        ),
    );
    let extending = |environments: &str| {
        let text = format!("extends = \"base.toml\"\n{head}{environments}");
        load(&write("s.toml", &text)).map_err(|error| error.to_string())
    };
    // Another table of the same name takes the place of the one that was extended.
    let again = "[environments.old]\ninterpreter = \"python9\"\nworkers = [\"torch\"]\n";
    let mut suite = extending(again).unwrap();
    let interpreter = &suite.environments["old"].interpreter;
    assert_eq!(interpreter.as_deref(), Some("python9"));
    let moved = "[environments.a]\nworkers = [\"torch\"]\n[environments.old]\n";
    assert_eq!(
        extending(moved).unwrap().environments["a"].workers,
        ["torch"]
    );
    let error = extending("[environments.new]\nworkers = [\"torch\"]\n").unwrap_err();
    assert!(error.contains("`old` already; take it out of"), "{error}");
    // What the suite says of a worker goes before what regatta.toml says.
    let config = write(
        "regatta.toml",
        "[environments.mine]\nworkers = [\"torch\", \"jax\"]\n",
    );
    configure(&mut suite, Path::new(&config)).unwrap();
    assert_eq!(suite.environments["mine"].workers, ["jax"]);
    assert_eq!(suite.environments["old"].workers, ["torch"]);
}
