//! The launch contract of somebody's CUDA file: `attention.toml` beside `attention.cu`, as
//! docs/GUIDE.md describes it.

use std::collections::BTreeMap;
use std::path::Path;

use super::argument::{self, Argument};
use super::expression::{Condition, Expression};
use super::figures;
use super::written::{ContractFile, Extents, Formula, Written, WrittenLaunch};
use regatta_core::input;
use regatta_worker::attention::{Dtype, Layout, Mask, is_name, parameter_name};

/// What a contract says, read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    /// Options for the compiler, beside regatta's own.
    pub options: Vec<String>,
    /// The variants, by name.
    pub variants: BTreeMap<String, Variant>,
}

/// One variant: what it takes, and what it launches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// What it is, in a line.
    pub summary: String,
    /// Storage types it takes.
    pub dtypes: Vec<Dtype>,
    /// Layouts it takes.
    pub layouts: Vec<Layout>,
    /// Names of masks it takes; `None`: any.
    pub masks: Option<Vec<String>>,
    /// What else must hold.
    pub requires: Vec<Condition>,
    /// Its parameters, and what each is where nobody says.
    pub parameters: BTreeMap<String, i64>,
    /// Bytes of device memory beside the tensors.
    pub workspace_bytes: Expression,
    /// Launches of the forward pass, in order.
    pub forward: Vec<Launch>,
    /// Launches of the backward pass, in order; empty: it has none.
    pub backward: Vec<Launch>,
}

/// One launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The entry point: `{dtype}`, `{head_dim}` and parameters are put in.
    pub entry: String,
    /// What it is given, in order.
    pub arguments: Vec<Argument>,
    /// Blocks in x, y, z.
    pub grid: [Expression; 3],
    /// Threads of a block in x, y, z.
    pub block: [Expression; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: Expression,
}

/// The word of `masks` for a kernel that takes every mask.
const ANY: &str = "any";

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
    let file: ContractFile = toml::from_str(text).map_err(|error| match is_suite(text) {
        true => "this is a suite, and this name is that of the launch contract of the CUDA file \
                 beside it; give the suite another name"
            .to_owned(),
        false => error.to_string(),
    })?;
    if file.variants.is_empty() {
        return Err("`variants` is empty; write [variants.NAME]".to_owned());
    }
    let variants = file.variants.into_iter().map(|(name, written)| {
        let at = format!("[variants.{name}]");
        if !is_name(&name) {
            return Err(format!("{at}: `{name}` cannot name a variant"));
        }
        let variant = variant(written).map_err(|why| format!("{at} {why}"))?;
        Ok((name, variant))
    });
    Ok(Contract {
        options: file.options,
        variants: variants.collect::<Result<_, String>>()?,
    })
}

/// Who measures `attention.cu` would call the suite `attention.toml`.
fn is_suite(text: &str) -> bool {
    let table = text.parse::<toml::Table>();
    table.is_ok_and(|table| {
        ["sweep", "workers"]
            .iter()
            .any(|key| table.contains_key(*key))
    })
}

fn variant(written: Written) -> Result<Variant, String> {
    for (key, empty) in [
        ("dtypes", written.dtypes.is_empty()),
        ("layouts", written.layouts.is_empty()),
        ("masks", written.masks.is_empty()),
        ("forward", written.forward.is_empty()),
    ] {
        if empty {
            return Err(format!("{key}: there is nothing in it"));
        }
    }
    for name in written.parameters.keys() {
        parameter_name(name).map_err(|error| format!("parameters: {error}"))?;
        if argument::is_taken(name) {
            return Err(format!(
                "parameters: `{name}` means something else among `arguments` (a tensor, `problem`, \
                 `scale` or a type); call it something else"
            ));
        }
        if figures::is_figure(name) || name.contains('-') || name.starts_with('_') {
            return Err(format!(
                "parameters: `{name}` cannot stand in a formula; use letters, digits and `_`, \
                 and no name that a figure of the problem has"
            ));
        }
    }
    let any = written.masks.iter().any(|mask| mask == ANY);
    for mask in written.masks.iter().filter(|mask| *mask != ANY) {
        Mask::parse(mask, true).map_err(|error| format!("masks: {error}"))?;
    }
    let parameters = written.parameters;
    let known = |name: &str| figures::is_figure(name) || parameters.contains_key(name);
    let reading = Reading {
        known: &known,
        parameters: &parameters,
    };
    let conditions = written.requires.iter();
    let conditions = conditions.map(|text| Condition::parse(text, &known));
    let requires: Result<_, _> = conditions.collect();
    let workspace = reading.formula(&written.workspace_bytes);
    Ok(Variant {
        summary: written.summary,
        dtypes: written.dtypes,
        layouts: written.layouts,
        masks: (!any).then_some(written.masks),
        requires: requires.map_err(|why| format!("requires: {why}"))?,
        workspace_bytes: workspace.map_err(|why| format!("workspace_bytes: {why}"))?,
        forward: reading.launches("forward", &written.forward)?,
        backward: reading.launches("backward", &written.backward)?,
        parameters: parameters.clone(),
    })
}

/// What formulas of one variant may name.
struct Reading<'a> {
    known: &'a dyn Fn(&str) -> bool,
    parameters: &'a BTreeMap<String, i64>,
}

impl Reading<'_> {
    fn launches(&self, pass: &str, written: &[WrittenLaunch]) -> Result<Vec<Launch>, String> {
        let launches = written.iter().enumerate().map(|(at, launch)| {
            let read = self.launch(launch, pass == "backward");
            read.map_err(|why| format!("{pass} {}, {why}", at + 1))
        });
        launches.collect()
    }

    fn launch(&self, written: &WrittenLaunch, backward: bool) -> Result<Launch, String> {
        let arguments = written.arguments.iter();
        let arguments = arguments.map(|text| {
            let argument = Argument::parse(text, self.known)?;
            match argument.needs_backward() && !backward {
                true => Err(format!("`{text}` is there in `backward` alone")),
                false => Ok(argument),
            }
        });
        let arguments: Result<_, String> = arguments.collect();
        self.entry(&written.entry)
            .map_err(|why| format!("entry: {why}"))?;
        Ok(Launch {
            entry: written.entry.clone(),
            arguments: arguments.map_err(|why| format!("arguments: {why}"))?,
            grid: self
                .extents(&written.grid)
                .map_err(|why| format!("grid: {why}"))?,
            block: self
                .extents(&written.block)
                .map_err(|why| format!("block: {why}"))?,
            shared_bytes: self
                .formula(&written.shared_bytes)
                .map_err(|why| format!("shared_bytes: {why}"))?,
        })
    }

    fn entry(&self, entry: &str) -> Result<(), String> {
        let zero = |name: &str| match name {
            "head_dim" => Some(0),
            _ => self.parameters.get(name).copied(),
        };
        let name = entry_name(entry, Dtype::F32, &zero)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        match !name.is_empty() && name.chars().all(plain) {
            true => Ok(()),
            false => Err(format!(
                "`{entry}` is no name of a function in C; write `extern \"C\" __global__ void \
                 kernel(...)`, and `kernel` here"
            )),
        }
    }

    fn extents(&self, written: &Extents) -> Result<[Expression; 3], String> {
        let written: Vec<&Formula> = match written {
            Extents::One(one) => vec![one],
            Extents::Several(several) => several.iter().collect(),
        };
        if !(1..=3).contains(&written.len()) {
            return Err(format!("{} extents; there are x, y and z", written.len()));
        }
        let at = |axis: usize| match written.get(axis) {
            Some(formula) => self.formula(formula),
            None => self.formula(&Formula::Number(1)),
        };
        Ok([at(0)?, at(1)?, at(2)?])
    }

    fn formula(&self, written: &Formula) -> Result<Expression, String> {
        match written {
            Formula::Number(number) => Expression::parse(&number.to_string(), self.known),
            Formula::Text(text) => Expression::parse(text, self.known),
        }
    }
}

/// The entry point's name, with `{dtype}` and figures put in.
///
/// # Errors
/// Braces around something else.
pub fn entry_name(
    entry: &str,
    dtype: Dtype,
    figure: &dyn Fn(&str) -> Option<i64>,
) -> Result<String, String> {
    let mut name = String::new();
    let mut rest = entry;
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
                    "`{entry}`: `{{{place}}}` is neither `{{dtype}}`, `{{head_dim}}` nor one of \
                     `parameters`"
                ));
            }
        }
        rest = after;
    }
    name.push_str(rest);
    Ok(name)
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
        assert_eq!(variant.masks.as_deref(), Some(&["full".to_owned()][..]));
        let launch = &variant.forward[0];
        assert_eq!(launch.arguments.len(), 7);
        assert_eq!(launch.grid[1].to_string(), "heads");
        assert_eq!(launch.block[2].to_string(), "1");
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
