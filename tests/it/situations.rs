//! The answers of the program, one line a situation: `situations.txt`.
//!
//! Each line has what the suite is, what the worker does on the side of the base and of the
//! head (`tests/workers/script.rs`), and commands; then, after `=>`, their exit codes, the
//! verdict and the result of each case. `REGATTA_SITUATIONS=write` rewrites the answers;
//! `REGATTA_PROGRAM` names another regatta to be asked.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use crate::common::{Place, copy, fake_worker};
use regatta_worker::joined::Joined;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/situations.txt");

/// The lines that a suite's word adds at its end, in `[policy]` or in `[measure]`.
const PARTS: [(&str, &str); 10] = [
    ("allow", "policy optional = [\"*s48*\"]"),
    ("ignored", "policy ignore = [\"fill\", \"grid\"]"),
    ("no-host", "policy ignore = [\"host\"]"),
    ("quick-limit", "measure timeout_s = 1"),
    (
        "splits",
        "params = { num_splits_key = [\"auto\", 1, 2, 4] }\n[[expect]]\nname = \"automatic\"\nwithin = 1.1\ncase = { num_splits_key = \"auto\" }\nagainst = { num_splits_key = [1, 2, 4] }",
    ),
    (
        "blocks",
        "[[expect]]\nname = \"blocks\"\ncase = { head_dim = 16 }\nmetric = \"blocks\"\nkernel = \"*flash*\"\nat_least = 132",
    ),
    ("torn", "[[expect]\n"),
    ("key", "[policies]\nthreshold = 0.1"),
    (
        "unknown",
        "[[sweep]]\nvariants = \"fake/unknown\"\nseq = 32\nhead_dim = 16",
    ),
    ("negative", "policy day = -1"),
];

/// A suite of the words of its column: `many` cases, `one`, or two; and parts.
fn suite(words: &str, worker: &[String]) -> String {
    let words: Vec<&str> = words.split('+').collect();
    let seq = match words[0] {
        "many" => "[16, 24, 32, 40, 48, 56, 64, 72]",
        "one" => "[32]",
        _ => "[32, 48]",
    };
    let [mut measure, mut policy, mut rest] = [const { String::new() }; 3];
    for (name, text) in PARTS.iter().filter(|(name, _)| words.contains(name)) {
        let (place, text) = match (text.strip_prefix("policy "), text.strip_prefix("measure ")) {
            (Some(text), _) => (&mut policy, text),
            (_, Some(text)) => (&mut measure, text),
            _ => (&mut rest, *text),
        };
        writeln!(place, "{text}").unwrap_or_else(|_| panic!("{name}"));
    }
    if !measure.contains("timeout_s") {
        measure.push_str("timeout_s = 60\n");
    }
    format!(
        "description = \"of {}\"\n[workers]\nfake = {worker:?}\n\
         [measure]\ninvocations = 5\nsamples = 5\n{measure}\
         [policy]\nthreshold = 0.02\n{policy}\
         [[sweep]]\nvariants = [\"fake/gpu\"]\nseq = {seq}\nhead_dim = 16\n{rest}",
        words[0]
    )
}

/// The worker's command for a script and further words; the base's and the head's noise differ.
fn worker(script: &str, seed: &str) -> Vec<String> {
    let (script, more) = script.split_once(' ').unwrap_or((script, ""));
    let mut words = vec![fake_worker().display().to_string()];
    words.extend(["--seed", seed].map(str::to_owned));
    if script != "-" {
        words.extend(["--script", script].map(str::to_owned));
    }
    words.extend(more.split_whitespace().map(str::to_owned));
    words
}

/// Folders with a baseline `s` and its run, by suite and script: each is measured once.
#[derive(Default)]
struct Bases(Mutex<BTreeMap<(String, String), Place>>);

impl Bases {
    fn copy_into(&self, place: &Place, words: &str, script: &str) {
        let mut made = self.0.lock().unwrap();
        let base = made
            .entry((words.to_owned(), script.to_owned()))
            .or_insert_with(|| {
                let base = Place::new();
                base.write("s.toml", &suite(words, &worker(script, "1")));
                exits!(base, 0, ["run", "./s.toml", "--quiet"]);
                exits!(base, 0, ["baseline", "save", "s"]);
                base
            });
        for (from, to) in [("baselines", "baselines"), ("reports/s", "base")] {
            copy(&base.path().join(from), &place.path().join(to));
        }
    }
}

/// Runs the commands of a line, and gives its answer.
fn answered(line: &str, bases: &Bases) -> String {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [_, suites, base, head, commands] = cells[..] else {
        panic!("not five cells: {line}");
    };
    let (before, after) = suites.split_once(" > ").unwrap_or((suites, suites));
    let place = Place::new();
    if base != "none" {
        bases.copy_into(&place, before, base);
    }
    place.write("s.toml", &suite(after, &worker(head, "2")));
    let mut codes = Vec::new();
    let mut printed = String::new();
    for command in commands.split(" ; ") {
        let version = format!("worker:fake={}", worker(base, "1").join(" "));
        let words = command.split_whitespace();
        let words = words.map(|word| if word == "BASE" { &version } else { word });
        let mut words: Vec<&str> = words.collect();
        let measures = ["run", "gate", "compare"].contains(&words[0]);
        if measures && words.get(1).is_none_or(|next| next.starts_with("--")) {
            words.insert(1, "./s.toml");
        }
        let judges = measures || words[0] == "diff";
        words.extend((judges && !words.contains(&"--shard")).then_some("--json"));
        let (code, stdout, stderr) = place.ran(&words);
        assert!(!stderr.contains("panicked"), "{line}: {stderr}");
        codes.push(code.to_string());
        printed = stdout;
    }
    let judgement = serde_json::from_str(&printed).unwrap_or_default();
    format!("{} {}", codes.join(" "), said(&judgement))
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The verdict and each case's word, with its causes in brackets and the kinds of structure
/// that fail or warn in braces; cases of one answer together; then what was demanded.
fn said(judgement: &Value) -> String {
    let mut answers: Vec<(String, Vec<String>)> = Vec::new();
    for row in list(&judgement["rows"]) {
        let mut result = word(&row["word"]).to_owned();
        let fault = word(&row["fault"]);
        if !fault.is_empty() {
            write!(result, "({fault})").unwrap();
        }
        let causes = list(&row["findings"]).map(|finding| word(&finding["cause"]));
        let causes = causes.joined(", ");
        if !causes.is_empty() {
            write!(result, " [{causes}]").unwrap();
        }
        let changes = list(&row["structure"]).map(|one| (word(&one["kind"]), word(&one["action"])));
        let changes = changes.filter(|(_, action)| *action != "ignore");
        let changes = changes
            .map(|(kind, action)| format!("{kind} {action}s"))
            .joined(", ");
        if !changes.is_empty() {
            write!(result, " {{{changes}}}").unwrap();
        }
        let metrics = list(&row["metrics"]).filter(|metric| word(&metric["word"]) == "regressed");
        let names = metrics.map(|metric| word(&metric["metric"]));
        for name in names.filter(|name| *name != "device") {
            write!(result, " {name}").unwrap();
        }
        if list(&row["uncounted"]).next().is_some() {
            result.push_str(" uncounted");
        }
        let case = word(&row["case"])
            .replace("fake/gpu:", "")
            .replace(",d16", "");
        match answers.iter_mut().find(|(known, _)| *known == result) {
            Some((_, cases)) => cases.push(case),
            None => answers.push((result, vec![case])),
        }
    }
    let mut text = word(&judgement["verdict"]["outcome"]).to_owned();
    for (said, cases) in answers {
        write!(text, " · {}={said}", cases.join(" ")).unwrap();
    }
    let expectations = list(&judgement["expectations"]);
    let results = expectations.map(|expectation| word(&expectation["word"]));
    let results = results.joined(", ");
    if !results.is_empty() {
        write!(text, " · expectations {results}").unwrap();
    }
    text
}

#[test]
fn every_situation_has_its_answer() {
    let table = fs::read_to_string(TABLE).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    let asked = |line: &str| !line.trim().is_empty() && !line.starts_with('#');
    let (bases, next) = (Bases::default(), AtomicUsize::new(0));
    let answers = Mutex::new(vec![String::new(); lines.len()]);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(line) = lines.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut all = lines.iter();
                    let at = all.position(|other| std::ptr::eq(*other, *line)).unwrap();
                    let question = line.split("=>").next().unwrap().trim_end();
                    let whole = if asked(line) {
                        format!("{question} => {}", answered(question, &bases).trim_end())
                    } else {
                        (*line).to_owned()
                    };
                    answers.lock().unwrap()[at] = whole;
                }
            });
        }
    });
    let answers = answers.into_inner().unwrap();
    if std::env::var("REGATTA_SITUATIONS").is_ok_and(|how| how == "write") {
        fs::write(Path::new(TABLE), aligned(&answers)).unwrap();
        return;
    }
    let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let pairs = lines.iter().zip(&answers);
    let wrong = pairs.filter(|(wanted, answers)| squeezed(wanted) != squeezed(answers));
    let wrong = wrong.map(|(a, b)| format!("-{}\n+{}", squeezed(a), squeezed(b)));
    let wrong = wrong.joined("\n");
    assert!(wrong.is_empty(), "these answers differ:\n{wrong}");
}

/// Suites of eight cases through the gate: of each case its change is drawn. What got slower by
/// 5 % or more is regressed, what got faster never fails the gate, and what stayed is the same.
#[test]
#[ignore = "takes a minute"]
fn nightly_random_suites_through_the_gate() {
    let (bases, mut random) = (Bases::default(), ChaCha8Rng::seed_from_u64(7));
    for number in 0..50 {
        let changes: Vec<(u64, i64)> = (2..10)
            .map(|number| {
                let size = random.random_range(5..=50);
                (8 * number, [0, 0, size, -size][random.random_range(0..4)])
            })
            .collect();
        let moved = changes.iter().filter(|(_, change)| *change != 0);
        let script = moved.map(|(seq, change)| format!("s{seq}:{change:+}%"));
        let script = match script.joined(",") {
            script if script.is_empty() => "-".to_owned(),
            script => script,
        };
        let line = format!("suite {number} | many | - | {script} | gate --base BASE");
        let answer = answered(&line, &bases);
        let words = |of: fn(i64) -> bool| -> Vec<String> {
            let selected = changes.iter().filter(|(_, change)| of(*change));
            selected.map(|(seq, _)| format!("s{seq}")).collect()
        };
        let grouped = |word: &str| -> Vec<String> {
            let groups = answer
                .split(" · ")
                .filter_map(|group| group.split_once('='));
            let cases = groups.filter(|(_, results)| results.split(' ').next() == Some(word));
            let mut cases: Vec<String> = cases
                .flat_map(|(cases, _)| cases.split(' ').map(str::to_owned))
                .collect();
            cases.sort();
            cases
        };
        let slower = words(|change| change > 0);
        let fails = answer.starts_with("1 ");
        assert_eq!(fails, !slower.is_empty(), "{line}: {answer}");
        for (word, expected) in [
            ("regressed", slower),
            ("improved", words(|change| change < 0)),
            ("same", words(|change| change == 0)),
        ] {
            assert_eq!(grouped(word), expected, "{line}: {answer}");
        }
    }
}

/// The lines with their cells below each other.
fn aligned(lines: &[String]) -> String {
    let cells = |line: &str| -> Vec<String> {
        let (question, answer) = line.split_once("=>").unwrap_or((line, ""));
        let cells = question.split('|').map(|cell| cell.trim().to_owned());
        cells.chain([format!("=> {}", answer.trim())]).collect()
    };
    let is_row = |line: &&String| line.contains("=>") && !line.starts_with('#');
    let mut widths = [0; 6];
    for line in lines.iter().filter(is_row) {
        for (width, cell) in widths.iter_mut().zip(cells(line)) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for line in lines {
        if is_row(&line) {
            let cells = cells(line).into_iter().zip(widths).enumerate();
            let padded = cells.map(|(at, (cell, width))| match at {
                0 => format!("{cell:width$}"),
                5 => cell,
                _ => format!("| {cell:width$}"),
            });
            text.push_str(&padded.joined(" "));
        } else {
            text.push_str(line)
        }
        text.push('\n');
    }
    text
}
