//! Operators: the native one, and those that a suite declares as data.
//!
//! A [`Problem`] is an operator with a value for each axis. A problem of the native operator is a
//! struct of its own, since kernels in Rust compute it; all code except its workers gets its axes,
//! results, costs and reference from here. A problem of a declared operator is a name and values.
//! The shapes, draws and tolerances follow from its [`Operator`], which the harness evaluates: a
//! worker gets [`Operands`] without formulas.

mod declaration;
mod direction;
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
pub use direction::Direction;
pub use gradients::{DIRECTION, Gradients, gradient_name};
pub use operands::{ElementType, InputTensor, Operands, OutputTensor, Role};

// The only place that says which operator is native.
use crate::attention as native;
use crate::case::{Dtype, MAX_AXIS, ParamValue, ParseError, is_name};
pub use native::axes::{AXES, Axis, SEQ, SEQ_AXES, about, axis, is_plain, settable};
pub use native::reference::TooLarge;
use native::work;
pub use native::{
    Attention as Native, DrawnCall, Layers, NAME as NATIVE, Planes, Point, References, examples,
};

/// Declared operators, by name.
pub type Operators = BTreeMap<String, Operator>;

/// An operator with a value for each of its axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Problem {
    /// A problem of the native operator.
    Native(Native),
    /// A problem of an operator that a suite declares.
    Declared(DeclaredProblem),
}

/// A declared operator with a value for each axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct DeclaredProblem {
    /// The name.
    pub operator: String,
    /// Values by axis, without `dtype`.
    pub axes: BTreeMap<String, ParamValue>,
    /// Type of every tensor that does not have one of its own.
    pub dtype: Dtype,
}

/// The operator of a script's calls, which have no declaration.
const CALL: &str = "call";

impl Problem {
    /// A call of a script, which makes its own inputs. Its case has the script's values as
    /// parameters.
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

    /// An example of the native operator.
    pub fn example() -> Problem {
        Problem::Native(Native::new(16, 16))
    }

    /// The problem of the native operator.
    pub fn native(&self) -> Option<&Native> {
        match self {
            Problem::Native(problem) => Some(problem),
            Problem::Declared(_) => None,
        }
    }

    /// The problem of a declared operator.
    pub fn declared(&self) -> Option<&DeclaredProblem> {
        match self {
            Problem::Native(_) => None,
            Problem::Declared(declared) => Some(declared),
        }
    }

    /// Type of every tensor that does not have one of its own.
    pub fn dtype(&self) -> Dtype {
        match self {
            Problem::Native(problem) => problem.dtype,
            Problem::Declared(declared) => declared.dtype,
        }
    }

    /// The problem with defaults on all axes that do not change its results' values.
    pub fn same_values(&self) -> Problem {
        match self {
            Problem::Native(problem) => Problem::Native(problem.same_values()),
            Problem::Declared(_) => self.clone(),
        }
    }

    /// The number of floating-point operations, if the operator declares it.
    pub fn flops(&self, operators: &Operators) -> Option<f64> {
        match self {
            Problem::Native(problem) => Some(work::flops(problem)),
            Problem::Declared(declared) => {
                operators.get(&declared.operator)?.flops_of(declared).ok()?
            }
        }
    }

    /// Bytes that any implementation must move.
    pub fn bytes(&self, operators: &Operators) -> Option<f64> {
        match self {
            Problem::Native(problem) => Some(work::bytes(problem)),
            Problem::Declared(declared) => {
                let operator = operators.get(&declared.operator)?;
                operator.bytes_of(declared).ok()
            }
        }
    }

    /// Bytes of all its tensors, including the score matrix if a variant `stores_scores`.
    pub fn memory_bytes(&self, operators: &Operators, stores_scores: bool) -> u64 {
        match self {
            Problem::Native(problem) => work::memory_bytes(problem, stores_scores),
            Problem::Declared(declared) => {
                let operator = operators.get(&declared.operator);
                operator.map_or(0, |operator| operator.memory_bytes(declared) as u64)
            }
        }
    }

    /// The value of an axis as text, by its name in suites; `None` if the problem has no such axis.
    pub fn axis(&self, name: &str) -> Option<String> {
        match self {
            Problem::Native(_) if name == "operator" => Some(NATIVE.to_owned()),
            Problem::Native(problem) => axis(name)?.value(problem),
            Problem::Declared(declared) => match name {
                "operator" => Some(declared.operator.clone()),
                "dtype" => Some(declared.dtype.to_string()),
                name => declared.axes.get(name).map(ToString::to_string),
            },
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Native(problem) => problem.fmt(f),
            Problem::Declared(_) if self.is_call() => f.write_str(CALL),
            Problem::Declared(declared) => declared.fmt(f),
        }
    }
}

impl fmt::Display for DeclaredProblem {
    /// `rmsnorm,rows=4096,width=1024,dtype=f32`: every axis, as an id is written without knowing
    /// the declaration.
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
            text.parse().map(Problem::Native)
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

/// Parses the value of an axis: a whole number in range, or a word.
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
    fn a_problem_reads_back_and_is_of_one_operator() {
        let text = "rmsnorm,rows=4096,width=1024,dtype=f32";
        let problem: Problem = text.parse().unwrap();
        assert_eq!(problem.to_string(), text);
        assert_eq!(problem.axis("width").as_deref(), Some("1024"));
        assert_eq!(problem.axis("operator").as_deref(), Some("rmsnorm"));
        assert_eq!(problem.axis("heads"), None);
        let json = serde_json::to_string(&problem).unwrap();
        assert_eq!(serde_json::from_str::<Problem>(&json).unwrap(), problem);
        assert_eq!(problem.native(), None);
        let native: Problem = "s8,d8,causal".parse().unwrap();
        let json = serde_json::to_string(&native).unwrap();
        assert_eq!(serde_json::from_str::<Problem>(&json).unwrap(), native);
        assert_eq!(native.axis("operator").as_deref(), Some(NATIVE));
    }

    /// Chunks of the gated delta rule multiply bfloat16 and keep a state in float32.
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
