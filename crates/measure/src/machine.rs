//! What is measured, and on what: the machine, from what its workers say and the system tells, and
//! checksums of the code of the workers with the variables that decide its speed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::command::PROBE_VARIABLE;
use crate::loaded;
use crate::worker::{WorkerSpec, program};
use regatta_core::record::identity::{Identity, WorkerIdentity, is_kept, is_of_session};
use regatta_core::record::types::{Fingerprint, WorkerRecord};
use regatta_core::secrets;
use regatta_cuda::kernels::source::KernelSource;
use regatta_worker::protocol::{Device, DeviceKind, Hello};

/// The fingerprint of a machine whose workers introduced themselves so.
///
/// A GPU's facts are hard for every worker that runs on one. The processor's are
/// hard only when some worker runs on it: device times of a GPU do not depend on
/// which host rents it out. One that is absent runs nowhere.
pub fn fingerprint(hellos: &BTreeMap<String, Hello>) -> Fingerprint {
    let present = hellos.values().filter(|hello| hello.absent.is_none());
    of_devices(present.map(|hello| &hello.device))
}

/// The fingerprint of a machine with these devices.
pub fn of_devices<'a>(devices: impl Iterator<Item = &'a Device>) -> Fingerprint {
    let mut print = Fingerprint::default();
    let mut names = Vec::new();
    let mut runs_on_cpu = false;
    for device in devices {
        let kind = &device.kind;
        for (fact, value) in &device.facts {
            print.hard.insert(format!("{kind}.{fact}"), value.clone());
        }
        if device.known_kind() == Some(DeviceKind::Cpu) {
            runs_on_cpu = true;
            continue;
        }
        print.hard.insert(kind.clone(), device.name.clone());
        names.push(gpu_name(device));
    }
    let cpu = if runs_on_cpu {
        &mut print.hard
    } else {
        &mut print.soft
    };
    let (model, cores) = (cpu_model(), cores());
    cpu.insert("cpu".to_owned(), model.clone());
    cpu.insert("cpu.cores".to_owned(), cores.to_string());
    cpu.insert("arch".to_owned(), std::env::consts::ARCH.to_owned());
    if runs_on_cpu {
        names.push(format!("{}-{cores}c", slug(&model)));
    }
    let file = |path| fs::read_to_string(path).map(|text| text.trim().to_owned());
    if let Ok(kernel) = file("/proc/sys/kernel/osrelease") {
        print.soft.insert("kernel".to_owned(), kernel);
    }
    if let Ok(host) = file("/proc/sys/kernel/hostname") {
        print.soft.insert("host".to_owned(), host);
    }
    names.sort();
    names.dedup();
    print.name = file_name(&names.join("+"));
    print
}

/// Longest name of a machine.
const LONGEST: usize = 120;

/// The name as a file's: one without a letter that a file name holds, or too long for it, has
/// a checksum in its place.
fn file_name(name: &str) -> String {
    let sum = || format!("{:08x}", crc32fast::hash(name.as_bytes()));
    match name.len() {
        0..=LONGEST => name.to_owned(),
        _ => format!("{}-{}", &name[..LONGEST - 9], sum()),
    }
}

/// The record of a worker as it introduced itself.
pub fn worker_record(name: &str, hello: &Hello) -> WorkerRecord {
    WorkerRecord {
        name: name.to_owned(),
        device_kind: hello.device.kind.clone(),
        device: hello.device.name.clone(),
        versions: hello.versions.clone(),
        packages: hello.packages.clone(),
    }
}

/// The processor's marketing name.
pub fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        matches!(key.trim(), "model name" | "Processor" | "cpu model").then(|| value.trim())
    });
    model.unwrap_or("unknown").to_owned()
}

/// Hardware threads this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn gpu_name(device: &Device) -> String {
    let name = slug(&device.name.replace("NVIDIA", ""));
    match device.facts.get("sms") {
        Some(sms) => format!("{name}-{}sm", slug(sms)),
        None => name,
    }
}

/// `Intel(R) Xeon(R) Processor` → `intel-xeon-processor`.
fn slug(name: &str) -> String {
    let plain = name.replace("(R)", " ").replace("(TM)", " ");
    let words: Vec<String> = plain
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    match words.is_empty() {
        true => format!("device-{:08x}", crc32fast::hash(name.as_bytes())),
        false => words.join("-"),
    }
}

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
        let root = loaded::root(spec.directory.as_deref().unwrap_or(Path::new(".")));
        let files = loaded.get(&spec.name).into_iter().flatten();
        for path in files.filter(|path| loaded::is_code_of_user(path)) {
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
        command: secrets::command_line(&[vec![program], spec.args.clone()].concat()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hello;

    #[test]
    fn the_processor_is_hard_only_where_something_runs_on_it() {
        let gpu = BTreeMap::from([(
            "torch".to_owned(),
            hello("cuda", "NVIDIA H200", &[("sms", "132")]),
        )]);
        let print = fingerprint(&gpu);
        assert_eq!(print.name, "h200-132sm");
        assert_eq!(print.hard["cuda.sms"], "132");
        assert!(print.soft.contains_key("cpu"));
        let mut both = gpu;
        both.insert("cpu".to_owned(), hello("cpu", "x", &[]));
        let print = fingerprint(&both);
        assert!(print.hard.contains_key("cpu"));
        assert!(print.name.contains("h200-132sm"), "{}", print.name);
    }

    #[test]
    fn names_become_file_names() {
        assert_eq!(slug("Intel(R) Xeon(R) Processor"), "intel-xeon-processor");
        assert!(slug("処理装置").starts_with("device-"));
        assert_ne!(slug("処理装置"), slug("別の装置"));
        assert_eq!(file_name("h200-132sm"), "h200-132sm");
        let long = slug(&"boat".repeat(100));
        assert!(file_name(&long).len() <= LONGEST);
        assert_ne!(file_name(&long), file_name(&slug(&"boat".repeat(101))));
    }

    fn spec(args: &[&str], env: &[(&str, &str)]) -> WorkerSpec {
        let env = env
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()));
        WorkerSpec {
            name: "mine".to_owned(),
            program: PathBuf::from("sh"),
            args: args.iter().map(|&word| word.to_owned()).collect(),
            env: env.collect(),
            directory: None,
            fix: String::new(),
            forking: Default::default(),
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
