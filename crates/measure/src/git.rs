//! Queries of git; and revisions as worktrees in the cache, which are built once. The user's
//! repository changes only in that it lists these worktrees.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::SetupError;
use crate::files::{checksum, checksum_of_code, code_below, is_code};
use crate::loaded;
use regatta_core::cache;
use regatta_core::checksum::Checksum;
use regatta_core::locked::{LockedFolder, removed};
use regatta_core::output;
use regatta_core::record::{Built, Git};
use regatta_core::secrets;
use regatta_core::suite::document::or_near;
use regatta_core::text::plain_name;

/// Options that keep the user's git configuration from running programs, paging, or quoting paths.
const PLAIN: &str = "--no-pager -c core.quotepath=off -c core.fsmonitor=false -c \
     core.hooksPath=/dev/null --no-optional-locks";

/// Variables with which git uses another repository than the folder's. A hook that runs regatta has
/// them set, and git would take our worktree for the user's checkout.
const ELSEWHERE: &str = "GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_COMMON_DIR GIT_OBJECT_DIRECTORY \
     GIT_NAMESPACE GIT_PREFIX";

/// Returns git's output for the checkout of `directory`, without the last newline.
///
/// # Errors
/// Git's message if it fails, or that git is missing.
pub fn ask(
    directory: &Path,
    arguments: impl IntoIterator<Item: AsRef<OsStr>>,
) -> Result<String, SetupError> {
    let printed = bytes(directory, arguments)?;
    let text = String::from_utf8_lossy(&printed);
    Ok(text.trim_end_matches('\n').to_owned())
}

/// Returns git's output as bytes.
///
/// # Errors
/// Git's message if it fails, or that git is missing.
fn bytes(
    directory: &Path,
    arguments: impl IntoIterator<Item: AsRef<OsStr>>,
) -> Result<Vec<u8>, SetupError> {
    let mut command = Command::new("git");
    command.arg("-C").arg(directory).args(PLAIN.split(' '));
    let own = command.get_args().len();
    command.args(arguments).stdin(Stdio::null());
    for name in ELSEWHERE.split(' ') {
        command.env_remove(name);
    }
    let output = command
        .output()
        .map_err(|error| SetupError(format!("cannot start git: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let first = words.lines().find(|line| !line.trim().is_empty());
    // For a checkout of another user, git prints the command that trusts it.
    let fix = words
        .lines()
        .find(|line| line.trim().starts_with("git config "));
    let fix = fix.map_or(String::new(), |fix| {
        format!("; to trust it: {}", fix.trim())
    });
    let words = first.map_or_else(
        || output.status.to_string(),
        |first| format!("{first}{fix}"),
    );
    let arguments = command.get_args().skip(own).map(OsStr::to_string_lossy);
    let arguments: Vec<_> = arguments.collect();
    // The URL of a remote may contain a secret.
    let text = format!("git {}: {words}", arguments.join(" "));
    Err(SetupError(secrets::message(&text)))
}

/// The paths that git lists, relative to the checkout's root or to `directory`, depending on the
/// command. Empty if git fails.
fn paths(directory: &Path, arguments: impl IntoIterator<Item: AsRef<OsStr>>) -> Vec<PathBuf> {
    names(&bytes(directory, arguments).unwrap_or_default())
}

/// The full commit id of a revision.
///
/// # Errors
/// The revision is unknown or ambiguous, or the folder is not in a checkout.
fn commit(here: &Path, revision: &str) -> Result<String, SetupError> {
    let parsed = |name: &str| {
        let named = format!("{name}^{{commit}}");
        let words = "rev-parse --verify --quiet --end-of-options".split(' ');
        ask(here, words.chain([named.as_str()]))
    };
    let Ok(commit) = parsed(revision) else {
        // Fails outside of a checkout, with git's message.
        let shallow = ask(here, &["rev-parse", "--is-shallow-repository"])?;
        let remotes = ask(here, &["remote"]).unwrap_or_default();
        let branch = remotes.lines().find_map(|remote| {
            let branch = revision.strip_prefix(remote)?.strip_prefix('/')?;
            Some((remote, branch))
        });
        // A clone of a single branch fetches another only if it is named.
        let fix = match (branch, shallow.as_str()) {
            (Some((remote, branch)), _) => format!(
                "run `git fetch {remote} +refs/heads/{branch}:refs/remotes/{remote}/{branch}`"
            ),
            (None, "true") => {
                let remote = remotes.lines().find(|remote| *remote == "origin");
                let remote = remote.or(remotes.lines().next());
                let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
                let is_plain =
                    revision.chars().all(plain) && !revision.chars().all(|c| c.is_ascii_hexdigit());
                // In a clone of a single branch, `--unshallow` fetches only that branch.
                let words = match remote.filter(|_| is_plain) {
                    Some(remote) => format!("{remote} {revision}:{revision}"),
                    None => "--unshallow --tags".to_owned(),
                };
                format!("the clone is shallow: run `git fetch {words}`")
            }
            (None, _) => "fetch it".to_owned(),
        };
        let near = branch.map_or_else(|| near(here, revision), |_| String::new());
        return Err(SetupError(format!(
            "`{revision}` names no commit of this checkout; {fix}, or name another{near}"
        )));
    };
    // Git prefers a tag to a branch of the same name, with only a warning.
    match parsed(&format!("refs/heads/{revision}")) {
        Ok(branch) if branch != commit => Err(SetupError(format!(
            "`{revision}` is a branch and the name of another commit, such as a tag; name \
             `refs/heads/{revision}` or `refs/tags/{revision}`"
        ))),
        _ => Ok(commit),
    }
}

/// A hint at the branch or tag that was meant: a remote's branch of this name, or the most similar
/// name.
fn near(here: &Path, revision: &str) -> String {
    // `origin` alone is a symbolic ref: the remote's head.
    let format = "--format=%(if)%(symref)%(then)%(else)%(refname:short)%(end)";
    let names = ask(here, &["for-each-ref", format]).unwrap_or_default();
    let mut known = names
        .lines()
        .filter(|name| !name.is_empty() && *name != revision);
    let is_of_remote = |name: &&str| {
        name.split_once('/')
            .is_some_and(|(_, branch)| branch == revision)
    };
    match known.clone().find(is_of_remote) {
        Some(name) => format!("; did you mean `{name}`?"),
        None => or_near(revision, &mut known),
    }
}

/// Path patterns that leave out files which a run writes, or Python beside its sources. They do not
/// change the measured code.
const WRITTEN: [&str; 4] = [
    ":(exclude)reports",
    ":(exclude)baselines",
    ":(exclude,glob)**/__pycache__/**",
    ":(exclude,glob)**/*.pyc",
];

/// The state of the checkout in which this process was started, if it is in one. Files in `output`
/// do not count as changes. Code counts by its contents, and other untracked files by size and
/// time.
pub fn state_of_checkout(output: &Path) -> Option<Git> {
    let here = Path::new(".");
    let revision = ask(here, &["rev-parse", "HEAD"]).ok()?;
    let written = pattern_of(output);
    let but = || WRITTEN.into_iter().chain(written.as_deref());
    let listed = |words: &str| bytes(here, words.split(' ').chain(but()));
    let changes = listed("diff HEAD --binary --no-ext-diff --submodule=diff -- :/");
    let untracked = listed("ls-files --others --exclude-standard -z -- .");
    let dirty = ask(here, &["status", "--porcelain", "--untracked-files=no"]);
    let (Ok(changes), Ok(untracked), Ok(dirty)) = (changes, untracked, dirty) else {
        // The commit is known, but not its changes, so the run does not count as one of a clean
        // revision.
        return Some(Git {
            revision,
            dirty: true,
            changes: Some("unreadable".to_owned()),
        });
    };
    let mut sum = Checksum::default();
    sum.add(&changes);
    for path in names(&untracked) {
        sum.add(path.as_os_str().as_bytes());
        sum.add(checksum_of_code(&path));
    }
    let clean = changes.is_empty() && untracked.is_empty();
    Some(Git {
        revision,
        dirty: !dirty.is_empty(),
        changes: (!clean).then(|| sum.text()),
    })
}

/// The path pattern that leaves out `folder`. `None` if it is outside of the checkout, where git
/// does not see it.
fn pattern_of(folder: &Path) -> Option<String> {
    let root = loaded::root(Path::new("."))?;
    let place = output::place(folder);
    let below = place.strip_prefix(&root).ok()?;
    let inside = !below.as_os_str().is_empty();
    inside.then(|| format!(":(exclude,top,literal){}", below.display()))
}

/// Paths from output of git that separates them with zero bytes.
fn names(listed: &[u8]) -> Vec<PathBuf> {
    let names = listed.split(|byte| *byte == 0);
    let names = names.filter(|name| !name.is_empty());
    names
        .map(|name| PathBuf::from(OsStr::from_bytes(name)))
        .collect()
}

/// Files that git tracks in a checkout, relative to its root.
pub(crate) fn tracked(root: &Path) -> Vec<PathBuf> {
    paths(root, &["ls-files", "--cached", "-z"])
}

/// Files of the current folder's checkout: those that git tracks, and code and suites that it does
/// not ignore. Files that regatta writes are left out.
///
/// # Errors
/// Git's message, for example outside of a checkout.
pub fn sources_of_checkout() -> Result<Vec<PathBuf>, SetupError> {
    let here = Path::new(".");
    let root = PathBuf::from(ask(here, &["rev-parse", "--show-toplevel"])?);
    let listed = |words: &str| {
        let words = words.split(' ').chain(["--full-name", "-z", "--", ":/"]);
        Ok::<_, SetupError>(names(&bytes(here, words.chain(WRITTEN))?))
    };
    let mut others = listed("ls-files --others --exclude-standard")?;
    others.retain(|path| is_code(path) || path.extension() == Some(OsStr::new("toml")));
    let files = listed("ls-files --cached")?.into_iter().chain(others);
    Ok(files.map(|path| root.join(path)).collect())
}

/// Returns those of `files` that git ignores and does not track.
pub(crate) fn ignored(root: &Path, files: &[&PathBuf]) -> BTreeSet<PathBuf> {
    const IGNORED: &str =
        "--literal-pathspecs ls-files --others --ignored --exclude-standard -z --";
    // Few enough for a command line.
    let parts = files.chunks(500).flat_map(|files| {
        let files = files.iter().map(|file| file.as_os_str());
        paths(root, IGNORED.split(' ').map(OsStr::new).chain(files))
    });
    parts.map(|path| root.join(path)).collect()
}

/// True for a tracked file that differs from its last commit.
pub(crate) fn is_edited(root: &Path, file: &Path) -> bool {
    let words = "diff HEAD --name-only --".split(' ').map(OsStr::new);
    let listed = bytes(root, words.chain([file.as_os_str()]));
    listed.is_ok_and(|listed| !listed.is_empty())
}

/// Files of a checkout that differ from the last commit, or that a commit since `time` changed. In
/// a shallow clone only the former, since its oldest commit seems to change every file.
pub(crate) fn edited_since(root: &Path, time: SystemTime) -> BTreeSet<PathBuf> {
    let mut edited = paths(root, &["diff", "HEAD", "--name-only", "-z"]);
    let is_whole = ask(root, &["rev-parse", "--is-shallow-repository"]);
    if is_whole.is_ok_and(|shallow| shallow == "false") {
        let seconds = time
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_secs());
        // Git takes a smaller number for an hour or a day.
        let since = format!("--since=@{}", seconds.max(100_000_000));
        edited.extend(paths(
            root,
            &["log", &since, "--format=", "--name-only", "-z"],
        ));
    }
    edited.into_iter().collect()
}

/// True if the repository has a file of exactly these contents in any commit.
pub(crate) fn knows(root: &Path, file: &Path) -> bool {
    let words = "hash-object --no-filters --".split(' ').map(OsStr::new);
    let id = bytes(root, words.chain([file.as_os_str()]));
    let id = id.map(|id| String::from_utf8_lossy(&id).trim().to_owned());
    id.is_ok_and(|id| ask(root, &["cat-file", "-e", &id]).is_ok())
}

/// Files of the current folder that a build may read: tracked files except texts, suites and runs,
/// and code that git does not ignore; without git, all code. Outputs of the build are left out.
pub(crate) fn sources(makes: &[PathBuf]) -> Vec<PathBuf> {
    let here = Path::new(".");
    let mut sources = if loaded::root(here).is_some() {
        let but = ":(exclude)*.toml :(exclude)*.md :(exclude)*.jsonl".split(' ');
        let listed = |words: &'static str| {
            let words = words.split(' ').chain(WRITTEN);
            paths(here, words.chain(but.clone()))
        };
        let mut others = listed("ls-files --others --exclude-standard -z --");
        others.retain(|path| is_code(path));
        [listed("ls-files --cached -z --"), others].concat()
    } else {
        let all = code_below(here).into_iter();
        all.map(|path| path.strip_prefix(".").unwrap_or(&path).to_owned())
            .collect()
    };
    let plain = |path: &Path| path.strip_prefix(".").unwrap_or(path).to_owned();
    let makes: Vec<PathBuf> = makes.iter().map(|path| plain(path)).collect();
    sources.retain(|path| !makes.iter().any(|made| path.starts_with(made)));
    sources
}

/// A revision that is measured, in a folder of its own.
#[derive(Clone, Debug)]
pub struct Worktree {
    /// The folder that corresponds to the one of the request: it has the same path below the
    /// checkout's root.
    pub directory: PathBuf,
    /// The full commit id.
    pub commit: String,
    /// The regatta executable that was built there, which serves `cpu` and `cuda`.
    pub own: Option<PathBuf>,
    /// The cost of its build, if anything was built.
    pub built: Option<Built>,
    /// Keeps other processes from replacing it while it is used.
    _lock: Arc<LockedFolder>,
}

/// A worktree's paths, while it is looked for and made.
pub(crate) struct Place {
    /// The root of the worktree.
    root: PathBuf,
    /// The folder in it that corresponds to the one of the request.
    pub(crate) directory: PathBuf,
    commit: String,
    /// The file that says that it was built, and how.
    pub(crate) note: PathBuf,
}

/// The way to build a revision.
pub(crate) trait RevisionBuild {
    /// The cost of the build, and the checksums of tracked files that the build changed. `None` if
    /// it is not built, or if its outputs changed since.
    fn built(&self, place: &Place) -> Option<(Option<Built>, BTreeMap<PathBuf, String>)>;
    /// Builds it. `changes` returns the current changes of tracked files.
    ///
    /// # Errors
    /// The build failed.
    fn build(
        &self,
        place: &Place,
        changes: &dyn Fn() -> BTreeMap<PathBuf, String>,
    ) -> Result<(), SetupError>;
}

/// The number of worktrees of a commit, at most. Another one is made if someone edited a worktree
/// that is in use.
const PLACES: usize = 16;

impl Worktree {
    /// The text of an error of this revision's code. Adds a fix if the revision lacks a file that
    /// the checkout has, such as a `.env` that git ignores.
    pub(crate) fn advised(&self, words: &str) -> String {
        let named = || {
            let (_, rest) = words.split_once("No such file or directory: ")?;
            let quote = rest
                .chars()
                .next()
                .filter(|mark| matches!(mark, '\'' | '"'))?;
            rest[1..].split(quote).next()
        };
        // The message of the dynamic linker.
        let linked = || {
            let (before, _) = words.split_once(": cannot open shared object file: ")?;
            before.rsplit(": ").next()
        };
        let path = named().or_else(linked).map(Path::new);
        let path = path.map(|path| path.strip_prefix(&self.directory).unwrap_or(path));
        let is_lacked = |path: &&Path| {
            path.is_relative() && !self.directory.join(path).exists() && path.is_file()
        };
        match path.filter(is_lacked) {
            Some(path) if is_code(path) => format!(
                "{words}. This checkout has {}, and the revision does not: give the suite a [build] \
                 that makes it",
                path.display()
            ),
            Some(path) => format!(
                "{words}. This checkout has {}, and the revision does not: name it by an absolute \
                 path, or commit it to both versions",
                path.display()
            ),
            None => self.pointer().map_or_else(
                || words.to_owned(),
                |(path, name)| {
                    format!(
                        "{words}. The revision has a pointer of Git LFS in place of {}: run `git \
                         lfs install`, then `regatta env remove {name}`, so that it is checked out \
                         again",
                        path.display()
                    )
                },
            ),
        }
    }

    /// A file that is a Git LFS pointer in this worktree but not in the checkout, and the name by
    /// which the worktree is removed.
    fn pointer(&self) -> Option<(PathBuf, String)> {
        const BEGINS: &[u8] = b"version https://git-lfs";
        let is_pointer = |path: &Path| {
            let mut begins = [0; BEGINS.len()];
            let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut begins));
            read.is_ok() && begins == *BEGINS
        };
        let words = "ls-files -z -- :(attr:filter=lfs)".split(' ');
        let stored = paths(&self.directory, words).into_iter();
        let mut stored = stored.filter(|path| is_pointer(&self.directory.join(path)));
        let path = stored.find(|path| path.is_file() && !is_pointer(path))?;
        let revisions = cache::folder().ok()?.join("revisions");
        let below = self.directory.strip_prefix(revisions).ok()?;
        let name: PathBuf = below.iter().take(2).collect();
        Some((path, name.display().to_string()))
    }

    /// Returns the worktree of a revision of the checkout that contains `directory`. Makes and
    /// builds it if necessary. Its folder in the cache is named by the checkout and the commit. A
    /// worktree that someone edited is restored if no process uses it; otherwise another one is
    /// used.
    ///
    /// # Errors
    /// Git does not know the revision, or it cannot be checked out or built.
    pub(crate) fn check_out(
        directory: &Path,
        revision: &str,
        build: &dyn RevisionBuild,
    ) -> Result<Worktree, SetupError> {
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
        // One process at a time looks for a worktree and makes it.
        let _alone = LockedFolder::alone(&folder).map_err(|error| of_file(&folder, error))?;
        for number in 1..=PLACES {
            let name = match number {
                1 => commit.clone(),
                _ => format!("{commit}-{number}"),
            };
            let place = Place {
                root: folder.join(&name),
                directory: folder.join(&name).join(&prefix),
                commit: commit.clone(),
                note: folder.join(format!("{name}.built")),
            };
            if let Some(lock) = place.lock(directory, build).map_err(of_git)? {
                let built = build.built(&place).and_then(|(built, _)| built);
                return Ok(Worktree {
                    directory: place.directory,
                    commit,
                    own: None,
                    built,
                    _lock: Arc::new(lock),
                });
            }
        }
        Err(of_git(SetupError(format!(
            "all {PLACES} worktrees of it were edited while they are in use; end what measures \
             in {}, then remove them with `regatta env remove`",
            folder.display()
        ))))
    }
}

impl Place {
    /// Locks the worktree for shared use, after restoring it if necessary. `None` if it needs that
    /// and another process uses it. Only one process at a time calls this, so any other lock
    /// belongs to a process that uses the worktree.
    fn lock(
        &self,
        repository: &Path,
        build: &dyn RevisionBuild,
    ) -> Result<Option<LockedFolder>, SetupError> {
        let failed = |error: io::Error| SetupError(format!("{}: {error}", self.root.display()));
        let lock = LockedFolder::shared(&self.root).map_err(failed)?;
        if self.is_right(build) {
            return Ok(Some(lock));
        }
        drop(lock);
        let Some(alone) = LockedFolder::try_alone(&self.root).map_err(failed)? else {
            return Ok(None);
        };
        self.make(repository, build)?;
        drop(alone);
        let lock = LockedFolder::shared(&self.root).map_err(failed)?;
        if self.is_right(build) {
            Ok(Some(lock))
        } else {
            Err(SetupError(format!(
                "{}: something changes it as soon as it is made",
                self.root.display()
            )))
        }
    }

    /// True if the worktree is at its commit and built, and no tracked file has changed except by
    /// the build.
    fn is_right(&self, build: &dyn RevisionBuild) -> bool {
        self.is_at_commit()
            && build
                .built(self)
                .is_some_and(|(_, changed)| changed == self.changes())
    }

    fn is_at_commit(&self) -> bool {
        let head = ask(&self.root, &["rev-parse", "HEAD"]);
        // A build that was interrupted may have left half a file.
        let is_half_built = self.log().exists() && !self.note.exists();
        self.root.join(".git").exists()
            && !self.partial().exists()
            && !is_half_built
            && head.is_ok_and(|head| head == self.commit)
    }

    /// A marker file that exists until submodules are checked out as well.
    fn partial(&self) -> PathBuf {
        self.root.with_extension("partial")
    }

    /// The output of its build, which exists once the build has started.
    pub(crate) fn log(&self) -> PathBuf {
        self.note.with_extension("build.log")
    }

    /// Checksums of changed tracked files, and of untracked code that git does not ignore.
    fn changes(&self) -> BTreeMap<PathBuf, String> {
        let listed = |words: &str| paths(&self.root, words.split(' ')).into_iter();
        let tracked = listed("diff HEAD --name-only --no-ext-diff -z");
        let others = listed("ls-files --others --exclude-standard -z");
        let changed = tracked.chain(others.filter(|path| is_code(path)));
        let with_sum = |path: PathBuf| (path.clone(), checksum(&self.root.join(path)));
        changed.map(with_sum).collect()
    }

    /// Restores or makes the worktree with as little work as possible: a build whose outputs are
    /// unchanged is not repeated. The caller has it locked.
    fn make(&self, repository: &Path, build: &dyn RevisionBuild) -> Result<(), SetupError> {
        if self.is_at_commit() {
            let built = build.built(self).map(|(_, changed)| changed);
            self.restore(&built.unwrap_or_default())?;
        }
        let is_clean = |built: Option<_>| {
            let (_, changed) = built.unwrap_or_default();
            self.is_at_commit() && self.changes() == changed
        };
        if !is_clean(build.built(self)) {
            self.check_out(repository)?;
        }
        if !self.directory.is_dir() {
            let below = self.directory.strip_prefix(&self.root);
            let below = below.unwrap_or(&self.directory).display();
            return Err(SetupError(format!("that revision has no folder {below}")));
        }
        if build.built(self).is_none() {
            build.build(self, &|| self.changes())?;
        }
        Ok(())
    }

    /// Restores files that were changed after the build.
    fn restore(&self, built: &BTreeMap<PathBuf, String>) -> Result<(), SetupError> {
        let changes = self.changes();
        let edited = changes.keys().filter(|path| !built.contains_key(*path));
        let tracked: BTreeSet<PathBuf> = tracked(&self.root).into_iter().collect();
        let (tracked, others): (Vec<&PathBuf>, Vec<&PathBuf>) =
            edited.partition(|path| tracked.contains(*path));
        for path in others {
            let path = self.root.join(path);
            removed(&path).map_err(|error| SetupError(format!("{}: {error}", path.display())))?;
        }
        for paths in tracked.chunks(500) {
            let words = "--literal-pathspecs checkout --quiet HEAD --".split(' ');
            let paths = paths.iter().map(|path| path.as_os_str());
            bytes(&self.root, words.map(OsStr::new).chain(paths))?;
        }
        Ok(())
    }

    /// Checks it out from scratch.
    fn check_out(&self, repository: &Path) -> Result<(), SetupError> {
        let failed = |path: &Path, error| SetupError(format!("{}: {error}", path.display()));
        for path in [&self.note, &self.log(), &self.root] {
            removed(path).map_err(|error| failed(path, error))?;
        }
        let partial = self.partial();
        fs::write(&partial, "").map_err(|error| failed(&partial, error))?;
        let path = self.root.display().to_string();
        // With --force, git reuses an entry whose folder is missing. `git worktree prune` would
        // also remove the user's own worktrees on a disk that is not mounted, and lose their
        // commits.
        let add = "worktree add --quiet --detach --force --force".split(' ');
        let added = ask(repository, add.chain([path.as_str(), &self.commit]));
        added.map_err(|error| unwritable(repository).unwrap_or(error))?;
        let user_root = ask(repository, &["rev-parse", "--show-toplevel"])?;
        self.check_out_submodules(Path::new(&user_root))?;
        removed(&partial).map_err(|error| failed(&partial, error))
    }

    /// Checks out submodules. Those in the user's checkout serve as references, because a commit
    /// may not have been pushed anywhere.
    fn check_out_submodules(&self, user_root: &Path) -> Result<(), SetupError> {
        let words = r"config --file .gitmodules --get-regexp \.path$".split(' ');
        let listed = ask(&self.root, words).unwrap_or_default();
        let paths = listed.lines().filter_map(|line| line.split_once(' '));
        for (_, path) in paths {
            let lender = Some(user_root.join(path)).filter(|folder| folder.join(".git").exists());
            let lender = lender.and_then(|folder| repository_of(&folder));
            let lender = lender.map(|folder| format!("--reference={}", folder.display()));
            let update = "submodule --quiet update --init --recursive".split(' ');
            let words = update.chain(lender.as_deref()).chain(["--", path]);
            ask(&self.root, words)?;
        }
        Ok(())
    }
}

/// The error for a repository to which git cannot add a worktree; `None` if it can.
fn unwritable(repository: &Path) -> Option<SetupError> {
    let repository = repository_of(repository)?;
    let mut folder = repository.join("worktrees");
    if fs::symlink_metadata(&folder).is_err() {
        folder = repository;
    }
    let error = tempfile::tempfile_in(&folder).err()?;
    Some(SetupError(format!(
        "{} cannot be written ({error}), and git notes a worktree of the revision there: make it \
         writable, or measure in a clone of this checkout",
        folder.display()
    )))
}

/// The folder for a checkout's worktrees. Checkouts of the same name differ by a checksum of their
/// paths.
fn folder(cache: &Path, root: &Path) -> PathBuf {
    let name = root
        .file_name()
        .map(|name| plain_name(&name.to_string_lossy()));
    let name = name.unwrap_or_default();
    let sum = Checksum::new([root.as_os_str().as_encoded_bytes()]).name();
    cache.join("revisions").join(format!("{name}-{sum}"))
}

/// The repository of a worktree, if it still exists.
pub(crate) fn repository_of(worktree: &Path) -> Option<PathBuf> {
    let words = "rev-parse --path-format=absolute --git-common-dir".split(' ');
    ask(worktree, words).ok().map(PathBuf::from)
}

/// Removes a worktree from the cache, and only its own entry from the repository.
///
/// # Errors
/// The files of the worktree cannot be removed.
pub(crate) fn remove_worktree(worktree: &Path) -> io::Result<()> {
    if let Some(repository) = repository_of(worktree) {
        let path = worktree.display().to_string();
        // If this fails, an entry without a folder stays, which the next worktree reuses.
        let words = "worktree remove --force --force".split(' ');
        let _ = ask(&repository, words.chain([path.as_str()]));
    }
    removed(worktree)?;
    ["built", "build.log", "partial"]
        .into_iter()
        .try_for_each(|ending| removed(&worktree.with_extension(ending)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_git_shows_no_secret_of_a_remote() {
        let remote = "https://u:S3cret@127.0.0.1:1/x.git?token=S3cret";
        let error = ask(Path::new("."), &["ls-remote", remote]).unwrap_err();
        let text = error.to_string();
        let expected = "git ls-remote https://***@127.0.0.1:1/x.git?***";
        assert!(text.starts_with(expected), "{text}");
        assert!(!text.contains("S3cret"), "{text}");
    }
}
