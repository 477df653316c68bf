//! The launch contract of somebody's CUDA file: `attention.toml` beside `attention.cu`, as
//! docs/GUIDE.md describes it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::expression::{Argument, Expression, ProblemFigures, is_taken};
use regatta_core::input;
use regatta_worker::attention::{Dtype, Layout, Mask, is_name, parameter_name};

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// Options for the compiler, beside regatta's own.
    #[serde(default)]
    pub options: Vec<String>,
    /// The variants of the CUDA file, by name.
    pub variants: BTreeMap<String, ContractVariant>,
}

/// `[variants.NAME]`: what a variant takes, and what it launches.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContractVariant {
    /// What it is, in a line.
    #[serde(default)]
    pub summary: String,
    /// Storage types it takes.
    pub dtypes: Vec<Dtype>,
    /// Layouts it takes; by default bshd.
    #[serde(default = "bshd")]
    pub layouts: Vec<Layout>,
    /// Names of masks it takes, or [`ANY`]; by default full.
    #[serde(default = "full")]
    pub masks: Vec<String>,
    /// Conditions on figures of the problem, such as `head_dim % 8 == 0`; else the case is
    /// unsupported.
    #[serde(default)]
    pub requires: Vec<Expression>,
    /// Whole numbers that a case may set, and what each is by default.
    #[serde(default)]
    pub parameters: BTreeMap<String, i64>,
    /// Bytes of device memory beside the tensors.
    #[serde(default = "zero")]
    pub workspace_bytes: Expression,
    /// Launches of the forward pass, in order.
    pub forward: Vec<ContractLaunch>,
    /// Launches of the backward pass, in order; empty where there is none.
    #[serde(default)]
    pub backward: Vec<ContractLaunch>,
}

/// `[[variants.NAME.forward]]`: one launch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContractLaunch {
    /// The entry point, `extern "C"`; `{dtype}`, `{head_dim}` and parameters are put in.
    pub entry: String,
    /// The arguments in order: tensors, `problem`, `scale`, or formulas with a type before them.
    pub arguments: Vec<String>,
    /// Blocks in x, y, z.
    pub grid: Extents,
    /// Threads of a block in x, y, z.
    pub block: Extents,
    /// Dynamic shared memory of a block, in bytes.
    #[serde(default = "zero")]
    pub shared_bytes: Expression,
}

/// Extents in x, y and z, of which those that are not written are 1.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "WrittenExtents")]
pub struct Extents(pub [Expression; 3]);

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a whole number, a formula in quotes, or up to three of them: x, y, z"
)]
enum WrittenExtents {
    One(Expression),
    Several(Vec<Expression>),
}

impl TryFrom<WrittenExtents> for Extents {
    type Error = String;

    fn try_from(written: WrittenExtents) -> Result<Extents, String> {
        let written = match written {
            WrittenExtents::One(one) => vec![one],
            WrittenExtents::Several(several) => several,
        };
        if !(1..=3).contains(&written.len()) {
            return Err(format!("{} extents; there are x, y and z", written.len()));
        }
        let at = |axis: usize| written.get(axis).cloned().unwrap_or(Expression::from(1));
        Ok(Extents([at(0), at(1), at(2)]))
    }
}

fn bshd() -> Vec<Layout> {
    vec![Layout::Bshd]
}

fn full() -> Vec<String> {
    vec!["full".to_owned()]
}

fn zero() -> Expression {
    Expression::from(0)
}

/// The word of `masks` for a kernel that takes every mask.
pub const ANY: &str = "any";

/// Reads a contract.
///
/// # Errors
/// A file that cannot be read, or what is wrong in it, by file and key.
pub fn read(path: &Path) -> Result<Contract, String> {
    let shown = path.display();
    let text = input::text(path, input::WRITTEN_BY_HAND).map_err(|error| {
        format!(
            "cannot read {shown}, the launch contract of the CUDA file beside it: {error}; \
             docs/GUIDE.md says what it holds"
        )
    })?;
    parse(&text).map_err(|why| format!("{shown}: {why}"))
}

/// Reads a contract's text.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str) -> Result<Contract, String> {
    let contract: Contract = toml::from_str(text).map_err(|error| match is_suite(text) {
        true => "this is a suite, and this name is that of the launch contract of the CUDA file \
                 beside it; give the suite another name"
            .to_owned(),
        false => error.to_string(),
    })?;
    if contract.variants.is_empty() {
        return Err("`variants` is empty; write [variants.NAME]".to_owned());
    }
    for (name, variant) in &contract.variants {
        let at = format!("[variants.{name}]");
        if !is_name(name) {
            return Err(format!("{at}: `{name}` cannot name a variant"));
        }
        variant.check().map_err(|why| format!("{at} {why}"))?;
    }
    Ok(contract)
}

/// True for a suite: who measures `attention.cu` would call it `attention.toml`.
fn is_suite(text: &str) -> bool {
    let table = text.parse::<toml::Table>();
    table.is_ok_and(|table| table.contains_key("sweep") || table.contains_key("workers"))
}

impl ContractVariant {
    fn check(&self) -> Result<(), String> {
        for (key, empty) in [
            ("dtypes", self.dtypes.is_empty()),
            ("layouts", self.layouts.is_empty()),
            ("masks", self.masks.is_empty()),
            ("forward", self.forward.is_empty()),
        ] {
            if empty {
                return Err(format!("{key}: there is nothing in it"));
            }
        }
        let none = ProblemFigures::example(&BTreeMap::new());
        for name in self.parameters.keys() {
            parameter_name(name).map_err(|error| format!("parameters: {error}"))?;
            if is_taken(name) {
                return Err(format!(
                    "parameters: `{name}` means something else among `arguments` (a tensor, \
                     `problem`, `scale`, a type or a function); call it something else"
                ));
            }
            if none.get(name).is_some() || name.contains('-') || name.starts_with('_') {
                return Err(format!(
                    "parameters: `{name}` cannot stand in a formula; use letters, digits and \
                     `_`, and no name that a figure of the problem has"
                ));
            }
        }
        for mask in self.masks.iter().filter(|mask| *mask != ANY) {
            Mask::parse(mask, true).map_err(|error| format!("masks: {error}"))?;
        }
        let figures = ProblemFigures::example(&self.parameters);
        for condition in &self.requires {
            let checked = condition.check(&figures, true);
            checked.map_err(|why| format!("requires: {why}"))?;
        }
        let workspace = self.workspace_bytes.check(&figures, false);
        workspace.map_err(|why| format!("workspace_bytes: {why}"))?;
        for (pass, launches) in [("forward", &self.forward), ("backward", &self.backward)] {
            for (at, launch) in launches.iter().enumerate() {
                let checked = launch.check(&figures, &self.parameters, pass == "backward");
                checked.map_err(|why| format!("{pass} {}, {why}", at + 1))?;
            }
        }
        Ok(())
    }
}

impl ContractLaunch {
    fn check(
        &self,
        figures: &ProblemFigures,
        parameters: &BTreeMap<String, i64>,
        backward: bool,
    ) -> Result<(), String> {
        for text in &self.arguments {
            let checked = Argument::parse(text).and_then(|one| one.check(figures, backward));
            checked.map_err(|why| format!("arguments: {why}"))?;
        }
        let known = |name: &str| match name {
            "head_dim" => Some(0),
            _ => parameters.get(name).copied(),
        };
        let name = self
            .entry_name(Dtype::F32, known)
            .map_err(|why| format!("entry: {why}"))?;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            return Err(format!(
                "entry: `{}` is no name of a function in C; write `extern \"C\" __global__ void \
                 kernel(...)`, and `kernel` here",
                self.entry
            ));
        }
        let shared = std::slice::from_ref(&self.shared_bytes);
        let formulas = [("grid", &self.grid.0[..]), ("block", &self.block.0)];
        for (key, formulas) in formulas.into_iter().chain([("shared_bytes", shared)]) {
            let mut checked = formulas.iter().map(|formula| formula.check(figures, false));
            checked.try_for_each(|one| one.map_err(|why| format!("{key}: {why}")))?;
        }
        Ok(())
    }

    /// The entry point's name, with `{dtype}` and figures put in.
    ///
    /// # Errors
    /// Braces around something else.
    pub fn entry_name(
        &self,
        dtype: Dtype,
        figure: impl Fn(&str) -> Option<i64>,
    ) -> Result<String, String> {
        let entry = &self.entry;
        let mut name = String::new();
        let mut rest = entry.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            let (place, after) = after
                .split_once('}')
                .ok_or_else(|| format!("`{entry}`: a `}}` is missing"))?;
            name.push_str(before);
            match (place, figure(place)) {
                ("dtype", _) => name.push_str(dtype.name()),
                (_, Some(value)) => name.push_str(&value.to_string()),
                (_, None) => {
                    return Err(format!(
                        "`{entry}`: `{{{place}}}` is neither `{{dtype}}`, `{{head_dim}}` nor one \
                         of `parameters`"
                    ));
                }
            }
            rest = after;
        }
        Ok(name + rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        [variants.attention]
        dtypes = ["f32"]
        requires = ["seq_k <= 12288"]
        parameters = { tile = 64 }
        workspace_bytes = "4 * seq_q"

        [[variants.attention.forward]]
        entry = "kernel_{dtype}_d{head_dim}_t{tile}"
        arguments = ["q", "k", "v", "out", "seq_q", "long q.seq", "scale"]
        grid = ["ceil_div(seq_q, tile)", "heads"]
        block = 128
        shared_bytes = "4 * seq_k"
    "#;

    #[test]
    fn a_contract_is_read() {
        let contract = parse(TEXT).unwrap();
        let variant = &contract.variants["attention"];
        assert_eq!(variant.layouts, [Layout::Bshd]);
        assert_eq!(variant.masks, ["full"]);
        let launch = &variant.forward[0];
        assert_eq!(launch.arguments.len(), 7);
        assert_eq!(launch.grid.0[1].to_string(), "heads");
        assert_eq!(launch.block.0[2].to_string(), "1");
        assert!(variant.backward.is_empty());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_key() {
        for (from, to, words) in [
            (
                "[\"f32\"]",
                "[]",
                "[variants.attention] dtypes: there is nothing",
            ),
            (
                "seq_k <= 12288",
                "seq_k < many",
                "requires: `seq_k < many`: there is no `many`",
            ),
            ("tile = 64", "heads = 64", "parameters"),
            ("tile = 64", "q = 64", "parameters: `q` means something"),
            ("block = 128", "block = 1.5", "a whole number, a formula"),
            ("\"4 * seq_k\"", "[4]", "a whole number or a formula"),
            (
                "[variants.attention]\n",
                "[[sweep]]\n[variants.attention]\n",
                "this is a suite",
            ),
            ("\"scale\"", "\"scales\"", "forward 1, arguments: `scales`"),
            ("\"scale\"", "\"dq\"", "`dq` is there in `backward` alone"),
            ("_t{tile}", "_t{tiles}", "forward 1, entry: "),
            ("_t{tile}", "_t{tile", "`}` is missing"),
            ("kernel_", "a::kernel_", "extern \"C\""),
            ("\"heads\"]", "1, 1, 1]", "4 extents"),
            ("4 * seq_k", "4 *", "forward 1, shared_bytes: `4 *`"),
            (
                "variants.attention]\n        dtypes",
                "variants.a b]\n        dtypes",
                "a b",
            ),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let error = parse(&TEXT.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(words), "{from} -> {to}: {error}");
        }
        assert!(parse("[variants]").unwrap_err().contains("is empty"));
    }
}
