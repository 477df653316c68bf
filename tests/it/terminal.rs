//! What is printed where nobody watches, and where somebody does: tables of at most eighty
//! columns, no escape codes in pipes, and progress in a form that fits.

use crate::common::Place;
use regatta_report::text::width;

/// No line is wider than a terminal, and nothing in it is more than text.
fn fits(text: &str, what: &str) {
    assert!(!text.contains('\u{1b}'), "{what}: {text}");
    for line in text.lines() {
        assert!(width(line) <= 80, "{what}: {line}");
        assert!(!line.ends_with(' '), "{what}: {line:?}");
    }
}

/// The line after the heading of a list, and the others up to the next empty one.
fn listed<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let from = text.lines().skip_while(|line| !line.starts_with(heading));
    from.skip(1).take_while(|line| !line.is_empty()).collect()
}

#[test]
fn who_asks_for_a_peak_that_nobody_measures_is_told() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    let (_, stderr) = exits!(place, 0, ["run", "./s.toml", "--set", "peak=true"]);
    let line = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "fake: the peak of its device is not measured: this worker measures no peak";
    assert!(line.contains(expected), "{stderr}");
}

#[test]
fn what_got_slower_is_a_table_with_a_line_a_case() {
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    let slower = "fake/steady.slower_percent=30";
    let (stdout, _) = exits!(place, 1, ["gate", "./s.toml", "--set", slower]);
    fits(&stdout, "gate");
    let lines = listed(&stdout, "Regressed (6)");
    assert_eq!(lines[0], "  all fake/steady, d16", "{stdout}");
    let head: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(
        head,
        ["case", "base", "head", "change", "90", "%", "interval"]
    );
    assert_eq!(lines.len(), 2 + 6, "{stdout}");
    for line in &lines[2..] {
        let label = line.split_whitespace().next().unwrap();
        assert!(
            ["s32", "s48", "s64"].iter().any(|of| label.starts_with(of)),
            "{line}"
        );
        // Its fake times are drawn within 0.4 % on both sides.
        let change = line
            .split_whitespace()
            .find_map(|word| word.strip_prefix('+'));
        let change: f64 = change.expect("a change upwards").parse().unwrap();
        assert!((28.0..32.0).contains(&change), "{line}");
    }
    // Machines are told whole ids.
    let (json, _) = exits!(place, 1, ["diff", "s", "reports/s", "--json"]);
    assert!(json.contains("\"fake/steady:s64,d16,bwd\""), "{json}");
    let (stdout, _) = exits!(place, 1, ["diff", "s", "reports/s", "--all"]);
    fits(&stdout, "diff --all");
    let lines = listed(&stdout, "Every case (6)");
    assert!(lines[0].ends_with("verdict"), "{stdout}");
    assert!(
        lines[2..].iter().all(|line| line.ends_with("regressed")),
        "{stdout}"
    );
}

#[test]
fn a_plan_says_each_problem_once_and_ids_on_request() {
    let place = Place::new();
    place.suite("s", &["fake/steady", "fake/other"], &[], "");
    let (stdout, _) = exits!(place, 0, ["list", "./s.toml"]);
    fits(&stdout, "list");
    assert_eq!(
        stdout,
        "s: s\n12 cases, 5 invocations each\n\n\
         fake/other, fake/steady: 6 cases each, all d16\n  \
         s32\n  s32,bwd\n  s48\n  s48,bwd\n  s64\n  s64,bwd\n"
    );
    let (ids, _) = exits!(place, 0, ["list", "./s.toml", "--ids"]);
    let ids: Vec<&str> = ids.lines().collect();
    assert_eq!(ids.len(), 12);
    assert!(ids.contains(&"fake/steady:s48,d16,bwd"), "{ids:?}");
    // Each is what --filter takes.
    let (one, _) = exits!(place, 0, ["list", "./s.toml", "--ids", "--filter", ids[1]]);
    assert_eq!(one.trim_end(), ids[1]);
    let (stdout, _) = exits!(place, 0, ["list"]);
    assert!(stdout.contains("\n  quick: "), "{stdout}");
    exits!(place, 2, ["list", "--ids"]);
}

/// regatta on a terminal of 80 columns, as `script` makes one; what it printed.
fn on_a_terminal(place: &Place, arguments: &str, variables: &[(&str, &str)]) -> String {
    let regatta = std::path::Path::new(env!("CARGO_BIN_EXE_regatta"));
    let output = place
        .command("script")
        .args([
            "-qec",
            &format!("{} {arguments}", regatta.display()),
            "/dev/null",
        ])
        .env("TERM", "xterm")
        .envs(variables.iter().copied())
        .output()
        .expect("`script` of bsdutils is here");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_terminal_has_a_line_that_says_what_runs_and_a_dumb_one_has_none() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    let seen = on_a_terminal(&place, "run ./s.toml --invocations 40", &[]);
    assert!(seen.contains("\u{1b}["), "a terminal has colours: {seen}");
    for part in ["\r5/240, invocation 1/40, ", " s", "fake/steady:s"] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
    let seen = on_a_terminal(&place, "run ./s.toml --no-resume", &[("NO_COLOR", "1")]);
    assert!(seen.contains("/30, "), "{seen}");
    // What is left moves the cursor and clears a line: none of it ends in the m of a colour.
    let codes = seen.split("\u{1b}[").skip(1);
    let codes = codes.filter_map(|code| code.chars().find(char::is_ascii_alphabetic));
    assert!(codes.clone().all(|letter| letter != 'm'), "{seen}");
    let seen = on_a_terminal(&place, "run ./s.toml --no-resume", &[("TERM", "dumb")]);
    assert!(!seen.contains('\u{1b}'), "{seen}");
    assert!(!seen.contains("invocation 1/"), "{seen}");
}

#[test]
fn a_short_help_fits_a_terminal() {
    let place = Place::new();
    let commands = "run gate compare diff report baseline history bisect trace list doctor build env \
                    init worker completions";
    for command in std::iter::once("").chain(commands.split_whitespace()) {
        let words: Vec<&str> = [command, "-h"]
            .into_iter()
            .filter(|w| !w.is_empty())
            .collect();
        let (stdout, _) = exits!(place, 0, words);
        fits(&stdout, command);
        let lines = stdout.lines().count();
        assert!(lines <= 24, "{command}: {lines} lines\n{stdout}");
    }
}
