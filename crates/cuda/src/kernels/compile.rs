//! A kernel file becomes code for a device, through the cache.

use std::io;
use std::time::Instant;

use regatta_worker::words;
use serde::{Deserialize, Serialize};

use super::arch::Arch;
use super::cache::{self, Key};
use super::resources::Resources;
use super::source::{FILES, KernelSource};
use super::toolkit::{self, Toolkit};
use super::{nvcc, nvrtc, resources};

/// Code for a kernel file of the binary, by its name without the ending. Compiled when the
/// cache has none; otherwise no compiler is opened or started.
///
/// # Errors
/// See [`BuildError`].
pub fn compiled(file: &str, arch: Arch, compiler: Compiler) -> Result<Image, BuildError> {
    let source = KernelSource::embedded(file).ok_or_else(|| {
        let names = FILES.map(|file| file.name);
        BuildError::Unsupported {
            file: file.to_owned(),
            arch,
            why: format!(
                "there is no such kernel file; there are {}",
                names.join(", ")
            ),
        }
    })?;
    image(&source, arch, compiler, false)
}

/// Code for any source. `fresh` compiles even what the cache has.
///
/// # Errors
/// See [`BuildError`].
pub fn image(
    source: &KernelSource,
    arch: Arch,
    compiler: Compiler,
    fresh: bool,
) -> Result<Image, BuildError> {
    if let Some(why) = source.needs.refuse(arch) {
        return Err(BuildError::Unsupported {
            file: source.file_name(),
            arch,
            why,
        });
    }
    let toolkit = toolkit::here(compiler).map_err(BuildError::NoCompiler)?;
    let folder = regatta_core::cache::folder()?.join("kernels");
    let key = key(source, arch, compiler, &toolkit);
    if let Some(image) = cache::load(&folder, &key).filter(|_| !fresh) {
        return Ok(image);
    }
    let started = Instant::now();
    let compiled = match compiler {
        Compiler::Nvrtc => nvrtc::compile(&toolkit, source, arch)?,
        Compiler::Nvcc => nvcc::compile(&toolkit, source, arch)?,
    };
    let image = Image {
        cubin: compiled.cubin,
        compiler: compiled.compiler,
        resources: resources::parse(&compiled.log),
        cached: false,
        seconds: started.elapsed().as_secs_f64(),
        warnings: resources::warnings(&compiled.log),
    };
    cache::store(&folder, &key, &image)?;
    Ok(image)
}

fn key(source: &KernelSource, arch: Arch, compiler: Compiler, toolkit: &Toolkit) -> Key {
    let options = match compiler {
        Compiler::Nvrtc => nvrtc::OPTIONS.join(" "),
        Compiler::Nvcc => nvcc::OPTIONS.join(" "),
    };
    let (stamp, arch) = (toolkit.stamp(), arch.to_string());
    let label = format!("{}-{arch}-{compiler}", source.name);
    let own = [stamp.as_str(), &arch, &options, &source.name, &source.text];
    let headers = source.headers.iter();
    let headers = headers.flat_map(|(name, text)| [name.as_str(), text.as_ref()]);
    let asked = source.options.iter().map(String::as_str);
    Key::new(&label, own.into_iter().chain(headers).chain(asked))
}

/// What compiles. Their code differs in a few instructions: numbers of one are never held
/// against the other's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compiler {
    /// The run-time compiler, a library; needs no host compiler.
    #[default]
    Nvrtc,
    /// The compiler driver, a program; needs a host compiler.
    Nvcc,
}

/// Code for a device, and what the compiler said of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Image {
    /// What the driver loads.
    #[serde(skip)]
    pub cubin: Vec<u8>,
    /// Who compiled it: `nvrtc 13.0`, `nvcc 13.0.88`.
    pub compiler: String,
    /// What each entry point takes, sorted by name.
    pub resources: Vec<Resources>,
    /// It was compiled before, and read from the cache.
    #[serde(skip)]
    pub cached: bool,
    /// How long the compilation took, when it was done.
    pub seconds: f64,
    /// What the compiler warned of, a line each.
    pub warnings: Vec<String>,
}

/// What a compiler gives.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// What the driver loads.
    pub cubin: Vec<u8>,
    /// Name and version.
    pub compiler: String,
    /// Everything it printed, the assembler's resource lines included.
    pub log: String,
}

/// Why there is no code.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The compiler is not on this machine or cannot be used: where it was looked for and
    /// how to get it.
    #[error("{0}")]
    NoCompiler(String),
    /// The compiler refused the source.
    #[error("{file} does not compile for {arch}:\n{}", log.trim_end())]
    Rejected {
        /// The kernel file, with its ending.
        file: String,
        /// The architecture.
        arch: Arch,
        /// What the compiler said, with its lines.
        log: String,
    },
    /// This file is not for this architecture, or the compiler does not know it.
    #[error("{file} cannot be compiled for {arch}: {why}")]
    Unsupported {
        /// The kernel file, with its ending.
        file: String,
        /// The architecture.
        arch: Arch,
        /// Why.
        why: String,
    },
    /// The cache or a temporary folder cannot be used.
    #[error("compiled kernels cannot be kept: {0}")]
    Cache(#[from] io::Error),
}

words!(Compiler, "compiler", Nvrtc = "nvrtc", Nvcc = "nvcc");

#[cfg(test)]
mod tests {
    use super::*;

    /// The compilers under `REGATTA_TEST_CUDA`, as CI has them.
    fn installed() -> Vec<(Compiler, Toolkit)> {
        let Some(root) = std::env::var_os("REGATTA_TEST_CUDA") else {
            eprintln!("not run: REGATTA_TEST_CUDA names no CUDA toolkit");
            return Vec::new();
        };
        let variable = |name: &str| (name == "REGATTA_CUDA").then(|| root.clone());
        let found = |compiler| (compiler, toolkit::find(compiler, &variable).unwrap());
        [Compiler::Nvrtc, Compiler::Nvcc].map(found).to_vec()
    }

    fn run(
        compiler: Compiler,
        toolkit: &Toolkit,
        source: &KernelSource,
    ) -> Result<Compiled, BuildError> {
        match compiler {
            Compiler::Nvrtc => nvrtc::compile(toolkit, source, Arch::SM_90A),
            Compiler::Nvcc => nvcc::compile(toolkit, source, Arch::SM_90A),
        }
    }

    #[test]
    fn both_compilers_make_every_entry_point_of_the_contract() {
        for (compiler, toolkit) in installed() {
            let source = KernelSource::embedded("naive").unwrap();
            let compiled = run(compiler, &toolkit, &source).unwrap();
            assert!(compiled.cubin.starts_with(b"\x7fELF"), "{compiler}");
            assert!(compiled.compiler.starts_with(&format!("{compiler} 1")));
            let found = resources::parse(&compiled.log);
            let mut names: Vec<&str> = found.iter().map(|r| r.name.as_str()).collect();
            let entries = super::super::contract::entries("naive");
            let mut stated: Vec<&str> = entries.iter().map(|e| e.name.as_str()).collect();
            names.sort_unstable();
            stated.sort_unstable();
            assert_eq!(names, stated, "{compiler}");
            assert!(found.iter().all(|resources| resources.registers > 0));
        }
    }

    #[test]
    fn a_mistake_is_shown_with_its_line_and_the_header_that_has_it() {
        for (compiler, toolkit) in installed() {
            let mut source = KernelSource::embedded("naive").unwrap();
            let (header, text) = &mut source.headers[0];
            text.to_mut()
                .push_str("\n__device__ int wrong() { return missing; }\n");
            let place = format!("{header}({}): error", text.lines().count());
            let error = run(compiler, &toolkit, &source).unwrap_err();
            let BuildError::Rejected { file, log, .. } = &error else {
                panic!("{compiler}: {error}");
            };
            assert_eq!(file, "naive.cu");
            assert!(log.contains(&place), "{compiler}: {log}");
            assert!(log.contains("missing"), "{compiler}: {log}");
        }
    }

    fn toolkit() -> Toolkit {
        Toolkit {
            program: "/no/such/nvcc".into(),
            builtins: None,
            includes: Vec::new(),
        }
    }

    #[test]
    fn a_key_follows_everything_that_code_follows_from() {
        let source = KernelSource::embedded("naive").unwrap();
        let of = |source: &KernelSource, arch, compiler| key(source, arch, compiler, &toolkit());
        let first = of(&source, Arch::SM_80, Compiler::Nvcc);
        assert_eq!(first, of(&source, Arch::SM_80, Compiler::Nvcc));
        assert_ne!(first, of(&source, Arch::SM_100, Compiler::Nvcc));
        assert_ne!(first, of(&source, Arch::SM_80, Compiler::Nvrtc));
        let mut edited = source.clone();
        edited.headers[0].1.to_mut().push('\n');
        assert_ne!(first, of(&edited, Arch::SM_80, Compiler::Nvcc));
        let mut edited = source.clone();
        edited.text.to_mut().push('\n');
        assert_ne!(first, of(&edited, Arch::SM_80, Compiler::Nvcc));
        let other = Toolkit {
            program: "/no/such/other".into(),
            ..toolkit()
        };
        assert_ne!(first, key(&source, Arch::SM_80, Compiler::Nvcc, &other));
    }
}
