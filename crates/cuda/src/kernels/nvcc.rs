//! nvcc, CUDA's compiler as a program. It needs a host compiler on the `PATH`.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::arch::Arch;
use super::compile::{BuildError, Compiled};
use super::source::KernelSource;
use super::toolkit::Toolkit;
use regatta_core::temporary;

/// Options of every compilation, in addition to architecture and file names.
pub const OPTIONS: [&str; 5] = ["-std=c++17", "-lineinfo", "-cubin", "-Xptxas", "-v"];

/// Compiles a kernel file to a cubin.
///
/// # Errors
/// nvcc cannot be started, has no host compiler, or refuses the architecture or the source.
pub fn compile(
    toolkit: &Toolkit,
    source: &KernelSource,
    arch: Arch,
) -> Result<Compiled, BuildError> {
    let nvcc = &toolkit.program;
    let work = temporary::folder("nvcc")?;
    let file = source.file_name();
    let folder = laid_out(source, work.path())?;
    let arch_option = format!("-arch={arch}");
    let mut arguments = vec![arch_option.as_str()];
    arguments.extend(OPTIONS);
    arguments.extend(source.options.iter().map(String::as_str));
    arguments.extend(["-o", "kernel.cubin", file.as_str()]);
    let output = started(nvcc, &arguments, &folder)?;
    let mut log = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        if log.trim().is_empty() {
            log = format!("{} said nothing: {}", nvcc.display(), output.status);
        }
        return Err(refusal(nvcc, file, arch, &log));
    }
    Ok(Compiled {
        cubin: std::fs::read(folder.join("kernel.cubin"))?,
        compiler: version(nvcc, &folder)?,
        log,
    })
}

/// Writes the file and its headers into a temporary folder, and returns the subfolder of the file.
/// It is deep enough that headers with `../` in their names are still inside of the temporary
/// folder. A header with an absolute path is left out, because the compiler finds it there.
fn laid_out(source: &KernelSource, work: &Path) -> io::Result<PathBuf> {
    let headers = source.headers.iter();
    let headers: Vec<_> = headers
        .filter(|(name, _)| Path::new(name).is_relative())
        .collect();
    let deepest = headers.iter().map(|(name, _)| ups(Path::new(name))).max();
    let folder = (0..deepest.unwrap_or(0)).fold(work.to_owned(), |at, _| at.join("in"));
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(source.file_name()), source.text.as_bytes())?;
    for (name, text) in headers {
        let place = folder.join(name);
        if let Some(parent) = place.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(place, text.as_bytes())?;
    }
    Ok(folder)
}

/// The largest number of folders that a path climbs above its start.
fn ups(path: &Path) -> usize {
    let (mut above, mut below) = (0, 0);
    for part in path.components() {
        match part {
            Component::ParentDir if below == 0 => above += 1,
            Component::ParentDir => below -= 1,
            Component::Normal(_) => below += 1,
            _ => {}
        }
    }
    above
}

fn started(nvcc: &Path, arguments: &[&str], folder: &Path) -> Result<Output, BuildError> {
    let output = Command::new(nvcc)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output();
    output.map_err(|error: io::Error| {
        BuildError::NoCompiler(format!("{} cannot be started: {error}", nvcc.display()))
    })
}

/// Name and version: `nvcc 13.0.88`.
fn version(nvcc: &Path, folder: &Path) -> Result<String, BuildError> {
    let output = started(nvcc, &["--version"], folder)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.split_whitespace().find_map(|word| {
        let number = word.strip_prefix('V')?;
        number
            .starts_with(|c: char| c.is_ascii_digit())
            .then_some(number)
    });
    let number = number.ok_or_else(|| {
        BuildError::NoCompiler(format!(
            "{} --version names no version: {text}",
            nvcc.display()
        ))
    })?;
    Ok(format!("nvcc {number}"))
}

/// The error for a failure of nvcc. Its own messages begin with `nvcc fatal`.
fn refusal(nvcc: &Path, file: String, arch: Arch, log: &str) -> BuildError {
    let own = log.lines().find_map(|line| line.strip_prefix("nvcc fatal"));
    match own.map(|words| words.trim_start_matches([' ', ':'])) {
        Some(words) if words.starts_with("Unsupported gpu architecture") => {
            BuildError::Unsupported {
                file,
                arch,
                why: format!("{}: {words}", nvcc.display()),
            }
        }
        Some(words) if words.contains("host compiler") => BuildError::NoCompiler(format!(
            "nvcc needs a host compiler ({words}); install g++, or use NVRTC, which needs none"
        )),
        _ => {
            let kept = |line: &&str| !line.starts_with("ptxas info");
            let lines: Vec<&str> = log.lines().filter(kept).collect();
            BuildError::Rejected {
                file,
                arch,
                log: lines.join("\n"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(log: &str) -> BuildError {
        refusal(
            Path::new("/cuda/bin/nvcc"),
            "k.cu".to_owned(),
            Arch::SM_80,
            log,
        )
    }

    #[test]
    fn failures_are_told_apart() {
        let arch = refused("nvcc fatal   : Unsupported gpu architecture 'sm_999'\n");
        assert!(matches!(&arch, BuildError::Unsupported { why, .. } if why.contains("sm_999")));
        let host = refused(
            "gcc: No such file or directory\n\
             nvcc fatal   : Failed to preprocess host compiler properties.\n",
        );
        assert!(matches!(&host, BuildError::NoCompiler(why) if why.contains("install g++")));
        let source = refused(
            "ptxas info    : 0 bytes gmem\nk.cu(3): error: identifier \"x\" is undefined\n",
        );
        let BuildError::Rejected { log, .. } = &source else {
            panic!("{source:?}");
        };
        assert_eq!(log, "k.cu(3): error: identifier \"x\" is undefined");
    }
}
