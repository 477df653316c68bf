//! `workers.NAME = "FILE:FUNCTION"`: what a suite may say, and what is said of code that is wrong.
//!
//! None of it takes more than Python itself: functions are called in python/tests.

use crate::common::Place;

const SUITE: &str = "description = \"mine\"\n[workers]\nmine = \"CODE\"\n\
    [[sweep]]\nvariants = [\"mine/attention\"]\nseq = 64\nhead_dim = 16\n";

/// What a suite of this code is answered.
fn told(place: &Place, code: &str) -> String {
    place.write("mine.toml", &SUITE.replace("CODE", code));
    let (_, stderr) = exits!(place, 2, ["run", "./mine.toml"]);
    stderr
}

#[test]
fn what_is_wrong_with_the_code_is_said_before_anything_is_measured() {
    let place = Place::new();
    place.write("bench.py", "def other(q, k, v):\n    return q\n");
    place.write("broken.py", "import no_such_module_anywhere\n");
    for (code, words) in [
        ("nowhere.py:attention", "there is no file nowhere.py"),
        (
            "bench.py:attention",
            "has no function `attention`; there are other",
        ),
        (
            "broken.py:attention",
            "-m pip install no_such_module_anywhere`",
        ),
        ("no_such_module_anywhere:attention", "ModuleNotFoundError"),
        ("bench:attention", "bench has no function `attention`"),
        (
            "code/bench:attention",
            "mine.toml:3: workers.mine = \"code/bench:attention\"",
        ),
    ] {
        let stderr = told(&place, code);
        assert!(stderr.contains(words), "{code}: {stderr}");
    }
    assert!(!place.path().join("reports/mine/run.jsonl").exists());
}

#[test]
fn a_worker_is_a_command_or_code() {
    let place = Place::new();
    for (written, words) in [
        (
            "[]",
            "mine.toml:3: workers.mine: an empty command starts nothing",
        ),
        (
            "3",
            "mine.toml:3: workers.mine = 3: expected a string, found integer",
        ),
        ("\"./serve\"", "or a command as a list: `[\"./serve\"]`"),
        (
            "{ python = \"bench.py\" }",
            "in its place: workers.mine = \"bench.py:attention\"",
        ),
    ] {
        place.write("mine.toml", &SUITE.replace("\"CODE\"", written));
        let (_, stderr) = exits!(place, 2, ["list", "./mine.toml"]);
        assert!(stderr.contains(words), "{written}: {stderr}");
    }
}

#[test]
fn a_file_of_a_suite_by_its_whole_path_is_still_that_of_each_version() {
    let place = Place::new();
    place.write("mine.toml", &SUITE.replace("CODE", "bench.py:attention"));
    place.write("bench.py", "raise RuntimeError('the checkout as it was')\n");
    place.write(".gitignore", "reports\ncache\n");
    place.git(&["init", "-q", "-b", "main"]);
    place.git(&["add", "."]);
    place.git(&["commit", "-q", "-m", "x"]);
    place.write(
        "bench.py",
        "raise RuntimeError('the checkout as it stands')\n",
    );
    let whole = place.path().canonicalize().unwrap().join("mine.toml");
    let whole = whole.display().to_string();
    let (_, stderr) = exits!(place, 2, ["compare", &whole, "--base", "git:main"]);
    assert!(stderr.contains("the checkout as it was"), "{stderr}");
}
