//! The output with and without a terminal: tables of at most eighty
//! columns, no escape codes in pipes, progress in a form that fits, and of a worker's words
//! none that does something to a terminal.

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
    // The remaining codes move the cursor and clear a line: none of it ends in the m of a colour.
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

/// Everything a terminal would obey, as JSON writes it.
const NASTY: &str =
    r"a\u001b[2J\u001b]0;title\u0007\u001b[8m\u202e\u2066\u0000\u0008\u009b31m\u200bover\rwritten";

fn harmless(text: &str, what: &str) {
    let mut rest = text;
    // Our own colours are asked for below.
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        check(before, what);
        let codes = after
            .strip_prefix('[')
            .and_then(|after| after.split_once('m'));
        let (codes, after) = codes.unwrap_or_else(|| panic!("{what}: {text:?}"));
        let known = [
            "", "0", "1", "2", "31", "32", "33", "36", "39", "22", "31;1", "32;1", "33;1",
        ];
        assert!(known.contains(&codes), "{what}: {codes:?} in {text:?}");
        rest = after;
    }
    check(rest, what);
}

fn check(text: &str, what: &str) {
    for c in text.chars() {
        let control = c.is_control() && c != '\n';
        let hides = matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        assert!(!control && !hides, "{what}: {c:?} in {text:?}");
    }
}

/// A worker that introduces itself with this reply, having printed the same.
fn worker(place: &Place, reply: &str) {
    place.write(
        "w.pl",
        &format!(
            "use IO::Handle; $| = 1;\n\
             open(my $in, '<&=', 3); open(my $out, '>&=', 4); $out->autoflush(1); <$in>;\n\
             print \"loading \\e[2J\\e]0;t\\a\\r\\0\\xe2\\x80\\xae\\n\";\n\
             print $out <<'END';\n{reply}\nEND\n\
             while (<$in>) {{ /\"id\":(\\d+)/; print $out '{{\"id\":' . $1 . ',\"type\":\"failed\",\"reason\":\"{NASTY}\"}}', \"\\n\"; }}\n"
        ),
    );
    let own = "[workers]\nmine = [\"perl\", \"w.pl\"]\n";
    let python = "[environments.default]\npython = \"/no/such/python\"\n";
    place.write("regatta.toml", &format!("{python}{own}"));
    place.write(
        "s.toml",
        &format!(
            "description = \"d\"\n[measure]\ninvocations = 1\n{own}\
             [[sweep]]\nvariants = \"mine/x\"\nseq = 8\nhead_dim = 8\n"
        ),
    );
}

fn hello(device: &str, variant: &str, more: &str) -> String {
    format!(
        r#"{{"id":1,"type":"hello","protocol":1,"worker":"mine","versions":{{"v":"{device}"}},"device":{{"kind":"cpu","name":"{device}","memory_bytes":1000000000}},"variants":[{{"name":"{variant}","summary":"{device}","dtypes":["f32"],"directions":["forward"]}}]{more}}}"#
    )
}

#[test]
fn nothing_a_worker_says_reaches_a_terminal_as_more_than_text() {
    let place = Place::new();
    let sound = hello("x", "x", "");
    let replies = [
        format!(r#"{{"id":1,"type":"failed","reason":"{NASTY}"}}"#),
        hello("x", "x", &format!(r#","absent":"{NASTY}""#)),
        hello(NASTY, "x", ""),
        hello("x", NASTY, ""),
        format!(r#"{{"id":1,"type":"{NASTY}"}}"#),
        "no JSON \u{1b}[2J\u{202e}".to_owned(),
        sound.clone(),
    ];
    for reply in replies {
        worker(&place, &reply);
        let commands: [&[&str]; 9] = [
            &["worker", "check", "--", "perl", "w.pl"],
            &["worker", "check", "--json", "--", "perl", "w.pl"],
            &["list"],
            &["list", "--json"],
            &["doctor"],
            &["run", "./s.toml"],
            &["run", "./s.toml", "--json"],
            &["gate", "./s.toml"],
            &["diff", "reports/s", "reports/s"],
        ];
        let only_asks = if reply == sound { 9 } else { 6 };
        for command in &commands[..only_asks] {
            let ran = place.regatta(command).env("CLICOLOR_FORCE", "1").output();
            let output = ran.unwrap();
            let what = format!("{command:?} of {reply}");
            for bytes in [&output.stdout, &output.stderr] {
                harmless(&String::from_utf8_lossy(bytes), &what);
            }
            if *command == ["list", "--json"] && reply.contains("\"failed\"") {
                let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
                let mine = listed["workers"].as_array().unwrap().last().unwrap();
                let words = mine["unavailable"].as_str().unwrap();
                assert!(words.contains(r"a\u001b[2J"), "escaped, not lost: {words}");
                assert!(!words.contains(char::is_control), "{words:?}");
            }
        }
    }
}

#[test]
fn a_variant_that_no_id_can_name_is_refused() {
    let place = Place::new();
    for name in [r"a\u001b[2J", r"a b", r"a/b", "", r"ä"] {
        worker(&place, &hello("x", name, ""));
        let (_, stderr) = exits!(place, 2, ["run", "./s.toml"]);
        assert!(stderr.contains("which no case id can hold"), "{stderr}");
    }
}

#[test]
fn whatever_is_asked_for_as_json_and_cannot_be_had_is_json() {
    let place = Place::new();
    for asked in [
        "run nope",
        "gate nope",
        "compare nope --base here",
        "diff nope other",
        "baseline save nope",
        "baseline list nope",
        "baseline remove nope",
        "history nope",
        "list nope",
        "doctor nope",
        "env remove nope",
        "build nope",
        "worker check ./nope.toml",
        "trace",
    ] {
        let words = asked.split(' ').chain(["--json"]);
        let end: &[&str] = if asked == "trace" {
            &["--", "no-such-program"]
        } else {
            &[]
        };
        let words: Vec<&str> = words.chain(end.iter().copied()).collect();
        let (code, stdout, stderr) = place.ran(&words);
        let answer: serde_json::Value = serde_json::from_str(&stdout).unwrap_or_default();
        assert_eq!(code, 2, "{asked}: {stderr}");
        assert_eq!(answer["exit_code"], 2, "{asked}: {stdout}");
        let why = answer["error"].as_str().unwrap_or_default();
        assert!(!why.is_empty(), "{asked}: {stdout}");
    }
}
