//! Who compiles, what a compiler gives, and why it gives nothing: what those who compile,
//! who look for a compiler and who keep its code all speak of.

use std::fmt;
use std::io;
use std::str::FromStr;

use super::arch::Arch;
use super::resources::Resources;

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
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// What the driver loads.
    pub cubin: Vec<u8>,
    /// Who compiled it: `nvrtc 13.0`, `nvcc 13.0.88`.
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

impl Compiler {
    /// Every compiler, the one that is meant where none is named first.
    pub const ALL: [Compiler; 2] = [Compiler::Nvrtc, Compiler::Nvcc];

    /// `nvrtc`, `nvcc`: the word on the command line and in ledgers.
    pub const fn name(self) -> &'static str {
        match self {
            Compiler::Nvrtc => "nvrtc",
            Compiler::Nvcc => "nvcc",
        }
    }
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Compiler {
    type Err = String;

    fn from_str(text: &str) -> Result<Compiler, String> {
        let all = Compiler::ALL.into_iter();
        let mut named = all.filter(|compiler| compiler.name() == text);
        named
            .next()
            .ok_or_else(|| format!("`{text}` is no compiler; there are nvrtc and nvcc"))
    }
}
