//! The same of `build --json` and `env --json`.

#![expect(dead_code, reason = "described, never made")]

use std::path::PathBuf;

use regatta::judge::judgement::LimitResult;
use regatta::kernels::arch::Arch;
use regatta::kernels::ledger::{Comparison, Row};
use regatta::record::built::Built;
use schemars::JsonSchema;

/// An environment of a suite or of `regatta.toml`.
#[derive(JsonSchema)]
pub struct EnvListed {
    /// Its name.
    name: String,
    /// Whether it is there.
    state: EnvState,
    /// Its interpreter.
    interpreter: String,
    /// What is installed into it.
    requirements: Vec<String>,
    /// Workers that run in it where a variant names none.
    workers: Vec<String>,
}

/// Whether an environment is there.
#[derive(JsonSchema)]
pub enum EnvState {
    /// It is an interpreter, used as it is.
    #[serde(rename = "as it is")]
    AsItIs,
    /// It was made.
    #[serde(rename = "made")]
    Made,
    /// `regatta env make` makes it.
    #[serde(rename = "not made")]
    NotMade,
}

/// An environment that was made.
#[derive(JsonSchema)]
pub struct EnvMade {
    /// Its name.
    name: String,
    /// Its folder.
    folder: PathBuf,
    /// What is installed in it, as pip freezes it.
    lock: Vec<String>,
    /// What making it took; null where that is not known.
    built: Option<Built>,
}

/// Kernels that were compiled, or a suite's own code that was built.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum Build {
    /// Kernels.
    Kernels(KernelsBuilt),
    /// A suite's code.
    Suite(SuiteBuilt),
    /// A suite's code that could not be built.
    Failed {
        /// The suite.
        suite: String,
        /// Why.
        error: String,
    },
}

/// Kernels that were compiled.
#[derive(JsonSchema)]
pub struct KernelsBuilt {
    /// The compiler and its version.
    compiler: String,
    /// Each file for each architecture.
    builds: Vec<KernelBuilt>,
    /// What compiling took, where something was compiled.
    #[serde(skip_serializing_if = "Option::is_none")]
    built: Option<Built>,
    /// What became of the ledger's entry points, where one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<Comparison>,
    /// Why it could not be held against the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_comparable: Option<String>,
}

/// A file of kernels for an architecture.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum KernelBuilt {
    /// It was compiled.
    Compiled {
        /// The file.
        file: String,
        /// The architecture.
        arch: Arch,
        /// Seconds that compiling it took, now or when it was.
        seconds: f64,
        /// True: it was compiled before.
        cached: bool,
        /// Size of what came out, in bytes.
        cubin_bytes: usize,
        /// What the compiler warned of.
        warnings: Vec<String>,
        /// Its entry points.
        entries: Vec<Row>,
    },
    /// It was refused.
    Refused {
        /// The file.
        file: String,
        /// The architecture.
        arch: Arch,
        /// The compiler's words.
        error: String,
    },
}

/// A suite's code that was built.
#[derive(JsonSchema)]
pub struct SuiteBuilt {
    /// The suite.
    suite: String,
    /// What building it took.
    built: Built,
    /// False: everything was there, so that this is no time of a build.
    anew: bool,
    /// What became of the suite's limits on builds.
    limits: Vec<LimitResult>,
}
