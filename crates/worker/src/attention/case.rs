//! Cases and their canonical ids.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{ParseError, Problem, Projection};

/// Longest name of a worker, a variant, an environment or a parameter, and longest word.
const LONGEST_NAME: usize = 64;

/// What [`is_name`] takes, in words.
pub const NAME_RULE: &str =
    "at most 64 letters, digits, `-`, `_` and `.`, a letter, a digit or `_` first";

/// True for what can name a worker, a variant or an environment: the name stands in case
/// ids, in patterns, and in the names of files.
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !text.starts_with(['.', '-'])
        && (1..=LONGEST_NAME).contains(&text.len())
        && text.chars().all(plain)
}

/// One implementation: `worker/name`, or `worker/name@environment` where a suite
/// runs it in an environment other than the worker's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VariantId {
    /// The worker that runs it: `cpu`, `torch`, `jax`, or one a suite declares.
    pub worker: String,
    /// Its name within the worker.
    pub name: String,
    /// The environment it runs in, when not the default one.
    pub environment: Option<String>,
}

impl VariantId {
    /// The process that runs it: `worker`, or `worker@environment`.
    pub fn worker_name(&self) -> String {
        match &self.environment {
            Some(environment) => format!("{}@{environment}", self.worker),
            None => self.worker.clone(),
        }
    }
}

impl fmt::Display for VariantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.worker, self.name)?;
        match &self.environment {
            Some(environment) => write!(f, "@{environment}"),
            None => Ok(()),
        }
    }
}

impl FromStr for VariantId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<VariantId, ParseError> {
        let (path, environment) = match text.split_once('@') {
            Some((path, environment)) => (path, Some(environment)),
            None => (text, None),
        };
        match path.split_once('/') {
            Some((worker, name))
                if is_name(worker) && is_name(name) && environment.is_none_or(is_name) =>
            {
                Ok(VariantId {
                    worker: worker.to_owned(),
                    name: name.to_owned(),
                    environment: environment.map(str::to_owned),
                })
            }
            _ => Err(ParseError::new(format!(
                "`{text}` is no variant; write `worker/name`, for example `cpu/flash`, \
                 or `worker/name@environment`"
            ))),
        }
    }
}

impl TryFrom<String> for VariantId {
    type Error = ParseError;

    fn try_from(text: String) -> Result<VariantId, ParseError> {
        text.parse()
    }
}

impl From<VariantId> for String {
    fn from(variant: VariantId) -> String {
        variant.to_string()
    }
}

/// The value of a variant's parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ParamValue {
    /// A number, such as an explicit `num_splits_key`.
    Int(i64),
    /// A word, such as `views`.
    Word(String),
}

/// The word that leaves a parameter to the implementation.
pub const AUTO: &str = "auto";

impl ParamValue {
    /// The value that leaves the choice to the implementation.
    pub fn auto() -> ParamValue {
        ParamValue::Word(AUTO.to_owned())
    }

    /// True for [`ParamValue::auto`].
    pub fn is_auto(&self) -> bool {
        matches!(self, ParamValue::Word(word) if word == AUTO)
    }
}

impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamValue::Int(number) => number.fmt(f),
            ParamValue::Word(word) => word.fmt(f),
        }
    }
}

impl FromStr for ParamValue {
    type Err = ParseError;

    /// A number, or a word that can stand in a case id: its separators are no part of one.
    fn from_str(text: &str) -> Result<ParamValue, ParseError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+/".contains(c);
        if (1..=LONGEST_NAME).contains(&text.len()) && text.chars().all(plain) {
            return Ok(ParamValue::from(text));
        }
        Err(ParseError::new(format!(
            "{text:?} cannot stand in a case id: a parameter is a whole number, or a word of at \
             most {LONGEST_NAME} letters, digits, `-`, `_`, `.`, `+` and `/`"
        )))
    }
}

/// Holds a parameter's name to what can stand in a case id and in a selector.
///
/// # Errors
/// A name with other characters than letters, digits, `-` and `_`, or one that an axis has.
pub fn parameter_name(name: &str) -> Result<(), ParseError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    if name.len() > LONGEST_NAME || !name.starts_with(letter) || !name.chars().all(plain) {
        return Err(ParseError::new(format!(
            "{name:?} cannot name a parameter: a name is at most {LONGEST_NAME} letters, digits, \
             `-` and `_`, a letter or `_` first"
        )));
    }
    if FACETS.contains(&name) || name == "seq" {
        return Err(ParseError::new(format!(
            "`{name}` cannot name a parameter: a selector means the case's own `{name}` by it"
        )));
    }
    Ok(())
}

impl From<&str> for ParamValue {
    /// The value as it stands, unchecked.
    fn from(text: &str) -> ParamValue {
        match text.parse() {
            Ok(number) => ParamValue::Int(number),
            Err(_) => ParamValue::Word(text.to_owned()),
        }
    }
}

/// Parameters by name. `auto` is the absence of a parameter, so it is never stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Params(BTreeMap<String, ParamValue>);

impl Params {
    /// The value of a parameter; `auto` when it was not set.
    pub fn get(&self, name: &str) -> ParamValue {
        self.0.get(name).cloned().unwrap_or_else(ParamValue::auto)
    }

    /// Sets a parameter; `auto` removes it.
    pub fn set(&mut self, name: &str, value: ParamValue) {
        if value.is_auto() {
            self.0.remove(name);
        } else {
            self.0.insert(name.to_owned(), value);
        }
    }

    /// The parameters that are not `auto`, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &ParamValue)> {
        self.0.iter()
    }

    /// True when every parameter is `auto`.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Variant × problem × parameters: what is measured under one name.
///
/// Its id reads `torch/efficient:s10000,d32,bwd:num_splits_key=1` and parses
/// back to the same case; the last part is absent when no parameter is set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Case {
    /// The implementation.
    pub variant: VariantId,
    /// What it computes.
    pub problem: Problem,
    /// How it is asked to.
    #[serde(default, skip_serializing_if = "Params::is_empty")]
    pub params: Params,
}

impl Case {
    /// The canonical id.
    pub fn id(&self) -> CaseId {
        CaseId(self.to_string())
    }
}

/// The names of a case's facets beside its parameters, in the order of its id.
pub const FACETS: [&str; 18] = [
    "variant",
    "worker",
    "environment",
    "batch",
    "heads",
    "kv_heads",
    "seq_q",
    "seq_k",
    "head_dim",
    "head_dim_v",
    "varlen",
    "dtype",
    "mask",
    "layout",
    "direction",
    "projection",
    "hidden",
    "ranks",
];

impl Case {
    /// One property of the case as text, by the name a suite uses for it: a facet
    /// of [`FACETS`], or else a parameter (`auto` when it is not set).
    ///
    /// `variant` is `worker/name` without the environment, which is a facet of
    /// its own (empty when it is the default one), and so are those of a projection
    /// (empty for attention).
    pub fn facet(&self, name: &str) -> String {
        let problem = &self.problem;
        let of_projection = |text: &dyn Fn(&Projection) -> String| {
            problem.projection.as_ref().map(text).unwrap_or_default()
        };
        match name {
            "variant" => format!("{}/{}", self.variant.worker, self.variant.name),
            "worker" => self.variant.worker.clone(),
            "environment" => self.variant.environment.clone().unwrap_or_default(),
            "batch" => problem.batch.to_string(),
            "heads" => problem.heads.to_string(),
            "kv_heads" => problem.kv_heads.to_string(),
            "seq_q" => problem.seq_q.to_string(),
            "seq_k" => problem.seq_k.to_string(),
            "head_dim" => problem.head_dim.to_string(),
            "head_dim_v" => problem.head_dim_v.to_string(),
            "varlen" => problem
                .varlen
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            "dtype" => problem.dtype.to_string(),
            "mask" => problem.mask.name(problem.is_square()),
            "layout" => problem.layout.to_string(),
            "direction" => problem.direction.to_string(),
            "projection" => of_projection(&|projection| projection.kind.to_string()),
            "hidden" => of_projection(&|projection| projection.hidden.to_string()),
            "ranks" => of_projection(&|projection| projection.ranks.to_string()),
            parameter => self.params.get(parameter).to_string(),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.variant, self.problem)?;
        for (i, (name, value)) in self.params.iter().enumerate() {
            write!(f, "{}{name}={value}", if i == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl FromStr for Case {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Case, ParseError> {
        let (variant, rest) = text.split_once(':').ok_or_else(|| {
            ParseError::new(format!(
                "`{text}` is no case id; one reads `cpu/flash:h8,s2048,d64,causal`"
            ))
        })?;
        // A ragged problem may hold a colon of its own; parameters never lack `=`.
        let (problem, params) = match rest.rsplit_once(':') {
            Some((problem, params)) if params.contains('=') => (problem, Some(params)),
            _ => (rest, None),
        };
        let mut case = Case {
            variant: variant.parse()?,
            problem: problem.parse()?,
            params: Params::default(),
        };
        for pair in params.into_iter().flat_map(|params| params.split(',')) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| ParseError::new(format!("`{pair}` in `{text}` is no parameter")))?;
            parameter_name(name)?;
            if !case.params.get(name).is_auto() {
                return Err(ParseError::new(format!(
                    "`{name}` is given twice in `{text}`"
                )));
            }
            case.params.set(name, value.parse()?);
        }
        Ok(case)
    }
}

/// The canonical id of a case, where the case itself is not needed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CaseId(pub String);

impl CaseId {
    /// The case of this id.
    ///
    /// # Errors
    /// When the id is not one that [`Case`] writes.
    pub fn case(&self) -> Result<Case, ParseError> {
        self.0.parse()
    }
}

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::attention::{Align, Direction, Dtype, Layout, Mask, Varlen};

    #[test]
    fn only_what_differs_from_its_default_appears() {
        let mut case = Case {
            variant: "torch/efficient".parse().unwrap(),
            problem: Problem::new(10_000, 32),
            params: Params::default(),
        };
        case.problem.direction = Direction::Backward;
        assert_eq!(case.to_string(), "torch/efficient:s10000,d32,bwd");
        case.params.set("num_splits_key", ParamValue::Int(1));
        case.problem.batch = 2;
        (case.problem.heads, case.problem.kv_heads) = (8, 8);
        assert_eq!(
            case.to_string(),
            "torch/efficient:b2,h8,s10000,d32,bwd:num_splits_key=1"
        );
    }

    #[test]
    fn malformed_ids_are_refused() {
        for id in [
            "cpu/flash",
            "flash:s1,d1",
            "cpu/flash:s0,d64",
            "cpu/flash:d64",
            "cpu/flash:s64,d64,x9",
            "cpu/flash:s64,d64,h3,kv2",
            "cpu/flash:s64,sk128,d64,causal",
            "cpu/flash:v10+20:30,d64",
            "cpu/flash:s64,s32,d64",
            "cpu/flash:s64,d64,causal,window-1-1",
            "cpu/flash:s64,d64,bf16,f16",
            "cpu/flash:s64,d64,b4294967295",
            "cpu/flash:v33554432,d64",
            "cpu/flash:s64,d64:n=1,n=2",
            "cpu/flash:s64,d64:n=1=2",
            "cpu/flash:s64,d64:n=",
            "cpu/flash:s64,d64:n=a b",
            "cpu/flash:s64,d64:n=a\u{202e}b",
            "cpu/flash:s64,d64:=1",
            "cpu/flash:s64,d64:n.m=1",
            "cpu/flash:s64,d64:dtype=bf16",
            "cpu/flash:s64,d64:seq=1",
            "cpu/..:s64,d64",
            "cpu/flash@..:s64,d64",
            "../flash:s64,d64",
        ] {
            assert!(id.parse::<Case>().is_err(), "{id} parsed");
        }
    }

    fn mask() -> impl Strategy<Value = Mask> {
        let align = prop_oneof![Just(Align::TopLeft), Just(Align::BottomRight)];
        prop_oneof![
            Just(Mask::FULL),
            align.clone().prop_map(Mask::causal),
            (0u32..500, 0u32..500, align).prop_map(|(l, r, a)| Mask::window(l, r, a)),
        ]
    }

    fn problem() -> impl Strategy<Value = Problem> {
        let lengths = prop::collection::vec((1u32..300, 1u32..300), 1..5);
        (
            (1u32..5, 1u32..4, 1u32..4, 1u32..5000, 1u32..5000),
            (1u32..300, 1u32..300, prop::option::of(lengths)),
            prop::sample::select(Dtype::ALL.to_vec()),
            mask(),
            prop::sample::select(Layout::ALL.to_vec()),
            prop::sample::select(Direction::ALL.to_vec()),
        )
            .prop_map(|(sizes, more, dtype, mask, layout, direction)| {
                let (batch, group, kv_heads, seq_q, seq_k) = sizes;
                let (head_dim, head_dim_v, lengths) = more;
                let mut problem = Problem {
                    batch,
                    heads: group * kv_heads,
                    kv_heads,
                    seq_q,
                    seq_k,
                    head_dim,
                    head_dim_v,
                    dtype,
                    mask,
                    layout,
                    direction,
                    varlen: None,
                    projection: None,
                };
                if let Some(lengths) = lengths {
                    problem.layout = Layout::Bshd;
                    problem.batch = lengths.len() as u32;
                    problem.seq_q = lengths.iter().map(|l| l.0).max().unwrap();
                    problem.seq_k = lengths.iter().map(|l| l.1).max().unwrap();
                    problem.varlen = Some(Varlen {
                        q: lengths.iter().map(|l| l.0).collect(),
                        k: lengths.iter().map(|l| l.1).collect(),
                    });
                }
                problem.validated().unwrap()
            })
    }

    proptest! {
        #[test]
        fn ids_parse_back(
            problem in problem(),
            splits in prop::option::of(-1i64..200),
            environment in prop::option::of("[a-z][a-z0-9.-]{0,8}"),
        ) {
            let mut case = Case {
                variant: "torch/efficient".parse().unwrap(),
                problem,
                params: Params::default(),
            };
            case.variant.environment = environment;
            if let Some(splits) = splits {
                case.params.set("num_splits_key", ParamValue::Int(splits));
                case.params.set("access", ParamValue::from("copies"));
            }
            let id = case.to_string();
            prop_assert_eq!(id.parse::<Case>().unwrap(), case, "{}", id);
        }
    }
}
