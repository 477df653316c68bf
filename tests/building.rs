//! What building takes: of a suite's `[build]`, and of an environment that compiles.

use std::fs;
use std::path::{Path, PathBuf};
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
    assert!(stdout.contains("makes 6 B"), "{stdout}");
    assert!(stdout.contains(" busy of "), "{stdout}");
    assert!(stderr.contains("building: sh -c mkdir"), "{stderr}");
    exits!(place, 0, ["run", "./s.toml"]);
    let built = place.run("s").header.built;
    assert_eq!(built["suite"].made_bytes.unwrap().0, 6);
    assert!(built["suite"].cores > 0);
    // Another file in its place was built by nobody knows what.
    place.write("out/x", "other");
    exits!(place, 0, ["run", "./s.toml", "--fresh"]);
    assert!(place.run("s").header.built.is_empty());
}

#[test]
fn a_build_that_leaves_all_as_it_was_is_no_build() {
    let place = Place::new();
    let limit = "[[limit]]\nname = \"never\"\ncount = \"build_seconds\"\nat_most = 0\n";
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
    assert!(stdout.contains("build_seconds is "), "{stdout}{stderr}");
}

#[test]
fn a_limit_on_a_build_is_held_with_its_cause_and_against_nothing_is_not_judged() {
    let place = Place::new();
    let limits = "[[limit]]\nname = \"built in a day\"\ncount = \"build_seconds\"\n\
                  at_most = 86400\n\
                  [[limit]]\nname = \"a thousand cores busy\"\ncount = \"build_cores\"\n\
                  at_least = 1000\n";
    builds(&place, MAKE, limits);
    let (stdout, _) = exits!(place, 3, ["run", "./s.toml"]);
    assert!(stdout.contains("regatta build SUITE"), "{stdout}");
    let (stdout, _) = exits!(place, 1, ["build", "./s.toml"]);
    assert!(
        stdout.contains("broken a thousand cores busy: build_cores is"),
        "{stdout}"
    );
    assert!(!stdout.contains("built in a day"), "{stdout}");
    let (stdout, _) = exits!(place, 1, ["run", "./s.toml", "--json"]);
    let answer = json(&stdout);
    let limits = answer["limits"].as_array().unwrap();
    let of = |name: &str| limits.iter().find(|limit| limit["name"] == name).unwrap();
    assert_eq!(of("built in a day")["held"], "yes");
    assert_eq!(of("built in a day")["built"], "suite");
    assert_eq!(of("built in a day")["case"], Value::Null);
    assert_eq!(of("a thousand cores busy")["held"], "broken");
    let cores = of("a thousand cores busy")["reason"].as_str().unwrap();
    assert!(cores.contains("busy of"), "{cores}");
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
    builds(&place, "sleep 1000", "");
    place.edit("s.toml", "makes =", "timeout_s = 1\nmakes =");
    let (_, stderr) = exits!(place, 1, ["build", "./s.toml"]);
    assert!(stderr.contains("was ended after its 1 s"), "{stderr}");
    place.edit("s.toml", "\"sh\", \"-c\"", "\"./no-such\", \"-c\"");
    let (_, stderr) = exits!(place, 2, ["build", "./s.toml"]);
    assert!(stderr.contains("s.toml:"), "{stderr}");
    assert!(stderr.contains("cannot start ./no-such"), "{stderr}");
    let (_, stderr) = exits!(place, 2, ["build", "quick"]);
    assert!(stderr.contains("suite quick has no [build]"), "{stderr}");
    let (_, stderr) = exits!(place, 2, ["build", "./s.toml", "naive"]);
    assert!(stderr.contains("another file is of kernels"), "{stderr}");
    let case = "[[limit]]\nname = \"n\"\ncase = { dtype = \"f32\" }\n\
                count = \"build_seconds\"\nat_most = 1\n";
    builds(&place, MAKE, case);
    let (_, stderr) = exits!(place, 2, ["build", "./s.toml"]);
    assert!(stderr.contains("leave `case` out"), "{stderr}");
}

#[test]
fn processor_time_is_that_of_all_a_build_starts_orphans_too() {
    let place = Place::new();
    // The one that works has lost its parent; the build waits for its file alone.
    let worked = "(setsid sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; \
                  echo done > worked' &) ; while [ ! -s worked ]; do sleep 0.05; done; \
                  mkdir -p out; echo x > out/x; sleep 0.3";
    builds(&place, worked, "");
    let (stdout, _) = exits!(place, 0, ["build", "./s.toml", "--json"]);
    let cpu = json(&stdout)["built"]["cpu_ns"].as_f64().unwrap();
    // Counting so far takes any shell more than a tick of the clock.
    assert!(cpu >= 50e6, "{stdout}");
}

/// The package that builds a C++ extension, as an sdist in `wheels/` beside what building it
/// needs, and a folder with ninja; `None`, said in words, where these cannot be fetched.
fn fleet(place: &Place) -> Option<PathBuf> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/packages/fleet");
    let wheels = place.path().join("wheels");
    fs::create_dir_all(&wheels).unwrap();
    let script = "import sys, tarfile\n\
                  with tarfile.open(sys.argv[2] + '/fleet-1.0.tar.gz', 'w:gz') as sdist:\n\
                  \x20   sdist.add(sys.argv[1], 'fleet-1.0')\n";
    let python = |arguments: &[&str]| {
        let status = Command::new("python3").args(arguments).status();
        status.is_ok_and(|status| status.success())
    };
    let (package, wheels) = (package.display().to_string(), wheels.display().to_string());
    assert!(python(&["-c", script, &package, &wheels]));
    let tools = place.path().join("tools");
    let quietly = ["-m", "pip", "--disable-pip-version-check", "-q"];
    let folder = tools.display().to_string();
    let download = ["download", "--no-deps", "setuptools==80.9.0", "-d", &wheels];
    let install = ["install", "--target", &folder, "ninja==1.13.0"];
    let there =
        python(&[&quietly[..], &download].concat()) && python(&[&quietly[..], &install].concat());
    if !there {
        eprintln!("not run: setuptools and ninja cannot be fetched from the index of packages");
        return None;
    }
    if !Command::new("c++")
        .arg("--version")
        .output()
        .is_ok_and(|c| c.status.success())
    {
        eprintln!("not run: there is no C++ compiler");
        return None;
    }
    Some(tools.join("bin"))
}

#[test]
fn an_extension_built_without_ninja_says_so() {
    let place = Place::new();
    let Some(ninja) = fleet(&place) else { return };
    place.write(
        "regatta.toml",
        "[environments.fleet]\nrequirements = [\"fleet==1.0\"]\nwheels = \"wheels\"\n",
    );
    let path = std::env::var("PATH").unwrap();
    let make = |path: String| {
        let mut command = place.regatta(&["env", "make", "fleet", "--fresh", "--json"]);
        let command = command.env("PATH", path).env("PIP_NO_CACHE_DIR", "1");
        let output = command.env_remove("MAX_JOBS").output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        let answer = json(&String::from_utf8_lossy(&output.stdout));
        eprintln!("{}", answer["built"]);
        answer
    };
    let with = make(format!("{}:{path}", ninja.display()));
    assert_eq!(with["built"]["because"], Value::Null, "{}", with["built"]);
    assert!(with["built"]["made_bytes"].as_u64().unwrap() > 1000);
    let folders = std::env::split_paths(&path);
    let bare = std::env::join_paths(folders.filter(|at| !at.join("ninja").exists())).unwrap();
    let without = make(bare.into_string().unwrap());
    let built = &without["built"];
    assert!(built["peak_bytes"].as_u64().unwrap() > 1000, "{built}");
    if built["cores"].as_u64().unwrap() > 1 {
        assert_eq!(built["because"], "ninja is not there", "{built}");
    }

    // A run in it carries what building it took, with its limits.
    place.write(
        "s.toml",
        "schema = 1\ndescription = \"in what was built\"\n\
         [measure]\ninvocations = 1\nsamples = 2\nmin_samples = 2\nbudget_ms = 10\ncache = \"hot\"\n\
         [[sweep]]\nvariants = [\"cpu/naive\", \"jax/xla@fleet\"]\n\
         shapes = [{ seq = 32, head_dim = 16 }]\n\
         [[limit]]\nname = \"built at once\"\ncount = \"build_seconds\"\nat_most = 0\n",
    );
    let (stdout, _) = exits!(place, 1, ["run", "./s.toml"]);
    assert!(
        stdout.contains("the build of environment fleet"),
        "{stdout}"
    );
    let run = place.run("s");
    assert!(run.header.built.contains_key("environment fleet"));
    let (listed, _) = exits!(place, 0, ["env", "make", "fleet"]);
    assert!(listed.contains("built in "), "{listed}");
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
        "[environments.boats]\nrequirements = [\"sloop==1.0\"]\nwheels = \"wheels\"\n",
    );
    let (stdout, _) = exits!(place, 0, ["env", "make", "boats", "--json"]);
    assert_eq!(json(&stdout)["built"], Value::Null);
}
