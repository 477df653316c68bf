//! Forms of the sources that have to be read twice: comments without a subject, variables that say nothing
//! of their value, and words with a plainer one in their place. `match` on a boolean is clippy's
//! `match_bool`.

use std::fs;
use std::path::{Path, PathBuf};

/// First words of a comment that leave out its subject: name the thing, or write "Returns …".
const OPENINGS: [&str; 9] = [
    "What", "Of", "Nor", "Beside", "Its", "How", "Where", "Whose", "Whether",
];

/// Names of variables that say nothing of their value: use the noun of its type.
const NAMES: [&str; 6] = ["of", "told", "found", "said", "came", "none"];

/// Words, and what to write in their place.
const WORDS: [(&str, &str); 17] = [
    ("anew", "again"),
    ("told", "reported, asked, known"),
    ("nobody", "no one, or the passive"),
    ("at hand", "available"),
    ("kept up", "kept running"),
    ("laid to", "attributed to"),
    ("came of", "the result of"),
    ("as they lie", "in place"),
    ("is owed", "is pending"),
    ("are owed", "are pending"),
    ("goes on", "continues, is resumed"),
    ("go on", "continue"),
    ("works off", "covers"),
    ("is none", "is not one"),
    ("are none", "are not"),
    ("is to be", "must be, will be"),
    ("are to be", "must be, will be"),
];

/// The first form of a line of code that has to be read twice, and what to write; `None` without one.
fn fault(line: &str, rust: bool) -> Option<String> {
    let text = line.trim_start();
    let comment = ["///", "//!", "//", "\"\"\"", "#"]
        .iter()
        .find_map(|mark| text.strip_prefix(mark));
    let opening = comment.and_then(|comment| {
        let first = comment.trim_start().split(|c: char| !c.is_alphabetic());
        OPENINGS
            .into_iter()
            .find(|word| first.clone().next() == Some(word))
    });
    if let Some(word) = opening {
        return Some(format!("a comment opens with `{word}`: name the thing"));
    }
    let names = |name: &&str| {
        has(line, &format!("let {name}"))
            || has(line, &format!("let mut {name}"))
            || line.contains(&format!("|{name}|"))
    };
    if let Some(name) = NAMES.into_iter().find(names).filter(|_| rust) {
        return Some(format!("a variable `{name}`: use the noun of its type"));
    }
    let mut words = WORDS.into_iter();
    let (word, plain) = words.find(|(word, _)| has(line, word))?;
    Some(format!("`{word}`: write {plain}"))
}

/// Returns true if a line has this text as whole words.
fn has(line: &str, text: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(text)
        .any(|(at, _)| !line[..at].ends_with(part) && !line[at + text.len()..].starts_with(part))
}

/// The sources of a folder and those below it.
pub fn sources(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.is_dir() {
            sources(&path, paths);
        } else if matches!(extension, Some("rs" | "py" | "cu" | "cuh" | "h" | "toml")) {
            paths.push(path);
        }
    }
}

#[test]
fn sources_are_read_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = Vec::new();
    for folder in [
        "src", "crates", "tests", "python", "kernels", "suites", "examples",
    ] {
        sources(&root.join(folder), &mut paths);
    }
    assert!(paths.len() > 500, "{} files", paths.len());
    let lists =
        |path: &PathBuf| path.ends_with("tests/plain.rs") || path.ends_with("tests/words.rs");
    let mut faults = Vec::new();
    for path in paths.into_iter().filter(|path| !lists(path)) {
        let rust = path.extension().is_some_and(|extension| extension == "rs");
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            if let Some(fault) = fault(line, rust) {
                let path = path.strip_prefix(&root).unwrap().display();
                faults.push(format!("{path}:{}: {fault}", number + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn each_form_is_found_and_plain_lines_are_not() {
    for (line, expected) in [
        ("/// What a call does.", "opens with `What`"),
        ("    //! Whether it has one.", "opens with `Whether`"),
        ("# How it is started.", "opens with `How`"),
        ("let mut found = Vec::new();", "a variable `found`"),
        ("let told = 1;", "a variable `told`"),
        ("rows.map(|of| of.name)", "a variable `of`"),
        ("// It is made anew.", "`anew`"),
        ("the batch is to be sorted", "`is to be`"),
    ] {
        let fault = fault(line, true).unwrap_or_default();
        assert!(fault.contains(expected), "{line}: {fault}");
    }
    for line in [
        "/// Whatever it is.",
        "let (of, _) = pair;",
        "let foundation = 1;",
        "let found_reading = 1;",
        "if row is None:",
        "the untold manew ago on",
    ] {
        assert_eq!(fault(line, true), None, "{line}");
    }
    assert_eq!(
        fault("told = 1", false).as_deref(),
        Some("`told`: write reported, asked, known")
    );
    assert_eq!(fault("let found = 1;", false), None);
}
