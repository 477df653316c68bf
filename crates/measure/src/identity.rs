//! Identifies the measured code: checksums of the files that a worker's command names, of those
//! beside them, and of those that its processes load; and variables that affect its speed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::command::PROBE_VARIABLE;
use crate::files::{checksum, checksum_below, code_below, is_code, unreadable};
use crate::loaded::{is_code_of_user, root};
use crate::worker::{WorkerSpec, program};
use regatta_core::checksum::Checksum;
use regatta_core::output::folder_of;
use regatta_core::record::identity::{BELOW, Identity, WorkerIdentity, is_kept, is_of_session};
use regatta_core::secrets;
use regatta_cuda::kernels::source::KernelSource;

/// The identity of a run of these workers with this executable.
pub fn identity<'a>(
    specs: impl Iterator<Item = &'a WorkerSpec>,
    loaded: &BTreeMap<String, BTreeSet<PathBuf>>,
) -> Identity {
    let own = std::env::current_exe().ok();
    let sums = Sums::default();
    let of_worker = |spec: &WorkerSpec| {
        let mut identity = worker_identity(spec, &sums);
        let root = root(spec.directory.as_deref().unwrap_or(Path::new(".")));
        let name = |path: &Path| {
            let below = root.as_ref().and_then(|root| path.strip_prefix(root).ok());
            below.unwrap_or(path).display().to_string()
        };
        let files = loaded.get(&spec.name).into_iter().flatten();
        for path in files.filter(|path| is_code_of_user(path)) {
            // Modules of a package elsewhere may be imported later, so all of the package counts.
            let elsewhere = root.as_ref().is_none_or(|root| !path.starts_with(root));
            let folder = if path.is_dir() {
                Some(path.clone())
            } else {
                let files = &mut identity.files;
                files.entry(name(path)).or_insert_with(|| sums.file(path));
                package_of(path).filter(|_| elsewhere)
            };
            if let Some(folder) = folder {
                let key = name(&folder) + BELOW;
                if !identity.files.contains_key(&key)
                    && let Some(sum) = sums.below(&folder, &[])
                {
                    identity.files.insert(key, sum);
                }
            }
        }
        (spec.name.clone(), identity)
    };
    Identity {
        executable: own.map_or_else(unreadable, |path| sums.file(&path)),
        workers: specs.map(of_worker).collect(),
        variables: other_variables(),
    }
}

/// A folder, and the files in it that are left out.
type FolderKey = (PathBuf, Vec<PathBuf>);

/// Cached checksums, since most workers have the same program and folder.
#[derive(Default)]
struct Sums {
    files: RefCell<BTreeMap<PathBuf, String>>,
    folders: RefCell<BTreeMap<FolderKey, Option<String>>>,
}

impl Sums {
    fn file(&self, path: &Path) -> String {
        let mut files = self.files.borrow_mut();
        let sum = files.entry(path.to_owned());
        sum.or_insert_with(|| checksum(path)).clone()
    }

    fn below(&self, folder: &Path, others: &[PathBuf]) -> Option<String> {
        let mut folders = self.folders.borrow_mut();
        let sum = folders.entry((folder.to_owned(), others.to_vec()));
        sum.or_insert_with(|| checksum_below(folder, others))
            .clone()
    }
}

fn worker_identity(spec: &WorkerSpec, sums: &Sums) -> WorkerIdentity {
    let program = spec.program.display().to_string();
    let environment = environment(spec);
    let from = spec.directory.as_deref().unwrap_or(Path::new(""));
    let mut files = BTreeMap::new();
    if let Some(path) = program::found(&spec.program) {
        files.insert(program.clone(), sums.file(&path));
    }
    let named = named_files(&spec.args, from);
    // A script may start others, import later, and read settings in its folder and below.
    let folders: BTreeSet<&Path> = named.scripts.iter().map(|path| folder_of(path)).collect();
    for folder in folders {
        if let Some(sum) = sums.below(folder, &named.files) {
            files.insert(format!("{}{BELOW}", folder.display()), sum);
        }
    }
    for path in named.files {
        files.insert(path.display().to_string(), sums.file(&path));
    }
    let folders = environment.get("PYTHONPATH").cloned().unwrap_or_default();
    for folder in folders.split(':').filter(|folder| !folder.is_empty()) {
        if let Some(sum) = sums.below(&from.join(folder), &[]) {
            files.insert(format!("{folder}{BELOW}"), sum);
        }
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

/// The variables that identify a run, with the values that the worker inherits or is given.
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

/// A checksum of the caller's other variables, without those that may hold a secret.
fn other_variables() -> String {
    let mut others: Vec<(std::ffi::OsString, std::ffi::OsString)> = std::env::vars_os().collect();
    others.retain(|(name, _)| {
        let name = name.to_string_lossy();
        !is_kept(&name) && !is_of_session(&name) && !secrets::names_a_secret(&name)
    });
    others.sort();
    let mut sum = Checksum::default();
    for part in others.iter().flat_map(|(name, value)| [name, value]) {
        sum.add(part.as_encoded_bytes());
    }
    sum.text()
}

/// The files that a command names.
#[derive(Debug, Default)]
struct NamedFiles {
    /// For a script also the code of its kind beside it, since a worker is seldom a single file.
    /// For a folder that Python runs and for `-m MODULE`, all of the code.
    files: Vec<PathBuf>,
    /// Those of `files` that run or import other files.
    scripts: Vec<PathBuf>,
}

/// The files that arguments name relative to `from`, the folder in which the worker starts.
fn named_files(args: &[String], from: &Path) -> NamedFiles {
    let mut named = NamedFiles::default();
    let mut arguments = args.iter();
    while let Some(argument) = arguments.next() {
        if argument == "-m"
            && let Some(module) = arguments.next()
        {
            let path = from.join(module.replace('.', "/"));
            named.files.extend(package(&path));
            named.add(&path.with_extension("py"));
            continue;
        }
        let value = argument.split_once('=').map_or("", |(_, value)| value);
        for word in [argument.as_str(), value] {
            if word.is_empty() {
                continue;
            }
            let path = from.join(word);
            named.add(&path);
            if path.join("__main__.py").is_file() {
                named.files.extend(package(&path));
            }
        }
    }
    named.files.sort();
    named.files.dedup();
    named
}

impl NamedFiles {
    /// Adds a file. For a script, also adds the files of its kind in its folder.
    fn add(&mut self, path: &Path) {
        if path.as_os_str().is_empty() || !path.is_file() {
            return;
        }
        self.files.push(path.to_owned());
        let Some(ending) = path.extension().filter(|_| is_code(path)) else {
            return;
        };
        // A kernel reads only its headers, which often have its tiles and loops.
        if ending == "cu" {
            self.files.extend(KernelSource::included_files(path));
        } else {
            self.scripts.push(path.to_owned());
        }
        let entries = fs::read_dir(folder_of(path))
            .into_iter()
            .flatten()
            .flatten();
        let others = entries.map(|entry| entry.path());
        // Files below `.` are named without it, as in commands.
        let is_here = path.parent() == Some(Path::new(""));
        let plain = |path: &Path| path.strip_prefix(".").map(Path::to_owned).ok();
        let others = others.map(|other| plain(&other).filter(|_| is_here).unwrap_or(other));
        let alike = others.filter(|other| other.extension() == Some(ending) && other != path);
        self.files
            .extend(alike.filter(|other| other.is_file()).take(MAX_BESIDE));
    }
}

/// Files beside a script that are listed individually, at most. The rest count with the folder's
/// checksum.
const MAX_BESIDE: usize = 1_000;

/// The code of a Python package, including packages inside it.
fn package(folder: &Path) -> Vec<PathBuf> {
    let marks = ["__init__.py", "__main__.py"];
    if marks.iter().any(|name| folder.join(name).is_file()) {
        code_below(folder)
    } else {
        Vec::new()
    }
}

/// The folder of the outermost package that contains the module `path`.
fn package_of(path: &Path) -> Option<PathBuf> {
    let folders = path.ancestors().skip(1);
    let packages = folders.take_while(|folder| folder.join("__init__.py").is_file());
    packages.last().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::testing::files;

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

    fn files_of(args: &[&str]) -> BTreeMap<String, String> {
        worker_identity(&spec(args, &[]), &Sums::default()).files
    }

    #[test]
    fn a_worker_is_its_program_its_script_and_what_lies_beside_it_and_below() {
        let (_folder, at) = files(&[
            ("bench.py", "import kernels"),
            ("kernels.py", "fast"),
            ("notes.txt", "x"),
        ]);
        let script = format!("--script={}", at("bench.py").display());
        let identity = || files_of(&[&script]);
        let before = identity();
        assert_eq!(before.len(), 3, "{before:?}");
        assert_eq!(identity(), before);
        fs::write(at("kernels.py"), "slow").unwrap();
        let changed = |was: &BTreeMap<String, String>| -> Vec<String> {
            let is = identity();
            let names = is.keys().filter(|name| was.get(*name) != is.get(*name));
            names
                .map(|name| name.replace(&at("").display().to_string(), ""))
                .collect()
        };
        assert_eq!(changed(&before), ["kernels.py"]);
        // A script that a script starts, a file in a folder below, settings, and a late import.
        for name in ["run.sh", "deep/er/late.py", "tune.json", "ext.so"] {
            let before = identity();
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), "1").unwrap();
            assert_eq!(changed(&before), ["**"], "{name} is new");
            let before = identity();
            fs::write(at(name), "2").unwrap();
            assert_eq!(changed(&before), ["**"], "{name} changed");
        }
    }

    #[test]
    fn a_cuda_file_is_its_headers_too() {
        let (_folder, at) = files(&[
            ("mine.cu", "#include \"inc/tile.cuh\""),
            ("inc/tile.cuh", "#include \"inc/size.h\""),
            ("inc/size.h", "#define TILE 64"),
            ("other.cuh", "no file includes it"),
        ]);
        let file = at("mine.cu").display().to_string();
        let before = files_of(&[&file]);
        fs::write(at("inc/size.h"), "#define TILE 32").unwrap();
        let after = files_of(&[&file]);
        let name = |file: &str| at(file).display().to_string();
        assert_ne!(before[&name("inc/size.h")], after[&name("inc/size.h")]);
        assert!(before.contains_key(&name("inc/tile.cuh")));
        assert!(!before.contains_key(&name("other.cuh")));
    }

    #[test]
    fn a_package_that_python_runs_is_its_code() {
        let (_folder, at) = files(&[
            ("bench/__main__.py", "1"),
            ("bench/libraries/a.py", "1"),
            ("beside.py", "1"),
        ]);
        let named = named_files(&[at("bench").display().to_string()], Path::new(""));
        assert_eq!(
            named.files,
            ["bench/__main__.py", "bench/libraries/a.py"].map(&at)
        );
    }

    #[test]
    fn of_a_package_that_lies_elsewhere_a_late_import_is_a_part() {
        let (_folder, at) = files(&[
            ("lib/mine/__init__.py", ""),
            ("lib/mine/deep/__init__.py", "1"),
            ("lib/mine/late.py", "1"),
            ("lib/other.py", "1"),
        ]);
        let loaded = [at("lib/mine/deep/__init__.py")];
        let loaded = BTreeMap::from([("mine".to_owned(), loaded.into())]);
        let files = || {
            let specs = [spec(&[], &[])];
            identity(specs.iter(), &loaded).workers["mine"]
                .files
                .clone()
        };
        let before = files();
        fs::write(at("lib/other.py"), "2").unwrap();
        assert_eq!(files(), before);
        fs::write(at("lib/mine/late.py"), "2").unwrap();
        assert_ne!(files(), before);
    }

    #[test]
    fn variables_are_the_workers_own_before_the_inherited_ones() {
        let variables = environment(&spec(&[], &[("OMP_NUM_THREADS", "3"), ("MINE", "1")]));
        assert_eq!(variables["OMP_NUM_THREADS"], "3");
        assert_eq!(variables["MINE"], "1");
    }
}
