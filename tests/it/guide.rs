//! docs/GUIDE.md, followed: the commands and files that are on the page, and the exit codes that it
//! promises.
//!
//! `REGATTA_TEST_PYTHON` names an interpreter that has NumPy; CI makes one from
//! `python/requirements-jax-cpu.txt`. The nightly test changes nothing of the page. That of each change
//! puts [`SHORTER`] in the place of a line, so its slip is another one.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::common::Place;

const GUIDE: &str = include_str!("../../docs/GUIDE.md");

/// A text of the page, and that in its place in the test of each change: a slip that costs 100 %,
/// where that of the page costs 10 %.
const SHORTER: [(&str, &str); 1] = [(
    "/[0, *range(0, problem.seq_q, 32)]/",
    "/2 * [*range(0, problem.seq_q, 32)]/",
)];

/// A step of the reader.
#[derive(Debug)]
enum Step<'a> {
    /// Writes a file, which the paragraph before the block names first.
    Writes { file: &'a str, text: &'a str },
    /// Types a command, which ends so.
    Types { command: &'a str, exit: i32 },
    /// Reads what the command before printed, which begins so.
    Reads { word: &'a str },
}

/// The steps of a page, in its order.
fn steps(page: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    let mut before = "";
    for (number, part) in page.split("```").enumerate() {
        if number % 2 == 0 {
            before = part;
            continue;
        }
        let (language, text) = part.split_once('\n').unwrap();
        match language {
            "sh" => steps.extend(text.lines().map(typed)),
            "python" | "toml" => {
                let paragraph = before.trim().rsplit("\n\n").next().unwrap();
                let file = paragraph.split('`').nth(1).unwrap();
                steps.push(Step::Writes { file, text });
            }
            "text" => steps.push(Step::Reads {
                word: text.split_whitespace().next().unwrap(),
            }),
            // Files that one may write besides.
            "py" | "toml contract" => {}
            other => panic!("a block of {other:?} is neither done nor read"),
        }
    }
    steps
}

fn typed(line: &str) -> Step<'_> {
    let (command, exit) = match line.split_once("# exit ") {
        Some((command, code)) => (command, code.parse().unwrap()),
        None => (line, 0),
    };
    Step::Types { command, exit }
}

/// Tries of a command that ends with 3 where the page says otherwise: other programs on these cores may
/// make a gate inconclusive, and one that is right repeats.
const TRIES: u32 = 3;

/// Does all that a page says, and asserts how each command ends. Where `beside_load`, a gate that is to
/// pass may stay inconclusive.
fn follow(page: &str, beside_load: bool) {
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
    let types = |command: &str| {
        let begin = Instant::now();
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", command]).current_dir(place.path());
        let output = output
            .env("PATH", &path)
            .env_remove("REGATTA_PYTHON")
            .env("XDG_CACHE_HOME", place.path().join(".git/cache"))
            // Whoever reads the page has set up git.
            .env("GIT_AUTHOR_NAME", "Ann")
            .env("GIT_AUTHOR_EMAIL", "ann@example.org")
            .env("GIT_COMMITTER_NAME", "Ann")
            .env("GIT_COMMITTER_EMAIL", "ann@example.org")
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        let code = output.status.code();
        println!("{command}: {code:?} in {:.1?}", begin.elapsed());
        (code, stdout, stderr)
    };
    let mut printed = String::new();
    for step in steps(page) {
        match step {
            Step::Writes { file, text } => place.write(file, text),
            Step::Reads { word } => {
                let first = printed.split_whitespace().next();
                assert_eq!(first, Some(word), "{printed}");
            }
            Step::Types { command, exit } => {
                let mut tried = types(command);
                let may_stay = beside_load && exit == 0;
                for _ in 1..TRIES {
                    if tried.0 == Some(3) && exit != 3 && !may_stay {
                        tried = types(command);
                    }
                }
                let (code, stdout, stderr) = tried;
                let inconclusive = code == Some(3) && stdout.contains("inconclusive");
                assert!(
                    code == Some(exit) || may_stay && inconclusive,
                    "{command}: {code:?}, and the page says {exit}\n{stdout}\n{stderr}"
                );
                printed = stdout;
            }
        }
    }
    let page = place.path().join("reports/speed/index.html");
    assert!(page.is_file(), "the page is where the guide says");
}

#[test]
#[ignore = "needs NumPy"]
fn a_shorter_page_with_another_slip_works() {
    let page = SHORTER.iter().fold(GUIDE.to_owned(), |page, (from, to)| {
        assert!(page.contains(from), "the page has no {from:?}");
        page.replace(from, to)
    });
    follow(&page, true);
}

#[test]
#[ignore = "needs NumPy, and takes minutes"]
fn nightly_the_page_works_as_it_is_written() {
    follow(GUIDE, false);
}
