//! What is told of workers: `doctor`, `list`, and words that would do something to a terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::Place;

/// Stands in for a Python that has einops but no torch: what its worker would say.
const PYTHON: &str = r#"#!/usr/bin/env perl
use IO::Handle;
my ($library) = $ARGV[-1];
open(my $in, '<&=', 3); open(my $out, '>&=', 4); $out->autoflush(1);
<$in>;
sleep 3600 if $library eq 'triton' && -e 'slow';
my $module = $library eq 'jax' ? 'jax' : 'torch';
my $reason = "the Python module `$module`, which library `$library` needs, cannot be loaded by "
  . "/opt/python (Python 3.12.0): ModuleNotFoundError: No module named '$module'. Install it "
  . "there with `/opt/python -m pip install $module`, or name an interpreter that has it in the "
  . "suite's environment table";
print $out qq({"id":1,"type":"hello","protocol":1,"worker":"$library","device":{"kind":"cpu","name":"x","memory_bytes":1},"variants":[],"absent":"$reason"}), "\n";
<$in>;
"#;

/// A place whose Python has no library.
fn without_libraries() -> Place {
    let place = Place::new();
    let path = place.path().join("python");
    fs::write(&path, PYTHON).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    place.write(
        "regatta.toml",
        &format!("[environments.default]\npython = {path:?}\n"),
    );
    place
}

#[test]
fn what_several_workers_lack_is_said_once() {
    let place = without_libraries();
    let (stdout, _) = exits!(place, 0, ["doctor"]);
    assert_eq!(
        stdout.matches("torch` is not installed").count(),
        1,
        "{stdout}"
    );
    assert_eq!(stdout.matches("pip install torch").count(), 1, "{stdout}");
    for line in stdout.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let jax: Vec<&str> = stdout
        .lines()
        .filter(|line| line.contains("`jax` is"))
        .collect();
    assert_eq!(jax, ["  absent jax: `jax` is not installed"]);
    let after = stdout.split("torch` is not installed").nth(1).unwrap();
    let names = after
        .split("for:")
        .nth(1)
        .unwrap()
        .split("fix:")
        .next()
        .unwrap();
    for worker in ["torch", "triton", "xformers", "flash_attn"] {
        assert!(names.contains(worker), "{worker}: {stdout}");
    }
    // A GPU is what our own kernels take, and no Python has that.
    let cuda = stdout.split("absent cuda:").nth(1).unwrap();
    let cuda = cuda.split("\n  absent ").next().unwrap();
    assert!(!cuda.contains("Python"), "{cuda}");

    let (stdout, _) = exits!(place, 0, ["doctor", "--json"]);
    let findings: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let xformers = findings
        .as_array()
        .unwrap()
        .iter()
        .find(|finding| finding["what"] == "worker xformers")
        .unwrap();
    assert_eq!(xformers["state"], "absent");
    let detail = xformers["detail"].as_str().unwrap();
    assert!(
        detail.contains("which library `xformers` needs"),
        "{detail}"
    );

    let (stdout, _) = exits!(place, 0, ["list"]);
    let words: Vec<&str> = stdout.split_whitespace().collect();
    let words = words.join(" ");
    assert_eq!(
        words.matches("`torch` is not installed").count(),
        1,
        "{stdout}"
    );
    assert!(
        words.contains("xformers: `torch` is not installed"),
        "{words}"
    );
}

#[test]
fn a_worker_that_loads_for_long_is_slow_and_not_absent() {
    let place = without_libraries();
    place.write("slow", "");
    let (stdout, _) = exits!(place, 0, ["doctor"]);
    assert!(
        stdout.contains("  slow triton: slow to start: not answered within 8s"),
        "{stdout}"
    );
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
                let raw: String = serde_json::from_str(&format!("\"{NASTY}\"")).unwrap();
                assert_eq!(mine["unavailable"], raw, "machines read what was there");
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
