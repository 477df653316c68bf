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
