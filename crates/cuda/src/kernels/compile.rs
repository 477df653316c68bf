//! A kernel file becomes code for a device, through the cache.

use std::io;
use std::time::Instant;

use super::arch::Arch;
use super::cache::{self, ImageKey};
use super::resources::Resources;
use super::source::{FILES, Source};
use super::toolkit::{self, Toolkit};
use super::{nvrtc, resources};

/// Code for a kernel file of the binary, by its name without the ending. Compiled when the
/// cache has none; otherwise no compiler is opened or started.
///
/// # Errors
/// See [`BuildError`].
pub fn compiled(file: &str, arch: Arch) -> Result<Image, BuildError> {
    let source = Source::embedded(file).ok_or_else(|| {
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
    image(&source, arch, false)
}

/// Code for any source. `fresh` compiles even what the cache has.
///
/// # Errors
/// See [`BuildError`].
pub fn image(source: &Source, arch: Arch, fresh: bool) -> Result<Image, BuildError> {
    if let Some(why) = source.needs.refuse(arch) {
        return Err(BuildError::Unsupported {
            file: source.file_name(),
            arch,
            why,
        });
    }
    let toolkit = toolkit::here().map_err(BuildError::NoCompiler)?;
    let folder = regatta_core::cache::folder()?.join("kernels");
    let key = key(source, arch, &toolkit);
    if let Some(image) = cache::load(&folder, &key).filter(|_| !fresh) {
        return Ok(image);
    }
    let started = Instant::now();
    let compiled = nvrtc::compile(&toolkit, source, arch)?;
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

fn key(source: &Source, arch: Arch, toolkit: &Toolkit) -> ImageKey {
    let options = nvrtc::OPTIONS.join(" ");
    let (stamp, arch) = (toolkit.stamp(), arch.to_string());
    let label = format!("{}-{arch}", source.name);
    let own = [stamp.as_str(), &arch, &options, &source.name, &source.text];
    let headers = source.headers.iter();
    let headers = headers.flat_map(|(name, text)| [name.as_str(), text.as_ref()]);
    let asked = source.options.iter().map(String::as_str);
    ImageKey::new(&label, own.into_iter().chain(headers).chain(asked))
}

/// Code for a device, and what the compiler said of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// What the driver loads.
    pub cubin: Vec<u8>,
    /// Who compiled it: `nvrtc 13.0.88`.
    pub compiler: String,
    /// What each entry point takes, sorted by name.
    pub resources: Vec<Resources>,
    /// It was compiled before, and read from the cache.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// NVRTC under `REGATTA_TEST_CUDA`, as CI has it.
    fn installed() -> Toolkit {
        let root = std::env::var_os("REGATTA_TEST_CUDA").expect("it names a CUDA toolkit");
        let variable = |name: &str| (name == "REGATTA_CUDA").then(|| root.clone());
        toolkit::find(&variable).unwrap()
    }

    #[test]
    #[ignore = "needs CUDA's compiler"]
    fn a_mistake_is_shown_with_its_line_and_the_header_that_has_it() {
        let mut source = Source::embedded("naive").unwrap();
        let (header, text) = &mut source.headers[0];
        text.to_mut()
            .push_str("\n__device__ int wrong() { return missing; }\n");
        let place = format!("{header}({}): error", text.lines().count());
        let error = nvrtc::compile(&installed(), &source, Arch::SM_90A).unwrap_err();
        let BuildError::Rejected { file, log, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(file, "naive.cu");
        assert!(log.contains(&place), "{log}");
        assert!(log.contains("missing"), "{log}");
    }

    #[test]
    fn a_key_follows_everything_that_code_follows_from() {
        let toolkit = |program: &str| Toolkit {
            program: program.into(),
            builtins: None,
            includes: Vec::new(),
        };
        let here = toolkit("/no/such/library");
        let source = Source::embedded("naive").unwrap();
        let first = key(&source, Arch::SM_80, &here);
        assert_eq!(first, key(&source, Arch::SM_80, &here));
        assert_ne!(first, key(&source, Arch::SM_100, &here));
        let mut edited = source.clone();
        edited.headers[0].1.to_mut().push('\n');
        assert_ne!(first, key(&edited, Arch::SM_80, &here));
        let mut edited = source.clone();
        edited.text.to_mut().push('\n');
        assert_ne!(first, key(&edited, Arch::SM_80, &here));
        let other = toolkit("/no/such/other");
        assert_ne!(first, key(&source, Arch::SM_80, &other));
    }
}
