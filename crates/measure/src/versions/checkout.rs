//! A revision as a folder of its own: a worktree in the cache, built once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::git::{Checkout, Git, GitError, commit};
use regatta_core::cache;
use regatta_core::input;
use regatta_core::names::plain_name;
use regatta_core::output;
use regatta_core::record::built::Built;
use regatta_core::suite::build::Build;

/// Why a revision cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum RevisionError {
    /// Git does not know it, or cannot check it out.
    #[error("git:{revision}: {error}")]
    Git {
        /// As it was asked for.
        revision: String,
        /// Git's words.
        error: GitError,
    },
    /// A file of its folder.
    #[error("git:{revision}: {path}: {error}")]
    File {
        /// As it was asked for.
        revision: String,
        /// The file.
        path: String,
        /// The system's words.
        error: io::Error,
    },
}

/// A revision of a checkout that has a folder of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// As it was asked for.
    pub asked: String,
    /// The commit, in full.
    pub commit: String,
    /// The folder that stands for the one it was asked for in: that of the same path below
    /// the checkout's root.
    pub directory: PathBuf,
    /// Where it is noted that it was built, and how.
    note: PathBuf,
}

impl Revision {
    /// The folder of a revision of the checkout that `directory` is in, made where it is not
    /// there. A worktree of git's lies in the cache, by the checkout and the commit, and is
    /// never changed: one that somebody changed is made anew.
    ///
    /// # Errors
    /// When git does not know the revision, or it cannot be checked out.
    pub fn found(directory: &Path, revision: &str) -> Result<Revision, RevisionError> {
        let here = Checkout::at(directory);
        let of_git = |error| RevisionError::Git {
            revision: revision.to_owned(),
            error,
        };
        let of_file = |path: &Path, error| RevisionError::File {
            revision: revision.to_owned(),
            path: path.display().to_string(),
            error,
        };
        let commit = commit(&here, revision).map_err(of_git)?;
        let root = PathBuf::from(
            here.ask(&["rev-parse", "--show-toplevel"])
                .map_err(of_git)?,
        );
        let prefix = here.ask(&["rev-parse", "--show-prefix"]).map_err(of_git)?;
        let cache = cache::folder().map_err(|error| of_file(Path::new("the cache"), error))?;
        let folder = folder(&cache, &root);
        let worktree = folder.join(&commit);
        let note = folder.join(format!("{commit}.built"));
        if !is_whole(&worktree, &commit, note.exists()) {
            for path in [&note, &worktree] {
                removed(path).map_err(|error| of_file(path, error))?;
            }
            fs::create_dir_all(&folder).map_err(|error| of_file(&folder, error))?;
            // Git remembers worktrees whose folders are gone.
            here.ask(&["worktree", "prune"]).map_err(of_git)?;
            let path = worktree.display().to_string();
            let add = [
                "worktree", "add", "--quiet", "--detach", "--force", &path, &commit,
            ];
            here.ask(&add).map_err(of_git)?;
            if worktree.join(".gitmodules").is_file() {
                let modules = ["submodule", "--quiet", "update", "--init", "--recursive"];
                Checkout::at(&worktree).ask(&modules).map_err(of_git)?;
            }
        }
        let directory = worktree.join(prefix);
        if !directory.is_dir() {
            return Err(of_git(GitError(format!(
                "there is no folder {} at that revision",
                directory
                    .strip_prefix(&worktree)
                    .unwrap_or(&directory)
                    .display()
            ))));
        }
        Ok(Revision {
            asked: revision.to_owned(),
            commit,
            directory,
            note,
        })
    }

    /// What it cost to build it as `build` says; `None` where it was not, or something that is
    /// made of it is gone.
    pub fn built(&self, build: &Build) -> Option<Built> {
        let text = input::text(&self.note, input::WRITTEN_BY_HAND).ok()?;
        let noted: Noted = serde_json::from_str(&text).ok()?;
        let there = |path: &PathBuf| self.directory.join(path).exists();
        let whole = noted.recipe == recipe(build) && build.makes.iter().all(there);
        whole.then_some(noted.built)
    }

    /// Notes that it was, and what that cost.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn note_built(&self, build: &Build, built: &Built) -> io::Result<()> {
        let noted = Noted {
            recipe: recipe(build),
            built: built.clone(),
        };
        let text = serde_json::to_vec(&noted)?;
        output::write(&self.note, &text).map_err(io::Error::other)
    }
}

/// What is noted beside a worktree that was built.
#[derive(Serialize, Deserialize)]
struct Noted {
    recipe: String,
    built: Built,
}

/// What a build does, as it is noted.
fn recipe(build: &Build) -> String {
    let makes = build.makes.iter().map(|path| path.display().to_string());
    let words = build.command.iter().cloned().chain(["makes".to_owned()]);
    words.chain(makes).collect::<Vec<_>>().join("\n")
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
    let git = Checkout::at(worktree);
    let head = git.ask(&["rev-parse", "HEAD"]);
    let changes = || git.ask(&["status", "--porcelain", "--untracked-files=no"]);
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
