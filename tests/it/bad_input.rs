//! What users get wrong: a clear message, exit code 2, nothing measured, nothing
//! written over.

use crate::common::Place;

#[test]
fn an_unknown_suite_variant_parameter_or_worker_names_the_nearest() {
    let place = Place::new();
    let (_, stderr) = exits!(place, 2, ["run", "quik"]);
    assert!(stderr.contains("did you mean `quick`?"), "{stderr}");

    place.suite("typo", &["fake/staedy"], &[], "");
    let (_, stderr) = exits!(place, 2, ["run", "./typo.toml"]);
    assert!(stderr.contains("did you mean `fake/steady`?"), "{stderr}");

    place.suite(
        "typo",
        &["fake/steady"],
        &[],
        "params = { num_split_key = 1 }\n",
    );
    let (_, stderr) = exits!(place, 2, ["run", "./typo.toml"]);
    assert!(
        stderr.contains("did you mean `num_splits_key`?"),
        "{stderr}"
    );

    place.suite(
        "typo",
        &["fake/steady"],
        &[],
        "params = { num_splits_key = \"many\" }\n",
    );
    let (_, stderr) = exits!(place, 2, ["run", "./typo.toml"]);
    assert!(
        stderr.contains("num_splits_key = many is not possible"),
        "{stderr}"
    );

    place.suite("typo", &["fke/steady"], &[], "");
    let (_, stderr) = exits!(place, 2, ["run", "./typo.toml"]);
    assert!(stderr.contains("did you mean `fake`?"), "{stderr}");

    place.suite("typo", &["fake/steady@old"], &[], "");
    let (_, stderr) = exits!(place, 2, ["run", "./typo.toml"]);
    assert!(stderr.contains("[environments.old]"), "{stderr}");
    assert!(!place.path().join("reports/typo/run.jsonl").exists());
}

#[test]
fn a_malformed_suite_names_file_line_key_and_value() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "maks = \"causal\"\n");
    let (_, stderr) = exits!(place, 2, ["run", "./s.toml"]);
    assert!(
        stderr
            .contains("./s.toml:15: sweep[0].maks = \"causal\": unknown key; did you mean `mask`?"),
        "{stderr}"
    );
}

#[test]
fn a_shape_that_does_not_fit_is_found_before_measuring() {
    let place = Place::new();
    place.suite(
        "s",
        &["fake/steady"],
        &[],
        "heads = [1, 1048576]\nbatch = 64\n",
    );
    let (_, stderr) = exits!(place, 2, ["run", "./s.toml"]);
    assert!(stderr.contains("GiB for its tensors"), "{stderr}");
    assert!(stderr.contains("fake device has 1.0 GiB"), "{stderr}");
}

#[test]
fn a_worker_that_does_not_come_up_is_found_before_measuring() {
    let place = Place::new();
    for (start, says) in [
        ("exit", "cannot find libattention.so.9"),
        ("garbage", "Welcome to libattention 9!"),
        ("version", "speaks protocol 2, this regatta 1"),
    ] {
        place.suite("s", &["fake/steady"], &["--start", start], "");
        let (_, stderr) = exits!(place, 2, ["run", "./s.toml"]);
        assert!(stderr.contains(says), "{start}: {stderr}");
    }
    place.write(
        "s.toml",
        "description = \"d\"\n[workers]\ngone = [\"./no-such-worker\"]\n\
         [[sweep]]\nvariants = \"gone/x\"\nseq = 16\nhead_dim = 16\n",
    );
    let (_, stderr) = exits!(place, 2, ["run", "./s.toml"]);
    assert!(stderr.contains("cannot start ./no-such-worker"), "{stderr}");
    assert!(stderr.contains("see `gone` in [workers]"), "{stderr}");
}

#[test]
fn a_report_that_cannot_be_written_is_found_before_measuring() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    place.write("reports", "a file where the folder should be");
    let (_, stderr) = exits!(place, 2, ["run", "./s.toml"]);
    assert!(stderr.contains("reports"), "{stderr}");
    let text = std::fs::read_to_string(place.path().join("reports")).unwrap();
    assert_eq!(text, "a file where the folder should be");
}

#[test]
fn files_that_are_no_runs_are_refused() {
    let place = Place::new();
    place.write("notes.jsonl", "hello\n");
    place.write(
        "other.jsonl",
        "{\"kind\":\"run\",\"schema\":9,\"sum\":\"00000000\"}\n",
    );
    let (_, stderr) = exits!(place, 2, ["report", "nothing"]);
    assert!(stderr.contains("nothing is neither"), "{stderr}");
    let (_, stderr) = exits!(place, 2, ["diff", "notes.jsonl", "notes.jsonl"]);
    assert!(stderr.contains("notes.jsonl:1"), "{stderr}");
    let (_, stderr) = exits!(place, 2, ["report", "other.jsonl"]);
    assert!(
        stderr.contains("its schema is 9, this regatta reads 3"),
        "{stderr}"
    );
}

#[test]
fn usage_errors_exit_2() {
    let place = Place::new();
    exits!(place, 2, ["run"]);
    exits!(place, 2, ["race", "quick"]);
    exits!(place, 2, ["baseline", "list", "../../etc"]);
    exits!(place, 2, ["baseline", "remove", "nothing"]);
}

#[test]
fn suites_that_extend_each_other_are_refused() {
    let place = Place::new();
    let suite = |base: &str| format!("description = \"d\"\nextends = \"{base}\"\n");
    place.write("a.toml", &suite("b"));
    place.write("b.toml", &suite("a.toml"));
    let (_, stderr) = exits!(place, 2, ["list", "./a.toml"]);
    assert!(stderr.contains("in a circle"), "{stderr}");
    // A file may carry the name of the built-in suite it extends.
    place.write("quick.toml", &suite("quick"));
    exits!(place, 0, ["list", "./quick.toml"]);
}

#[test]
fn reports_never_replace_a_run_a_device_or_each_other() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    exits!(place, 0, ["run", "./s.toml"]);
    let run = "reports/s/run.jsonl";
    let before = std::fs::read(place.path().join(run)).unwrap();
    let (_, stderr) = exits!(
        place,
        2,
        ["report", "reports/s", "--output", &format!("html={run}")]
    );
    assert!(stderr.contains("never replace"), "{stderr}");
    assert_eq!(std::fs::read(place.path().join(run)).unwrap(), before);
    exits!(
        place,
        2,
        [
            "report",
            "reports/s",
            "--output",
            "html=x",
            "--output",
            "markdown=x"
        ]
    );
    let target = place.path().join("target.html");
    std::fs::write(&target, "").unwrap();
    let link = place.path().join("link.html");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    exits!(
        place,
        0,
        ["report", "reports/s", "--output", "html=link.html"]
    );
    assert!(link.is_symlink());
    assert!(std::fs::read_to_string(&target).unwrap().contains("<html"));
    exits!(
        place,
        0,
        ["report", "reports/s", "--output", "html=/dev/null"]
    );
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn more_cases_than_anyone_means_are_refused() {
    let place = Place::new();
    let many: Vec<String> = (1..200).map(|n| n.to_string()).collect();
    let many = many.join(", ");
    place.write(
        "s.toml",
        &format!(
            "description = \"d\"\n[[sweep]]\nvariants = \"cpu/flash\"\n\
             batch = [{many}]\nheads = [{many}]\nseq = [{many}]\nhead_dim = [{many}]\n"
        ),
    );
    let (_, stderr) = exits!(place, 2, ["list", "./s.toml"]);
    assert!(stderr.contains("s.toml:2: sweep[0]"), "{stderr}");
}

#[test]
fn an_override_that_replaces_nothing_is_refused() {
    let place = Place::new();
    place.suite(
        "s",
        &["fake/steady"],
        &[],
        "params = { num_splits_key = [1, 2] }\n",
    );
    let set = "fake/steady.num_splits_key=8";
    let (_, stderr) = exits!(place, 2, ["run", "./s.toml", "--set", set]);
    assert!(stderr.contains("replaces nothing"), "{stderr}");
}

#[test]
fn what_is_gone_is_refused_by_name_with_what_stands_in_its_place() {
    let place = Place::new();
    for (words, told) in [
        (&["schema", "run"][..], "docs/schemas"),
        (&["env", "list"], "regatta env"),
        (&["history", "list"], "regatta history --list"),
        (&["baseline", "show", "s"], "regatta baseline list NAME"),
        (&["run", "quick", "--html", "x"], "--output html=PATH"),
        (&["diff", "a", "b", "--asv=x"], "--output bencher=PATH"),
        (&["gate", "quick", "--peak"], "--set peak=true"),
        (&["gate", "quick", "--fresh"], "--no-resume"),
        (&["build", "--fresh"], "--no-cache"),
        (&["build", "--against", "x"], "--baseline FILE"),
        (&["doctor", "--ruler"], "--check-clocks"),
        (&["report", "x", "--spread"], "--noise"),
    ] {
        let (_, stderr) = exits!(place, 2, words);
        assert!(stderr.contains("is gone; in its place: "), "{stderr}");
        assert!(stderr.contains(told), "{words:?}: {stderr}");
    }
    let sweep = "[[sweep]]\nvariants = \"cpu/flash\"\nseq = 8\nhead_dim = 8\n";
    for (keys, told) in [
        ("schema = 1", "leave it out"),
        ("measure.warmup = 2", "leave it out"),
        ("policy.floor = 0.02", "threshold = { device = 0.02"),
        ("policy.structure.fill = \"warn\"", "ignore = [\"launches\""),
        ("override = []", "num_splits_key = { auto = -1 }"),
        ("limit = []", "[[expect]] with metric"),
        (
            "build = { command = [\"a\"], serves = \"a\" }",
            "whose name is regatta",
        ),
        (
            "environments.old.interpreter = \"python\"",
            "python = \"PATH\"",
        ),
        (
            "workers.mine.python = \"a.py\"",
            "workers.mine = \"bench.py:attention\"",
        ),
    ] {
        place.write("s.toml", &format!("{keys}\n{sweep}"));
        let (_, stderr) = exits!(place, 2, ["list", "./s.toml"]);
        let key = keys.split(" =").next().unwrap();
        assert!(stderr.contains("error: ./s.toml:1: "), "{key}: {stderr}");
        assert!(
            stderr.contains("is gone; in its place: "),
            "{key}: {stderr}"
        );
        assert!(stderr.contains(told), "{key}: {stderr}");
    }
}
