//! What git is asked, and how.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::identity::checksum;
use regatta_core::record::types as record;

/// Options that keep the caller's own git from running programs, paging, or writing paths in a
/// way of its own.
const PLAIN: [&str; 8] = [
    "--no-pager",
    "-c",
    "core.quotepath=off",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "--no-optional-locks",
];

/// Why git did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GitError(pub String);

/// Asks git something.
pub trait Git {
    /// What it prints.
    ///
    /// # Errors
    /// Its words, where it fails or is not there.
    fn bytes(&self, arguments: &[&str]) -> Result<Vec<u8>, GitError>;

    /// The same as text, without the last line's end.
    ///
    /// # Errors
    /// As [`bytes`](Git::bytes).
    fn ask(&self, arguments: &[&str]) -> Result<String, GitError> {
        let printed = self.bytes(arguments)?;
        let text = String::from_utf8_lossy(&printed);
        Ok(text.trim_end_matches('\n').to_owned())
    }
}

/// The git of a checkout.
#[derive(Clone, Debug)]
pub struct Checkout {
    /// Where it is asked.
    pub directory: PathBuf,
}

impl Checkout {
    /// The checkout that this folder is in.
    pub fn at(directory: impl AsRef<Path>) -> Checkout {
        Checkout {
            directory: directory.as_ref().to_owned(),
        }
    }
}

impl Git for Checkout {
    fn bytes(&self, arguments: &[&str]) -> Result<Vec<u8>, GitError> {
        let mut command = Command::new("git");
        command.arg("-C").arg(&self.directory).args(PLAIN);
        command.args(arguments).stdin(Stdio::null());
        let asked = || format!("git {}", arguments.join(" "));
        let output = command
            .output()
            .map_err(|error| GitError(format!("cannot start git: {error}")))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let words = String::from_utf8_lossy(&output.stderr);
        let first = words.lines().find(|line| !line.trim().is_empty());
        let words = first.map_or_else(|| output.status.to_string(), str::to_owned);
        Err(GitError(format!("{}: {words}", asked())))
    }
}

/// The commit that a revision names, in full.
///
/// # Errors
/// When there is none of this name, or no checkout.
pub fn commit(git: &dyn Git, revision: &str) -> Result<String, GitError> {
    let named = format!("{revision}^{{commit}}");
    let found = git.ask(&[
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        &named,
    ]);
    found.map_err(|_| match git.ask(&["rev-parse", "--git-dir"]) {
        Ok(_) => GitError(format!(
            "`{revision}` names no commit of this checkout; fetch it, or name another"
        )),
        Err(error) => error,
    })
}

/// Patterns by which git leaves out what a run writes, and Python beside its sources: no change
/// of the code that is measured.
const WRITTEN: [&str; 4] = [
    ":(exclude)reports",
    ":(exclude)baselines",
    ":(exclude,glob)**/__pycache__/**",
    ":(exclude,glob)**/*.pyc",
];

/// The state of the checkout this was started in, if it is one. What lies in `output` is no
/// change of it.
pub fn checkout(output: &Path) -> Option<record::Git> {
    let git = Checkout::at(".");
    let revision = git.ask(&["rev-parse", "HEAD"]).ok()?;
    let changed_files = git.ask(&["status", "--porcelain", "--untracked-files=no"]);
    let dirty = !changed_files.ok()?.is_empty();
    let written = output
        .is_relative()
        .then(|| format!(":(exclude){}", output.display()));
    let changed = |what: &[&str]| {
        let but = WRITTEN.into_iter().chain(written.as_deref());
        git.bytes(&what.iter().copied().chain(but).collect::<Vec<_>>())
            .ok()
    };
    let changes = changed(&["diff", "HEAD", "--binary", "--no-ext-diff", "--", ":/"])?;
    let untracked = changed(&[
        "ls-files",
        "--others",
        "--exclude-standard",
        "-z",
        "--",
        ".",
    ])?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&changes);
    for name in untracked.split(|byte| *byte == 0).filter(|n| !n.is_empty()) {
        hasher.update(name);
        let path = String::from_utf8_lossy(name);
        hasher.update(checksum(Path::new(path.as_ref())).as_bytes());
    }
    let clean = changes.is_empty() && untracked.is_empty();
    Some(record::Git {
        revision,
        dirty,
        changes: (!clean).then(|| format!("{:08x}", hasher.finalize())),
    })
}
