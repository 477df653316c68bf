//! `regatta init` in somebody's repository.

use std::fs;

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
    let job = text(&place, ".github/workflows/speed.yml");
    assert!(job.contains("regatta gate ./speed.toml --base"), "{job}");
    exits!(place, 0, ["init", "--ci", "gitlab", "--dir", "bench/deep"]);
    assert!(text(&place, "bench/deep/speed.gitlab-ci.yml").contains("junit.xml"));
    place.write("file", "");
    let (_, stderr) = exits!(place, 2, ["init", "--dir", "file"]);
    assert!(stderr.contains("file"), "{stderr}");
}
