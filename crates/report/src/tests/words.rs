//! Old phrases that no help, message or document has any more, each with the field's words.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::plain::sources as sources_below;
use regatta_worker::joined::Joined;

/// A phrase, and what to write in its place.
const OLD: [(&str, &str); 46] = [
    ("hold against", "compare with"),
    ("held against", "compared with"),
    ("handed over", "passed, overridden"),
    ("handed to", "passed to"),
    ("looks slower", "suspected regression, not confirmed"),
    ("looks worse", "suspected regression, not confirmed"),
    ("looks broken", "suspected regression, not confirmed"),
    ("could have hidden", "may hide"),
    ("quiet ground", "idle cores, no interference"),
    ("machine was in the times", "interference"),
    ("fresh invocation", "extra invocation"),
    ("another metric regressed", "other metrics regressed"),
    ("another structure", "launch structure changed"),
    ("beside the device", "in another metric"),
    ("nothing moved", "no change"),
    ("nothing else moved", "no other case changed"),
    ("who moved", "cases that changed together"),
    ("the rest:", "other cases:"),
    ("taken again", "retried"),
    ("thrown away", "discarded"),
    ("throw away", "discard"),
    ("throws away", "discards"),
    ("put aside", "archived"),
    ("set aside", "discarded"),
    ("let go of", "released"),
    ("passes over", "skips"),
    ("begins anew", "starts a new run"),
    ("behind a gate", "on a blocked stream"),
    ("clean sweep", "A/A test"),
    ("in no step that stands out", "without one step"),
    ("crept", "drifted"),
    ("dealt", "partitioned, assigned"),
    ("dearest", "slowest"),
    ("all cases share", "common shift"),
    ("companion", "control case"),
    ("held to account", "known-bad suite"),
    ("keeps silent", "reports nothing"),
    ("sees of", "minimum detectable change"),
    ("what a gate sees", "minimum detectable change"),
    ("smallest effect", "minimum detectable change"),
    ("noise floor", "threshold"),
    ("was told", "was reported"),
    ("thin evidence", "few invocations"),
    ("a walk", "data path"),
    ("the house", "module map"),
    ("where the minutes go", "run time breakdown"),
];

/// True for a source in Rust that is not a test.
fn is_product(path: &Path) -> bool {
    let tests = "tests tests.rs testing testing.rs benches examples target";
    let is_test = |part: &OsStr| tests.split(' ').any(|name| part == name);
    path.extension().is_some_and(|end| end == "rs") && !path.iter().any(is_test)
}

/// The string literals of a file, and the doc comments, which are help where clap reads them.
fn literals(source: &str, help: bool) -> String {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut text = String::new();
    let mut inside = false;
    for line in source.lines().map(str::trim_start) {
        match line.strip_prefix("///") {
            Some(doc) if help && !inside => text += doc,
            _ if !inside && line.starts_with("//") => {}
            _ => {
                // An escaped quote that opens is closed by the next one.
                let line = line.replace("\\\"", "'").replace("'\"'", "''");
                for (place, part) in line.split('"').enumerate() {
                    inside ^= place > 0;
                    if inside {
                        text += part.trim_end_matches('\\');
                    }
                }
            }
        }
        text.push(' ');
    }
    text
}

/// The sources of the program and of its crates.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = Vec::new();
    for folder in ["src", "crates"] {
        sources_below(&root.join(folder), &mut paths);
    }
    let read = |path: PathBuf| {
        let help = path.starts_with(root.join("src"));
        let text = literals(&fs::read_to_string(&path).unwrap(), help);
        (path, text)
    };
    let product = paths.into_iter();
    let product = product.filter(|path| is_product(path.strip_prefix(&root).unwrap()));
    product.map(read).collect()
}

/// Only the terminal renderer lays out text; padding anywhere else should be a table of a document.
#[test]
fn only_the_terminal_renderer_pads() {
    // The list of commands is clap's.
    let may = ["report/src/terminal.rs", "src/main.rs"];
    let pads = |text: &str| {
        let mut fields = text.split('{').filter_map(|field| field.split_once('}'));
        fields.any(|(field, _)| {
            field
                .split_once(':')
                .is_some_and(|(_, form)| form.starts_with(['<', '>']))
        })
    };
    let padded = sources().into_iter();
    let padded =
        padded.filter(|(path, text)| !may.iter().any(|may| path.ends_with(may)) && pads(text));
    let padded: Vec<PathBuf> = padded.map(|(path, _)| path).collect();
    assert!(padded.is_empty(), "{padded:?}");
}

#[test]
fn no_old_phrase_stands_in_help_messages_or_documents() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts = sources();
    let documents = fs::read_dir(root.join("docs")).unwrap();
    let documents = documents.map(|entry| entry.unwrap().path());
    let documents = documents.filter(|path| path.extension().is_some_and(|end| end == "md"));
    for path in documents.chain([root.join("README.md")]) {
        let text = fs::read_to_string(&path).unwrap();
        texts.push((path, text));
    }
    assert!(texts.len() > 150, "{} files", texts.len());
    let mut misused = Vec::new();
    for (path, text) in texts {
        let text = text.to_lowercase();
        let text = format!(" {} ", text.split_whitespace().joined(" "));
        for (old, new) in OLD {
            let starts = |at: usize| !text[..at].ends_with(char::is_alphanumeric);
            if text.match_indices(old).any(|(at, _)| starts(at)) {
                misused.push(format!("{}: `{old}`: say {new}", path.display()));
            }
        }
    }
    assert!(misused.is_empty(), "{}", misused.join("\n"));
}
