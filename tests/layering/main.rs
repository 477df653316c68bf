//! Holds the source to the order of rooms in docs/ARCHITECTURE.md.

mod circles;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What each room may import. A room always knows itself.
const MAY: [(&str, &[&str]); 13] = [
    ("attention", &[]),
    ("machine", &[]),
    // What a suite asks for is what the protocol carries.
    ("suite", &["attention", "machine", "worker::protocol"]),
    ("worker", &["attention"]),
    ("kernels", &[]),
    (
        "variants",
        &[
            "attention",
            "machine",
            "worker::protocol",
            "worker::serve",
            "kernels",
        ],
    ),
    // A ledger of kernels is a stored file like the others.
    (
        "record",
        &[
            "attention",
            "machine",
            "suite",
            "worker::protocol",
            "kernels",
        ],
    ),
    (
        "measure",
        &[
            "attention",
            "machine",
            "suite",
            "worker",
            "record",
            "kernels",
        ],
    ),
    ("judge", &["attention", "machine", "suite", "record"]),
    (
        "report",
        &[
            "attention",
            "machine",
            "suite",
            "record",
            "judge",
            "versions",
        ],
    ),
    // It carries a text, whatever it says.
    ("forge", &[]),
    // It makes texts of a plan; what is measured and judged it leaves to other commands.
    ("submit", &["suite", "record", "report::text"]),
    // Of the judge it knows what is said of a case, not how that comes about.
    (
        "versions",
        &[
            "attention",
            "suite",
            "worker",
            "record",
            "measure",
            "judge::judgement",
        ],
    ),
];

/// The binary: it knows every room, and no room knows it.
const KNOWS_ALL: &str = "cli";

/// What draws a command line is the binary's: who stands on the library parses no arguments
/// and shows no progress bar.
const OF_THE_BINARY: [&str; 4] = ["anyhow", "clap", "clap_complete", "indicatif"];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The paths after `crate::` in a source text, braces opened one level.
fn imports(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let group = group.split('}').next().unwrap_or_default();
            found.extend(group.split(',').map(|part| part.trim().to_owned()));
        } else {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            found.push(rest[..end.unwrap_or(rest.len())].to_owned());
        }
    }
    found.retain(|path| !path.is_empty());
    found
}

fn violations(room: &str, text: &str) -> Vec<String> {
    let may: BTreeMap<&str, &[&str]> = MAY.into_iter().collect();
    let allowed = |path: &str| {
        let first = path.split("::").next().unwrap_or_default();
        if first == room || room == KNOWS_ALL {
            return true;
        }
        // What is not a room is a macro or an item of the crate root.
        if !may.contains_key(first) && first != KNOWS_ALL {
            return true;
        }
        may[room].iter().any(|room| {
            path == *room
                || path
                    .strip_prefix(room)
                    .is_some_and(|rest| rest.starts_with("::"))
        })
    };
    imports(text)
        .into_iter()
        .filter(|path| !allowed(path))
        .collect()
}

#[test]
fn imports_run_down_the_list_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    for entry in fs::read_dir(&root).unwrap().flatten() {
        if !entry.path().is_dir() {
            continue;
        }
        let room = entry.file_name().to_string_lossy().into_owned();
        assert!(
            room == KNOWS_ALL || MAY.iter().any(|(name, _)| *name == room),
            "src/{room} is no room of docs/ARCHITECTURE.md; add it there and here"
        );
        for path in sources(&entry.path()) {
            let text = fs::read_to_string(&path).unwrap();
            for import in violations(&room, &text) {
                found.push(format!("{}: {room} may not know {import}", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The crates of [`OF_THE_BINARY`] that a source text names.
fn of_the_binary(text: &str) -> Vec<&'static str> {
    let text = circles::code(text);
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let first: BTreeSet<&str> = words.filter_map(|word| word.split("::").next()).collect();
    let named = OF_THE_BINARY.into_iter();
    named.filter(|name| first.contains(name)).collect()
}

#[test]
fn the_library_draws_no_command_line() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (main, cli) = (root.join("main.rs"), root.join(KNOWS_ALL));
    let mut found = Vec::new();
    for path in sources(&root) {
        if path == main || path.starts_with(&cli) {
            continue;
        }
        for name in of_the_binary(&fs::read_to_string(&path).unwrap()) {
            found.push(format!("{}: {name} is for src/cli/ alone", path.display()));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert_eq!(of_the_binary("use clap::Args; // anyhow"), ["clap"]);
    assert_eq!(of_the_binary("fn f() -> anyhow::Result<()>"), ["anyhow"]);
}

#[test]
fn a_forbidden_import_is_seen() {
    assert_eq!(
        violations("judge", "use crate::measure::session::Session;"),
        ["measure::session::Session"]
    );
    assert_eq!(
        violations("attention", "use crate::{suite, record};").len(),
        2
    );
    assert_eq!(
        violations("variants", "use crate::worker::host::Spec;").len(),
        1
    );
    assert!(violations("variants", "use crate::worker::serve::Worker;").is_empty());
    assert_eq!(
        violations("report", "let x = crate::cli::gate::run();").len(),
        1
    );
}

fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Vec<_>>();
    let files = files.iter();
    let modules = files.map(|(path, text)| (module(path), circles::code(text)));
    circles::circles(&circles::imports(&modules.collect()))
}

#[test]
fn nobody_imports_whoever_imports_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for krate in [
        "src/lib.rs",
        "src/main.rs",
        "crates/worker/src/lib.rs",
        "probe/src/lib.rs",
    ] {
        let modules = circles::modules(&root.join(krate));
        assert!(modules.len() > 10, "{krate} was not read");
        let imports = circles::imports(&modules);
        assert!(imports.len() > 10, "{krate}: no import was found");
        let found = circles::circles(&imports);
        assert!(found.is_empty(), "{krate}:\n{}", found.join("\n"));
    }
}

#[test]
fn library_and_binary_share_no_module() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let [library, binary] = ["lib.rs", "main.rs"].map(|root| circles::modules(&src.join(root)));
    let both: Vec<_> = library
        .keys()
        .filter(|module| !module.is_empty() && binary.contains_key(*module))
        .collect();
    assert!(both.is_empty(), "{both:?}");
    assert!(
        binary
            .keys()
            .all(|module| module.is_empty() || module[0] == KNOWS_ALL)
    );
}

#[test]
fn a_circle_is_seen_however_it_is_written() {
    let told = "a::one takes Two of a::two takes make of a::one";
    for (one, two) in [
        ("use super::two::Two;", "use crate::a::one::make;"),
        (
            "use crate::a::{\n    two::{Two},\n};",
            "fn f() { super::one::make(); }",
        ),
        (
            "use super::two;\nfn f() -> two::Two {}",
            "use super::one;\nfn g() { one::make() }",
        ),
        // By way of their parent, which hands both on.
        ("use super::Two;", "use super::make;"),
    ] {
        let parent = "mod one;\nmod two;\npub use one::make;\npub use two::Two;";
        assert_eq!(
            circles_of(&[("a", parent), ("a::one", one), ("a::two", two)]),
            [told]
        );
    }
    let parent = "mod one;\nuse one::make;\npub struct Parent;\nfn f() { make() }";
    let child = "use super::Parent;";
    assert_eq!(
        circles_of(&[("a", parent), ("a::one", child)]),
        ["a takes make of a::one takes Parent of a"]
    );
}

#[test]
fn a_face_and_tests_are_no_part_of_a_circle() {
    let face = "mod one;\npub use one::one;\npub struct Parent;";
    let child = "use super::Parent;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}";
    assert!(
        circles_of(&[
            ("a", face),
            ("a::one", child),
            ("b", "use crate::a::Parent;")
        ])
        .is_empty()
    );
}

/// A temporary file that becomes another is `src/output.rs`'s: there it is tested that
/// nothing is torn, and that an error names the file.
#[test]
fn one_place_puts_files_in_the_place_of_others() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found: Vec<PathBuf> = sources(&root);
    found.retain(|path| {
        let text = circles::code(&fs::read_to_string(path).unwrap());
        text.contains(".persist(") || text.contains(".persist_noclobber(")
    });
    assert_eq!(found, [root.join("output.rs")]);
}
