//! What building takes: of a suite's `[build]`, and of an environment that compiles.

use std::fs;
use std::process::Command;

use crate::common::Place;
use serde_json::Value;

/// A suite on the fake worker that builds `out/x` by this shell script.
fn builds(place: &Place, script: &str, more: &str) {
    place.suite(
        "s",
        &["fake/steady"],
        &[],
        &format!("[build]\ncommand = [\"sh\", \"-c\", {script:?}]\nmakes = [\"out/x\"]\n{more}"),
    );
}

const MAKE: &str = "mkdir -p out && printf 123456 > out/x";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_suites_build_is_measured_and_kept_in_the_runs_of_what_it_made() {
    let place = Place::new();
    builds(&place, MAKE, "");
    let (stdout, stderr) = exits!(place, 0, ["build", "./s.toml"]);
    assert!(stdout.starts_with("s\n  "), "{stdout}");
    assert!(stderr.contains("building: sh -c mkdir"), "{stderr}");
    exits!(place, 0, ["run", "./s.toml"]);
    let built = place.run("s").header.built;
    assert!(built["suite"].wall_ns.0 > 0.0);
    // Another file in its place was built by nobody knows what.
    place.write("out/x", "other");
    exits!(place, 0, ["run", "./s.toml", "--no-resume"]);
    assert!(place.run("s").header.built.is_empty());
}

#[test]
fn a_build_that_leaves_all_as_it_was_is_no_build() {
    let place = Place::new();
    let limit = "[[expect]]\nname = \"never\"\nmetric = \"build_seconds\"\nat_most = 0\n";
    builds(
        &place,
        "test -f out/x || (mkdir -p out && printf 123456 > out/x)",
        limit,
    );
    let (first, _) = exits!(place, 1, ["build", "./s.toml", "--json"]);
    assert_eq!(json(&first)["anew"], true);
    let (second, _) = exits!(place, 0, ["build", "./s.toml", "--json"]);
    assert_eq!(json(&second)["anew"], false);
    // What is kept is still what making it took.
    let (stdout, stderr) = exits!(place, 1, ["run", "./s.toml"]);
    assert!(stdout.contains("at most 0 is allowed"), "{stdout}{stderr}");
}

#[test]
fn what_was_edited_and_not_built_is_not_measured() {
    let place = Place::new();
    let script = "mkdir -p out && cmp -s x.c out/x || cp x.c out/x";
    builds(&place, script, "");
    place.write(".gitignore", "reports\nout\ncache\n");
    place.write("x.c", "fast");
    place.git(&["init", "-q"]);
    place.git(&["add", "-A"]);
    exits!(place, 0, ["build", "./s.toml"]);
    exits!(place, 0, ["run", "./s.toml"]);
    for (name, text, anew) in [
        ("x.c", "slow", true),
        ("new.h", "nobody includes it", false),
    ] {
        place.write(name, text);
        let (_, stderr) = exits!(place, 3, ["run", "./s.toml"]);
        assert!(
            stderr.contains(&format!("{name} changed after [build]")),
            "{stderr}"
        );
        assert!(stderr.contains("regatta build ./s.toml"), "{stderr}");
        let (stdout, _) = exits!(place, 0, ["build", "./s.toml", "--json"]);
        assert_eq!(json(&stdout)["anew"], anew);
        exits!(place, 0, ["run", "./s.toml", "--no-resume"]);
    }
    // A text, a suite and what a run writes are no source.
    place.write("README.md", "more");
    for _ in 0..2 {
        exits!(
            place,
            0,
            ["run", "./s.toml", "--no-resume", "--out", "elsewhere"]
        );
    }
}

#[test]
fn a_limit_on_a_build_is_violated_and_of_no_build_is_missing() {
    let place = Place::new();
    let limits = "[[expect]]\nname = \"built in a day\"\nmetric = \"build_seconds\"\n\
                  at_most = 86400\n\
                  [[expect]]\nname = \"built at once\"\nmetric = \"build_seconds\"\n\
                  at_most = 0\n";
    builds(&place, MAKE, limits);
    let (stdout, _) = exits!(place, 3, ["run", "./s.toml"]);
    assert!(stdout.contains("regatta build SUITE"), "{stdout}");
    let (stdout, _) = exits!(place, 1, ["build", "./s.toml"]);
    assert!(
        stdout.contains("violated built at once: build_seconds is"),
        "{stdout}"
    );
    assert!(!stdout.contains("built in a day"), "{stdout}");
    let (stdout, _) = exits!(place, 1, ["run", "./s.toml", "--json"]);
    let answer = json(&stdout);
    let limits = answer["expectations"].as_array().unwrap();
    let of = |name: &str| limits.iter().find(|limit| limit["name"] == name).unwrap();
    assert_eq!(of("built in a day")["word"], "same");
    assert_eq!(of("built in a day")["built"], "suite");
    assert_eq!(of("built in a day")["case"], Value::Null);
    assert_eq!(of("built at once")["word"], "regressed");
}

#[test]
fn what_does_not_build_is_told_with_its_words() {
    let place = Place::new();
    builds(&place, "echo 'x.cpp:1: error: no' >&2; exit 7", "");
    let (_, stderr) = exits!(place, 1, ["build", "./s.toml"]);
    assert!(stderr.contains("x.cpp:1: error: no"), "{stderr}");
    assert!(stderr.contains("exit status: 7"), "{stderr}");
    builds(&place, "true", "");
    let (_, stderr) = exits!(place, 1, ["build", "./s.toml"]);
    assert!(stderr.contains("did not make ./out/x"), "{stderr}");
    place.edit("s.toml", "\"sh\", \"-c\"", "\"./no-such\", \"-c\"");
    let (_, stderr) = exits!(place, 2, ["build", "./s.toml"]);
    assert!(stderr.contains("s.toml:"), "{stderr}");
    assert!(stderr.contains("cannot start ./no-such"), "{stderr}");
    let (_, stderr) = exits!(place, 2, ["build", "quick"]);
    assert!(stderr.contains("suite quick has no [build]"), "{stderr}");
    let (_, stderr) = exits!(place, 2, ["build", "./s.toml", "naive"]);
    assert!(stderr.contains("another file is of kernels"), "{stderr}");
    let case = "[[expect]]\nname = \"n\"\ncase = { dtype = \"f32\" }\n\
                metric = \"build_seconds\"\nat_most = 1\n";
    builds(&place, MAKE, case);
    let (_, stderr) = exits!(place, 2, ["build", "./s.toml"]);
    assert!(stderr.contains("leave `case` out"), "{stderr}");
}

#[test]
fn wheels_that_are_only_unpacked_are_no_build() {
    let place = Place::new();
    fs::create_dir_all(place.path().join("wheels")).unwrap();
    let script = "import zipfile\n\
                  info = 'sloop-1.0.dist-info'\n\
                  with zipfile.ZipFile('wheels/sloop-1.0-py3-none-any.whl', 'w') as wheel:\n\
                  \x20   wheel.writestr('sloop.py', '')\n\
                  \x20   wheel.writestr(info + '/METADATA', 'Metadata-Version: 2.1\\nName: sloop\\nVersion: 1.0\\n')\n\
                  \x20   wheel.writestr(info + '/WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
                  \x20   wheel.writestr(info + '/RECORD', '')\n";
    let made = Command::new("python3")
        .args(["-c", script])
        .current_dir(place.path())
        .status();
    assert!(made.unwrap().success());
    place.write(
        "regatta.toml",
        "[environments.boats]\nrequirements = [\"sloop==1.0\", \"--no-index\", \"--find-links wheels\"]\n",
    );
    let (stdout, _) = exits!(place, 0, ["env", "make", "boats", "--json"]);
    assert_eq!(json(&stdout)["built"], Value::Null);
}
