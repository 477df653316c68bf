//! The first commands in somebody's repository: `init`, and what leads to a baseline.

use std::fs;
use std::path::Path;

use crate::common::Place;
use serde_json::Value;

fn text(place: &Place, name: &str) -> String {
    fs::read_to_string(place.path().join(name)).unwrap()
}

#[test]
fn it_writes_what_the_guide_says_and_replaces_nothing() {
    let place = Place::new();
    place.write("README.md", "# Mine");
    place.write(".gitignore", "target\n");
    let (stdout, _) = exits!(place, 0, ["init"]);
    assert!(stdout.ends_with("regatta run ./speed.toml\n"), "{stdout}");
    assert!(stdout.contains("attention.py\n"), "{stdout}");
    let guide = include_str!("../../docs/GUIDE.md");
    assert!(guide.contains(&text(&place, "attention.py")));
    assert_eq!(text(&place, ".gitignore"), "target\nreports/\n");
    assert!(text(&place, "README.md").starts_with("# Mine\n\n## Speed\n"));
    assert!(!place.path().join(".github").exists());
    exits!(place, 0, ["list", "./speed.toml"]);
    let brings = text(&place, "speed.toml").contains("numpy==");
    assert_eq!(
        brings,
        stdout.contains("env --suite ./speed.toml make default")
    );

    // A second time nothing changes; what somebody changed stays.
    place.write("attention.py", "mine = 1\n");
    let before = text(&place, "README.md");
    let (stdout, _) = exits!(place, 0, ["init", "--json", "--ci", "none"]);
    let json: Value = serde_json::from_str(&stdout).unwrap();
    let what: Vec<&str> = json["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["what"].as_str().unwrap())
        .collect();
    assert_eq!(what, ["kept", "unchanged", "unchanged", "unchanged"]);
    assert_eq!(text(&place, "attention.py"), "mine = 1\n");
    assert_eq!(text(&place, "README.md"), before);
}

#[test]
fn the_job_is_that_of_the_remote_or_of_the_one_asked_for() {
    let place = Place::new();
    place.git(&["init", "-q"]);
    place.git(&["remote", "add", "origin", "git@github.com:a/b.git"]);
    exits!(place, 0, ["init"]);
    exits!(place, 0, ["init", "--ci", "gitlab", "--dir", "bench/deep"]);
    // The page on CI has the same two jobs.
    let page = include_str!("../../docs/GATE.md");
    assert!(page.contains(&text(&place, ".github/workflows/speed.yml")));
    assert!(page.contains(&text(&place, "bench/deep/speed.gitlab-ci.yml")));
    place.write("file", "");
    let (_, stderr) = exits!(place, 2, ["init", "--dir", "file"]);
    assert!(stderr.contains("file"), "{stderr}");
}

#[test]
fn a_repository_is_compared_with_its_own_branch_and_a_job_that_is_not_written_is_named() {
    for branch in ["master", "trunk"] {
        let place = Place::new();
        place.git(&["init", "-q", "-b", branch]);
        let (_, stderr) = exits!(place, 0, ["init"]);
        assert!(stderr.contains("no CI job was written"), "{stderr}");
        let command = format!("--base git:{branch}`");
        assert!(text(&place, "README.md").contains(&command));
    }
    // The remote's default counts more than what is checked out.
    let place = Place::new();
    place.git(&["init", "-q", "-b", "feature"]);
    let origin = "refs/remotes/origin/HEAD";
    place.git(&["symbolic-ref", origin, "refs/remotes/origin/develop"]);
    exits!(place, 0, ["init"]);
    assert!(text(&place, "README.md").contains("git:develop"));
}

/// The lines of the text files below a folder that install packages.
fn installs(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["target", "reports", "__pycache__", ".git"].contains(&&*name)
                && !name.starts_with(".venv")
            {
                installs(&path, found);
            }
        } else if let Ok(text) = fs::read_to_string(&path) {
            let lines = text.lines();
            let lines = lines
                .filter(|line| line.contains("pip install ") || line.contains("cargo install "));
            found.extend(lines.map(|line| format!("{}: {line}", path.display())));
        }
    }
}

#[test]
fn no_file_installs_a_strangers_package_of_our_name() {
    let mut lines = Vec::new();
    installs(Path::new(env!("CARGO_MANIFEST_DIR")), &mut lines);
    assert!(lines.len() > 5, "{lines:?}");
    for line in lines {
        let (_, packages) = line.split_once(" install ").unwrap();
        let packages = packages.split('`').next().unwrap();
        let foreign = packages.split(|c: char| c.is_whitespace() || "\"'`,;)".contains(c));
        let foreign = foreign.filter(|word| *word == "regatta" || word.starts_with("regatta="));
        assert_eq!(foreign.count(), 0, "{line}");
    }
}

#[test]
fn every_step_to_a_baseline_names_the_next_one() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    let (_, stderr) = exits!(place, 3, ["baseline", "save", "s"]);
    assert!(stderr.contains("there is no run"), "{stderr}");
    // The baseline is to hold what the suite says, whatever this gate was given.
    let set = "fake/steady.slower_percent=30";
    let (_, stderr) = exits!(place, 3, ["gate", "./s.toml", "--set", set, "--quiet"]);
    assert!(!stderr.contains("--set"), "{stderr}");
    assert!(stderr.contains("\n  regatta run ./s.toml\n"), "{stderr}");
    // A run that is not fit to be one is told why.
    exits!(place, 0, ["run", "./s.toml", "--filter", "s32"]);
    let (_, stderr) = exits!(place, 3, ["baseline", "save", "s"]);
    for part in [
        "the newest, reports/s",
        "a part of its suite",
        "save s reports/s",
    ] {
        assert!(stderr.contains(part), "{stderr}");
    }
    exits!(place, 0, ["run", "./s.toml"]);
    exits!(place, 0, ["baseline", "save", "s"]);
    exits!(place, 0, ["gate", "./s.toml"]);
}

#[test]
fn a_name_that_is_not_there_is_answered_with_the_nearest_and_with_all() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    exits!(place, 0, ["run", "./s.toml"]);
    exits!(place, 0, ["baseline", "save", "nightly"]);
    let hint = "did you mean `nightly`? there are nightly";
    for (code, args) in [
        (3, &["gate", "./s.toml", "--baseline", "nightyl"][..]),
        (3, &["diff", "--baseline", "nightyl", "reports/s"]),
        (2, &["baseline", "list", "nightyl"]),
        (2, &["baseline", "remove", "nightyl"]),
        (2, &["diff", "nightyl", "reports/s"]),
    ] {
        let (_, stderr) = exits!(place, code, args);
        assert!(stderr.contains(hint), "{args:?}: {stderr}");
    }
    for command in ["run", "list"] {
        let (_, stderr) = exits!(place, 2, [command, "./s.toml", "-f", "fake/staedy*"]);
        assert!(stderr.contains("did you mean `fake/steady`?"), "{stderr}");
    }
}

#[test]
fn a_refused_gate_writes_what_a_ci_reads() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    let files = [
        "--output",
        "junit=j.xml",
        "--output",
        "json=j.json",
        "--json",
    ];
    let (stdout, _) = exits!(place, 3, [&["gate", "./s.toml"][..], &files].concat());
    assert_eq!(stdout, text(&place, "j.json"));
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json["exit_code"], 3);
    assert_eq!(json["kind"], "judgement");
    assert_eq!(json["verdict"]["outcome"], "inconclusive");
    assert!(text(&place, "j.xml").contains("errors=\"1\""));
}

#[test]
fn structure_alone_has_no_column_of_times_and_no_failed_test() {
    let place = Place::new();
    let expects =
        "[[expect]]\nname = \"e\"\ncase = { seq = 32 }\nagainst = { seq = 48 }\nwithin = 9.0\n";
    place.suite("s", &["fake/gpu"], &["--kind", "cuda"], expects);
    let args = [
        "run",
        "./s.toml",
        "--structure-only",
        "--output",
        "junit=j.xml",
    ];
    let (stdout, _) = exits!(place, 0, args);
    assert!(!stdout.contains("time\n"), "{stdout}");
    assert!(stdout.contains("2 skipped"), "{stdout}");
    assert!(text(&place, "j.xml").contains("errors=\"0\""));
}

#[test]
fn the_command_of_a_failing_card_gives_that_verdict_again() {
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    let set = "fake/steady.slower_percent=30";
    let args = [
        "gate",
        "./s.toml",
        "--set",
        set,
        "--output",
        "markdown=m.md",
    ];
    exits!(place, 1, args);
    let page = text(&place, "m.md");
    let from = page.find("regatta gate ./s.toml --set").expect(&page);
    let command = page[from..].split(['`', '\n']).next().unwrap();
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    assert!(words.contains(&"--filter"), "{command}");
    exits!(place, 1, words);
}

#[test]
fn a_list_that_is_piped_has_whole_lines() {
    let place = Place::new();
    let (stdout, _) = exits!(place, 0, ["list"]);
    assert!(!stdout.contains('…'), "{stdout}");
}
