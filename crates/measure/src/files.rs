//! Recognises files of code, and computes checksums of files and folders.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use regatta_core::cache;
use regatta_core::checksum::{self, Checksum};
use regatta_core::text::is_listed;

/// Limits of a walk through a folder. A larger folder is not the code of one library, and a walk
/// would take seconds.
const MAX_FILES: usize = 50_000;
const MAX_FOLDERS: usize = 10_000;

/// Larger files are identified by size and time, since reading them takes seconds.
const READ_WHOLE: u64 = 512 << 20;

/// The number of bytes of a folder that are read. Files beyond that are identified by size and
/// time.
const READ_OF_FOLDER: u64 = 256 << 20;

/// Extensions of files that are code, or from which code is made.
const CODE: &str = "
    py pyx pxd pyi so cu cuh cubin ptx fatbin h hh hpp hxx inc inl ipp tpp c cc cpp cxx m mm s asm
    cl hip comp spv rs go zig d nim f f90 f95 f03 for jl java kt scala cs js mjs ts lua rb pl pm php
    r sh bash zsh fish cmake mk bazel bzl";

/// Extensions of files that compilers turn into other files.
const COMPILED: &str = "
    pyx pxd cu cuh h hh hpp hxx inc inl ipp tpp c cc cpp cxx m mm s asm cl hip comp rs go zig d nim f
    f90 f95 f03 for cmake mk";

/// Extensions of files from which a program may read settings.
const SETTINGS: &str = "json yaml yml cfg ini conf";

/// The size above which such a file is data.
const LARGEST_SETTINGS: u64 = 1 << 20;

fn has_ending(path: &Path, endings: &str) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| is_listed(ending, endings))
}

/// True if the name is that of code, or of a file from which code is made. `libmine.so.1` is code
/// too.
pub(crate) fn is_code(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    let library = name.is_some_and(|name| name.contains(".so."));
    library || has_ending(path, CODE)
}

/// True if the name is that of a file that is compiled into another.
pub(crate) fn is_compiled(path: &Path) -> bool {
    has_ending(path, COMPILED)
}

/// The checksum and length of a file's contents; for a large file its size and time.
pub(crate) fn checksum(path: &Path) -> String {
    let sum = || -> io::Result<String> {
        let facts = fs::metadata(path)?;
        if facts.len() > READ_WHOLE {
            return Ok(size_and_time(&facts));
        }
        checksum::of_file(path)
    };
    sum().unwrap_or_else(|_| unreadable())
}

/// The checksum of code; size and time of any other file, since checkpoints have gigabytes.
pub(crate) fn checksum_of_code(path: &Path) -> String {
    if is_code(path) {
        return checksum(path);
    }
    fs::symlink_metadata(path).map_or_else(|_| unreadable(), |facts| size_and_time(&facts))
}

fn size_and_time(facts: &fs::Metadata) -> String {
    format!(
        "{} bytes of {}.{:09}",
        facts.len(),
        facts.mtime(),
        facts.mtime_nsec()
    )
}

pub(crate) fn unreadable() -> String {
    "unreadable".to_owned()
}

/// A checksum of the names and contents of code and settings in `folder` and below, without
/// `others`. `None` without such files.
pub(crate) fn checksum_below(folder: &Path, others: &[PathBuf]) -> Option<String> {
    let (mut sum, mut count, mut left) = (Checksum::default(), 0, READ_OF_FOLDER);
    let here = folder == Path::new(".");
    let below = |path: &Path| match path.strip_prefix(folder) {
        Ok(below) => Some(below.to_owned()),
        Err(_) => (here && path.is_relative()).then(|| path.to_owned()),
    };
    let others: BTreeSet<PathBuf> = others.iter().filter_map(|path| below(path)).collect();
    for path in walk(folder, &|path| is_code(path) || is_settings(folder, path)) {
        let (Some(name), Ok(facts)) = (below(&path), fs::metadata(&path)) else {
            continue;
        };
        if others.contains(&name) {
            continue;
        }
        sum.add(name.as_os_str().as_encoded_bytes());
        if facts.len() <= left {
            left -= facts.len();
            sum.add(checksum(&path));
        } else {
            sum.add(size_and_time(&facts));
        }
        count += 1;
    }
    (count > 0).then(|| format!("{}-{count}", sum.text()))
}

/// True for settings that a program may read, but not for files that regatta writes.
fn is_settings(folder: &Path, path: &Path) -> bool {
    let below = path.strip_prefix(folder).unwrap_or(path);
    let is_report = |part: &std::ffi::OsStr| part == "reports" || part == "baselines";
    has_ending(path, SETTINGS)
        && !below.iter().any(is_report)
        && fs::metadata(path).is_ok_and(|facts| facts.len() <= LARGEST_SETTINGS)
}

/// The code in a folder and below.
pub(crate) fn code_below(folder: &Path) -> Vec<PathBuf> {
    walk(folder, &is_code)
}

/// Files in a folder and below, sorted by name. Skips hidden files, environments, the cache, files
/// that Python writes, and linked folders.
fn walk(folder: &Path, wanted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let cache = cache::folder().and_then(fs::canonicalize).ok();
    let (mut waiting, mut files, mut folders) = (vec![folder.to_owned()], Vec::new(), 0);
    while let Some(folder) = waiting.pop() {
        folders += 1;
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        for entry in entries {
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                let is_cache = || fs::canonicalize(&path).ok() == cache;
                let skipped = name.as_encoded_bytes().starts_with(b".")
                    || SKIPPED.iter().any(|skipped| name == *skipped)
                    || is_environment(&path)
                    || is_cache();
                if !skipped && folders + waiting.len() < MAX_FOLDERS {
                    waiting.push(path);
                }
            } else if wanted(&path) && files.len() < MAX_FILES {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Folders without code of the user.
const SKIPPED: [&str; 2] = ["__pycache__", "node_modules"];

/// True for a Python or conda environment.
pub(crate) fn is_environment(folder: &Path) -> bool {
    folder.join("pyvenv.cfg").is_file() || folder.join("conda-meta").is_dir()
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A folder with these files.
    pub(crate) fn files(
        texts: &[(&str, &str)],
    ) -> (tempfile::TempDir, impl Fn(&str) -> PathBuf + use<>) {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let at = move |name: &str| root.join(name);
        for (name, text) in texts {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), text).unwrap();
        }
        (folder, at)
    }
}

#[cfg(test)]
mod tests {
    use super::testing::files;
    use super::*;

    #[test]
    fn a_folder_is_its_code_and_settings_and_what_is_left_behind_changes_nothing() {
        let (folder, at) = files(&[
            ("bench.py", "1"),
            ("lib/kernel.cu", "1"),
            ("tune.json", "1"),
            ("notes.md", "1"),
        ]);
        let sum = || checksum_below(folder.path(), &[]);
        let before = sum();
        for other in [
            "__pycache__/a.so",
            "reports/a.json",
            ".venv/a.py",
            "env/pyvenv.cfg",
            "env/a.py",
        ] {
            fs::create_dir_all(at(other).parent().unwrap()).unwrap();
            fs::write(at(other), "1").unwrap();
        }
        fs::write(at("notes.md"), "2").unwrap();
        assert_eq!(sum(), before);
        let mut seen = vec![before];
        for name in ["lib/kernel.cu", "tune.json", "lib/new.sh", "libmine.so.1"] {
            // The length is the same, so only the contents differ.
            fs::write(at(name), "2").unwrap();
            assert!(!seen.contains(&sum()), "{name}");
            seen.push(sum());
        }
        let all = ["lib/kernel.cu", "lib/new.sh"].map(&at);
        assert_eq!(checksum_below(&at("lib"), &all), None);
    }

    #[test]
    fn what_is_no_code_is_not_read() {
        let (_folder, at) = files(&[("a.pt", ""), ("b.so", "")]);
        let large = fs::File::options().write(true).open(at("a.pt")).unwrap();
        large.set_len(511 << 20).unwrap();
        let began = std::time::Instant::now();
        let sum = checksum_of_code(&at("a.pt"));
        assert!(began.elapsed().as_millis() < 50);
        assert!(sum.starts_with("535822336 bytes of "), "{sum}");
        assert!(checksum_of_code(&at("b.so")).ends_with("-0"));
    }
}
