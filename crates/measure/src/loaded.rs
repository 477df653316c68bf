//! Finds the files that a worker's processes load, and the checkout that each belongs to. If both
//! sides of a comparison load the same checkout, or one installed copy of it, they measure the same
//! code.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

mod outdated;

pub(crate) use outdated::outdated_here;

use crate::files::{is_code, is_compiled, is_environment};
use crate::git;
use crate::worker::descendants;
use regatta_core::cache;
use regatta_core::record::identity::is_of_session;

/// Folders of the system. The versions of packages identify their files.
const SYSTEM: [&str; 9] = [
    "/usr", "/lib", "/lib64", "/bin", "/sbin", "/dev", "/proc", "/sys", "/etc",
];

/// Files that a process or its descendants map, that their command lines name, and those below
/// their working directory that they have open for reading.
pub(crate) fn by_processes(root: u32) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    for process in std::iter::once(root).chain(descendants::tree(root)) {
        let about = |what: &str| PathBuf::from(format!("/proc/{process}/{what}"));
        let maps = fs::read(about("maps")).unwrap_or_default();
        let maps = String::from_utf8_lossy(&maps).into_owned();
        let mapped: BTreeSet<&str> = maps
            .lines()
            .filter_map(|line| line.find('/').map(|at| &line[at..]))
            .collect();
        let mapped = mapped
            .into_iter()
            .map(|path| path.trim_end_matches(" (deleted)"));
        // `/memfd:x` and `/SYSV00000000` are named memory, not files.
        files.extend(mapped.map(PathBuf::from).filter(|path| path.is_file()));
        let Ok(folder) = fs::read_link(about("cwd")) else {
            continue;
        };
        let command = fs::read(about("cmdline")).unwrap_or_default();
        for word in command.split(|byte| *byte == 0) {
            let word = Path::new(std::ffi::OsStr::from_bytes(word));
            files.extend(existing(&folder, word));
        }
        files.extend(opened(process).filter(|path| path.starts_with(&folder)));
    }
    files
}

/// Files that a process has open for reading only.
fn opened(process: u32) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(format!("/proc/{process}/fd"));
    let entries = entries.into_iter().flatten().flatten();
    let reads = move |name: &str| {
        let about = fs::read_to_string(format!("/proc/{process}/fdinfo/{name}")).ok()?;
        let flags = about.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
        Some(flags & 3 == 0)
    };
    entries.filter_map(move |entry| {
        let path = fs::read_link(entry.path()).ok()?;
        let name = entry.file_name();
        (path.is_file() && reads(name.to_str()?)?).then_some(path)
    })
}

/// The file that a word of a command line names relative to `folder`, or that its value after `=`
/// names.
pub(crate) fn existing(folder: &Path, word: &Path) -> Option<PathBuf> {
    let text = word.to_string_lossy();
    let value = text.split_once('=').map(|(_, value)| Path::new(value));
    let words = [Some(word), value].into_iter().flatten();
    let mut paths = words.filter(|word| !word.as_os_str().is_empty());
    paths.find_map(|word| fs::canonicalize(folder.join(word)).ok())
}

/// The outermost folder of installed packages that contains `path`.
fn installed_in(path: &Path) -> Option<&Path> {
    let folders = path.ancestors().skip(1);
    let installs = |folder: &&Path| {
        let name = folder.file_name();
        name.is_some_and(|name| name == "site-packages" || name == "dist-packages")
    };
    folders.filter(installs).last()
}

/// True for a file that no package version identifies: it is not part of the system, of an
/// environment, or of regatta.
pub(crate) fn is_code_of_user(path: &Path) -> bool {
    let of_cache = |path: &Path| {
        let cache = cache::folder().and_then(fs::canonicalize);
        cache.is_ok_and(|cache| {
            let below = path.strip_prefix(cache);
            below.is_ok_and(|below| !below.starts_with("revisions"))
        })
    };
    let is_own = || std::env::current_exe().is_ok_and(|own| own == path);
    !(SYSTEM.iter().any(|folder| path.starts_with(folder))
        || installed_in(path).is_some()
        || path.ancestors().skip(1).any(is_environment)
        || of_cache(path)
        || is_own())
}

/// The checkout of one side, and the checkouts from which it must not load code.
pub(crate) struct Roots {
    own: PathBuf,
    /// The other side's checkout.
    other: PathBuf,
    /// The other side's checkout, and the one in which regatta was started.
    others: Vec<PathBuf>,
    /// True if the other side is a revision in a folder of its own.
    other_is_revision: bool,
    began: SystemTime,
    /// Files that were checked already.
    seen: RefCell<BTreeSet<PathBuf>>,
    /// Code that git tracks in this side's checkout, and in the other's.
    tracked: [OnceCell<Vec<PathBuf>>; 2],
    /// Libraries outside of both checkouts, each with the checkout of the first side that loaded
    /// it.
    shared: Rc<RefCell<BTreeMap<PathBuf, PathBuf>>>,
}

/// A side of a comparison: its folder, and whether that folder belongs to a revision.
pub(crate) type SideFolder<'a> = (&'a Path, bool);

impl Roots {
    /// The roots of two sides; `None` for both if they share a checkout, or if one is in none.
    pub(crate) fn pair([base, head]: [SideFolder; 2]) -> [Option<Roots>; 2] {
        let shared = Rc::default();
        let began = SystemTime::now();
        let roots = |(folder, _): SideFolder, (other, other_is_revision): SideFolder| {
            let (own, other) = (root(folder)?, root(other)?);
            let mut others: Vec<PathBuf> = [other.clone(), root(Path::new("."))?].into();
            others.retain(|other| *other != own);
            (own != other).then(|| Roots {
                own,
                other,
                others,
                other_is_revision,
                began,
                seen: RefCell::default(),
                tracked: Default::default(),
                shared: Rc::clone(&shared),
            })
        };
        [roots(base, head), roots(head, base)]
    }

    /// A sentence on why these files may belong to the other side, to follow this side's name. If
    /// `own_expected`, at least one file has to be in this side's checkout.
    pub(crate) fn objection(
        &self,
        files: &BTreeSet<PathBuf>,
        own_expected: bool,
    ) -> Option<String> {
        let shown = |path: &Path| path.display().to_string();
        let is_loaded = !own_expected || files.iter().any(|file| self.is_own(file));
        // Most of them are known from the block before.
        let files: BTreeSet<PathBuf> = files.difference(&self.seen.borrow()).cloned().collect();
        self.seen.borrow_mut().extend(files.iter().cloned());
        if let Some(file) = files.iter().find(|file| self.is_foreign(file)) {
            if file.is_dir() {
                return Some(format!(
                    "loaded code from {}, a folder of another checkout, {SAME}. Uninstall what was \
                     installed from there (`pip uninstall`). {RELATIVE}",
                    shown(file)
                ));
            }
            return Some(format!(
                "loaded {}, a file of another checkout, {SAME}. {RELATIVE}",
                shown(file)
            ));
        }
        if let Some((file, source)) = self.copied(&files) {
            return Some(format!(
                "runs {}, an installed copy of {} that is not of its own revision, {SAME}. \
                 Uninstall it (`pip uninstall`) and name the code by relative paths (`paths` of the \
                 environment), or give each side an environment of its own (`env:`)",
                shown(&file),
                shown(&source)
            ));
        }
        if let Some((file, source)) = self.built_for_both(&files) {
            return Some(format!(
                "loaded {}, as the other side did, and {} differs between the two, so both sides may \
                 measure the same code. Have each side build it in its own checkout: unset what \
                 names a folder for both (CARGO_TARGET_DIR, PYTHONPATH), and give the suite a [build]",
                shown(&file),
                shown(&source)
            ));
        }
        if let Some(file) = self.missing_in_other(&files) {
            return Some(format!(
                "loaded {}, which git ignores and {} does not have, so the other side may run other \
                 code than it would. Give the suite a [build] that makes it",
                shown(file),
                shown(&self.other)
            ));
        }
        (!is_loaded).then(|| format!("loaded no file of its own checkout, {SAME}. {RELATIVE}"))
    }

    fn is_own(&self, file: &Path) -> bool {
        file.starts_with(&self.own) && *file != self.own
    }

    /// True for a file of a checkout from which this side must not load code.
    fn is_foreign(&self, file: &Path) -> bool {
        // Worktrees may be inside of the checkout, so a file belongs to the deepest root.
        let depth = |root: &PathBuf| root.components().count();
        let of_others = self.others.iter().filter(|root| file.starts_with(root));
        let other = of_others.map(depth).max();
        let own = file.starts_with(&self.own).then(|| depth(&self.own));
        other > own && is_code_of_user(file)
    }

    /// A file that git ignores, that is older than this command, and that the other side's revision
    /// lacks: it was built in place.
    fn missing_in_other<'a>(&self, files: &'a BTreeSet<PathBuf>) -> Option<&'a PathBuf> {
        if !self.other_is_revision {
            return None;
        }
        let is_older = |file: &Path| {
            let changed = fs::metadata(file).and_then(|facts| facts.modified());
            changed.is_ok_and(|changed| changed < self.began)
        };
        let lacking = files.iter().filter(|file| {
            let below = file.strip_prefix(&self.own);
            below.is_ok_and(|below| !self.other.join(below).exists())
                && file.is_file()
                && is_code_of_user(file)
                && is_older(file)
        });
        let lacking: Vec<&PathBuf> = lacking.collect();
        let ignored = git::ignored(&self.own, &lacking);
        lacking.into_iter().find(|file| ignored.contains(*file))
    }

    /// An installed file that is a copy of a checkout's file in another revision, and that file.
    fn copied(&self, files: &BTreeSet<PathBuf>) -> Option<(PathBuf, PathBuf)> {
        let outside = |file: &&PathBuf| {
            !self
                .others
                .iter()
                .chain([&self.own])
                .any(|root| file.starts_with(root))
        };
        // Installed packages, each once, and files elsewhere.
        let packages: BTreeSet<PathBuf> = files
            .iter()
            .filter_map(|file| {
                let folder = installed_in(file)?;
                let first = file.strip_prefix(folder).ok()?.iter().next()?;
                Some(folder.join(first))
            })
            .collect();
        let elsewhere = files
            .iter()
            .filter(outside)
            .filter(|file| is_code_of_user(file));
        let elsewhere = elsewhere.filter_map(|file| self.copy_of_other(file));
        let packages = packages.iter();
        packages
            .filter_map(|package| self.package_of_other(package, files))
            .chain(elsewhere)
            .next()
    }

    /// A file whose name and contents are those of a file of the other side, and whose contents
    /// differ on this side.
    fn copy_of_other(&self, file: &Path) -> Option<(PathBuf, PathBuf)> {
        let name = file.file_name()?;
        let mut alike = self.tracked().filter(|path| path.file_name() == Some(name));
        let contents = fs::read(file)
            .ok()
            .filter(|contents| !contents.is_empty())?;
        let same = |root: &Path, path: &Path| {
            fs::read(root.join(path)).is_ok_and(|other| other == contents)
        };
        let source = alike.find(|path| same(&self.other, path) && !same(&self.own, path))?;
        Some((file.to_owned(), source.clone()))
    }

    /// If an installed package was copied from the checkout but not from this side's revision: one
    /// of its files, and the file that it is a copy of.
    fn package_of_other(
        &self,
        package: &Path,
        files: &BTreeSet<PathBuf>,
    ) -> Option<(PathBuf, PathBuf)> {
        let (folder, name) = (package.parent()?, package.file_name()?);
        let installed = |source: &Path| {
            let mut parts = source.iter().skip_while(|part| *part != name).peekable();
            parts.peek()?;
            let path = folder.join(parts.collect::<PathBuf>());
            path.is_file().then_some(path)
        };
        let (mut is_copy, mut wrong) = (false, None);
        let (mut unknown, mut sources) = (Vec::new(), BTreeSet::new());
        for source in self.tracked() {
            let Some(path) = installed(source) else {
                continue;
            };
            if !sources.insert(source) {
                continue;
            }
            let contents = fs::read(&path).unwrap_or_default();
            let [own, other] =
                [&self.own, &self.other].map(|root| fs::read(root.join(source)).ok());
            let is_own = own.as_ref() == Some(&contents);
            let is_other = other.as_ref() == Some(&contents);
            is_copy |= (is_own || is_other) && !contents.is_empty();
            if own != other && !is_own {
                wrong = wrong.or(Some((path.clone(), source.clone())));
            }
            if !is_own && !is_other && !contents.is_empty() {
                unknown.push(path);
            }
        }
        // All of the package's files may be from a third revision.
        is_copy = is_copy
            || unknown
                .iter()
                .take(LOOKED_UP)
                .any(|path| git::knows(&self.own, path));
        if !is_copy {
            return None;
        }
        wrong.or_else(|| self.library_of_both(package, files))
    }

    /// A compiled library of an installed copy that both sides load, and a source of it that
    /// differs between the sides.
    fn library_of_both(
        &self,
        package: &Path,
        files: &BTreeSet<PathBuf>,
    ) -> Option<(PathBuf, PathBuf)> {
        let compiled = |file: &&PathBuf| {
            file.starts_with(package) && file.extension().is_some_and(|ending| ending == "so")
        };
        let library = files.iter().find(compiled)?;
        let source = self.is_shared(library).then(|| self.differing().next())?;
        Some((library.clone(), source?.clone()))
    }

    /// A program or library outside of the checkouts that both sides load, and a source that
    /// differs between the sides. The library was built after a revision was checked out, or has
    /// the name of that source.
    fn built_for_both(&self, files: &BTreeSet<PathBuf>) -> Option<(PathBuf, PathBuf)> {
        let roots = [&self.own, &self.other];
        let changed = |path: &Path| fs::metadata(path).and_then(|facts| facts.modified()).ok();
        // Git writes this file of a worktree once, at checkout.
        let checked_out = roots.map(|root| root.join(".git"));
        let checked_out = checked_out.iter().filter(|path| path.is_file());
        let checked_out = checked_out.filter_map(|path| changed(path)).max();
        let is_outside = |file: &&PathBuf| !roots.iter().any(|root| file.starts_with(root));
        let outside: Vec<&PathBuf> = files.iter().filter(is_outside).collect();
        let mut archived = outside.iter().filter_map(|file| {
            let name = archived_name(file)?;
            self.is_shared(file).then_some((*file, name))
        });
        let of_both = archived.find_map(|(file, name)| {
            let mut sources = self.tracked().filter(|source| source.ends_with(&name));
            let source = sources.find(|source| self.differs(source))?;
            Some((file.clone(), source.clone()))
        });
        if of_both.is_some() {
            return of_both;
        }
        outside
            .into_iter()
            .filter(|file| is_code_of_user(file) && is_elf(file) && self.is_shared(file))
            .find_map(|file| {
                // A cache whose names have checksums of contents has one file for each side.
                let is_new = checked_out < changed(file) && !file.iter().any(is_digest);
                let name = library_name(file);
                let is_named =
                    |source: &&PathBuf| source.file_stem().is_some_and(|stem| *stem == *name);
                let source = self.differing().find(|source| is_new || is_named(source))?;
                Some((file.clone(), source.clone()))
            })
    }

    /// True for a library that the other side loaded first.
    fn is_shared(&self, library: &Path) -> bool {
        let mut shared = self.shared.borrow_mut();
        let root = shared.entry(library.to_owned());
        *root.or_insert_with(|| self.own.clone()) != self.own
    }

    /// Compiled sources that differ between the two sides.
    fn differing(&self) -> impl Iterator<Item = &PathBuf> {
        let sources = self.tracked().filter(|source| is_compiled(source));
        sources.filter(|source| self.differs(source))
    }

    /// True for a file that the other side lacks or has with other contents.
    fn differs(&self, source: &Path) -> bool {
        let [own, other] = [&self.own, &self.other].map(|root| fs::read(root.join(source)).ok());
        own != other
    }

    /// Code that git tracks in either checkout.
    fn tracked(&self) -> impl Iterator<Item = &PathBuf> {
        let roots = [&self.own, &self.other].into_iter().zip(&self.tracked);
        roots.flat_map(|(root, tracked)| {
            tracked.get_or_init(|| {
                let mut paths = git::tracked(root);
                paths.retain(|path| is_code(path));
                paths
            })
        })
    }
}

/// The name, in its archive, of a module that Python imports from a zip file.
fn archived_name(path: &Path) -> Option<PathBuf> {
    if path.exists() {
        return None;
    }
    let archive = path.ancestors().skip(1).find(|path| path.is_file())?;
    path.strip_prefix(archive).ok().map(Path::to_owned)
}

/// True for a compiled program or library.
fn is_elf(path: &Path) -> bool {
    let mut begins = [0; 4];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut begins));
    read.is_ok() && begins == *b"\x7fELF"
}

/// The name that a library's or program's source has: `k` for `libk.so` and `k.cpython-311.so`.
fn library_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.split('.').next().unwrap_or_default();
    name.strip_prefix("lib").unwrap_or(name).to_owned()
}

/// True for a part of a path that looks like a checksum.
fn is_digest(part: &OsStr) -> bool {
    let part = part.to_string_lossy();
    let name = part.split('.').next().unwrap_or_default();
    name.len() >= 26 && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The number of files of an installed package whose contents are looked up in all of a
/// repository's history.
const LOOKED_UP: usize = 8;

/// The consequence, in messages.
const SAME: &str = "so both sides may measure the same code";

/// The fix, in messages: how each side loads its own code.
const RELATIVE: &str = "Name code by relative paths (`paths` of the environment, the worker's \
                        command), or let [build] install it: no editable install, no PYTHONPATH \
                        and no absolute path into a checkout";

/// The root of the checkout that contains `folder`, with symlinks resolved. Asks git once for each
/// folder.
pub(crate) fn root(folder: &Path) -> Option<PathBuf> {
    static ROOTS: Mutex<BTreeMap<PathBuf, Option<PathBuf>>> = Mutex::new(BTreeMap::new());
    let folder = fs::canonicalize(folder).ok()?;
    let mut roots = ROOTS.lock().unwrap_or_else(PoisonError::into_inner);
    let root = roots.entry(folder).or_insert_with_key(|folder| {
        let root = git::ask(folder, &["rev-parse", "--show-toplevel"]);
        fs::canonicalize(root.ok()?).ok()
    });
    root.clone()
}

/// Changes variables of the caller that name code in the checkout in which regatta was started, so
/// that a worker of the checkout `own` finds its own files there. Returns the changed ones.
///
/// # Errors
/// The variable that names code which `own` does not have, and that code.
pub(crate) fn for_checkout(
    own: &Path,
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Vec<(String, String)>, (String, PathBuf)> {
    let (Some(here), Some(own)) = (root(Path::new(".")), root(own)) else {
        return Ok(Vec::new());
    };
    if here == own {
        return Ok(Vec::new());
    }
    let mut changed = Vec::new();
    for (name, value) in variables {
        // `PWD` is the worker's own, and no program reads the others.
        if ["PWD", "OLDPWD", "_"].contains(&name.as_str()) {
            continue;
        }
        let mut parts = Vec::new();
        for part in value.split(':') {
            let Some((before, below)) = within(part, &here) else {
                parts.push(part.to_owned());
                continue;
            };
            let (was, is) = (here.join(&below), own.join(&below));
            if is.exists() {
                let is = if below.as_os_str().is_empty() {
                    &own
                } else {
                    &is
                };
                parts.push(format!("{before}{}", is.display()));
            } else if holds_code(&was) && !is_of_session(&name) {
                return Err((name, was));
            } else {
                parts.push(part.to_owned());
            }
        }
        let now = parts.join(":");
        if now != value {
            changed.push((name, now));
        }
    }
    Ok(changed)
}

/// Splits part of a variable's value into the text before a path (such as `-I`) and the path below
/// `root`.
fn within<'a>(part: &'a str, root: &Path) -> Option<(&'a str, PathBuf)> {
    let at = part.find('/')?;
    let (before, path) = part.split_at(at);
    // The path of a URL names no file here, so it is not resolved.
    let path = Path::new(path);
    let real = fs::canonicalize(path).ok()?;
    Some((before, real.strip_prefix(root).ok()?.to_owned()))
}

/// True for code outside of environments, or for a folder that contains such code.
fn holds_code(path: &Path) -> bool {
    let in_environment = path.ancestors().any(is_environment);
    let direct = || {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).any(|path| is_code(&path))
    };
    !in_environment && (path.is_file() && is_code(path) || direct())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::files::testing::files;

    #[test]
    fn memory_with_a_name_is_no_file() {
        let name = std::ffi::CString::new("regatta").unwrap();
        // SAFETY: the name ends with a NUL. The descriptor is closed with the process.
        let fd = unsafe { nix::libc::memfd_create(name.as_ptr(), 0) };
        assert!(fd >= 0);
        // SAFETY: as above. The page of this new memory file stays mapped until the process ends.
        unsafe {
            nix::libc::ftruncate(fd, 4096);
            let at = nix::libc::mmap(
                std::ptr::null_mut(),
                4096,
                nix::libc::PROT_READ,
                nix::libc::MAP_SHARED,
                fd,
                0,
            );
            assert_ne!(at, nix::libc::MAP_FAILED);
        }
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        assert!(maps.contains("/memfd:regatta"));
        let mapped = by_processes(std::process::id());
        let memory: Vec<_> = mapped
            .iter()
            .filter(|path| path.starts_with("/memfd:regatta"))
            .collect();
        assert!(memory.is_empty(), "{memory:?}");
        assert!(mapped.contains(&std::env::current_exe().unwrap()));
    }

    #[test]
    fn a_file_that_is_open_to_read_is_loaded_and_one_that_is_written_is_not() {
        let (_folder, at) = files(&[("weights.bin", "1"), ("log.txt", "")]);
        let _read = fs::File::open(at("weights.bin")).unwrap();
        let _written = fs::File::create(at("log.txt")).unwrap();
        let files: Vec<PathBuf> = opened(std::process::id()).collect();
        assert!(files.contains(&at("weights.bin")));
        assert!(!files.contains(&at("log.txt")));
    }

    /// Two checkouts whose sources differ: `mine.py` and `src/lib/a.py`.
    fn roots(at: &dyn Fn(&str) -> PathBuf) -> Roots {
        let tracked = || {
            let paths = [
                "mine.py",
                "src/lib/__init__.py",
                "src/lib/a.py",
                "csrc/k.cu",
            ];
            OnceCell::from(paths.map(PathBuf::from).to_vec())
        };
        Roots {
            own: at("base"),
            other: at("head"),
            others: vec![at("head")],
            other_is_revision: false,
            began: SystemTime::now(),
            seen: RefCell::default(),
            tracked: [tracked(), tracked()],
            shared: Rc::default(),
        }
    }

    /// The roots of the base, and of a head that is measured beside it.
    pub(super) fn both_roots(at: &dyn Fn(&str) -> PathBuf) -> (Roots, Roots) {
        let base = roots(at);
        let head = Roots {
            own: at("head"),
            other: at("base"),
            others: vec![at("base")],
            shared: Rc::clone(&base.shared),
            ..roots(at)
        };
        (base, head)
    }

    const CHECKOUTS: [(&str, &str); 8] = [
        ("base/mine.py", "one"),
        ("head/mine.py", "two"),
        ("base/src/lib/__init__.py", "same"),
        ("head/src/lib/__init__.py", "same"),
        ("base/src/lib/a.py", "one"),
        ("head/src/lib/a.py", "two"),
        ("base/csrc/k.cu", "one"),
        ("head/csrc/k.cu", "two"),
    ];

    /// Both checkouts with their files, and `more` files beside them.
    pub(super) fn with_checkouts(
        more: &[(&str, &str)],
    ) -> (tempfile::TempDir, impl Fn(&str) -> PathBuf + use<>) {
        files(&[&CHECKOUTS[..], more].concat())
    }

    #[test]
    fn an_installed_copy_of_another_revision_is_not_this_sides_code() {
        let site = |name: &str| format!("env/lib/site-packages/{name}");
        for (installed, wrong) in [
            // The head's module, the base's, and one of another package that has the same name.
            ("mine.py=two", Some("mine.py")),
            ("mine.py=one", None),
            ("mine.py=other", None),
            // A package with one file that is the same on both sides, and one of another revision.
            ("lib/__init__.py=same lib/a.py=two", Some("lib/a.py")),
            ("lib/__init__.py=same lib/a.py=three", Some("lib/a.py")),
            ("lib/__init__.py=same lib/a.py=one", None),
            ("lib/__init__.py=else lib/a.py=three", None),
        ] {
            let texts = installed
                .split(' ')
                .map(|file| file.split_once('=').unwrap());
            let texts: Vec<_> = texts.map(|(name, text)| (site(name), text)).collect();
            let texts = texts.iter().map(|(name, text)| (name.as_str(), *text));
            let (_folder, at) = with_checkouts(&texts.collect::<Vec<_>>());
            // A package is named by its folder, so the loaded file is one inside.
            let loaded = installed.split(['/', '=']).next().unwrap();
            let loaded = BTreeSet::from([at(&site(loaded))]);
            let copied = roots(&at).copied(&loaded).map(|(file, _)| file);
            assert_eq!(copied, wrong.map(|name| at(&site(name))), "{installed}");
        }
    }

    #[test]
    fn a_copy_that_lies_anywhere_is_found_by_its_contents() {
        let (_folder, at) = with_checkouts(&[("opt/mine.py", "two"), ("opt/a.py", "one")]);
        let objection = |name: &str| roots(&at).objection(&BTreeSet::from([at(name)]), false);
        let words = objection("opt/mine.py").unwrap();
        let expected = "opt/mine.py, an installed copy of mine.py that is not";
        assert!(words.contains(expected), "{words}");
        assert_eq!(objection("opt/a.py"), None);
    }

    #[test]
    fn a_compiled_library_that_both_sides_load_is_of_one_of_them() {
        let library = "env/lib/site-packages/lib/k.so";
        let package = ("env/lib/site-packages/lib/__init__.py", "same");
        let (_folder, at) = with_checkouts(&[package, (library, "x")]);
        let loaded = BTreeSet::from([at(library)]);
        let (base, head) = both_roots(&at);
        assert_eq!(base.copied(&loaded), None);
        assert_eq!(base.copied(&loaded), None);
        let (file, source) = head.copied(&loaded).unwrap();
        assert_eq!((file, source), (at(library), "csrc/k.cu".into()));
    }

    #[test]
    fn a_library_that_is_built_into_a_folder_of_both_sides_is_of_one_of_them() {
        let digest = "cache/4f0c1d2e3a5b6978a0b1c2d3e4f50617/launch.so";
        let old = ["old/other.so", "old/libk.so"];
        let built = [&old[..], &["base/.git", "target/libmine.so", digest]].concat();
        let texts = built.iter().map(|name| (*name, "\u{7f}ELF"));
        let (_folder, at) = with_checkouts(&texts.collect::<Vec<_>>());
        for (place, name) in built.iter().enumerate() {
            let time = SystemTime::now() + Duration::from_secs(60 * place as u64);
            let file = fs::File::open(at(name)).unwrap();
            file.set_modified(time).unwrap();
        }
        let objection = |name: &str| {
            let (base, head) = both_roots(&at);
            let loaded = BTreeSet::from([at(name)]);
            assert_eq!(base.objection(&loaded, false), None, "{name}");
            head.objection(&loaded, false)
        };
        for name in ["old/other.so", digest] {
            assert_eq!(objection(name), None, "{name}");
        }
        for name in ["old/libk.so", "target/libmine.so"] {
            let words = objection(name).unwrap();
            let differs = "csrc/k.cu differs between the two";
            assert!(words.contains(differs), "{words}");
        }
    }

    #[test]
    fn a_module_in_an_archive_that_both_sides_load_is_of_one_of_them() {
        let (_folder, at) = with_checkouts(&[("else/z.zip", "PK")]);
        let objection = |name: &str| {
            let (base, head) = both_roots(&at);
            let loaded = BTreeSet::from([at(name)]);
            assert_eq!(base.objection(&loaded, false), None, "{name}");
            head.objection(&loaded, false)
        };
        assert_eq!(objection("else/z.zip/lib/__init__.py"), None);
        assert_eq!(objection("else/z.zip/other.py"), None);
        let words = objection("else/z.zip/lib/a.py").unwrap();
        assert!(
            words.contains("src/lib/a.py differs between the two"),
            "{words}"
        );
    }

    #[test]
    fn variables_name_what_a_checkout_has_itself() {
        // Tests `within` alone, since the checkout in which this test runs is not its choice.
        let (_folder, at) = files(&[
            ("repo/lib/a.py", ""),
            ("repo/data/x.bin", ""),
            ("env/pyvenv.cfg", ""),
            ("env/bin/a.py", ""),
        ]);
        let repo = at("repo");
        let text = |name: &str| at(name).display().to_string();
        let below =
            |part: &str| within(part, &repo).map(|(before, path)| (before.to_owned(), path));
        assert_eq!(
            below(&text("repo/lib")),
            Some((String::new(), "lib".into()))
        );
        let flag = format!("-I{}", text("repo/lib"));
        assert_eq!(below(&flag), Some(("-I".to_owned(), "lib".into())));
        assert_eq!(below(&text("env")), None);
        assert_eq!(below("https://example.org/lib"), None);
        assert!(holds_code(&at("repo/lib")));
        assert!(holds_code(&at("repo/lib/a.py")));
        assert!(!holds_code(&at("repo/data")));
        assert!(!holds_code(&at("env/bin")));
    }
}
