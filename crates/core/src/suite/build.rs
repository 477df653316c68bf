//! `[build]`: how the code under test is built, before it is measured.

use std::path::{Component, PathBuf};

use super::document::{DocumentError, Table, Value};

/// How the code under test is built: a command, run in the folder that regatta is started in,
/// or at the root of a revision's worktree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// The program and its arguments; never empty.
    pub command: Vec<String>,
    /// What comes out of it: files or folders below the folder that it runs in. They are
    /// there afterwards, or the build failed.
    pub makes: Vec<PathBuf>,
    /// The regatta among what is made, which serves `cpu` and `cuda` of a revision.
    pub serves: Option<PathBuf>,
    /// Seconds after which it is ended, where it has a limit.
    pub timeout_s: Option<u32>,
    /// Where it was asked for: file, line and key.
    pub origin: String,
}

/// Reads the table `[build]`, which takes the place of that of the suite it extends.
///
/// # Errors
/// An unknown key, a command that starts nothing, or a path that leads elsewhere.
pub(super) fn read(table: &Table<'_>) -> Result<Build, DocumentError> {
    let command = table.require("command")?;
    let words = command.arguments()?;
    if words.first().is_none_or(String::is_empty) {
        return Err(command.error("an empty command builds nothing"));
    }
    let makes = match table.get("makes") {
        Some(value) => value.list()?.iter().map(made).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    let serves = table.get("serves").map(|value| made(&value)).transpose()?;
    let timeout = table.get("timeout_s");
    let timeout_s = timeout.map(|value| value.integer_within(1, 7 * 86_400));
    let build = Build {
        command: words,
        makes: makes.into_iter().chain(serves.clone()).collect(),
        serves,
        timeout_s: timeout_s.transpose()?.and_then(|s| u32::try_from(s).ok()),
        origin: table.place(),
    };
    table.finish()?;
    Ok(build)
}

/// A path below the folder that the command runs in. Another would be looked for in the
/// checkout of today, whichever revision is built.
fn made(value: &Value<'_>) -> Result<PathBuf, DocumentError> {
    let path = PathBuf::from(value.argument()?);
    let below = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    match !path.as_os_str().is_empty() && path.components().all(below) {
        true => Ok(path),
        false => Err(value.error(
            "name what is made by its path from the folder that the command runs in, \
             without a leading `/` and without `..`",
        )),
    }
}

#[cfg(test)]
mod tests {

    use crate::suite::Suite;
    use crate::suite::document::{DocumentError, Source};

    fn suite(more: &str) -> Result<Suite, String> {
        let source = |text: String| Source {
            label: "s.toml".to_owned(),
            text,
        };
        const SWEEP: &str = "schema = 1\ndescription = \"d\"\n";
        let base = |_: &str| -> Result<Suite, DocumentError> {
            let text = format!(
                "{SWEEP}[[sweep]]\nvariants = [\"cpu/flash\"]\nseq = 8\nhead_dim = 8\n\
                 [build]\ncommand = [\"make\"]\nmakes = [\"old\"]\ntimeout_s = 9\n"
            );
            super::super::parse::suite("base", &source(text), &|name| crate::suite::load(name))
        };
        let text = format!("{SWEEP}extends = \"base\"\n{more}");
        super::super::parse::suite("s", &source(text), &base).map_err(|error| error.to_string())
    }

    #[test]
    fn what_builds_nothing_is_refused_with_its_line() {
        for (text, words) in [
            ("makes = [\"a\"]", "s.toml:4: build: `command` is missing"),
            ("command = []", "s.toml:5: build.command: an empty command"),
            ("command = [\"\"]", "an empty command builds nothing"),
            ("command = \"make\"", "expected a list, found string"),
            (
                "command = [\"make\"]\nmakes = [\"a\", \"/usr/b\"]",
                "s.toml:6: build.makes[1] = \"/usr/b\": name what is made",
            ),
            ("command = [\"make\"]\nmakes = [\"../b\"]", "without `..`"),
            ("command = [\"make\"]\nmakes = [\"\"]", "name what is made"),
            (
                "command = [\"make\"]\ntimeout_s = 0",
                "s.toml:6: build.timeout_s = 0: must be from 1 to",
            ),
            (
                "command = [\"make\"]\ntimeout = 5",
                "did you mean `timeout_s`?",
            ),
        ] {
            let error = suite(&format!("[build]\n{text}\n")).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
