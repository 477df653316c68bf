//! A bisect from end to end, over commits of a checkout whose worker's times are made up.

use std::fs;

use crate::common::{Place, fake_worker};
use serde_json::Value;

/// What a commit does to the worker.
#[derive(Clone, Copy)]
enum Change {
    /// So many percent slower than the first one, all in all.
    Slower(f64),
    /// It does not build.
    Broken,
}

use Change::{Broken, Slower};

fn commit(place: &Place, number: usize, change: Change) {
    let script = match change {
        Broken => "echo cannot build this >&2; exit 3\n".to_owned(),
        Slower(percent) => format!(
            "mkdir -p made\necho 'exec {} --slower {percent} \"$@\"' > made/serve.sh\n",
            fake_worker().display()
        ),
    };
    place.write("build.sh", &format!("{script}# {number}\n"));
    place.git(&["add", "-A"]);
    let message = format!("Change number {number}");
    place.git(&["commit", "-q", "-m", &message]);
    place.git(&["tag", &format!("c{number}")]);
}

/// A checkout with a commit a change, each tagged `c0`, `c1`, ....
fn history(changes: &[Change]) -> Place {
    let place = Place::new();
    place.checkout();
    for (number, change) in changes.iter().enumerate() {
        commit(&place, number, *change);
    }
    place
}

/// One case, so that a comparison takes no longer than it must.
const ASKED: [&str; 4] = ["bisect", "./s.toml", "--filter", "s32,d16,bwd"];

fn asked<'a>(good: &'a str, bad: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let ends = ["--good", good, "--bad", bad];
    [&ASKED[..], &ends, more].concat()
}

fn compared(place: &Place) -> usize {
    let folder = place.path().join("reports/s-bisect/compared");
    fs::read_dir(folder).map_or(0, |entries| entries.flatten().count())
}

#[test]
fn the_commit_with_the_step_is_named_past_creep_and_what_does_not_build() {
    // Creep of 1 % a commit, a step of 20 % at c7, and two before it that do not build.
    let changes = [
        Slower(0.0),
        Slower(1.0),
        Slower(2.0),
        Slower(3.0),
        Broken,
        Broken,
        Slower(6.0),
        Slower(27.0),
        Slower(27.0),
        Slower(27.0),
    ];
    let place = history(&changes);
    let words = asked("git:c0", "git:c9", &[]);
    let (stdout, stderr) = exits!(place, 0, words);
    assert!(stdout.starts_with("FOUND  s: "), "{stdout}");
    let short = place.git(&["rev-parse", "--short", "c7"]);
    assert!(
        stdout.contains(&format!("{short} is the first bad version")),
        "{stdout}"
    );
    assert!(stdout.contains("Change number 7 (Ann, "), "{stdout}");
    assert!(stdout.contains(" % slower ["), "{stdout}");
    // A path stays whole to be of use.
    let fits = |line: &str| line.chars().count() <= 80 || line.contains("/revisions/");
    assert!(stdout.lines().all(fits), "{stdout}");
    assert!(stderr.contains("1 of about "), "{stderr}");
    let skipped = stderr.matches("skipped: ").count();
    assert_eq!(stdout.matches("skipped: ").count(), skipped);
    assert!(stderr.contains("(exit status: 3)"), "{stderr}");
    // What a build said is told where it is read, and nothing is said to be above.
    let page = fs::read_to_string(place.path().join("reports/s-bisect/report.html")).unwrap();
    assert!(page.contains("cannot build this") && !page.contains("words are above"));

    // The command that it prints shows it.
    let shown: String = stdout
        .lines()
        .skip_while(|line| !line.contains("regatta compare"))
        .collect::<Vec<_>>()
        .join(" ")
        .replace('\\', " ");
    let shown: Vec<&str> = shown.split_whitespace().skip(1).collect();
    let (again, _) = exits!(place, 1, shown);
    assert!(again.contains("Regressed (1)"), "{again}");

    // Asked once more it answers without measuring; with a part of it lost it goes on.
    let journal = place.path().join("reports/s-bisect/bisect.json");
    let text = fs::read_to_string(&journal).unwrap();
    let runs = compared(&place);
    let (same, stderr) = exits!(place, 0, words);
    assert_eq!(same, stdout);
    assert!(stderr.contains("resuming: "), "{stderr}");
    assert!(!stderr.contains("of about"), "{stderr}");
    let mut shorter: Value = serde_json::from_str(&text).unwrap();
    let tried = shorter["tried"].as_array_mut().unwrap();
    let comparisons = tried.len();
    tried.truncate(comparisons - 2);
    fs::write(&journal, shorter.to_string()).unwrap();
    let (goes_on, stderr) = exits!(place, 0, words);
    assert_eq!(goes_on.lines().nth(1), stdout.lines().nth(1));
    assert_eq!(stderr.matches("of about").count(), 2, "{stderr}");
    assert_eq!(compared(&place), runs);

    let (stdout, _) = exits!(place, 0, asked("git:c0", "git:c9", &["--json", "-q"]));
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json["answer"], "found");
    let id = place.git(&["rev-parse", "c7"]);
    assert_eq!(json["after"]["spec"], format!("git:{id}"));
    assert_eq!(json["tried"].as_array().unwrap().len(), comparisons);
    let page = fs::read_to_string(place.path().join("reports/s-bisect/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("Change number 7"));

    // Another question begins anew, and the first one is kept.
    let (_, stderr) = exits!(place, 0, asked("git:c1", "git:c9", &[]));
    assert!(stderr.contains("is kept as "), "{stderr}");
    assert_eq!(
        fs::read_dir(place.path().join("reports/s-bisect/past"))
            .unwrap()
            .count(),
        1
    );
}

#[test]
fn ends_that_do_not_differ_are_refused_and_the_middle_is_looked_at() {
    let same = [Slower(0.0); 4];
    let place = history(&same);
    let (stdout, _) = exits!(place, 3, asked("git:c0", "git:c3", &[]));
    assert!(stdout.starts_with("NO DIFFERENCE  s: "), "{stdout}");
    assert!(stdout.contains("may hide a change"), "{stdout}");
    let (stdout, _) = exits!(place, 3, asked("git:c0", "git:c3", &["--json"]));
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json["answer"], "no-difference");

    // Slow from c2 on, good again at c4.
    let back = [0.0, 0.0, 30.0, 30.0, 0.0, 0.0].map(Slower);
    let place = history(&back);
    let named = |more: &[&str]| {
        let words = [&["--json", "-q"], more].concat();
        let (stdout, _) = exits!(place, 0, asked("git:c0", "git:c5", &words));
        let json: Value = serde_json::from_str(&stdout).unwrap();
        json["after"]["subject"].as_str().unwrap().to_owned()
    };
    assert_eq!(named(&[]), "Change number 2");
    assert_eq!(named(&["--fixed"]), "Change number 4");
}

#[test]
fn where_only_broken_ones_lie_between_it_is_one_of_them() {
    let place = history(&[Slower(0.0), Broken, Broken, Slower(30.0)]);
    let (stdout, _) = exits!(place, 3, asked("git:c0", "git:c3", &[]));
    assert!(stdout.starts_with("ONE OF THESE  s: "), "{stdout}");
    assert_eq!(stdout.matches("skipped: ").count(), 2, "{stdout}");
    let place = history(&[Slower(0.0), Slower(0.0), Broken]);
    let (stdout, _) = exits!(place, 3, asked("git:c0", "git:c2", &[]));
    assert!(stdout.contains("cannot be measured"), "{stdout}");
    assert!(stdout.contains("(exit status: 3)"), "{stdout}");
}

#[test]
fn a_merge_is_looked_into() {
    let place = history(&[Slower(0.0), Slower(0.0)]);
    place.git(&["checkout", "-q", "-b", "branch", "c0"]);
    commit(&place, 10, Slower(0.0));
    commit(&place, 11, Slower(30.0));
    place.git(&["checkout", "-q", "main"]);
    let merge = [
        "merge",
        "-q",
        "--no-ff",
        "-X",
        "theirs",
        "-m",
        "Merge the branch",
        "branch",
    ];
    place.git(&merge);
    commit(&place, 3, Slower(30.0));
    let words = asked("git:c0", "git:c3", &["--json", "-q"]);
    let (stdout, _) = exits!(place, 0, words);
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json["after"]["subject"], "Change number 11");
    assert_eq!(json["merged_by"]["subject"], "Merge the branch");
    let (stdout, _) = exits!(
        place,
        0,
        asked("git:c0", "git:c3", &["--json", "-q", "--first-parent"])
    );
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json["after"]["subject"], "Merge the branch");
}
