//! Which files a worker has loaded, and of which checkout they are: two sides of a comparison that
//! load one checkout measure the same code.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::git::{Checkout, GitCommands};
use crate::worker::descendants;
use regatta_core::cache;

/// Folders of the system, whose files the versions of packages tell apart.
const SYSTEM: [&str; 9] = [
    "/usr", "/lib", "/lib64", "/bin", "/sbin", "/dev", "/proc", "/sys", "/etc",
];

/// Files that a process and its descendants map, and those that their command lines name.
pub(crate) fn by_processes(root: u32) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for process in std::iter::once(root).chain(descendants::tree(root)) {
        let about = |what: &str| PathBuf::from(format!("/proc/{process}/{what}"));
        let maps = fs::read(about("maps")).unwrap_or_default();
        let maps = String::from_utf8_lossy(&maps).into_owned();
        let mapped = maps
            .lines()
            .filter_map(|line| line.find('/').map(|at| &line[at..]));
        found.extend(mapped.map(|path| PathBuf::from(path.trim_end_matches(" (deleted)"))));
        let Ok(folder) = fs::read_link(about("cwd")) else {
            continue;
        };
        let command = fs::read(about("cmdline")).unwrap_or_default();
        for word in command.split(|byte| *byte == 0) {
            let word = Path::new(std::ffi::OsStr::from_bytes(word));
            found.extend(existing(&folder, word));
        }
    }
    found
}

/// What a word of a command, or its value after `=`, names from this folder.
pub(crate) fn existing(folder: &Path, word: &Path) -> Option<PathBuf> {
    let text = word.to_string_lossy();
    let value = text.split_once('=').map(|(_, value)| Path::new(value));
    let words = [Some(word), value].into_iter().flatten();
    let mut paths = words.filter(|word| !word.as_os_str().is_empty());
    paths.find_map(|word| fs::canonicalize(folder.join(word)).ok())
}

/// True for a file that no version of a package tells: none of the system's, of an environment's,
/// or of regatta's own.
pub(crate) fn is_code_of_user(path: &Path) -> bool {
    let installed = |part: std::path::Component| {
        let name = part.as_os_str();
        name == "site-packages" || name == "dist-packages"
    };
    let environment =
        |folder: &Path| folder.join("pyvenv.cfg").is_file() || folder.join("conda-meta").is_dir();
    let of_cache = |path: &Path| {
        let cache = cache::folder().and_then(fs::canonicalize);
        cache.is_ok_and(|cache| {
            let below = path.strip_prefix(cache);
            below.is_ok_and(|below| !below.starts_with("revisions"))
        })
    };
    let is_own = || std::env::current_exe().is_ok_and(|own| own == path);
    !(SYSTEM.iter().any(|folder| path.starts_with(folder))
        || path.components().any(installed)
        || path.ancestors().skip(1).any(environment)
        || of_cache(path)
        || is_own())
}

/// The checkout that a side is of, and those of which it may load nothing.
pub(crate) struct Roots {
    own: PathBuf,
    others: Vec<PathBuf>,
}

impl Roots {
    /// The roots of a side in `folder` beside one in `other`; `None` where both are of one
    /// checkout, or one of none.
    pub(crate) fn new(folder: &Path, other: &Path) -> Option<Roots> {
        let own = root(folder)?;
        let mut others: Vec<PathBuf> = [root(other)?, root(Path::new("."))?].into();
        others.retain(|other| *other != own);
        (own != root(other)?).then_some(Roots { own, others })
    }

    /// The first of these files that is of another checkout.
    pub(crate) fn foreign<'a>(
        &self,
        mut files: impl Iterator<Item = &'a PathBuf>,
    ) -> Option<&'a PathBuf> {
        // Worktrees may lie within the checkout: the deepest root is a file's.
        let depth = |root: &PathBuf| root.components().count();
        files.find(|file| {
            let of_others = self.others.iter().filter(|root| file.starts_with(root));
            let other = of_others.map(depth).max();
            let own = file.starts_with(&self.own).then(|| depth(&self.own));
            other > own && is_code_of_user(file)
        })
    }

    /// True where one of these files is of the side's own checkout.
    pub(crate) fn own<'a>(&self, mut files: impl Iterator<Item = &'a PathBuf>) -> bool {
        files.any(|file| file.starts_with(&self.own) && *file != self.own)
    }
}

/// The root of the checkout that a folder is in, without symlinks.
pub(crate) fn root(folder: &Path) -> Option<PathBuf> {
    let root = Checkout::at(folder).ask(&["rev-parse", "--show-toplevel"]);
    fs::canonicalize(root.ok()?).ok()
}
