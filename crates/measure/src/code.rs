//! Which code is measured: the files that a worker's command names and that its processes load, of
//! which checkout they are, and checksums of them with the variables that decide its speed. Two
//! sides of a comparison that load one checkout measure the same code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::command::PROBE_VARIABLE;
use crate::git;
use crate::worker::{WorkerSpec, descendants, program};
use regatta_core::cache;
use regatta_core::record::identity::{Identity, WorkerIdentity, is_kept, is_of_session};
use regatta_core::secrets;
use regatta_cuda::kernels::source::KernelSource;

/// Files of a folder that are looked at, at the most: more are no sources of one library.
const MOST_FILES: usize = 50_000;

/// Files larger than this are known by size and time alone: reading them takes seconds.
const READ_WHOLE: u64 = 512 << 20;

/// Endings of files that are code, or make code.
const CODE: [&str; 13] = [
    "py", "pyx", "so", "cu", "cuh", "h", "hpp", "c", "cc", "cpp", "cubin", "ptx", "pl",
];

/// The identity of a run by these workers, and this executable.
pub fn identity<'a>(
    specs: impl Iterator<Item = &'a WorkerSpec>,
    loaded: &BTreeMap<String, BTreeSet<PathBuf>>,
) -> Identity {
    let own = std::env::current_exe().ok();
    let of_worker = |spec: &WorkerSpec| {
        let mut identity = worker_identity(spec);
        let root = root(spec.directory.as_deref().unwrap_or(Path::new(".")));
        let files = loaded.get(&spec.name).into_iter().flatten();
        for path in files.filter(|path| is_code_of_user(path)) {
            let sum = if path.is_dir() {
                listing(path)
            } else {
                checksum(path)
            };
            let below = root.as_ref().and_then(|root| path.strip_prefix(root).ok());
            let name = below.unwrap_or(path).display().to_string();
            identity.files.entry(name).or_insert(sum);
        }
        (spec.name.clone(), identity)
    };
    Identity {
        executable: own.map_or_else(unreadable, |path| checksum(&path)),
        workers: specs.map(of_worker).collect(),
        variables: other_variables(),
    }
}

fn worker_identity(spec: &WorkerSpec) -> WorkerIdentity {
    let program = spec.program.display().to_string();
    let environment = environment(spec);
    let from = spec.directory.as_deref().unwrap_or(Path::new(""));
    let mut files = BTreeMap::new();
    if let Some(path) = program::found(&spec.program) {
        files.insert(program.clone(), checksum(&path));
    }
    for path in named_files(&spec.args, from) {
        files.insert(path.display().to_string(), checksum(&path));
    }
    let folders = environment.get("PYTHONPATH").cloned().unwrap_or_default();
    for folder in folders.split(':').filter(|folder| !folder.is_empty()) {
        files.insert(folder.to_owned(), listing(&from.join(folder)));
    }
    let kept = environment.iter();
    let kept =
        kept.filter_map(|(name, value)| Some((name.clone(), secrets::variable(name, value)?)));
    WorkerIdentity {
        command: secrets::identified(&[vec![program], spec.args.clone()].concat()),
        files,
        environment: kept.collect(),
    }
}

/// Variables that the worker inherits or is given, of those that are kept.
fn environment(spec: &WorkerSpec) -> BTreeMap<String, String> {
    let inherited = std::env::vars_os().map(|(name, value)| {
        let text = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
        (text(name), text(value))
    });
    let mut all: BTreeMap<String, String> = inherited.collect();
    all.extend(spec.env.iter().cloned());
    let set = |name: &String| spec.env.iter().any(|(own, _)| own == name);
    let by_regatta = [
        PROBE_VARIABLE,
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONUNBUFFERED",
    ];
    all.retain(|name, _| is_kept(name) || set(name) && !by_regatta.contains(&name.as_str()));
    all
}

/// A checksum of the caller's variables that are not kept by name and hold no secret.
fn other_variables() -> String {
    let mut others: Vec<(std::ffi::OsString, std::ffi::OsString)> = std::env::vars_os().collect();
    others.retain(|(name, _)| {
        let name = name.to_string_lossy();
        !is_kept(&name) && !is_of_session(&name) && !secrets::names_a_secret(&name)
    });
    others.sort();
    let mut hasher = crc32fast::Hasher::new();
    for (name, value) in &others {
        for part in [name, value] {
            hasher.update(part.as_encoded_bytes());
            hasher.update(&[0]);
        }
    }
    format!("{:08x}", hasher.finalize())
}

/// The files that arguments name, with the code that lies beside a script: a worker is
/// seldom one file. Of a folder that Python runs, and of `-m MODULE`, all code. Paths are
/// looked for `from` where the worker is started.
fn named_files(args: &[String], from: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut arguments = args.iter();
    while let Some(argument) = arguments.next() {
        if argument == "-m"
            && let Some(module) = arguments.next()
        {
            let path = from.join(module.replace('.', "/"));
            found.extend(package(&path));
            found.extend(beside(&path.with_extension("py")));
            continue;
        }
        let value = argument.split_once('=').map_or("", |(_, value)| value);
        for word in [argument.as_str(), value] {
            if word.is_empty() {
                continue;
            }
            let path = from.join(word);
            found.extend(beside(&path));
            if path.join("__main__.py").is_file() {
                found.extend(package(&path));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// A file, and where it is a script, the files of its kind in its folder.
fn beside(path: &Path) -> Vec<PathBuf> {
    if path.as_os_str().is_empty() || !path.is_file() {
        return Vec::new();
    }
    let script = path.extension().filter(|ending| is_code(ending));
    let (Some(ending), Some(folder)) = (script, path.parent()) else {
        return vec![path.to_owned()];
    };
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let mut found = vec![path.to_owned()];
    // A kernel's tiles and loops are in its headers as often as not.
    if ending == "cu" {
        found.extend(KernelSource::included_files(path));
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let others = entries
        .map(|entry| entry.path())
        .filter(|other| other.extension() == Some(ending) && other.file_name() != path.file_name());
    found.extend(others.filter(|other| other.is_file()).take(MOST_FILES));
    found
}

/// The code of a Python package, with the packages in it.
fn package(folder: &Path) -> Vec<PathBuf> {
    let marks = ["__init__.py", "__main__.py"];
    match marks.iter().any(|name| folder.join(name).is_file()) {
        true => code_below(folder),
        false => Vec::new(),
    }
}

/// True for the ending of a file that is code, or makes code.
pub(crate) fn is_code(ending: &std::ffi::OsStr) -> bool {
    ending.to_str().is_some_and(|ending| CODE.contains(&ending))
}

/// CRC-32 and length of a file's bytes; of a large one, of its size and time.
pub fn checksum(path: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let facts = file.metadata()?;
        if facts.len() > READ_WHOLE {
            return Ok(format!("{} bytes of {}", facts.len(), modified(&facts)));
        }
        let mut hasher = crc32fast::Hasher::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(format!("{:08x}-{}", hasher.finalize(), facts.len())),
                n => hasher.update(&buffer[..n]),
            }
        }
    };
    read().unwrap_or_else(|_| unreadable())
}

/// A checksum of the names, sizes and times of the code in a folder and those below it.
fn listing(folder: &Path) -> String {
    let mut hasher = crc32fast::Hasher::new();
    let files = code_below(folder);
    for path in &files {
        if let Ok(facts) = fs::symlink_metadata(path) {
            let line = format!("{} {} {}\n", path.display(), facts.len(), modified(&facts));
            hasher.update(line.as_bytes());
        }
    }
    format!("{:08x}-{}", hasher.finalize(), files.len())
}

/// The code in a folder and those below it, but hidden ones and what Python leaves behind.
fn code_below(folder: &Path) -> Vec<PathBuf> {
    let (mut waiting, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = waiting.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let hidden = path.file_name().is_none_or(|name| {
                name.to_string_lossy().starts_with('.') || name == "__pycache__"
            });
            let Ok(facts) = fs::symlink_metadata(&path) else {
                continue;
            };
            if facts.is_dir() && !hidden {
                waiting.push(path);
            } else if path.extension().is_some_and(is_code) && files.len() < MOST_FILES {
                files.push(path);
            }
        }
    }
    files
}

fn modified(facts: &fs::Metadata) -> String {
    format!("{}.{:09}", facts.mtime(), facts.mtime_nsec())
}

fn unreadable() -> String {
    "unreadable".to_owned()
}

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
    let root = git::ask(folder, &["rev-parse", "--show-toplevel"]);
    fs::canonicalize(root.ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(args: &[&str], env: &[(&str, &str)]) -> WorkerSpec {
        let env = env
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let args = args.iter().map(|&word| word.to_owned()).collect();
        WorkerSpec {
            env: env.collect(),
            ..WorkerSpec::new("mine", "sh", args)
        }
    }

    /// A folder with these files.
    fn files(of: &[(&str, &str)]) -> (tempfile::TempDir, impl Fn(&str) -> PathBuf + use<>) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let at = move |name: &str| root.join(name);
        for (name, text) in of {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), text).unwrap();
        }
        (folder, at)
    }

    #[test]
    fn a_worker_is_its_program_its_script_and_what_lies_beside_it() {
        let (_folder, at) = files(&[
            ("bench.py", "import kernels"),
            ("kernels.py", "fast"),
            ("notes.txt", "x"),
        ]);
        let spec = spec(&[&format!("--script={}", at("bench.py").display())], &[]);
        let before = worker_identity(&spec);
        assert_eq!(before.files.len(), 3, "{:?}", before.files);
        assert_eq!(worker_identity(&spec), before);
        fs::write(at("kernels.py"), "slow").unwrap();
        let after = worker_identity(&spec);
        let changed = before.files.iter();
        assert_eq!(
            changed
                .filter(|(name, sum)| after.files[*name] != **sum)
                .count(),
            1
        );
    }

    #[test]
    fn a_cuda_file_is_its_headers_too() {
        let (_folder, at) = files(&[
            ("mine.cu", "#include \"inc/tile.cuh\""),
            ("inc/tile.cuh", "#include \"inc/size.h\""),
            ("inc/size.h", "#define TILE 64"),
            ("other.cuh", "nobody includes it"),
        ]);
        let spec = spec(&[&at("mine.cu").display().to_string()], &[]);
        let before = worker_identity(&spec).files;
        fs::write(at("inc/size.h"), "#define TILE 32").unwrap();
        let after = worker_identity(&spec).files;
        let name = |file: &str| at(file).display().to_string();
        assert_ne!(before[&name("inc/size.h")], after[&name("inc/size.h")]);
        assert!(before.contains_key(&name("inc/tile.cuh")));
        assert!(!before.contains_key(&name("other.cuh")));
    }

    #[test]
    fn a_package_and_a_folder_that_is_imported_from_are_their_code() {
        let (folder, at) = files(&[
            ("bench/__main__.py", "1"),
            ("bench/libraries/a.py", "1"),
            ("beside.py", "1"),
        ]);
        let before = listing(folder.path());
        fs::create_dir(at("bench/libraries/__pycache__")).unwrap();
        for other in ["bench/libraries/__pycache__/a.so", "bench/notes.md"] {
            fs::write(at(other), "1").unwrap();
        }
        let found = named_files(&[at("bench").display().to_string()], Path::new(""));
        assert_eq!(
            found,
            ["bench/__main__.py", "bench/libraries/a.py"].map(&at)
        );
        assert_eq!(listing(folder.path()), before);
        fs::write(at("bench/b.py"), "1").unwrap();
        assert_ne!(listing(folder.path()), before);
    }

    #[test]
    fn variables_are_the_workers_own_before_the_inherited_ones() {
        let found = environment(&spec(&[], &[("OMP_NUM_THREADS", "3"), ("MINE", "1")]));
        assert_eq!(found["OMP_NUM_THREADS"], "3");
        assert_eq!(found["MINE"], "1");
    }
}
