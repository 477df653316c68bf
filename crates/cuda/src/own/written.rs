//! A launch contract as it is written, before anything in it is looked at.

use std::collections::BTreeMap;

use serde::Deserialize;

use regatta_worker::attention::{Dtype, Layout};

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContractFile {
    /// Options for the compiler, beside regatta's own.
    #[serde(default)]
    pub(super) options: Vec<String>,
    /// The variants of the file, by name.
    pub(super) variants: BTreeMap<String, Written>,
}

/// `[variants.NAME]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    /// What it is, in a line.
    #[serde(default)]
    pub(super) summary: String,
    /// Storage types it takes.
    pub(super) dtypes: Vec<Dtype>,
    /// Layouts it takes; by default bshd.
    #[serde(default = "bshd")]
    pub(super) layouts: Vec<Layout>,
    /// Names of masks it takes, or `any`; by default full.
    #[serde(default = "full")]
    pub(super) masks: Vec<String>,
    /// Conditions on figures of the problem, such as `head_dim % 8 == 0`; else the case is unsupported.
    #[serde(default)]
    pub(super) requires: Vec<String>,
    /// Whole numbers that a case may set, and what each is by default.
    #[serde(default)]
    pub(super) parameters: BTreeMap<String, i64>,
    /// Bytes of device memory beside the tensors.
    #[serde(default)]
    pub(super) workspace_bytes: Formula,
    /// Launches of the forward pass, in order.
    pub(super) forward: Vec<WrittenLaunch>,
    /// Launches of the backward pass, in order; empty where there is none.
    #[serde(default)]
    pub(super) backward: Vec<WrittenLaunch>,
}

/// `[[variants.NAME.forward]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenLaunch {
    /// The entry point, `extern "C"`; `{dtype}`, `{head_dim}` and parameters are put in.
    pub(super) entry: String,
    /// What it is given, in order: tensors, `problem`, `scale`, or formulas with a type before them.
    pub(super) arguments: Vec<String>,
    /// Blocks in x, y, z.
    pub(super) grid: Extents,
    /// Threads of a block in x, y, z.
    pub(super) block: Extents,
    /// Dynamic shared memory of a block, in bytes.
    #[serde(default)]
    pub(super) shared_bytes: Formula,
}

/// A number, or a formula.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a whole number or a formula in quotes")]
pub enum Formula {
    /// A number.
    Number(i64),
    /// A formula.
    Text(String),
}

impl Default for Formula {
    fn default() -> Formula {
        Formula::Number(0)
    }
}

/// One extent, or up to three: x, y, z.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a whole number, a formula in quotes, or up to three of them: x, y, z"
)]
pub enum Extents {
    /// x; the others are 1.
    One(Formula),
    /// x, then y, then z; those that are missing are 1.
    Several(Vec<Formula>),
}

fn bshd() -> Vec<Layout> {
    vec![Layout::Bshd]
}

fn full() -> Vec<String> {
    vec!["full".to_owned()]
}
