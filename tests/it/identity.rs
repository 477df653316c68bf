//! A run is of one code, and what is compared is alike: what its times depend on is watched.

use std::fs;

use crate::common::Place;

/// Leaves of a run its first ten lines, as if it had been stopped there.
fn cut(place: &Place) {
    let path = place.path().join("reports/s/run.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let lines = text.lines().take(10);
    let first: String = lines.map(|line| format!("{line}\n")).collect();
    fs::write(&path, first).unwrap();
}

#[test]
fn a_run_of_two_codes_is_no_run() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &["--seed", "1"], "");
    let stopped = || {
        exits!(place, 0, ["run", "./s.toml", "--no-resume"]);
        cut(&place);
    };
    let resumes = |why: &str| {
        let (_, stderr) = exits!(place, 0, ["run", "./s.toml"]);
        match why {
            "" => assert!(stderr.contains("resuming: 9 entries"), "{stderr}"),
            why => {
                assert!(stderr.contains("starting a new run"), "{stderr}");
                assert!(stderr.contains(why), "{stderr}");
            }
        }
    };
    stopped();
    resumes("");
    stopped();
    place.edit("s.toml", "\"--seed\", \"1\"", "\"--seed\", \"2\"");
    resumes("the command of worker fake was");
    place.script("");
    stopped();
    resumes("");
    stopped();
    place.edit("worker.sh", "exec", "true\nexec");
    resumes("worker.sh of worker fake changed");
    stopped();
    for (name, words) in [
        ("OMP_NUM_THREADS", "OMP_NUM_THREADS of worker fake was"),
        ("DNNL_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA of worker fake was"),
        ("PYTHONMALLOC", "PYTHONMALLOC of worker fake was"),
        (
            "MYLIB_SCALE",
            "an environment variable of the caller changed",
        ),
        ("SSH_CONNECTION", "resuming: 9 entries"),
    ] {
        stopped();
        let (_, _, stderr) = place.ran_with(&["run", "./s.toml"], &[(name, "3")]);
        assert!(stderr.contains(words), "{name}: {stderr}");
    }
    stopped();
    place.edit(
        "s.toml",
        "[workers]",
        "[environments.fake]\nenv = { MYLIB_SCALE = \"1.5\" }\n[workers]",
    );
    resumes("MYLIB_SCALE of worker fake was");
    // A library that lies outside, as an editable install has it.
    let library = Place::new();
    library.write("lib.txt", "0");
    let loads = format!(
        "export FAKE_LOADS={}/lib.txt\nexec",
        library.path().display()
    );
    place.edit("worker.sh", "exec", &loads);
    stopped();
    resumes("");
    stopped();
    library.write("lib.txt", "50");
    resumes("lib.txt of worker fake changed");
}

#[test]
fn another_revision_or_other_changes_begin_a_run_anew() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    place.write("kernel.cu", "fast");
    place.git(&["init", "-q"]);
    place.git(&["add", "kernel.cu", "s.toml"]);
    place.git(&["commit", "-qm", "one"]);
    exits!(place, 0, ["run", "./s.toml"]);
    cut(&place);
    let (_, stderr) = exits!(place, 0, ["run", "./s.toml"]);
    assert!(stderr.contains("resuming"), "{stderr}");
    for (what, why) in [
        (
            "changed",
            "the uncommitted changes of the checkout are others",
        ),
        (
            "untracked",
            "the uncommitted changes of the checkout are others",
        ),
        ("committed", "the revision was"),
    ] {
        cut(&place);
        match what {
            "changed" => place.write("kernel.cu", "slow"),
            "untracked" => place.write("other.cu", "new"),
            _ => drop(place.git(&["commit", "-qam", "two"])),
        }
        let (_, stderr) = exits!(place, 0, ["run", "./s.toml"]);
        assert!(stderr.contains(why), "{what}: {stderr}");
    }
}

#[test]
fn each_invocation_is_held_to_the_worker_that_the_run_began_with() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    place.script("if [ $n = 3 ]; then set -- --release 2.0; fi");
    let (stdout, _) = exits!(place, 3, ["run", "./s.toml"]);
    assert!(stdout.contains("version fake 1.0 → 2.0"), "{stdout}");
    exits!(place, 3, ["baseline", "save", "s", "reports/s"]);
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    place.script("if [ $n = 3 ]; then set -- --start absent; fi");
    let (stdout, _) = exits!(place, 3, ["run", "./s.toml"]);
    assert!(stdout.contains("present → absent"), "{stdout}");
}

#[test]
fn variables_that_decide_speed_are_part_of_what_is_compared() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    let run = |args: &[&str], threads: &str| {
        let mut regatta = place.regatta(args);
        let output = regatta
            .env("OPENBLAS_NUM_THREADS", threads)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), text)
    };
    assert_eq!(run(&["run", "./s.toml"], "1").0, 0);
    exits!(place, 0, ["baseline", "save", "s"]);
    assert_eq!(run(&["gate", "./s.toml"], "1").0, 0);
    let (code, stderr) = run(&["gate", "./s.toml"], "2");
    assert_eq!(code, 3, "{stderr}");
    assert!(
        stderr.contains("fake.environment.OPENBLAS_NUM_THREADS: 1 there, 2 here"),
        "{stderr}"
    );
}
