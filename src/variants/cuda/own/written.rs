//! A launch contract as it is written, before anything in it is looked at.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::attention::{Dtype, Layout};

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) options: Vec<String>,
    pub(super) variants: BTreeMap<String, Written>,
}

/// `[variants.NAME]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    #[serde(default)]
    pub(super) summary: String,
    pub(super) dtypes: Vec<Dtype>,
    #[serde(default = "bshd")]
    pub(super) layouts: Vec<Layout>,
    #[serde(default = "full")]
    pub(super) masks: Vec<String>,
    #[serde(default)]
    pub(super) requires: Vec<String>,
    #[serde(default)]
    pub(super) parameters: BTreeMap<String, i64>,
    #[serde(default)]
    pub(super) workspace_bytes: Formula,
    pub(super) forward: Vec<WrittenLaunch>,
    #[serde(default)]
    pub(super) backward: Vec<WrittenLaunch>,
}

/// `[[variants.NAME.forward]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenLaunch {
    pub(super) entry: String,
    pub(super) arguments: Vec<String>,
    pub(super) grid: Extents,
    pub(super) block: Extents,
    #[serde(default)]
    pub(super) shared_bytes: Formula,
}

/// A number, or a formula.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Formula {
    Number(i64),
    Text(String),
}

impl Default for Formula {
    fn default() -> Formula {
        Formula::Number(0)
    }
}

/// One extent, or up to three: x, y, z.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Extents {
    One(Formula),
    Several(Vec<Formula>),
}

fn bshd() -> Vec<Layout> {
    vec![Layout::Bshd]
}

fn full() -> Vec<String> {
    vec!["full".to_owned()]
}
