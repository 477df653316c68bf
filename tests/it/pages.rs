//! README and docs: links resolve, commands and options exist, samples are what the program prints, and
//! the tutorial of docs/FUNCTIONS.md works.
//!
//! `REGATTA_TEST_PYTHON` names an interpreter that has NumPy; CI makes one from
//! `python/requirements-jax-cpu.txt`. The nightly test follows the tutorial as it stands. The test of each
//! change puts [`SHORTER`] in the place of a line, so that its slip is a larger one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::common::{Place, python_with_numpy};
use regatta_core::suite::Metric;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A page of README and docs: its path from the root, and its text.
struct Page {
    path: String,
    text: String,
}

/// The pages that people read, without CHANGELOG.
fn pages() -> Vec<Page> {
    let mut paths = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    for folder in ["docs", "examples", "kernels", "reports/samples"] {
        let files = fs::read_dir(format!("{ROOT}/{folder}")).unwrap().flatten();
        let names = files.map(|file| file.file_name().into_string().unwrap());
        let pages = names.filter(|name| name.ends_with(".md"));
        paths.extend(pages.map(|name| format!("{folder}/{name}")));
    }
    paths.sort();
    let read = |path: String| Page {
        text: fs::read_to_string(format!("{ROOT}/{path}")).unwrap(),
        path,
    };
    paths.into_iter().map(read).collect()
}

fn page(path: &str) -> Page {
    let text = fs::read_to_string(format!("{ROOT}/{path}")).unwrap();
    Page {
        path: path.to_owned(),
        text,
    }
}

/// A code block: the prose before it, its language, and its text.
struct Block<'a> {
    before: &'a str,
    language: &'a str,
    text: &'a str,
}

impl Page {
    fn blocks(&self) -> Vec<Block<'_>> {
        let parts: Vec<&str> = self.text.split("```").collect();
        let blocks = parts.chunks_exact(2).map(|pair| {
            let (language, text) = pair[1].split_once('\n').unwrap();
            Block {
                before: pair[0],
                language,
                text,
            }
        });
        blocks.collect()
    }

    /// The text without code blocks.
    fn prose(&self) -> String {
        self.text.split("```").step_by(2).collect()
    }

    /// The code spans of the prose, with line ends as spaces.
    fn spans(&self) -> Vec<String> {
        let prose = self.prose();
        let spans = prose.split('`').skip(1).step_by(2);
        let words = spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
        words.collect()
    }

    /// The command lines of regatta that the page shows.
    fn commands(&self) -> BTreeSet<String> {
        let mut lines = Vec::new();
        for block in self.blocks() {
            if ["sh", "bash", "text", "", "yaml"].contains(&block.language) {
                lines.extend(block.text.replace("\\\n", " ").lines().map(str::to_owned));
            }
        }
        lines.extend(self.spans());
        let commands = lines.iter().filter_map(|line| {
            let line = line.split(" #").next().unwrap_or_default();
            let line = line
                .trim()
                .trim_start_matches("$ ")
                .trim_start_matches("- run: ");
            let line = line.split(" | ").next().unwrap_or_default();
            line.starts_with("regatta ").then(|| line.trim().to_owned())
        });
        commands.collect()
    }
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ if letter.is_alphanumeric() => Some(letter),
        _ => None,
    });
    kept.collect()
}

#[test]
fn links_resolve() {
    let mut broken = Vec::new();
    for page in pages() {
        let folder = PathBuf::from(ROOT).join(&page.path);
        let folder = folder.parent().unwrap();
        let prose = page.prose();
        let targets = prose.split("](").skip(1);
        for target in targets.filter_map(|text| text.split(')').next()) {
            let target = target.split_whitespace().collect::<String>();
            if target.starts_with("http") {
                continue;
            }
            let (path, heading) = target.split_once('#').unwrap_or((&target, ""));
            let file = if path.is_empty() {
                PathBuf::from(ROOT).join(&page.path)
            } else {
                folder.join(path)
            };
            let there = file.exists();
            let text = fs::read_to_string(&file).unwrap_or_default();
            let mut headings = text.lines().filter(|line| line.starts_with('#'));
            let resolves = heading.is_empty()
                || headings.any(|line| anchor(line.trim_start_matches('#').trim()) == heading);
            if !there || !resolves {
                broken.push(format!("{}: {target}", page.path));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Placeholders of pages, each with a value that the program takes.
const PLACEHOLDERS: [(&str, &str); 9] = [
    ("--shard I/N", "--shard 1/4"),
    ("--invocations N", "--invocations 5"),
    ("--runs N", "--runs 5"),
    ("--set NAME=VALUE", "--set peak=true"),
    ("--output FORMAT=PATH", "--output html=PATH"),
    ("--base SPEC", "--base here"),
    ("--head SPEC", "--head here"),
    ("--base ...", "--base here"),
    ("=DIR", "=html"),
];

/// Each command line that a page shows is parsed: `--help` at its end prints the help of a command whose
/// options are known and have values that it takes.
#[test]
fn commands_exist() {
    let place = Place::new();
    let mut refused = Vec::new();
    for page in pages() {
        for command in page.commands() {
            let mut line = command.clone();
            for (written, value) in PLACEHOLDERS {
                line = line.replace(written, value);
            }
            let help = match line.split_once(" -- ") {
                Some((own, _)) => format!("{own} --help"),
                None => format!("{line} --help"),
            };
            let mut shell = place.command("sh");
            let regatta = env!("CARGO_BIN_EXE_regatta");
            let output = shell.args(["-c", &help.replacen("regatta", regatta, 1)]);
            let output = output.output().unwrap();
            if !output.status.success() {
                let error = String::from_utf8_lossy(&output.stderr).into_owned();
                refused.push(format!("{}: {command}\n{error}", page.path));
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// Options of other programs and of scripts that pages name, pytest with regatta's fixture among them.
const OTHERS: [&str; 15] = [
    "--all-targets",
    "--benchmark",
    "--find-links",
    "--first-parent",
    "--gpu",
    "--ignored",
    "--include-ignored",
    "--kernel",
    "--mode",
    "--no-checkout",
    "--no-index",
    "--nocapture",
    "--regatta-base",
    "--release",
    "--test",
];

#[test]
fn options_and_variables_exist() {
    let place = Place::new();
    let help = |words: &[&str]| place.ran(&[words, &["--help"]].concat()).1;
    let top = help(&[]);
    let mut texts = top.clone();
    for line in top.lines().filter_map(|line| line.strip_prefix("  ")) {
        let name = line.split_whitespace().next().unwrap_or_default();
        if line.starts_with(|letter: char| letter.is_ascii_lowercase()) {
            let text = help(&[name]);
            for below in text.lines().filter_map(|line| line.strip_prefix("  ")) {
                let action = below.split_whitespace().next().unwrap_or_default();
                if below.starts_with(|letter: char| letter.is_ascii_lowercase()) {
                    texts += &help(&[name, action]);
                }
            }
            texts += &text;
        }
    }
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '-';
    let options = |text: &str| -> BTreeSet<String> {
        let words =
            text.split(|letter: char| letter.is_whitespace() || "`=[],;()'\"".contains(letter));
        let words = words.filter(|word| word.starts_with("--") && word.len() > 3);
        let names = words.filter(|word| word[2..].chars().all(is_name));
        names.map(str::to_owned).collect()
    };
    let mut known = options(&texts);
    known.extend(OTHERS.map(str::to_owned));
    let sources = sources();
    let mut unknown = Vec::new();
    let of_users = |page: &Page| page.path == "README.md" || page.path.starts_with("docs");
    for page in pages().into_iter().filter(of_users) {
        for span in page.spans() {
            if span.starts_with("--") || span.starts_with("regatta ") {
                let missing = options(&span)
                    .into_iter()
                    .filter(|name| !known.contains(name));
                unknown.extend(missing.map(|name| format!("{}: {name}", page.path)));
            }
            let variable = span.split('=').next().unwrap_or_default();
            if variable.starts_with("REGATTA_") && !sources.contains(variable) {
                unknown.push(format!("{}: {variable}", page.path));
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// The sources of the program, its crates and its Python, with the parts of a literal that stand on several
/// lines joined.
fn sources() -> String {
    let mut text = String::new();
    let mut folders = ["src", "crates", "python", "tests/it", ".ci"]
        .map(|name| Path::new(ROOT).join(name))
        .to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(source) = fs::read_to_string(&path) {
                text += &source;
            }
        }
    }
    let mut lines = text.lines();
    let mut joined = String::new();
    while let Some(mut line) = lines.next() {
        joined += "\n";
        while let Some(start) = line.strip_suffix('\\') {
            joined += start;
            line = lines.next().unwrap_or_default().trim_start();
        }
        joined += line;
    }
    joined
}

/// Each message that docs/INCONCLUSIVE.md quotes is one of the program's.
#[test]
fn quoted_messages_exist() {
    let sources = sources();
    let page = page("docs/INCONCLUSIVE.md");
    let lines = page.text.lines();
    let rows = lines.filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    let quoted: Vec<&str> = cells.flat_map(|cell| cell.split('`').step_by(2)).collect();
    assert!(quoted.len() > 15, "{quoted:?}");
    let parts = quoted.iter().flat_map(|message| message.split('…'));
    let missing = parts.filter(|part| !sources.contains(part.trim_end_matches(':').trim()));
    let missing: Vec<&str> = missing.collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

/// True where `lines` are `pattern`, in which a line `...` stands for any lines.
fn matches(pattern: &[&str], lines: &[&str]) -> bool {
    match pattern {
        [] => lines.is_empty(),
        ["...", rest @ ..] => (0..=lines.len()).any(|skipped| matches(rest, &lines[skipped..])),
        [first, rest @ ..] => lines.first() == Some(first) && matches(rest, &lines[1..]),
    }
}

/// A block that begins with `$ regatta` is what that command prints in a clone, at 80 columns.
#[test]
fn samples_are_what_the_program_prints() {
    let mut number = 0;
    // Those of kernels/ take CUDA's compiler.
    let pages = pages().into_iter();
    for page in pages.filter(|page| !page.path.starts_with("kernels")) {
        for block in page.blocks() {
            let Some(sample) = block.text.strip_prefix("$ regatta ") else {
                continue;
            };
            let (command, pattern) = sample.split_once('\n').unwrap();
            let words: Vec<&str> = command.split_whitespace().collect();
            let mut regatta = Command::new(env!("CARGO_BIN_EXE_regatta"));
            let output = regatta.args(words).current_dir(ROOT).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
            let pattern: Vec<&str> = pattern.lines().filter(|line| !line.is_empty()).collect();
            let path = &page.path;
            assert!(matches(&pattern, &lines), "{path}: {command}\n{text}");
            number += 1;
        }
    }
    assert!(number > 0, "no page has a sample");
}

/// Each sample that docs/EVIDENCE.md names is one that `regatta report` still reads: a run, a
/// comparison, or traces.
#[test]
fn samples_of_evidence_are_read() {
    let place = Place::new();
    let mut names = BTreeSet::new();
    let evidence = page("docs/EVIDENCE.md").text;
    for link in evidence.split("](../reports/samples/").skip(1) {
        names.extend(link.split(['/', ')']).next());
    }
    let mut refused = Vec::new();
    let mut number = 0;
    for name in names {
        let folder = format!("{ROOT}/reports/samples/{name}");
        let files = fs::read_dir(&folder).unwrap().flatten();
        let mut inputs: Vec<PathBuf> = files.map(|file| file.path()).collect();
        let has_run = |path: &Path| path.is_dir() || path.ends_with("run.jsonl");
        let is_run = inputs.iter().any(|path| has_run(path));
        inputs.retain(|path| path.extension().is_some_and(|end| end == "trace"));
        inputs.extend(is_run.then(|| PathBuf::from(folder)));
        for input in inputs {
            let mut regatta = place.command(env!("CARGO_BIN_EXE_regatta"));
            let output = format!("--output=html={}", place.path().join("page.html").display());
            let output = regatta.arg("report").arg(&input).arg(output);
            let output = output.current_dir(ROOT).output().unwrap();
            number += 1;
            if !output.status.success() {
                let error = String::from_utf8_lossy(&output.stderr);
                refused.push(format!("{}: {error}", input.display()));
            }
        }
    }
    assert!(number > 15, "{number} samples");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// The pictures of docs/images, and the command that draws each.
const PICTURES: [(&str, &str); 3] = [
    (
        "forest",
        "diff reports/samples/compare-fla/base reports/samples/compare-fla/head",
    ),
    ("matrix", "report reports/samples/providers"),
    ("roofline", "report reports/samples/roofline"),
];

/// The pictures of README are those that its program draws; `REGATTA_PICTURES=write` draws them again.
#[test]
fn pictures_are_what_the_program_draws() {
    let place = Place::new();
    let readme = page("README.md").text;
    for (kind, command) in PICTURES {
        let mut regatta = Command::new(env!("CARGO_BIN_EXE_regatta"));
        let folder = place.path().join(kind);
        let output = format!("--output=figures={}", folder.display());
        let drawn = regatta.args(command.split(' ')).arg(output);
        drawn.current_dir(ROOT).output().unwrap();
        for theme in ["light", "dark"] {
            let name = format!("{kind}-{theme}.svg");
            let (drawn, kept) = (folder.join(&name), format!("{ROOT}/docs/images/{name}"));
            if std::env::var_os("REGATTA_PICTURES").is_some() {
                fs::copy(&drawn, &kept).unwrap();
            }
            assert!(readme.contains(&format!("docs/images/{name}")), "{name}");
            let [drawn, kept] = [drawn, kept.into()].map(|path| fs::read_to_string(path).unwrap());
            let is_drawn = drawn == kept;
            assert!(is_drawn, "{name} is not what `regatta {command}` draws");
        }
    }
}

/// The suite of docs/SUITES.md, but for what lies outside of the page, is one that the program reads.
#[test]
fn the_suite_of_the_page_is_read() {
    let page = page("docs/SUITES.md");
    let mut blocks = page.blocks().into_iter();
    let suite = blocks.find(|block| block.language == "toml").unwrap();
    let place = Place::new();
    place.write("page.toml", suite.text);
    // A function, and a script that times it.
    let bench = "import timeit\ndef attention(q, k, v): pass\ntimeit.timeit(lambda: attention(1, 2, 3), number=1)\n";
    place.write("bench.py", bench);
    let (code, stdout, stderr) = place.ran(&["list", "./page.toml"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
}

#[test]
fn each_metric_stands_in_the_table_of_the_rule() {
    let page = page("docs/JUDGING.md");
    for metric in Metric::ALL {
        let row = format!("| `{}` |", metric.name());
        assert!(page.text.contains(&row), "docs/JUDGING.md lacks {row}");
    }
}

/// A page, a text of it, and that in its place in the test of each change: a slip that costs 100 %, where
/// that of the page costs 10 %; and one whose result is wrong in the first pair.
const SHORTER: [(&str, &str, &str); 2] = [
    (
        "docs/FUNCTIONS.md",
        "/[0, *range(0, problem.seq_q, 32)]/",
        "/2 * [*range(0, problem.seq_q, 32)]/",
    ),
    (
        "docs/SCRIPTS.md",
        "-- 64 512    # exit 1",
        "--time-limit 20s -- 64 512    # exit 1",
    ),
];

/// A page with what [`SHORTER`] puts in the place of its texts.
fn shorter(path: &str) -> Page {
    let mut page = page(path);
    for (_, from, to) in SHORTER.iter().filter(|(name, ..)| *name == path) {
        assert!(page.text.contains(from), "{path} has no {from:?}");
        page.text = page.text.replace(from, to);
    }
    page
}

/// A step of the reader.
enum Step<'a> {
    /// Reads a file, which the paragraph before the block names first.
    Reads { file: &'a str, text: &'a str },
    /// Types a command, which ends with this exit code.
    Types { command: &'a str, exit: i32 },
    /// Reads what the command before printed, which begins with this word.
    Sees { word: &'a str },
}

/// The steps of a page, in its order.
fn steps(page: &Page) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    for block in page.blocks() {
        match block.language {
            "sh" => steps.extend(block.text.lines().map(typed)),
            "python" | "toml" => {
                let paragraph = block.before.trim().rsplit("\n\n").next().unwrap();
                let file = paragraph.split('`').nth(1).unwrap();
                steps.push(Step::Reads {
                    file,
                    text: block.text,
                });
            }
            "text" if !block.text.starts_with('$') => steps.push(Step::Sees {
                word: block.text.split_whitespace().next().unwrap(),
            }),
            // Commands of a machine with a GPU, and samples.
            "bash" | "text" => {}
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
/// pass may stay inconclusive, so it stops before 35 pairs.
fn follow(page: &Page, beside_load: bool) -> Place {
    let python = python_with_numpy();
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
            Step::Reads { file, text } => {
                let path = place.path().join(file);
                if !path.exists() {
                    // The reader writes it.
                    fs::write(&path, text).unwrap();
                }
                let written = fs::read_to_string(&path).unwrap();
                assert_eq!(written, text, "{file} is not what the page shows");
            }
            Step::Sees { word } => {
                let first = printed.split_whitespace().next();
                assert_eq!(first, Some(word), "{printed}");
            }
            Step::Types { command, exit } => {
                let may_stay = beside_load && exit == 0;
                let limited = command.replacen("regatta gate", "regatta gate --time-limit 20s", 1);
                let command = if may_stay { &limited } else { command };
                let mut tried = types(command);
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
    place
}

fn has_report(place: &Place, name: &str) {
    let report = place.path().join("reports").join(name).join("index.html");
    assert!(report.is_file(), "the report is where the page says");
}

#[test]
#[ignore = "needs NumPy"]
fn a_script_is_gated_as_its_page_says() {
    let place = follow(&shorter("docs/SCRIPTS.md"), true);
    has_report(&place, "bench_norms-compare");
}

/// The tutorial with the slip of [`SHORTER`].
#[test]
#[ignore = "needs NumPy"]
fn the_tutorial_works_with_a_larger_slip() {
    has_report(&follow(&shorter("docs/FUNCTIONS.md"), true), "speed");
}

#[test]
#[ignore = "needs NumPy, and takes minutes"]
fn nightly_the_tutorial_works_as_it_is_written() {
    has_report(&follow(&page("docs/FUNCTIONS.md"), false), "speed");
}

/// README types what the tutorial types, so that following the one tries the other.
#[test]
fn what_readme_types_is_of_the_tutorial() {
    let tutorial = page("docs/FUNCTIONS.md");
    let readme = page("README.md");
    let blocks = readme.blocks();
    let is_typed = |block: &&Block| block.language == "sh";
    let mut first = blocks.iter().filter(is_typed);
    let first = first
        .find(|block| block.text.contains("regatta init"))
        .unwrap();
    let words = |line: &str| {
        line.split("  #")
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let blocks = tutorial.blocks();
    let typed = blocks
        .iter()
        .filter(is_typed)
        .flat_map(|block| block.text.lines());
    let known: BTreeSet<String> = typed.map(words).collect();
    let own = |line: &&str| !line.starts_with("cargo install") && !line.starts_with("mkdir");
    for line in first.text.lines().filter(own) {
        let is_known = known.contains(&words(line));
        assert!(is_known, "docs/FUNCTIONS.md does not type {line:?}");
    }
}
