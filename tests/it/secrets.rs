//! Secrets of a command line, a suite and the environment are in no file and no stream.

use std::fs;
use std::path::Path;

use crate::common::{Place, fake_worker};

/// Forms of secrets: words apart by `|`, with `SECRET` in the place of one.
const FORMS: &str = include_str!("../../crates/core/src/secrets/forms.txt");

/// The secret of a form: no two are alike.
fn secret(place: usize) -> String {
    format!("s3cr3tW{place:03}")
}

/// The words of all forms, each with its own secret.
fn words() -> Vec<String> {
    let forms = FORMS.lines().filter(|form| !form.is_empty()).enumerate();
    let words = forms.flat_map(|(place, form)| {
        let words: Vec<String> = form.split('|').skip(1).map(str::to_owned).collect();
        words
            .into_iter()
            .map(move |word| word.replace("SECRET", &secret(place)))
    });
    words.collect()
}

/// All files below a folder.
fn files(folder: &Path, paths: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            files(&entry.path(), paths);
        } else {
            paths.push(entry.path());
        }
    }
}

#[test]
fn no_secret_of_a_command_reaches_a_file_or_a_stream() {
    let count = FORMS.lines().filter(|form| !form.is_empty()).count();
    assert!(count >= 60, "{count} forms");
    let place = Place::new();
    let args = words();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let more = format!(
        "[environments.default]\nenv = {{ SERVE_API_KEY = \"{}\", PLAIN_NAME = \"{}\" }}\n",
        secret(900),
        secret(901)
    );
    place.suite("s", &["fake/steady"], &args, &more);
    let mut streams = String::new();
    let mut ran = |args: &[&str], code: i32| {
        let mut command = place.regatta(args);
        command.env("CALLERS_TOKEN", secret(902));
        command.env("DATABASE_URL", format!("postgres://u:{}@h/db", secret(903)));
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        streams += &text;
    };
    ran(&["run", "./s.toml", "--filter", "s32"], 0);
    ran(&["baseline", "save", "s", "--force"], 0);
    let all = ["html", "markdown", "junit", "json", "csv"];
    let outputs: Vec<String> = all.iter().map(|f| format!("{f}=out/{f}.txt")).collect();
    let mut report = vec!["report", "reports/s"];
    for output in &outputs {
        report.extend(["--output", output]);
    }
    ran(&report, 0);
    // A specification has no quotes: words with spaces are of the suite alone.
    let mut plain = args.clone();
    plain.retain(|word| !word.contains(' '));
    let plain = plain.join(" ");
    let base = format!("worker:fake={} {plain}", fake_worker().display());
    let mut compare = vec!["compare", "./s.toml", "--base", &base, "--filter", "s32"];
    let outputs: Vec<String> = all.iter().map(|f| format!("{f}=out/pairs.{f}")).collect();
    for output in &outputs {
        compare.extend(["--output", output]);
    }
    ran(&compare, 0);
    // A worker that cannot be started, and one that repeats its arguments where it fails.
    let echo = "echo \"error: unrecognized: $*\" >&2; env >&2; exit 2\n";
    place.write("echo.sh", echo);
    // The last has a typing error.
    for worker in ["fake=./missing", "fake=sh echo.sh", "fake./serve"] {
        let base = format!("--base=worker:{worker} {plain}");
        ran(&["compare", "./s.toml", &base, "--filter", "s32"], 2);
    }

    let mut paths = Vec::new();
    files(place.path(), &mut paths);
    // A program's own output, in `logs`, is kept as it is; its folder says so.
    let own = ["s.toml", "echo.sh", "logs"];
    paths.retain(|path| !path.iter().any(|part| own.iter().any(|name| part == *name)));
    assert!(paths.len() >= 12, "{paths:?}");
    let texts = paths.iter().map(|path| {
        let text = String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        (path.display().to_string(), text)
    });
    for (name, text) in texts.chain([("a stream".to_owned(), streams.clone())]) {
        if let Some(at) = text.find("s3cr3tW") {
            let from = text.floor_char_boundary(at.saturating_sub(200));
            let to = text.ceil_char_boundary((at + 60).min(text.len()));
            panic!("{name} has a secret: ...{}", &text[from..to]);
        }
    }
}

/// A worker's words are text: none of them begins a line, an annotation or a sequence of a terminal.
#[test]
fn what_a_worker_says_of_its_device_is_text_wherever_it_is_printed() {
    let hostile = "abacus\n::error::pwned\r\u{1b}[2J\u{202e}";
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    let command = fake_worker().display().to_string();
    place.edit(
        "s.toml",
        &format!("fake = [{command:?}"),
        &format!("fake = [{command:?}, \"--device\", {hostile:?}"),
    );
    place.edit("s.toml", "\\u{1b}", "\\u001b");
    place.edit("s.toml", "\\u{202e}", "\\u202e");
    let mut gate = place.regatta(&["gate", "./s.toml", "--output", "markdown=out.md"]);
    let output = gate.env("GITHUB_ACTIONS", "true").output().unwrap();
    let page = fs::read(place.path().join("out.md")).unwrap_or_default();
    let text = [output.stdout, output.stderr, page].concat();
    let text = String::from_utf8_lossy(&text);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("pwned"), "{text}");
    let begins = |line: &str| line.trim_start().starts_with("::error::pwned");
    assert!(!text.lines().any(begins), "{text}");
    for never in ["\u{1b}[2J", "\u{202e}"] {
        assert!(!text.contains(never), "{text}");
    }
}
