//! Operators: built-in attention, or an operator that a suite declares as data.
//!
//! A [`Problem`] is an operator with a value for each axis. That of attention is a struct of its
//! own, since kernels in Rust compute it; any other is a name and values. Shapes, draws and
//! tolerances of a declared one follow from its [`Operator`], which the harness evaluates: a worker
//! is given [`Operands`], which hold no formula.

mod declaration;
pub mod draw;
pub mod formula;
mod gradients;
mod operands;
mod optional;
mod quantised;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use declaration::{AxisKind, FormulaKind, Input, Operator, Output, Tolerance, axis_name};
pub use gradients::{DIRECTION, Gradients, gradient_name};
pub use operands::{ElementType, InputTensor, Operands, OutputTensor, Role};

use crate::attention::{Attention, work};
use crate::case::{Dtype, MAX_AXIS, ParamValue, ParseError, is_name};

/// Declared operators, by name.
pub type Operators = BTreeMap<String, Operator>;

/// The name of the built-in operator, as the facet `operator` has it.
pub const ATTENTION: &str = "attention";

/// An operator with a value for each of its axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Problem {
    /// Built-in attention, or one of its projections.
    Attention(Attention),
    /// An operator that a suite declares.
    Declared(DeclaredProblem),
}

/// A declared operator with a value for each axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct DeclaredProblem {
    /// The name.
    pub operator: String,
    /// Values by axis, `dtype` aside.
    pub axes: BTreeMap<String, ParamValue>,
    /// Type of every tensor that has none of its own.
    pub dtype: Dtype,
}

/// The operator of a script's calls, of which nothing is declared.
const CALL: &str = "call";

impl Problem {
    /// A call of a script, whose inputs are its own: its case has the script's values as parameters.
    pub fn call() -> Problem {
        Problem::Declared(DeclaredProblem {
            operator: CALL.to_owned(),
            axes: BTreeMap::new(),
            dtype: Dtype::F32,
        })
    }

    /// True for a call of a script.
    pub fn is_call(&self) -> bool {
        self.declared()
            .is_some_and(|problem| problem.operator == CALL && problem.axes.is_empty())
    }

    /// Attention's problem.
    ///
    /// # Errors
    /// For a declared operator, that the caller computes attention alone.
    pub fn attention(&self) -> Result<&Attention, String> {
        match self {
            Problem::Attention(attention) => Ok(attention),
            Problem::Declared(declared) => Err(format!(
                "this computes attention, not the operator `{}`",
                declared.operator
            )),
        }
    }

    /// The problem of a declared operator.
    pub fn declared(&self) -> Option<&DeclaredProblem> {
        match self {
            Problem::Attention(_) => None,
            Problem::Declared(declared) => Some(declared),
        }
    }

    /// Type of every tensor that has none of its own.
    pub fn dtype(&self) -> Dtype {
        match self {
            Problem::Attention(attention) => attention.dtype,
            Problem::Declared(declared) => declared.dtype,
        }
    }

    /// The problem without what changes no value of its results.
    pub fn same_values(&self) -> Problem {
        match self {
            Problem::Attention(attention) => Problem::Attention(attention.same_values()),
            Problem::Declared(_) => self.clone(),
        }
    }

    /// Floating-point operations, where the operator says.
    pub fn flops(&self, operators: &Operators) -> Option<f64> {
        match self {
            Problem::Attention(attention) => Some(work::flops(attention)),
            Problem::Declared(declared) => {
                operators.get(&declared.operator)?.flops_of(declared).ok()?
            }
        }
    }

    /// Bytes that any implementation must move.
    pub fn bytes(&self, operators: &Operators) -> Option<f64> {
        match self {
            Problem::Attention(attention) => Some(work::bytes(attention)),
            Problem::Declared(declared) => {
                let operator = operators.get(&declared.operator)?;
                operator.bytes_of(declared).ok()
            }
        }
    }

    /// The value of an axis as text, by the name a suite uses for it; `None` where the problem
    /// has no such axis.
    pub fn axis(&self, name: &str) -> Option<String> {
        match self {
            Problem::Attention(_) if name == "operator" => Some(ATTENTION.to_owned()),
            Problem::Attention(attention) => crate::attention::axes::axis(name)?.value(attention),
            Problem::Declared(declared) => match name {
                "operator" => Some(declared.operator.clone()),
                "dtype" => Some(declared.dtype.to_string()),
                name => declared.axes.get(name).map(ToString::to_string),
            },
        }
    }
}

impl From<Attention> for Problem {
    fn from(attention: Attention) -> Problem {
        Problem::Attention(attention)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Attention(attention) => attention.fmt(f),
            Problem::Declared(_) if self.is_call() => f.write_str(CALL),
            Problem::Declared(declared) => declared.fmt(f),
        }
    }
}

impl fmt::Display for DeclaredProblem {
    /// `rmsnorm,rows=4096,width=1024,dtype=f32`: every axis, as the id stands without the
    /// declaration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.operator)?;
        for (name, value) in &self.axes {
            write!(f, ",{name}={value}")?;
        }
        write!(f, ",dtype={}", self.dtype)
    }
}

impl FromStr for Problem {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Problem, ParseError> {
        if text == CALL {
            Ok(Problem::call())
        } else if text.contains('=') {
            text.parse().map(Problem::Declared)
        } else {
            text.parse().map(Problem::Attention)
        }
    }
}

impl FromStr for DeclaredProblem {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<DeclaredProblem, ParseError> {
        let mut tokens = text.split(',');
        let operator = tokens.next().unwrap_or_default();
        if !is_name(operator) {
            return Err(ParseError::new(format!(
                "`{operator}` in `{text}` is no name of an operator"
            )));
        }
        let mut axes = BTreeMap::new();
        let mut dtype = None;
        for token in tokens {
            let (name, value) = token.split_once('=').ok_or_else(|| {
                ParseError::new(format!(
                    "`{token}` in `{text}` is no axis; one reads `rows=8`"
                ))
            })?;
            let twice = if name == "dtype" {
                dtype.replace(value.parse()?).is_some()
            } else {
                axis_name(name)?;
                axes.insert(name.to_owned(), axis_value(name, value)?)
                    .is_some()
            };
            if twice {
                let error = format!("`{name}` is given twice in `{text}`");
                return Err(ParseError::new(error));
            }
        }
        Ok(DeclaredProblem {
            operator: operator.to_owned(),
            axes,
            dtype: dtype
                .ok_or_else(|| ParseError::new(format!("`{text}` lacks `dtype`, such as f32")))?,
        })
    }
}

/// The value of an axis: a whole number in its range, or a word.
fn axis_value(name: &str, text: &str) -> Result<ParamValue, ParseError> {
    match text.parse()? {
        ParamValue::Int(number) if !(0..=i64::from(MAX_AXIS)).contains(&number) => {
            Err(ParseError::new(format!(
                "{name} is {number}; it must be from 0 to {MAX_AXIS}"
            )))
        }
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_problem_reads_back_and_is_no_attention() {
        let text = "rmsnorm,rows=4096,width=1024,dtype=f32";
        let problem: Problem = text.parse().unwrap();
        assert_eq!(problem.to_string(), text);
        assert_eq!(problem.axis("width").as_deref(), Some("1024"));
        assert_eq!(problem.axis("operator").as_deref(), Some("rmsnorm"));
        assert_eq!(problem.axis("heads"), None);
        let json = serde_json::to_string(&problem).unwrap();
        assert_eq!(serde_json::from_str::<Problem>(&json).unwrap(), problem);
        let reason = problem.attention().unwrap_err();
        assert_eq!(
            reason,
            "this computes attention, not the operator `rmsnorm`"
        );
        let attention: Problem = "s8,d8,causal".parse().unwrap();
        let json = serde_json::to_string(&attention).unwrap();
        assert_eq!(serde_json::from_str::<Problem>(&json).unwrap(), attention);
        assert_eq!(attention.axis("operator").as_deref(), Some("attention"));
    }

    /// Chunks of the gated delta rule multiply bfloat16 and leave a state of float32.
    #[test]
    fn a_tolerance_by_type_is_the_problems() {
        let declared =
            r#"{"name": "final_state", "shape": [4], "dtype": "f32", "tolerance": {"bf16": 0.01}}"#;
        let output: Output = serde_json::from_str(declared).unwrap();
        assert_eq!(output.limit(Dtype::Bf16), 0.01);
        assert_eq!(output.limit(Dtype::F32), 5e-6);
    }

    #[test]
    fn malformed_ones_are_refused() {
        for text in [
            "rmsnorm,rows=8",
            "rmsnorm,rows=8,rows=9,dtype=f32",
            "rmsnorm,rows=-8,dtype=f32",
            "rmsnorm,rows=99999999999,dtype=f32",
            "rmsnorm,rows=8,dtype=f64",
            "rmsnorm,rows,dtype=f32",
            "rmsnorm,variant=8,dtype=f32",
            ",rows=8,dtype=f32",
        ] {
            assert!(text.parse::<Problem>().is_err(), "{text} parsed");
        }
    }
}
