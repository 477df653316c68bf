//! Finds this machine's CUDA compiler: NVRTC's library or nvcc, with CUDA's headers.
//!
//! It only looks for files and starts no program, so a warm start costs a few file-system calls.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::compile::Compiler;
use regatta_core::input;

/// A compiler on this machine and its headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toolkit {
    /// nvcc's executable, or NVRTC's library.
    pub program: PathBuf,
    /// The library that NVRTC opens by its file name alone, if it is beside NVRTC.
    pub builtins: Option<PathBuf>,
    /// Folders of CUDA's headers.
    pub includes: Vec<PathBuf>,
}

/// Looks up environment variables with folders.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

const HEADER: &str = "cuda_fp16.h";

#[cfg(target_arch = "aarch64")]
const TARGETS: [&str; 2] = ["targets/sbsa-linux", "targets/aarch64-linux"];
#[cfg(not(target_arch = "aarch64"))]
const TARGETS: [&str; 1] = ["targets/x86_64-linux"];

/// Finds a compiler in this order: `REGATTA_CUDA` (and nowhere else if it is set); `CUDA_HOME`;
/// `CUDA_PATH`; `/usr/local/cuda`; the toolkit of the nvcc on the `PATH`; the `nvidia/cu13` package
/// of the Python in `REGATTA_PYTHON`, or of `python3`.
///
/// # Errors
/// The places that were searched, and how to get the compiler.
pub fn find(compiler: Compiler, variable: Variables) -> Result<Toolkit, String> {
    let mut missed = Vec::new();
    for (from, root) in places(variable) {
        let toolkit = root.and_then(|root| {
            // A folder of `pip install --target` has the package further down.
            let package = root.join("nvidia/cu13");
            let toolkit =
                at(compiler, &root).or_else(|why| at(compiler, &package).map_err(|_| why));
            toolkit.map_err(|why| format!("{why} in {}", root.display()))
        });
        match toolkit {
            Ok(toolkit) => return Ok(toolkit),
            Err(why) => missed.push(format!("  {from}: {why}")),
        }
    }
    Err(absent(compiler, &missed))
}

/// Roots of toolkits in order, each with its source. For a missing one, the reason.
fn places(variable: Variables) -> Vec<(&'static str, Result<PathBuf, String>)> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    let named = |name| set(name).map(|root| (name, Ok(root.into())));
    if let Some(only) = named("REGATTA_CUDA") {
        return vec![only];
    }
    let mut places: Vec<_> = named("CUDA_HOME")
        .into_iter()
        .chain(named("CUDA_PATH"))
        .collect();
    places.push(("the usual place", Ok("/usr/local/cuda".into())));
    match on_path(OsStr::new("nvcc"), variable) {
        None => places.push(("PATH", Err("no nvcc on it".to_owned()))),
        Some(nvcc) => {
            places.extend(
                prefixes(&nvcc)
                    .into_iter()
                    .map(|root| ("nvcc on the PATH", Ok(root))),
            );
        }
    }
    let own = set("REGATTA_PYTHON").map(|python| ("REGATTA_PYTHON", python));
    for (from, python) in own.into_iter().chain([("python3", "python3".into())]) {
        let Some(path) = on_path(&python, variable) else {
            let why = format!("no executable {}", python.display());
            places.push((from, Err(why)));
            continue;
        };
        let packages = packages(&path, set("HOME").as_deref());
        if packages.is_empty() {
            let why = format!("no nvidia/cu13 among the packages of {}", path.display());
            places.push((from, Err(why)));
        }
        places.extend(packages.into_iter().map(|root| (from, Ok(root))));
    }
    places
}

/// As [`find`], with the variables of this process.
///
/// # Errors
/// As [`find`].
pub fn here(compiler: Compiler) -> Result<Toolkit, String> {
    find(compiler, &|name| std::env::var_os(name))
}

impl Toolkit {
    /// Identifies this compiler without opening it: path, size and time of its file and of a
    /// header.
    pub fn stamp(&self) -> String {
        let header = self.includes.first().map(|folder| folder.join(HEADER));
        let files = [Some(&self.program), self.builtins.as_ref(), header.as_ref()];
        let stamps = files.into_iter().flatten().map(|path| {
            let (mut bytes, mut changed) = (0, 0);
            if let Ok(data) = fs::metadata(path) {
                bytes = data.len();
                let since = data
                    .modified()
                    .ok()
                    .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
                changed = since.map_or(0, |since| since.as_nanos());
            }
            let path = path.canonicalize().unwrap_or_else(|_| path.clone());
            format!("{} {bytes} {changed}", path.display())
        });
        stamps.collect::<Vec<_>>().join("\n")
    }
}

/// The compiler under a toolkit's root, or the part that is missing there.
fn at(compiler: Compiler, root: &Path) -> Result<Toolkit, &'static str> {
    // nvcc is started in another folder, so the path must be absolute.
    let root = std::path::absolute(root).map_err(|_| "no folder")?;
    let targets = || TARGETS.iter().map(|target| root.join(target));
    let mut includes = std::iter::once(root.to_owned()).chain(targets());
    let include = includes
        .find_map(|folder| Some(folder.join("include")).filter(|f| f.join(HEADER).is_file()));
    let (program, builtins) = match compiler {
        Compiler::Nvcc => {
            let nvcc = root.join("bin/nvcc");
            (nvcc.is_file().then_some(nvcc).ok_or("no bin/nvcc")?, None)
        }
        Compiler::Nvrtc => {
            let multiarch = root.join(format!("lib/{}-linux-gnu", std::env::consts::ARCH));
            let folders = [root.join("lib64"), root.join("lib"), multiarch];
            let mut folders = folders.into_iter().chain(targets().map(|f| f.join("lib")));
            folders
                .find_map(|folder| nvrtc_in(&folder))
                .ok_or("no libnvrtc.so.*")?
        }
    };
    let include = include.ok_or("no include/cuda_fp16.h")?;
    let cccl = Some(include.join("cccl")).filter(|folder| folder.is_dir());
    Ok(Toolkit {
        program,
        builtins,
        includes: std::iter::once(include).chain(cccl).collect(),
    })
}

/// The newest `libnvrtc.so.N` of a folder and its `libnvrtc-builtins.so.N.M`.
fn nvrtc_in(folder: &Path) -> Option<(PathBuf, Option<PathBuf>)> {
    let names: Vec<String> = fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    let version = |name: &String| name.strip_prefix("libnvrtc.so.")?.parse::<u32>().ok();
    let major = names.iter().filter_map(version).max()?;
    let prefix = format!("libnvrtc-builtins.so.{major}.");
    let minor = |name: &String| name.strip_prefix(&prefix)?.parse::<u32>().ok();
    let builtins = names.iter().filter_map(minor).max();
    Some((
        folder.join(format!("libnvrtc.so.{major}")),
        builtins.map(|minor| folder.join(format!("{prefix}{minor}"))),
    ))
}

/// An executable: the file if `program` is a path, otherwise the first of that name on the `PATH`.
fn on_path(program: &OsStr, variable: Variables) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return path.is_file().then(|| path.to_owned());
    }
    let folders = variable("PATH")?;
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(path));
    files.find(|file| file.is_file())
}

/// The prefixes under which `PREFIX/bin/program` may be installed: from its path as given, and with
/// links resolved. For the Python of a virtual environment these differ.
fn prefixes(program: &Path) -> Vec<PathBuf> {
    let up = |path: &Path| Some(path.parent()?.parent()?.to_owned());
    let mut prefixes: Vec<PathBuf> = up(program).into_iter().collect();
    prefixes.extend(program.canonicalize().ok().and_then(|path| up(&path)));
    prefixes.dedup();
    prefixes
}

/// The `nvidia/cu13` folders among a Python's packages.
fn packages(python: &Path, home: Option<&OsStr>) -> Vec<PathBuf> {
    let mut libraries = Vec::new();
    for prefix in prefixes(python) {
        libraries.extend([prefix.join("lib"), prefix.join("local/lib")]);
    }
    libraries.extend(home.map(|home| Path::new(home).join(".local/lib")));
    let mut folders = Vec::new();
    for library in libraries {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_owned();
        let is_python = |path: &Path| name(path).to_string_lossy().starts_with("python3");
        for version in input::paths_in(&library, is_python).iter().rev() {
            let kinds = ["site-packages", "dist-packages"];
            let packages = kinds.map(|kind| version.join(kind).join("nvidia/cu13"));
            folders.extend(packages.into_iter().filter(|package| package.is_dir()));
        }
    }
    folders
}

fn absent(compiler: Compiler, missed: &[String]) -> String {
    let (what, wheels) = match compiler {
        Compiler::Nvrtc => (
            "NVRTC, CUDA's run-time compiler,",
            "nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-runtime==13.0.96",
        ),
        Compiler::Nvcc => (
            "nvcc, CUDA's compiler,",
            "nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 \
             nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85",
        ),
    };
    format!(
        "{what} was not found. Looked in:\n{}\n\
         Name a CUDA toolkit in CUDA_HOME or REGATTA_CUDA; or pip install {wheels} and \
         name that Python in REGATTA_PYTHON",
        missed.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Empty files of these names under a temporary folder.
    fn files(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        folder
    }

    fn find_with(compiler: Compiler, set: &[(&str, PathBuf)]) -> Result<Toolkit, String> {
        let set: BTreeMap<&str, &PathBuf> = set.iter().map(|(name, path)| (*name, path)).collect();
        find(compiler, &|name| set.get(name).map(|path| path.into()))
    }

    #[test]
    fn a_toolkit_is_found_by_its_root() {
        let toolkit = files(&[
            "bin/nvcc",
            "include/cuda_fp16.h",
            "include/cccl/nv/target",
            "lib64/libnvrtc.so.12",
            "lib64/libnvrtc.so.13",
            "lib64/libnvrtc.so.13.0.88",
            "lib64/libnvrtc-builtins.so.12.9",
            "lib64/libnvrtc-builtins.so.13.0",
        ]);
        let root = toolkit.path().to_owned();
        let set = [("REGATTA_CUDA", root.clone())];
        let nvrtc = find_with(Compiler::Nvrtc, &set).unwrap();
        assert_eq!(nvrtc.program, root.join("lib64/libnvrtc.so.13"));
        assert_eq!(
            nvrtc.builtins,
            Some(root.join("lib64/libnvrtc-builtins.so.13.0"))
        );
        assert_eq!(
            nvrtc.includes,
            [root.join("include"), root.join("include/cccl")]
        );
        let nvcc = find_with(Compiler::Nvcc, &set).unwrap();
        assert_eq!(nvcc.program, root.join("bin/nvcc"));
        assert_ne!(nvcc.stamp(), nvrtc.stamp());
    }

    #[test]
    fn the_wheels_of_a_python_are_found() {
        let venv = files(&[
            "bin/python3",
            "lib/python3.11/site-packages/nvidia/cu13/bin/nvcc",
            "lib/python3.11/site-packages/nvidia/cu13/include/cuda_fp16.h",
            "lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
        ]);
        let package = venv.path().join("lib/python3.11/site-packages/nvidia/cu13");
        // Only if this machine has no /usr/local/cuda, which comes first.
        if !Path::new("/usr/local/cuda").exists() {
            let python = venv.path().join("bin/python3");
            let by_name = find_with(Compiler::Nvcc, &[("REGATTA_PYTHON", python)]).unwrap();
            assert_eq!(by_name.program, package.join("bin/nvcc"));
            let on_path = find_with(Compiler::Nvrtc, &[("PATH", venv.path().join("bin"))]).unwrap();
            assert_eq!(on_path.program, package.join("lib/libnvrtc.so.13"));
            assert_eq!(on_path.builtins, None);
        }
        // The same for packages installed with --target.
        let target = venv.path().join("lib/python3.11/site-packages");
        let toolkit = find_with(Compiler::Nvcc, &[("REGATTA_CUDA", target)]).unwrap();
        assert_eq!(toolkit.program, package.join("bin/nvcc"));
    }
}
