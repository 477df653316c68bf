//! `regatta env`, and workers whose library is not there.

use crate::common::{Place, fake_worker};
use regatta_core::record::types::Outcome;

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
