//! What git is asked, and how; and a revision as a folder of its own, a worktree in the cache that
//! is built once.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::code::{checksum, is_code};
use crate::SetupError;
use regatta_core::cache;
use regatta_core::record::header::Built;
use regatta_core::record::header::Git;
use regatta_core::text::plain_name;

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

/// What git prints as text of the checkout that a folder is in, without the last line's end.
///
/// # Errors
/// Its words, where it fails or is not there.
pub fn ask(directory: &Path, arguments: &[&str]) -> Result<String, SetupError> {
    let printed = bytes(directory, arguments)?;
    let text = String::from_utf8_lossy(&printed);
    Ok(text.trim_end_matches('\n').to_owned())
}

/// What git prints.
///
/// # Errors
/// Its words, where it fails or is not there.
fn bytes(directory: &Path, arguments: &[&str]) -> Result<Vec<u8>, SetupError> {
    let mut command = Command::new("git");
    command.arg("-C").arg(directory).args(PLAIN);
    command.args(arguments).stdin(Stdio::null());
    let output = command
        .output()
        .map_err(|error| SetupError(format!("cannot start git: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let first = words.lines().find(|line| !line.trim().is_empty());
    let words = first.map_or_else(|| output.status.to_string(), str::to_owned);
    Err(SetupError(format!("git {}: {words}", arguments.join(" "))))
}

/// The commit that a revision names, in full.
///
/// # Errors
/// When there is none of this name, or no checkout.
fn commit(here: &Path, revision: &str) -> Result<String, SetupError> {
    let named = format!("{revision}^{{commit}}");
    let found = ask(
        here,
        &[
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            &named,
        ],
    );
    found.map_err(|_| match ask(here, &["rev-parse", "--git-dir"]) {
        Ok(_) => SetupError(format!(
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
pub fn state_of_checkout(output: &Path) -> Option<Git> {
    let here = Path::new(".");
    let revision = ask(here, &["rev-parse", "HEAD"]).ok()?;
    let changed_files = ask(here, &["status", "--porcelain", "--untracked-files=no"]);
    let dirty = !changed_files.ok()?.is_empty();
    let written = output
        .is_relative()
        .then(|| format!(":(exclude){}", output.display()));
    let changed = |what: &[&str]| {
        let but = WRITTEN.into_iter().chain(written.as_deref());
        bytes(here, &what.iter().copied().chain(but).collect::<Vec<_>>()).ok()
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
    for path in names(&untracked) {
        hasher.update(path.as_os_str().as_bytes());
        hasher.update(checksum(&path).as_bytes());
    }
    let clean = changes.is_empty() && untracked.is_empty();
    Some(Git {
        revision,
        dirty,
        changes: (!clean).then(|| format!("{:08x}", hasher.finalize())),
    })
}

/// The paths that git lists with a zero behind each.
fn names(listed: &[u8]) -> Vec<PathBuf> {
    let names = listed.split(|byte| *byte == 0);
    let names = names.filter(|name| !name.is_empty());
    names
        .map(|name| PathBuf::from(OsStr::from_bytes(name)))
        .collect()
}

/// Files of this checkout that a build may read: those that git tracks but texts, suites and runs,
/// and code that it does not ignore; not what the build makes.
pub(crate) fn sources(makes: &[PathBuf]) -> Vec<PathBuf> {
    let listed = |which: &[&str]| {
        let but = ["*.toml", "*.md", "*.jsonl"].map(|ending| format!(":(exclude){ending}"));
        let words = which.iter().copied().chain(["-z", "--"]).chain(WRITTEN);
        let words: Vec<&str> = words.chain(but.iter().map(String::as_str)).collect();
        names(&bytes(Path::new("."), &words).unwrap_or_default())
    };
    let mut others = listed(&["ls-files", "--others", "--exclude-standard"]);
    others.retain(|path| path.extension().is_some_and(is_code));
    let mut found = [listed(&["ls-files", "--cached"]), others].concat();
    found.retain(|path| !makes.iter().any(|made| path.starts_with(made)));
    found
}

/// A revision that is measured, in a folder of its own.
#[derive(Clone, Debug)]
pub struct Worktree {
    /// The folder that stands for the one it was asked for in: that of the same path below
    /// the checkout's root.
    pub directory: PathBuf,
    /// The commit, in full.
    pub commit: String,
    /// The regatta that was built there, which serves `cpu` and `cuda`.
    pub own: Option<PathBuf>,
    /// What building it cost, where anything was built.
    pub built: Option<Built>,
    /// Where it is noted that it was built, and how.
    pub(crate) note: PathBuf,
}

impl Worktree {
    /// The folder of a revision of the checkout that `directory` is in, made where it is not
    /// there. A worktree of git's lies in the cache, by the checkout and the commit, and is
    /// never changed: one that somebody changed is made anew. While the lock is held, another
    /// process waits that wants a revision of the checkout.
    ///
    /// # Errors
    /// When git does not know the revision, or it cannot be checked out.
    pub fn check_out(directory: &Path, revision: &str) -> Result<(Worktree, fs::File), SetupError> {
        let of_git = |error: SetupError| SetupError(format!("git:{revision}: {error}"));
        let of_file = |path: &Path, error: io::Error| {
            SetupError(format!("git:{revision}: {}: {error}", path.display()))
        };
        let commit = commit(directory, revision).map_err(of_git)?;
        let root =
            PathBuf::from(ask(directory, &["rev-parse", "--show-toplevel"]).map_err(of_git)?);
        let prefix = ask(directory, &["rev-parse", "--show-prefix"]).map_err(of_git)?;
        let cache = cache::folder().map_err(|error| of_file(Path::new("the cache"), error))?;
        let folder = folder(&cache, &root);
        let worktree = folder.join(&commit);
        let note = folder.join(format!("{commit}.built"));
        fs::create_dir_all(&folder).map_err(|error| of_file(&folder, error))?;
        let lock = fs::File::create(folder.join("lock"));
        let lock = lock.and_then(|lock| lock.lock().map(|()| lock));
        let lock = lock.map_err(|error| of_file(&folder, error))?;
        if !is_whole(&worktree, &commit, note.exists()) {
            for path in [&note, &worktree] {
                removed(path).map_err(|error| of_file(path, error))?;
            }
            // Git remembers worktrees whose folders are gone.
            ask(directory, &["worktree", "prune"]).map_err(of_git)?;
            let path = worktree.display().to_string();
            let add = [
                "worktree", "add", "--quiet", "--detach", "--force", &path, &commit,
            ];
            ask(directory, &add).map_err(of_git)?;
            if worktree.join(".gitmodules").is_file() {
                let modules = ["submodule", "--quiet", "update", "--init", "--recursive"];
                ask(&worktree, &modules).map_err(of_git)?;
            }
        }
        let directory = worktree.join(prefix);
        if !directory.is_dir() {
            return Err(of_git(SetupError(format!(
                "there is no folder {} at that revision",
                directory
                    .strip_prefix(&worktree)
                    .unwrap_or(&directory)
                    .display()
            ))));
        }
        let worktree = Worktree {
            directory,
            commit,
            own: None,
            built: None,
            note,
        };
        Ok((worktree, lock))
    }
}

/// Where the worktrees of a checkout lie: two of one name are told apart by their paths.
fn folder(cache: &Path, root: &Path) -> PathBuf {
    let name = root
        .file_name()
        .map(|name| plain_name(&name.to_string_lossy()));
    let name = name.unwrap_or_default();
    let sum = crc32fast::hash(root.as_os_str().as_encoded_bytes());
    cache.join("revisions").join(format!("{name}-{sum:08x}"))
}

/// True for a worktree at this commit in which nothing that git knows is changed, but by its
/// build, where it was `built`.
fn is_whole(worktree: &Path, commit: &str, built: bool) -> bool {
    if !worktree.join(".git").exists() {
        return false;
    }
    let head = ask(worktree, &["rev-parse", "HEAD"]);
    let changes = || ask(worktree, &["status", "--porcelain", "--untracked-files=no"]);
    head.is_ok_and(|head| head == commit)
        && (built || changes().is_ok_and(|changes| changes.is_empty()))
}

fn removed(path: &Path) -> io::Result<()> {
    let gone = match fs::symlink_metadata(path) {
        Ok(facts) if facts.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match gone {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
