//! Launch contracts: the launches of a CUDA file's kernels for a problem, in formulas.
//!
//! Regatta's own kernels have `kernels/contracts.toml`. A user's `attention.cu` has
//! `attention.toml` beside it, which docs/CUDA.md describes.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::argument::DeviceProblem;
use crate::expression::{
    Argument, Expression, Figures, example_figures, is_taken, problem_figures,
};
use crate::plan::{BlockShape, Limits, PlannedLaunch};
use regatta_core::input;
use regatta_worker::attention::{Attention, Layout, Mask};
use regatta_worker::case::{Dtype, is_name, parameter_name};
use regatta_worker::operator::Direction;
use regatta_worker::serve::Refusal;

/// A contract file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// Compiler options, in addition to regatta's own.
    #[serde(default)]
    pub options: Vec<String>,
    /// The variants of the CUDA file, by name.
    pub variants: BTreeMap<String, ContractVariant>,
    /// Launches that check results; only in regatta's own contract.
    #[serde(default)]
    pub checks: BTreeMap<String, ContractLaunch>,
}

/// Whole numbers by name: parameters, and numbers of a tile.
pub type Numbers = BTreeMap<String, i64>;

/// `[variants.NAME]`: what a variant supports, and its launches.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContractVariant {
    /// A description in one line.
    #[serde(default)]
    pub summary: String,
    /// The storage types that it supports.
    pub dtypes: Vec<Dtype>,
    /// The directions that it supports. By default all; only forward if `backward` is empty.
    #[serde(default)]
    pub directions: Vec<Direction>,
    /// The layouts that it supports; by default bshd.
    #[serde(default = "bshd")]
    pub layouts: Vec<Layout>,
    /// Names of the masks that it supports, or [`ANY`]; by default full.
    #[serde(default = "full")]
    pub masks: Vec<String>,
    /// Conditions on numbers of the problem, such as `head_dim % 8 == 0`. A case that does not meet
    /// them is unsupported.
    #[serde(default)]
    pub requires: Vec<Expression>,
    /// Whole numbers that a case may set, with their defaults.
    #[serde(default)]
    pub parameters: BTreeMap<String, Expression>,
    /// The range that a parameter is clamped to, whatever value is set.
    #[serde(default)]
    pub clamped: BTreeMap<String, [Expression; 2]>,
    /// Bytes of device memory in addition to the tensors.
    #[serde(default = "zero")]
    pub workspace_bytes: Expression,
    /// True if the workspace contains the whole score matrix.
    #[serde(default)]
    pub stores_scores: bool,
    /// Launches of the forward pass, in order.
    pub forward: Vec<ContractLaunch>,
    /// Launches of the backward pass, in order; empty without one.
    #[serde(default)]
    pub backward: Vec<ContractLaunch>,
}

/// `[[variants.NAME.forward]]`: one launch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContractLaunch {
    /// The kernel file, without its extension; only in regatta's own contract.
    pub file: Option<String>,
    /// The entry point, which is `extern "C"`. `{dtype}`, `{head_dim}`, parameters and numbers of
    /// the tile are replaced by their values.
    pub entry: String,
    /// Storage types for which it is launched. If empty, all types of the variant.
    #[serde(default)]
    pub dtypes: Vec<Dtype>,
    /// Numbers of the sizes that the kernel is compiled for. Among those with the smallest
    /// `head_dim` that fits the problem's, the first one that matches the values of parameters is
    /// launched.
    #[serde(default)]
    pub tiles: Vec<Numbers>,
    /// The arguments in order: tensors, `problem`, `scale`, or formulas after a type.
    pub arguments: Vec<String>,
    /// Blocks in x, y, z.
    pub grid: Extents,
    /// Threads of a block in x, y, z.
    pub block: Extents,
    /// Dynamic shared memory of a block, in bytes.
    #[serde(default = "zero")]
    pub shared_bytes: Expression,
}

/// Extents in x, y and z. Missing ones are 1.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a whole number, a formula in quotes, or up to three of them: x, y, z"
)]
pub enum Extents {
    One(Expression),
    Several(Vec<Expression>),
}

impl Extents {
    fn formulas(&self) -> &[Expression] {
        match self {
            Extents::One(one) => std::slice::from_ref(one),
            Extents::Several(several) => several,
        }
    }

    fn check(&self, figures: &Figures) -> Result<(), String> {
        let formulas = self.formulas();
        if !(1..=3).contains(&formulas.len()) {
            return Err(format!("{} extents; there are x, y and z", formulas.len()));
        }
        formulas
            .iter()
            .try_for_each(|formula| formula.check(figures, false))
    }

    fn values(&self, figures: &Figures) -> Result<[u32; 3], String> {
        let mut values = [1; 3];
        for (extent, formula) in values.iter_mut().zip(self.formulas()) {
            *extent = match formula.value(figures)? {
                value @ ..=0 => {
                    return Err(format!("`{formula}` is {value}; it must be 1 or more"));
                }
                // A value beyond 32 bits exceeds the limits of every device.
                value => u32::try_from(value).unwrap_or(u32::MAX),
            };
        }
        Ok(values)
    }
}

fn bshd() -> Vec<Layout> {
    vec![Layout::Bshd]
}

fn full() -> Vec<String> {
    vec!["full".to_owned()]
}

fn zero() -> Expression {
    Expression::Number(0)
}

/// The word of `masks` for a kernel that supports every mask.
pub const ANY: &str = "any";

/// The contract of the kernels in the binary.
pub fn ours() -> &'static Contract {
    static READ: LazyLock<Contract> = LazyLock::new(|| {
        // This text is part of the binary, so tests find an error in it before users do.
        let read = toml::from_str(include_str!("../../../kernels/contracts.toml"));
        read.unwrap_or_else(|error| panic!("kernels/contracts.toml: {error}"))
    });
    &READ
}

/// The block shape of an entry point of an embedded kernel file, by file and name; `None` if no
/// contract has it.
pub fn block(file: &str, entry: &str) -> Option<BlockShape> {
    static BLOCKS: LazyLock<BTreeMap<(&str, String), BlockShape>> =
        LazyLock::new(|| entries().collect());
    BLOCKS.get(&(file, entry.to_owned())).copied()
}

/// Every entry point of the binary: its kernel file, its name, and the shape of its blocks.
pub fn entries() -> impl Iterator<Item = ((&'static str, String), BlockShape)> {
    let variants = ours().variants.values();
    let launched = variants.flat_map(|variant| {
        let launches = variant.forward.iter().chain(&variant.backward);
        launches.map(|launch| (launch, variant.dtypes.as_slice()))
    });
    let checks = ours().checks.values();
    let checks = checks.map(|launch| (launch, Dtype::ALL.as_slice()));
    launched.chain(checks).flat_map(|(launch, all)| {
        let own = launch.dtypes.as_slice();
        let dtypes = if own.is_empty() { all } else { own };
        let tiles = launch.each_tile();
        let each = tiles.flat_map(|tile| dtypes.iter().map(move |dtype| (tile.clone(), dtype)));
        each.filter_map(|(tile, dtype)| {
            let figures = example_figures(&tile);
            let name = launch.entry_name(*dtype, &figures).ok()?;
            let shape = launch.shape(&figures).ok()?;
            Some(((launch.file.as_deref()?, name), shape))
        })
    })
}

/// Puts the key in front of an error.
pub fn at<E: Display>(key: &str) -> impl Fn(E) -> String {
    move |why| format!("{key}: {why}")
}

/// Reads a contract.
///
/// # Errors
/// The file cannot be read, or has a fault, which is given with file and key.
pub fn read(path: &Path) -> Result<Contract, String> {
    let shown = path.display();
    let text = input::text(path, input::WRITTEN_BY_HAND).map_err(|error| {
        format!(
            "cannot read {shown}, the launch contract of the CUDA file beside it: {error}; \
             docs/CUDA.md says what it holds"
        )
    })?;
    parse(&text).map_err(|why| format!("{shown}: {why}"))
}

/// Parses a contract.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str) -> Result<Contract, String> {
    let contract: Contract = toml::from_str(text).map_err(|error| {
        if is_suite(text) {
            "this is a suite, and this name is that of the launch contract of the CUDA file \
                 beside it; give the suite another name"
                .to_owned()
        } else {
            error.to_string()
        }
    })?;
    if !contract.checks.is_empty() {
        return Err("`checks` is a key of regatta's own contract".to_owned());
    }
    if contract.variants.is_empty() {
        return Err("`variants` is empty; write [variants.NAME]".to_owned());
    }
    for (name, variant) in &contract.variants {
        let at = format!("[variants.{name}]");
        if !is_name(name) {
            return Err(format!("{at}: `{name}` cannot name a variant"));
        }
        variant.check().map_err(|why| format!("{at} {why}"))?;
        let mut launches = variant.forward.iter().chain(&variant.backward);
        if launches.any(|launch| launch.file.is_some()) {
            return Err(format!("{at} `file` is a key of regatta's own contract"));
        }
    }
    Ok(contract)
}

/// True for a suite. A user who measures `attention.cu` may well name the suite `attention.toml`.
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
        let empty = example_figures(&Numbers::new());
        for (name, default) in &self.parameters {
            parameter_name(name).map_err(at("parameters"))?;
            if is_taken(name) {
                return Err(format!(
                    "parameters: `{name}` means something else among `arguments` (a tensor, \
                     `problem`, `scale`, a type or a function); call it something else"
                ));
            }
            if empty.get(name).is_some() || name.contains('-') || name.starts_with('_') {
                return Err(format!(
                    "parameters: `{name}` cannot stand in a formula; use letters, digits and \
                     `_`, and no name that a figure of the problem has"
                ));
            }
            default.check(&empty, false).map_err(at("parameters"))?;
        }
        for (name, bounds) in &self.clamped {
            if !self.parameters.contains_key(name) {
                return Err(format!("clamped: `{name}` is not one of `parameters`"));
            }
            for bound in bounds {
                bound.check(&empty, false).map_err(at("clamped"))?;
            }
        }
        for mask in self.masks.iter().filter(|mask| *mask != ANY) {
            Mask::parse(mask, true).map_err(at("masks"))?;
        }
        // A formula may have no value for the example, and one for another problem.
        let values = self.parameters.iter();
        let values = values.map(|(name, value)| (name.clone(), value.value(&empty).unwrap_or(1)));
        let values: Numbers = values.collect();
        let figures = example_figures(&values);
        for condition in &self.requires {
            condition.check(&figures, true).map_err(at("requires"))?;
        }
        let workspace = self.workspace_bytes.check(&figures, false);
        workspace.map_err(at("workspace_bytes"))?;
        for (pass, launches) in [("forward", &self.forward), ("backward", &self.backward)] {
            for (at, launch) in launches.iter().enumerate() {
                let checked = launch.check(&values, pass == "backward");
                checked.map_err(|why| format!("{pass} {}, {why}", at + 1))?;
            }
        }
        Ok(())
    }

    /// The value of each parameter for a problem. `asked` returns the values that are set.
    ///
    /// # Errors
    /// A formula has no value.
    pub fn effective(
        &self,
        asked: impl Fn(&str) -> Option<i64>,
        problem: &Attention,
        limits: Limits,
    ) -> Result<Numbers, String> {
        let figures = problem_figures(problem, limits, &Numbers::new());
        let mut effective = Numbers::new();
        for (name, default) in &self.parameters {
            let value = asked(name).map_or_else(|| default.value(&figures), Ok);
            let mut value = value.map_err(at("parameters"))?;
            if let Some([least, most]) = self.clamped.get(name) {
                let bound = |bound: &Expression| bound.value(&figures).map_err(at("clamped"));
                value = value.min(bound(most)?).max(bound(least)?);
            }
            effective.insert(name.clone(), value);
        }
        Ok(effective)
    }
}

impl ContractLaunch {
    /// The tiles for which it is compiled; a single empty one if none are listed.
    fn each_tile(&self) -> impl Iterator<Item = Numbers> {
        let untiled = self.tiles.is_empty().then(Numbers::new);
        self.tiles.iter().cloned().chain(untiled)
    }

    fn check(&self, parameters: &Numbers, backward: bool) -> Result<(), String> {
        for tile in self.each_tile() {
            let mut figures = parameters.clone();
            figures.extend(tile);
            let figures = example_figures(&figures);
            for text in &self.arguments {
                let checked = Argument::parse(text).and_then(|one| one.check(&figures, backward));
                checked.map_err(at("arguments"))?;
            }
            let name = self.entry_name(Dtype::F32, &figures).map_err(at("entry"))?;
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(plain) {
                return Err(format!(
                    "entry: `{}` is not the name of a C function; write `extern \"C\" __global__ \
                     void kernel(...)`, and `kernel` here",
                    self.entry
                ));
            }
            self.grid.check(&figures).map_err(at("grid"))?;
            self.block.check(&figures).map_err(at("block"))?;
            let shared = self.shared_bytes.check(&figures, false);
            shared.map_err(at("shared_bytes"))?;
        }
        Ok(())
    }

    /// The numbers of the tile that fits a problem, together with the parameters.
    ///
    /// # Errors
    /// The largest size for which it is compiled.
    fn with_tile(&self, problem: &Attention, parameters: &Numbers) -> Result<Numbers, String> {
        let widest = i64::from(problem.head_dim.max(problem.head_dim_v));
        let dims = self.tiles.iter().filter_map(|tile| tile.get("head_dim"));
        let held = dims.clone().filter(|dim| **dim >= widest).min();
        if held.is_none()
            && let Some(most) = dims.max()
        {
            return Err(format!("takes a head_dim up to {most}, not {widest}"));
        }
        let tiles = self.each_tile();
        let tiles: Vec<Numbers> = tiles.filter(|tile| tile.get("head_dim") == held).collect();
        for (name, value) in parameters {
            let known: Vec<&i64> = tiles.iter().filter_map(|tile| tile.get(name)).collect();
            if !known.is_empty() && !known.contains(&value) {
                let known: Vec<String> = known.iter().map(ToString::to_string).collect();
                let known = known.join(" or ");
                return Err(format!(
                    "has no {name} = {value} for this head_dim; it is {known}"
                ));
            }
        }
        let matches = |tile: &Numbers| {
            parameters
                .iter()
                .all(|(name, value)| tile.get(name).is_none_or(|own| own == value))
        };
        let tile = tiles.into_iter().find(matches).ok_or("has no such tile")?;
        Ok(parameters.clone().into_iter().chain(tile).collect())
    }

    /// The launch for a problem.
    ///
    /// # Errors
    /// `Unsupported` for a problem that exceeds its tiles or every grid. `Failed` for a formula
    /// without a value, with its key.
    pub fn planned(
        &self,
        problem: &Attention,
        limits: Limits,
        parameters: &Numbers,
    ) -> Result<PlannedLaunch, Refusal> {
        let figures = self
            .with_tile(problem, parameters)
            .map_err(Refusal::Unsupported)?;
        let figures = problem_figures(problem, limits, &figures);
        let scale = DeviceProblem::sized(problem, 1).scale;
        let given = |text: &String| Argument::parse(text)?.given(scale, &figures);
        let arguments: Result<_, String> = self.arguments.iter().map(given).collect();
        Ok(PlannedLaunch {
            file: self.file.clone(),
            entry: self.entry_name(problem.dtype, &figures)?,
            grid: self.grid.values(&figures).map_err(at("grid"))?,
            shape: self.shape(&figures)?,
            arguments: arguments.map_err(at("arguments"))?,
        })
    }

    fn shape(&self, figures: &Figures) -> Result<BlockShape, String> {
        let shared = self
            .shared_bytes
            .value(figures)
            .map_err(at("shared_bytes"))?;
        Ok(BlockShape {
            block: self.block.values(figures).map_err(at("block"))?,
            shared_bytes: u32::try_from(shared)
                .map_err(|_| format!("shared_bytes: `{}` is {shared}", self.shared_bytes))?,
        })
    }

    /// The entry point's name, with `{dtype}` and numbers replaced by their values.
    ///
    /// # Errors
    /// Braces contain another name.
    fn entry_name(&self, dtype: Dtype, figures: &Figures) -> Result<String, String> {
        let entry = &self.entry;
        let mut name = String::new();
        let mut rest = entry.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            let (place, after) = after
                .split_once('}')
                .ok_or_else(|| format!("`{entry}`: a `}}` is missing"))?;
            name.push_str(before);
            match (place, figures.get(place)) {
                ("dtype", _) => name.push_str(dtype.name()),
                (_, Some(value)) => name.push_str(&value.to_string()),
                (_, None) => {
                    return Err(format!(
                        "`{entry}`: `{{{place}}}` is neither `{{dtype}}`, a figure of the \
                         problem or of `tiles`, nor one of `parameters`"
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
        assert_eq!(launch.grid.formulas()[1].to_string(), "heads");
        assert!(variant.backward.is_empty());
    }

    /// A text in the contract, its replacement (`|` stands for a line's end), and part of the
    /// resulting error.
    const WRONG: &str = r#"
        ["f32"] => [] => [variants.attention] dtypes: there is nothing
        seq_k <= 12288 => seq_k < many => requires: `seq_k < many`: unknown name `many`
        tile = 64 => heads = 64 => parameters
        tile = 64 => q = 64 => parameters: `q` means something
        block = 128 => block = 1.5 => `1.5`: this is not a whole number
        "4 * seq_k" => [4] => a number or a formula
        [variants.attention] => [[sweep]]|[variants.attention] => this is a suite
        "scale" => "scales" => forward 1, arguments: `scales`
        "scale" => "dq" => `dq` is there in `backward` alone
        _t{tile} => _t{tiles} => forward 1, entry:
        _t{tile} => _t{tile => `}` is missing
        kernel_ => a::kernel_ => extern "C"
        "heads"] => 1, 1, 1] => 4 extents
        4 * seq_k => 4 * => forward 1, shared_bytes: `4 *`
        variants.attention] => variants.a b] => a b"#;

    #[test]
    fn what_is_wrong_is_said_with_its_key() {
        for line in WRONG.trim().lines() {
            let [from, to, words] = line.trim().split(" => ").collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            assert!(TEXT.contains(from), "{line}");
            let error = parse(&TEXT.replacen(from, &to.replace('|', "\n"), 1)).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
        assert!(parse("[variants]").unwrap_err().contains("is empty"));
    }
}
