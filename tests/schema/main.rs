//! The schemas that `regatta schema` prints: held to what is checked in, and all that regatta
//! writes and prints held to them by a validator that is not ours.
//!
//! `REGATTA_TEST_PYTHON` names an interpreter that has `jsonschema`; CI makes one from
//! `workers/python/requirements-lint.txt`.

#[path = "../common/mod.rs"]
mod common;
mod fitting;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use common::{Place, fake_worker};
use fitting::{Documents, below, faults, fit, found};
use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn listed(place: &Place) -> Vec<Value> {
    let (stdout, _) = exits!(place, 0, ["schema", "--json"]);
    serde_json::from_str(&stdout).unwrap()
}

fn names(folder: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(folder).unwrap().flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    names.collect()
}

#[test]
fn a_schema_that_changes_has_another_version() {
    let place = Place::new();
    exits!(place, 0, ["schema", "--all", "new"]);
    let (now, kept) = (place.path().join("new"), root().join("schemas"));
    assert_eq!(
        names(&now),
        names(&kept),
        "write them: regatta schema --all schemas"
    );
    for name in names(&now) {
        let read = |folder: &Path| fs::read_to_string(folder.join(&name)).unwrap();
        let (now, kept) = (read(&now), read(&kept));
        if now == kept {
            continue;
        }
        let id = |text: &str| serde_json::from_str::<Value>(text).unwrap()["$id"].clone();
        assert_ne!(
            id(&now),
            id(&kept),
            "schemas/{name} changed: raise its version in src/cli/schema/catalogue.rs, the minor \
             one where who reads the old can read the new, else the major one"
        );
        panic!("schemas/{name} is another version: write it: regatta schema --all schemas");
    }
}

#[test]
fn a_version_that_is_there_is_not_written_over() {
    let place = Place::new();
    exits!(place, 0, ["schema", "--all", "out"]);
    exits!(place, 0, ["schema", "--all", "out"]);
    place.edit("out/comment.json", "It was put", "It was posted");
    let (_, stderr) = exits!(place, 2, ["schema", "--all", "out"]);
    assert!(
        stderr.contains("urn:regatta:schema:comment:1.0 already"),
        "{stderr}"
    );
    place.edit("out/comment.json", "comment:1.0", "comment:0.9");
    exits!(place, 0, ["schema", "--all", "out"]);
}

#[test]
fn names_are_listed_and_mistyped_ones_helped() {
    let place = Place::new();
    let (stdout, _) = exits!(place, 0, ["schema"]);
    for one in listed(&place) {
        let (name, version) = (
            one["name"].as_str().unwrap(),
            one["version"].as_str().unwrap(),
        );
        assert!(stdout.contains(&format!("  {name} ")), "{name}");
        let (schema, _) = exits!(place, 0, ["schema", name]);
        let schema: Value = serde_json::from_str(&schema).unwrap();
        assert_eq!(
            schema["$id"],
            format!("urn:regatta:schema:{name}:{version}")
        );
        assert_eq!(schema["title"], one["title"]);
    }
    let (_, stderr) = exits!(place, 2, ["schema", "judgment"]);
    assert!(stderr.contains("did you mean `judgement`?"), "{stderr}");
}

#[test]
fn a_document_with_a_member_that_nobody_described_does_not_fit() {
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    let (stdout, _) = exits!(place, 0, ["baseline", "list", "--json"]);
    place.write("fits.json", &stdout);
    place.write(
        "more.json",
        &stdout.replacen("\"saved\":", "\"found\":1,\"saved\":", 1),
    );
    place.write("less.json", &stdout.replacen(",\"tool\":\"0.1.0\"", "", 1));
    let of = |name: &str| vec![("baselines".to_owned(), place.path().join(name))];
    fit(&place, &of("fits.json"));
    for (name, words) in [
        ("more.json", "'found' was unexpected"),
        ("less.json", "'tool'"),
    ] {
        if let Some(faults) = faults(&place, &of(name)) {
            assert!(faults.contains(words), "{name}: {faults}");
        }
    }
}

#[test]
fn what_is_measured_and_judged_fits() {
    let build = "[build]\ncommand = [\"sh\", \"-c\", \"mkdir -p out && date > out/x\"]\n\
                 makes = [\"out/x\"]\n\
                 [environments.own]\ninterpreter = \"python3\"\n\
                 [[limit]]\nname = \"soon\"\ncount = \"build_seconds\"\nat_most = 600\n\
                 [[expect]]\nname = \"alike\"\ncase = { seq_q = 32 }\n\
                 against = { seq_q = 64 }\nwithin = 9.0\n";
    let place = Place::new();
    place.suite("s", &["fake/steady", "fake/wrong"], &[], build);
    let mut told = Documents::of(&place);
    told.file("suite", "s.toml");
    told.answer("build", 0, &["build", "./s.toml"]);
    told.answer("plan", 0, &["list", "./s.toml"]);
    told.answer("environments", 0, &["env", "list", "--suite", "./s.toml"]);
    told.answer("stopped", 2, &["run", "./none.toml"]);
    told.answer("stopped", 3, &["gate", "./s.toml", "--baseline", "none"]);
    // A variant that fails is worse than none.
    let (code, stdout, _) = place.ran(&["run", "./s.toml", "--json"]);
    assert_eq!(code, 1);
    told.printed("judgement", &stdout);
    told.file("run", "reports/s/run.jsonl");
    place.suite("s", &["fake/steady"], &[], build);
    told.answer("judgement", 0, &["run", "./s.toml", "--fresh"]);
    told.answer("spread", 0, &["report", "reports/s", "--spread"]);
    told.answer(
        "timings",
        0,
        &["report", "reports/s", "--timings", "t.html"],
    );
    told.answer("baseline-saved", 0, &["baseline", "save", "s"]);
    told.answer("baselines", 0, &["baseline", "list"]);
    told.answer("baseline-shown", 0, &["baseline", "show", "s"]);
    let baseline = place
        .baseline()
        .strip_prefix(place.path())
        .unwrap()
        .to_owned();
    told.file("baseline", &baseline.to_string_lossy());
    told.answer(
        "history-added",
        0,
        &["history", "add", "reports/s", "--at", "2026-05-01"],
    );
    told.answer("histories", 0, &["history", "list"]);
    told.answer("histories", 0, &["history", "list", "s"]);
    let words = format!("command = [{:?}", fake_worker());
    place.edit("s.toml", &words, &format!("{words}, \"--slower\", \"30\""));
    let (code, stdout, _) = place.ran(&["gate", "./s.toml", "--baseline", "s", "--json"]);
    assert_eq!(code, 1, "{stdout}");
    told.printed("judgement", &stdout);
    told.file("run", "reports/s/run.jsonl");
    told.answer("judgement", 1, &["diff", "s", "reports/s"]);
    told.answer(
        "history-added",
        0,
        &["history", "add", "reports/s", "--at", "2026-05-02"],
    );
    told.answer("history-shown", 0, &["history", "s"]);
    let history = fs::read_dir(place.path().join("history/s"))
        .unwrap()
        .flatten()
        .next();
    let history = history.unwrap().path();
    told.file(
        "history",
        &history
            .strip_prefix(place.path())
            .unwrap()
            .to_string_lossy(),
    );
    told.answer("baseline-removed", 0, &["baseline", "remove", "s"]);
    fit(&place, &told.all);
}

#[test]
fn what_this_machine_can_do_and_what_is_begun_fits() {
    let place = Place::new();
    let mut told = Documents::of(&place);
    let (_, stdout, _) = place.ran(&["doctor", "--json"]);
    told.printed("doctor", &stdout);
    told.answer("variants", 0, &["list"]);
    told.answer("schemas", 0, &["schema"]);
    told.answer("begun", 0, &["init", "--ci", "none"]);
    told.file("suite", "speed.toml");
    told.answer("baselines", 0, &["baseline", "list"]);
    // The fake one has variants that hang.
    let worker = fake_worker()
        .with_file_name("naive-worker")
        .display()
        .to_string();
    let (_, stdout, _) = place.ran(&["worker", "check", "--json", "--", &worker]);
    told.printed("checked", &stdout);
    told.answer("verdicts-histories", 0, &["verdicts", "--histories", "1"]);
    told.answer(
        "verdicts",
        0,
        &["verdicts", "--sweeps", "1", "--noise", "quiet"],
    );
    place.write("report.md", "fine\n");
    let request = [
        "comment",
        "report.md",
        "--key",
        "s",
        "--dry-run",
        "--repository",
        "a/b",
        "--number",
        "1",
    ];
    told.answer("comment", 0, &request);
    fit(&place, &told.all);
}

#[test]
fn what_a_history_says_fits() {
    let place = Place::new();
    let kept = place.path().join("history/jax-sdpa");
    fs::create_dir_all(&kept).unwrap();
    let name = "amd-epyc-2c.jsonl";
    let sample = root().join("reports/samples/history-jax").join(name);
    fs::copy(sample, kept.join(name)).unwrap();
    let (stdout, _) = exits!(
        place,
        0,
        ["history", "jax-sdpa", "--since", "2026-08-01", "--json"]
    );
    let said: Value = serde_json::from_str(&stdout).unwrap();
    assert_ne!(said["events"], Value::Array(Vec::new()), "{said}");
    let mut told = Documents::of(&place);
    told.printed("history-shown", &stdout);
    told.answer("histories", 0, &["history", "list", "jax-sdpa"]);
    fit(&place, &told.all);
}

#[test]
fn a_bisect_and_what_was_tried_fit() {
    let place = Place::new();
    place.checkout();
    for (number, percent) in [0, 0, 30, 30].into_iter().enumerate() {
        let worker = fake_worker().display().to_string();
        let script = format!(
            "mkdir -p made\necho 'exec {worker} --slower {percent} \"$@\"' > made/serve.sh\n# {number}\n"
        );
        place.write("build.sh", &script);
        place.git(&["add", "-A"]);
        place.git(&["commit", "-q", "-m", &format!("Change number {number}")]);
        place.git(&["tag", &format!("c{number}")]);
    }
    let mut told = Documents::of(&place);
    let asked = ["bisect", "./s.toml", "--filter", "s32,d16,bwd"];
    let ends = ["--good", "git:c0", "--bad", "git:c3"];
    told.answer("bisected", 0, &[&asked[..], &ends].concat());
    told.file("bisect", "reports/s-bisect/bisect.jsonl");
    let compare = [
        "compare", "./s.toml", "--base", "git:c1", "--head", "git:c2",
    ];
    told.answer("judgement", 1, &compare);
    fit(&place, &told.all);
}

#[test]
fn traces_and_recordings_fit() {
    let place = Place::new();
    place.write("7-5.jsonl", RECORDING);
    let mut told = Documents::of(&place);
    told.file("recording", "7-5.jsonl");
    for name in ["base", "head"] {
        let out = format!("{name}.trace");
        let script = "cp 7-5.jsonl \"$REGATTA_TRACE/7-5.jsonl\"";
        let words = ["trace", "--out", &out, "--json", "--", "sh", "-c", script];
        let (stdout, _) = exits!(place, 0, words);
        told.printed("traced", &stdout);
        told.file("trace", &out);
    }
    told.answer("traces", 0, &["diff", "base.trace", "head.trace"]);
    fit(&place, &told.all);
}

const RECORDING: &str = r#"{"kind":"process","pid":7,"ppid":1,"argv":["p"],"start":1000,"cupti":"13.0"}
{"kind":"device","ordinal":0,"name":"NVIDIA H200","sms":132,"capability":"9.0"}
{"kind":"name","id":1,"name":"flash_bwd(Params)"}
{"kind":"copy","direction":"HtoD","bytes":64,"start_ns":1100000,"end_ns":1101000,"stream":7,"device":0}
{"kind":"set","bytes":64,"start_ns":1102000,"end_ns":1103000,"stream":7,"device":0}
{"kind":"kernel","name":1,"start_ns":1200000,"end_ns":1300000,"grid":[157,1,1],"block":[128,1,1],"registers":168,"shared_bytes":65536,"local_bytes":0,"stream":7,"device":0,"launched_ns":1190000,"launch_ns":3000}
{"kind":"calls","at":1400000,"counts":{"launches":1}}
{"kind":"problem","text":"something was not recorded"}
{"kind":"dropped","records":2}
{"kind":"end","at":1500000}
"#;

/// Runs that were measured before a copy's `direction` had this name. They are read, as older
/// traces are, and a schema is of what is written.
const OLDER: [&str; 5] = [
    "backend-selection",
    "backend-selection-alternating",
    "backend-selection-before-2.1",
    "sequence-parallel",
    "sequence-parallel-fused",
];

#[test]
fn what_is_kept_here_fits() {
    let place = Place::new();
    let mut all = Vec::new();
    let mut add = |schema: &str, files: Vec<PathBuf>| {
        assert!(!files.is_empty(), "{schema}");
        all.extend(files.into_iter().map(|path| (schema.to_owned(), path)));
    };
    let ending = |folder: &str, ending: &str| {
        let mut found = Vec::new();
        below(&root().join(folder), ending, &mut found);
        found
    };
    let mut runs = found(&root().join("reports/samples"), "run.jsonl");
    runs.retain(|path| {
        let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
        // The largest take seconds, and say nothing that the others do not.
        let small = fs::metadata(path).unwrap().len() < 300_000 || folder == "timings";
        small && !OLDER.iter().any(|name| folder == *name)
    });
    add("run", runs);
    add("baseline", ending("baselines", ".jsonl"));
    add("calibration", ending("baselines", ".calibration.json"));
    add("history", ending("reports/samples/history-jax", ".jsonl"));
    add(
        "bisect",
        ending("reports/samples/bisect-jax", "bisect.jsonl"),
    );
    add("ledger", ending("kernels/ledger", ".jsonl"));
    add("suite", ending("suites", ".toml"));
    // A launch contract has the name of the CUDA file that it lies beside.
    let examples = ending("examples", ".toml").into_iter();
    let examples = examples.filter(|path| !path.ends_with("ruff.toml"));
    let (contracts, suites) = examples.partition(|path| path.with_extension("cu").is_file());
    add("contract", contracts);
    add("suite", suites);
    fit(&place, &all);
}
