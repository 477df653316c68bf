//! Compiles a kernel file for a device, with a cache.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use regatta_core::locked::LockedFolder;
use regatta_worker::words;
use serde::{Deserialize, Serialize};

use super::arch::Arch;
use super::cache::{self, CacheKey};
use super::source::{self, FILES, KernelSource};
use super::toolkit::{self, Toolkit};
use super::{nvcc, nvrtc};

/// The code of a kernel file in the binary, by its name without extension. Compiles it only if it
/// is not in the cache; otherwise no compiler is opened or started.
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
                "unknown kernel file; the embedded ones are {}",
                names.join(", ")
            ),
        }
    })?;
    image(&source, arch, compiler, false)
}

/// The code of any source. If `fresh`, compiles it even if it is in the cache.
///
/// # Errors
/// See [`BuildError`].
pub fn image(
    source: &KernelSource,
    arch: Arch,
    compiler: Compiler,
    fresh: bool,
) -> Result<Image, BuildError> {
    if let Some(why) = source::refuses(&source.name, arch) {
        return Err(BuildError::Unsupported {
            file: source.file_name(),
            arch,
            why,
        });
    }
    let toolkit = toolkit::here(compiler).map_err(BuildError::NoCompiler)?;
    let key = key(source, arch, compiler, &toolkit);
    let folder = regatta_core::cache::folder().map(|cache| cache.join("kernels"));
    compiled_in(folder, &key, fresh, || {
        compile(source, arch, compiler, &toolkit)
    })
}

/// The image of `key` from `folder`, or the result of `compile`, which is then stored there. A
/// failure to store it is ignored.
fn compiled_in(
    folder: io::Result<PathBuf>,
    key: &CacheKey,
    fresh: bool,
    compile: impl FnOnce() -> Result<Image, BuildError>,
) -> Result<Image, BuildError> {
    let cached = |folder: &PathBuf| cache::load(folder, key).filter(|_| !fresh);
    if let Some(image) = folder.as_ref().ok().and_then(cached) {
        return Ok(image);
    }
    // One process compiles; the others wait for its result.
    let _alone = folder
        .as_ref()
        .ok()
        .and_then(|folder| LockedFolder::alone(&key.lock(folder)).ok());
    if let Some(image) = folder.as_ref().ok().and_then(cached) {
        return Ok(image);
    }
    let image = compile()?;
    if let Err(error) = folder.and_then(|folder| cache::store(&folder, key, &image)) {
        eprintln!(
            "compiled kernels cannot be kept ({error}), so they are compiled again each time; set \
             XDG_CACHE_HOME to a folder that can be written"
        );
    }
    Ok(image)
}

fn compile(
    source: &KernelSource,
    arch: Arch,
    compiler: Compiler,
    toolkit: &Toolkit,
) -> Result<Image, BuildError> {
    let started = Instant::now();
    let compiled = match compiler {
        Compiler::Nvrtc => nvrtc::compile(toolkit, source, arch)?,
        Compiler::Nvcc => nvcc::compile(toolkit, source, arch)?,
    };
    Ok(Image {
        cubin: compiled.cubin,
        compiler: compiled.compiler,
        resources: parse(&compiled.log),
        cached: false,
        seconds: started.elapsed().as_secs_f64(),
        warnings: warnings(&compiled.log),
    })
}

fn key(source: &KernelSource, arch: Arch, compiler: Compiler, toolkit: &Toolkit) -> CacheKey {
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
    CacheKey::new(&label, own.into_iter().chain(headers).chain(asked))
}

words! {
    "compiler",
    /// A compiler. The code of different compilers differs in a few instructions, so their figures
    /// are never compared with each other.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Compiler {
        /// The run-time compiler, a library; needs no host compiler.
        #[default]
        Nvrtc = "nvrtc",
        /// The compiler driver, a program; needs a host compiler.
        Nvcc = "nvcc",
    }
}

/// Code for a device, with the compiler's report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Image {
    /// The code that the driver loads.
    #[serde(skip)]
    pub cubin: Vec<u8>,
    /// Name and version of the compiler: `nvrtc 13.0`, `nvcc 13.0.88`.
    pub compiler: String,
    /// The resources of each entry point, sorted by name.
    pub resources: Vec<Resources>,
    /// True if it was read from the cache.
    #[serde(skip)]
    pub cached: bool,
    /// The time of compilation in seconds, whenever it was done.
    pub seconds: f64,
    /// The compiler's warnings, a line each.
    pub warnings: Vec<String>,
}

/// The compiler's output.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The code that the driver loads.
    pub cubin: Vec<u8>,
    /// Name and version.
    pub compiler: String,
    /// Everything that it printed, including the assembler's lines about resources.
    pub log: String,
}

/// The reason for which code is missing.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The compiler is not on this machine or cannot be used. The text has the places that were
    /// searched, and how to get it.
    #[error("{0}")]
    NoCompiler(String),
    /// The compiler refused the source.
    #[error("{file} does not compile for {arch}:\n{}", log.trim_end())]
    Rejected {
        /// The kernel file, with its extension.
        file: String,
        /// The architecture.
        arch: Arch,
        /// The compiler's log.
        log: String,
    },
    /// The file does not support this architecture, or the compiler does not know it.
    #[error("{file} cannot be compiled for {arch}: {why}")]
    Unsupported {
        /// The kernel file, with its extension.
        file: String,
        /// The architecture.
        arch: Arch,
        /// The reason.
        why: String,
    },
    /// A temporary folder of a compiler cannot be used.
    #[error("the compiler's temporary folder cannot be used: {0}")]
    Temporary(#[from] io::Error),
}

/// The resources of one entry point.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// The entry point.
    pub name: String,
    /// Registers of each thread.
    pub registers: u32,
    /// Bytes that a thread writes to local memory for lack of registers, including its callees.
    pub spill_stores: u32,
    /// Bytes that a thread reads back, including its callees.
    pub spill_loads: u32,
    /// Bytes of stack of each thread, for the deepest chain of calls.
    pub stack_bytes: u32,
    /// Static shared memory of a block in bytes.
    pub static_shared_bytes: u32,
    /// Named barriers of a block.
    pub barriers: u32,
}

/// Reads the output of `ptxas -v`, as nvcc and NVRTC print it, sorted by name.
///
/// ```text
/// ptxas info    : Compiling entry function 'k' for 'sm_90a'
/// ptxas info    : Function properties for k
///     160 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
/// ptxas info    : Used 64 registers, used 1 barriers, 160 bytes cumulative stack size, 256 bytes smem
/// ptxas info    : Function properties for _Z1fPfi
///     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
/// ```
///
/// Lines that follow an entry point's own belong to the functions it calls.
pub fn parse(log: &str) -> Vec<Resources> {
    let mut entries: BTreeMap<String, Resources> = BTreeMap::new();
    let mut entry: Option<String> = None;
    let mut own = false;
    for line in log.lines() {
        if let Some(name) = after(line, "Compiling entry function '") {
            let name = name.split('\'').next().unwrap_or_default().to_owned();
            entries.entry(name.clone()).or_default().name = name.clone();
            entry = Some(name);
            continue;
        }
        let Some(resources) = entry.as_ref().and_then(|name| entries.get_mut(name)) else {
            continue;
        };
        if let Some(function) = after(line, "Function properties for ") {
            own = function.trim() == resources.name;
        } else if line.contains("bytes stack frame") {
            resources.spill_stores += before(line, " bytes spill stores");
            resources.spill_loads += before(line, " bytes spill loads");
            if own {
                resources.stack_bytes = before(line, " bytes stack frame");
            }
        } else if line.contains(" registers") && line.contains("Used ") {
            resources.registers = before(line, " registers");
            resources.barriers = before(line, " barriers");
            resources.static_shared_bytes = before(line, " bytes smem");
            let deepest = before(line, " bytes cumulative stack size");
            resources.stack_bytes = resources.stack_bytes.max(deepest);
        }
    }
    entries.into_values().collect()
}

/// The compiler's warnings, a line each: diagnostics of the front end, warnings of the assembler,
/// and its performance advisories (`(C7510) Potential Performance Loss: ...`), which it prints as
/// information.
pub fn warnings(log: &str) -> Vec<String> {
    let warns = |line: &&str| {
        let assembler = line.starts_with("ptxas");
        line.contains("): warning ")
            || line.contains("warning:")
            || (assembler && (line.contains("warning") || line.contains(": (C")))
    };
    let mut warnings: Vec<String> = log.lines().filter(warns).map(str::to_owned).collect();
    warnings.dedup();
    warnings
}

fn after<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    line.split_once(mark).map(|(_, rest)| rest)
}

/// The number before a mark; 0 if the line does not have the mark.
fn before(line: &str, mark: &str) -> u32 {
    let Some((front, _)) = line.split_once(mark) else {
        return 0;
    };
    let digits = front.rsplit(|c: char| !c.is_ascii_digit()).next();
    digits.unwrap_or_default().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of nvcc 13.0.88 for two entry points that call a function which is not inlined.
    /// The function's spills were added by hand.
    const NVCC: &str = "\
no.cu(3): warning #177-D: variable \"unused\" was declared but never referenced
  extern \"C\" __attribute__((global)) void k2(float*p,int n){ int unused; p[0]=f(p+1,n);}
                                                                 ^

Remark: The warnings can be suppressed with \"-diag-suppress <warning-number>\"

ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k2' for 'sm_90a'
ptxas info    : Function properties for k2
    0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 47 registers, used 0 barriers, 160 bytes cumulative stack size
ptxas info    : Compile time = 22.936 ms
ptxas info    : Function properties for _Z1fPfi
    160 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas info    : Function properties for k
    24 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 256 bytes smem, 364 bytes cmem[0]
ptxas info    : Compile time = 22.355 ms
";

    /// NVRTC 13.0 begins some of the lines with the assembler's name.
    const NVRTC: &str = "\
ptxas info    : 12 bytes gmem
ptxas info    : Compiling entry function 'naive_softmax_bf16' for 'sm_90a'
ptxas info    : Function properties for naive_softmax_bf16
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 31 registers, used 1 barriers, 16 bytes smem
ptxas info    : Compile time = 12.766 ms
";

    #[test]
    fn nvcc_is_read() {
        let parsed = parse(NVCC);
        let k = Resources {
            name: "k".to_owned(),
            registers: 64,
            stack_bytes: 24,
            static_shared_bytes: 256,
            barriers: 1,
            ..Resources::default()
        };
        let k2 = Resources {
            name: "k2".to_owned(),
            registers: 47,
            spill_stores: 24,
            spill_loads: 36,
            stack_bytes: 160,
            ..Resources::default()
        };
        assert_eq!(parsed, [k, k2]);
    }

    #[test]
    fn nvrtc_is_read() {
        let parsed = parse(NVRTC);
        assert_eq!(parsed.len(), 1);
        assert_eq!((parsed[0].registers, parsed[0].barriers), (31, 1));
        assert_eq!(parsed[0].static_shared_bytes, 16);
        assert!(parse("ptxas info    : 0 bytes gmem\n").is_empty());
    }

    fn toolkit() -> Toolkit {
        Toolkit {
            program: "/no/such/nvcc".into(),
            ..Toolkit::default()
        }
    }

    fn compiled(fresh: u8) -> Image {
        Image {
            cubin: vec![fresh],
            compiler: "nvcc 13.0.88".to_owned(),
            resources: Vec::new(),
            cached: false,
            seconds: 1.0,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn what_was_compiled_is_used_where_it_cannot_be_kept() {
        let key = CacheKey::new("naive-sm_80-nvcc", ["a"]);
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        for folder in [
            Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            Ok(file.join("kernels")),
        ] {
            let image = compiled_in(folder, &key, false, || Ok(compiled(7))).unwrap();
            assert_eq!(image.cubin, [7]);
        }
    }

    #[test]
    fn of_many_processes_one_compiles() {
        use std::sync::atomic::{AtomicU8, Ordering};
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("kernels");
        let key = CacheKey::new("naive-sm_80-nvcc", ["a"]);
        let count = AtomicU8::new(0);
        let one = || {
            let image = compiled_in(Ok(folder.clone()), &key, false, || {
                std::thread::sleep(std::time::Duration::from_millis(20));
                Ok(compiled(count.fetch_add(1, Ordering::SeqCst)))
            });
            assert_eq!(image.unwrap().cubin, [0]);
        };
        std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(one))));
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_key_follows_everything_that_code_follows_from() {
        let source = KernelSource::embedded("naive").unwrap();
        let key_of =
            |source: &KernelSource, arch, compiler| key(source, arch, compiler, &toolkit());
        let first = key_of(&source, Arch::SM_80, Compiler::Nvcc);
        assert_eq!(first, key_of(&source, Arch::SM_80, Compiler::Nvcc));
        assert_ne!(first, key_of(&source, Arch::SM_100, Compiler::Nvcc));
        assert_ne!(first, key_of(&source, Arch::SM_80, Compiler::Nvrtc));
        let mut edited = source.clone();
        edited.headers[0].1.to_mut().push('\n');
        assert_ne!(first, key_of(&edited, Arch::SM_80, Compiler::Nvcc));
        let mut edited = source.clone();
        edited.text.to_mut().push('\n');
        assert_ne!(first, key_of(&edited, Arch::SM_80, Compiler::Nvcc));
        let other = Toolkit {
            program: "/no/such/other".into(),
            ..toolkit()
        };
        assert_ne!(first, key(&source, Arch::SM_80, Compiler::Nvcc, &other));
    }
}
