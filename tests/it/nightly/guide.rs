//! docs/GUIDE.md, followed.
//!
//! `REGATTA_TEST_PYTHON` names an interpreter that has NumPy; CI makes one from
//! `python/requirements-jax-cpu.txt`.
//!
//! With `REGATTA_TEST_GUIDE=whole` it is followed word by word, which takes a machine that nobody
//! else computes on to tell 10 %, or some ten minutes. Without, [`SHORTER`] stands in for two
//! of its words: fewer processes, and a slip that costs as much again.

use std::path::Path;
use std::process::Command;

use crate::common::Place;

const GUIDE: &str = include_str!("../../../docs/GUIDE.md");

/// What is on the page, and what stands in for it where a machine is shared.
const SHORTER: [(&str, &str); 2] = [
    ("measure.invocations = 12 ", "measure.invocations = 5 "),
    (
        "/[0, *range(0, problem.seq_q, 32)]/",
        "/2 * [*range(0, problem.seq_q, 32)]/",
    ),
];

/// A text of the page, as it is followed.
fn followed(text: &str) -> String {
    match std::env::var("REGATTA_TEST_GUIDE").as_deref() {
        Ok("whole") => text.to_owned(),
        _ => {
            let shorter = SHORTER.iter();
            shorter.fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
        }
    }
}

/// What a reader does.
#[derive(Debug)]
enum Step<'a> {
    /// Writes a file, which the paragraph before the block names first.
    Writes { file: &'a str, text: &'a str },
    /// Types a command, which ends so.
    Types { command: &'a str, exit: i32 },
}

/// The steps of the page, in its order.
fn steps() -> Vec<Step<'static>> {
    let mut found = Vec::new();
    let mut before = "";
    for (number, part) in GUIDE.split("```").enumerate() {
        if number % 2 == 0 {
            before = part;
            continue;
        }
        let (language, text) = part.split_once('\n').unwrap();
        match language {
            "sh" => found.extend(text.lines().map(typed)),
            "python" | "toml" => {
                let paragraph = before.trim().rsplit("\n\n").next().unwrap();
                let file = paragraph.split('`').nth(1).unwrap();
                found.push(Step::Writes { file, text });
            }
            // What comes out, and what one may write besides.
            "text" | "py" | "toml contract" => {}
            other => panic!("a block of {other:?} is neither done nor read"),
        }
    }
    found
}

fn typed(line: &'static str) -> Step<'static> {
    let (command, exit) = match line.split_once("# exit ") {
        Some((command, code)) => (command, code.parse().unwrap()),
        None => (line, 0),
    };
    Step::Types { command, exit }
}

#[test]
#[ignore = "needs NumPy"]
fn the_page_works_as_it_is_written() {
    let python = std::env::var("REGATTA_TEST_PYTHON");
    let python = python.expect("REGATTA_TEST_PYTHON names a Python with NumPy");
    let place = Place::new();
    let folder = |path: &Path| path.parent().unwrap().display().to_string();
    let path = format!(
        "{}:{}:{}",
        folder(Path::new(env!("CARGO_BIN_EXE_regatta"))),
        folder(&std::path::absolute(python).unwrap()),
        std::env::var("PATH").unwrap_or_default()
    );
    for step in steps() {
        match step {
            Step::Writes { file, text } => place.write(file, &followed(text)),
            Step::Types { command, exit } => {
                let output = Command::new("sh")
                    .args(["-c", &followed(command)])
                    .current_dir(place.path())
                    .env("PATH", &path)
                    .env_remove("REGATTA_PYTHON")
                    .env("XDG_CACHE_HOME", place.path().join(".git/cache"))
                    // Whoever reads the page has told git a name.
                    .env("GIT_AUTHOR_NAME", "Ann")
                    .env("GIT_AUTHOR_EMAIL", "ann@example.org")
                    .env("GIT_COMMITTER_NAME", "Ann")
                    .env("GIT_COMMITTER_EMAIL", "ann@example.org")
                    .output()
                    .unwrap();
                let said = |bytes| String::from_utf8_lossy(bytes).into_owned();
                let (stdout, stderr) = (said(&output.stdout), said(&output.stderr));
                let code = output.status.code();
                // Whoever else is on these cores may make a gate inconclusive.
                let open = (code, exit) == (Some(3), 0) && stdout.contains("inconclusive");
                assert!(
                    code == Some(exit) || open,
                    "{command}: {code:?}\n{stdout}\n{stderr}"
                );
            }
        }
    }
    let page = place.path().join("reports/speed/index.html");
    assert!(page.is_file(), "the page is where the guide says");
}
