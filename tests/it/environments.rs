//! `regatta env`, and workers whose library is not there.

use crate::common::{Place, fake_worker};
use regatta_core::record::types::Outcome;

/// A package of one module, as pip installs it without a network: `pip install FOLDER`
/// would fetch setuptools, so it is a wheel, made here.
fn wheel(place: &Place, name: &str, version: &str) {
    let script = format!(
        "import zipfile\n\
         info = '{name}-{version}.dist-info'\n\
         with zipfile.ZipFile('wheels/{name}-{version}-py3-none-any.whl', 'w') as wheel:\n\
         \x20   wheel.writestr('{name}.py', 'VERSION = \"{version}\"\\n')\n\
         \x20   wheel.writestr(info + '/METADATA', 'Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n')\n\
         \x20   wheel.writestr(info + '/WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
         \x20   wheel.writestr(info + '/RECORD', '')\n"
    );
    std::fs::create_dir_all(place.path().join("wheels")).unwrap();
    let made = std::process::Command::new("python3")
        .args(["-c", &script])
        .current_dir(place.path())
        .status()
        .unwrap();
    assert!(made.success());
}

#[test]
fn an_environment_is_made_from_a_folder_of_wheels() {
    let place = Place::new();
    wheel(&place, "sloop", "1.2");
    place.write(
        "regatta.toml",
        "[environments.torch]\nrequirements = [\"sloop==1.2\", \"--no-index\", \"--find-links wheels\"]\n",
    );
    let regatta = |arguments: &[&str]| place.ran(arguments);
    let (_, listed, _) = regatta(&["env"]);
    assert!(listed.contains("not made"), "{listed}");
    let (code, _, words) = regatta(&["run", "sdpa"]);
    assert_eq!(code, 2);
    assert!(words.contains("regatta env make torch"), "{words}");
    // What one worker lacks is its own matter.
    let (code, listed, words) = regatta(&["list", "--json"]);
    assert_eq!(code, 0, "{words}");
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let of = |name: &str| {
        let mut workers = listed["workers"].as_array().unwrap().iter();
        workers.find(|worker| worker["worker"] == name).unwrap()
    };
    assert!(of("cpu")["hello"].is_object(), "{listed:#}");
    let reason = of("torch")["unavailable"].as_str().unwrap();
    assert!(reason.contains("regatta env make torch"), "{reason}");

    // A suite's environments are meant beside those of regatta.toml.
    place.suite(
        "s",
        &["fake/steady"],
        &[],
        "[environments.own]\npython = \"python3\"\n",
    );
    let (_, listed, words) = regatta(&["env", "--suite", "./s.toml"]);
    assert!(
        listed.contains("own: ") && listed.contains("torch: "),
        "{listed}{words}"
    );

    let (code, made, words) = regatta(&["env", "make", "torch"]);
    assert_eq!(code, 0, "{words}");
    assert!(made.contains("packages"), "{made}");
    let (_, lock, _) = regatta(&["env", "torch"]);
    assert!(lock.lines().any(|line| line == "sloop==1.2"), "{lock}");
    let (_, listed, _) = regatta(&["env"]);
    assert!(
        listed.contains("made") && !listed.contains("not made"),
        "{listed}"
    );

    // The worker runs in it, and has no torch there.
    let (code, _, words) = regatta(&["run", "sdpa", "--filter", "torch/sdpa-math"]);
    assert_eq!(code, 2);
    assert!(
        words.contains("environments/torch-") && words.contains("torch"),
        "{words}"
    );
}

#[test]
fn what_cannot_be_made_is_said() {
    let place = Place::new();
    for (requirements, words) in [
        ("[\"sloop\"]", "`sloop` is not pinned"),
        ("\"none.txt\"", "none.txt cannot be read"),
    ] {
        place.write(
            "regatta.toml",
            &format!("[environments.boats]\nrequirements = {requirements}\n"),
        );
        let (_, stderr) = exits!(place, 2, ["env"]);
        assert!(stderr.contains(words), "{stderr}");
    }
    place.write(
        "regatta.toml",
        "[environments.boats]\nrequirements = [\"sloop==9\", \"--no-index\", \"--find-links wheels\"]\n\
         [environments.plain]\npython = \"python3\"\n",
    );
    for (name, words) in [
        ("boats", "installing its requirements failed"),
        ("plain", "is used as it is"),
        ("boat", "did you mean `boats`?"),
    ] {
        let (_, stderr) = exits!(place, 2, ["env", "make", name]);
        assert!(stderr.contains(words), "{stderr}");
    }
}

#[test]
fn a_missing_library_beside_others_is_unsupported_in_words() {
    let place = Place::new();
    place.write(
        "both.toml",
        "description = \"two workers\"\n\
         [measure]\ninvocations = 1\nsamples = 2\nbudget_ms = 10\ncache = \"hot\"\n\
         [environments.jax]\npython = \"python3\"\nenv = { PYTHONNOUSERSITE = \"1\" }\n\
         paths = [\"hidden\"]\n\
         [[sweep]]\nvariants = [\"cpu/naive\", \"jax/xla\"]\nshapes = [{ seq = 32, head_dim = 16 }]\n",
    );
    // Whatever is installed here, this is the jax that is found.
    std::fs::create_dir_all(place.path().join("hidden")).unwrap();
    place.write(
        "hidden/jax.py",
        "raise ImportError('no jax here', name='jax')\n",
    );
    let (_, _, stderr) = place.ran(&["run", "./both.toml"]);
    let run = place.run("both");
    let of = |worker: &str| {
        let entry = run
            .entries
            .iter()
            .find(|entry| entry.case.0.starts_with(worker));
        entry
            .unwrap_or_else(|| panic!("{worker}: {stderr}"))
            .outcome
            .clone()
    };
    assert!(matches!(of("cpu/"), Outcome::Measured(_)));
    match of("jax/") {
        Outcome::Unsupported { reason } => assert!(reason.contains("pip install"), "{reason}"),
        other => panic!("{other:?}"),
    }
    // What took no time is no part of what times are compared by.
    let workers = run.header.workers.iter();
    let workers: Vec<&str> = workers.map(|worker| worker.name.as_str()).collect();
    assert_eq!(workers, ["cpu"]);
    assert!(run.header.machine.hard.contains_key("cpu"));
}

#[test]
fn a_library_that_went_away_leaves_the_others_comparable() {
    let place = Place::new();
    let other = |start: &str| {
        let worker = fake_worker().display().to_string();
        let sweep = "[[sweep]]\nvariants = [\"other/steady\"]\nseq = [32]\nhead_dim = 16\n";
        place.suite("s", &["fake/steady"], &[], sweep);
        let own = format!("[workers]\nother = [{worker:?}{start}]\n");
        place.edit("s.toml", "[workers]\n", &own);
    };
    other("");
    exits!(place, 0, ["run", "./s.toml"]);
    exits!(place, 0, ["baseline", "save", "s"]);
    let gone = ", \"--start\", \"absent\"";
    other(gone);
    let slower = ["--set", "fake/steady.slower_percent=30"];
    let (stdout, stderr) = exits!(place, 1, ["gate", "./s.toml", slower[0], slower[1]]);
    assert!(stdout.contains("fake/steady:"), "{stdout}{stderr}");
    assert!(!stdout.contains("not comparable"), "{stdout}{stderr}");
}

#[test]
fn a_suite_that_sets_variables_leaves_the_interpreter_to_the_user() {
    let place = Place::new();
    place.write("mine.toml", "description = \"variables\"\n[environments.default]\nenv = { A = \"1\" }\n[[sweep]]\nvariants = [\"jax/xla\"]\nshapes = [{ seq = 32, head_dim = 16 }]\n");
    place.write(
        "regatta.toml",
        "[environments.default]\npython = \"/no/such/python\"\n",
    );
    let (_, stderr) = exits!(place, 2, ["run", "./mine.toml"]);
    assert!(stderr.contains("/no/such/python"), "{stderr}");
}

#[test]
fn no_environment_is_made_outside_the_cache() {
    let place = Place::new();
    for name in ["a/../../../b", "/elsewhere/b"] {
        place.write(
            "regatta.toml",
            &format!("[environments.{name:?}]\nrequirements = [\"sloop==1\"]\n"),
        );
        let (_, stderr) = exits!(place, 2, ["env", "make", name]);
        assert!(stderr.contains("letters, digits"), "{stderr}");
        exits!(place, 2, ["env"]);
    }
    let made = std::fs::read_dir(place.path().join("cache/regatta"));
    assert_eq!(made.map_or(0, Iterator::count), 0);
}
