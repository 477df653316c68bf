//! An operator as a suite declares it, and the operands that follow for a problem.

use std::collections::BTreeMap;
use std::fmt;

use minijinja::Value;
use serde::{Deserialize, Serialize};

use super::draw::Draw;
use super::formula::{Expression, FUNCTIONS, Figures};
use super::operands::{ElementType, InputTensor, Operands, OutputTensor, Role};
use super::{DeclaredProblem, Direction};
use crate::case::{Dtype, ParamValue, ParseError, refuse};
use crate::tolerance::limit;

/// An operator, declared as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Operator {
    /// The name.
    pub name: String,
    /// The axes by which its problems differ, without `dtype`.
    pub axes: BTreeMap<String, AxisKind>,
    /// Types that its tensors may have, with the default first.
    pub dtypes: Vec<Dtype>,
    /// The inputs of a call, by argument name.
    pub inputs: BTreeMap<String, Input>,
    /// Numbers that are passed to a call, by argument name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scalars: BTreeMap<String, Expression>,
    /// The outputs of a call, in the order in which they are returned.
    pub outputs: Vec<Output>,
    /// The inputs with respect to which a call can be differentiated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gradients: Vec<String>,
    /// Conditions on the axes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<Expression>,
    /// The number of floating-point operations of a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops: Option<Expression>,
    /// Bytes that a call must move; by default the size of all tensors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Expression>,
    /// The function that computes the results in float64, `FILE.py:FUNCTION`. `None`: the other
    /// side of a comparison is the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// The values that an axis can have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum AxisKind {
    /// A whole number with its default. `None`: a sweep has to give it.
    Number(Option<u32>),
    /// One of these words, with the default first; a call is given it by the axis's name.
    Words(Vec<String>),
}

/// An input of an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Input {
    /// Extents; the last axis is contiguous.
    pub shape: Vec<Expression>,
    /// Type of its elements. `None`: that of the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<ElementType>,
    /// The draw of its contents.
    pub draw: Draw<Expression>,
    /// The role.
    pub role: Role,
    /// The input by which its values are multiplied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<String>,
    /// True if a problem may leave it out, by the axis with its name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

impl fmt::Display for Input {
    /// The draw, such as `normal / x_scale`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.draw.fmt(f)?;
        self.scale
            .iter()
            .try_for_each(|scale| write!(f, " / {scale}"))
    }
}

/// An output of an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Output {
    /// The name.
    pub name: String,
    /// Extents.
    pub shape: Vec<Expression>,
    /// Type of its elements. `None`: that of the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<ElementType>,
    /// The largest relative L2 error. `None`: 5e-6 for f32, 2e-3 for f16, 1e-2 for bf16, and 0 for
    /// whole numbers, booleans and floats of 8 bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<Tolerance>,
    /// The state input into which a call writes this output, instead of returning it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place: Option<String>,
}

/// A relative L2 error: one value, or one for each type of the problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(
    untagged,
    expecting = "expected a number, or a table of numbers by dtype"
)]
pub enum Tolerance {
    /// For any type.
    One(f64),
    /// By type; other types have the default.
    ByType(BTreeMap<Dtype, f64>),
}

/// Names that cannot name an axis, because they have another meaning in a sweep or a selector.
const TAKEN: [&str; 8] = [
    "variants",
    "shapes",
    "params",
    "operator",
    "dtype",
    "variant",
    "worker",
    "environment",
];

/// Checks the name of an axis of a declared operator.
///
/// # Errors
/// The name is invalid, or has another meaning.
pub fn axis_name(name: &str) -> Result<(), ParseError> {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.len() > 64 || !name.starts_with(letter) || !name.chars().all(plain) {
        refuse!(
            "{name:?} cannot name an axis: use at most 64 letters, digits and `_`, a letter or `_` \
             first"
        );
    }
    if TAKEN.contains(&name) || FUNCTIONS.contains(&name) {
        refuse!("`{name}` cannot name an axis: it means something else in a suite");
    }
    Ok(())
}

/// The largest number of elements of a tensor.
const MAX_ELEMENTS: u64 = 1 << 36;

impl Operator {
    /// The axes of a problem as numbers for formulas; words are left out.
    pub fn figures(&self, problem: &DeclaredProblem) -> Figures {
        let numbers = problem.axes.iter().filter_map(|(name, value)| match value {
            ParamValue::Int(number) => Some((name.clone(), Value::from(*number))),
            ParamValue::Word(_) => None,
        });
        let element = (
            "element_bytes".to_owned(),
            Value::from(problem.dtype.bytes()),
        );
        Figures::new(numbers.chain([element]))
    }

    /// The word of each axis of words, which a call is given, except for optional inputs.
    pub fn words(&self, problem: &DeclaredProblem) -> BTreeMap<String, String> {
        let is_argument = |name: &String| {
            matches!(self.axes.get(name), Some(AxisKind::Words(_)))
                && !self.inputs.contains_key(name)
        };
        let words = problem.axes.iter().filter(|(name, _)| is_argument(name));
        words
            .map(|(name, word)| (name.clone(), word.to_string()))
            .collect()
    }

    /// An example problem, with which formulas are checked.
    pub fn example(&self) -> DeclaredProblem {
        let axes = self.axes.iter().map(|(name, kind)| {
            let value = match kind {
                AxisKind::Number(default) => ParamValue::Int(default.unwrap_or(64).into()),
                AxisKind::Words(words) => ParamValue::from(words.first().map_or("", |word| word)),
            };
            (name.clone(), value)
        });
        DeclaredProblem {
            operator: self.name.clone(),
            axes: axes.collect(),
            dtype: self.dtypes.first().copied().unwrap_or(Dtype::F32),
        }
    }

    /// Each formula with its key and kind.
    pub fn formulas(&self) -> Vec<(String, &Expression, FormulaKind)> {
        let mut all = Vec::new();
        for (name, input) in &self.inputs {
            let shape = input.shape.iter().enumerate();
            all.extend(shape.map(|(place, formula)| {
                (
                    format!("inputs.{name}.shape[{place}]"),
                    formula,
                    FormulaKind::Whole,
                )
            }));
            let arguments = input.draw.arguments.iter();
            all.extend(
                arguments
                    .map(|formula| (format!("inputs.{name}.draw"), formula, FormulaKind::Real)),
            );
        }
        for (name, formula) in &self.scalars {
            all.push((format!("scalars.{name}"), formula, FormulaKind::Real));
        }
        for output in &self.outputs {
            let shape = output.shape.iter().enumerate();
            all.extend(shape.map(|(place, formula)| {
                let key = format!("outputs.{}.shape[{place}]", output.name);
                (key, formula, FormulaKind::Whole)
            }));
        }
        let requires = self.requires.iter().enumerate();
        all.extend(requires.map(|(place, formula)| {
            (
                format!("requires[{place}]"),
                formula,
                FormulaKind::Condition,
            )
        }));
        all.extend(
            self.amounts()
                .map(|(key, formula)| (key.to_owned(), formula, FormulaKind::Real)),
        );
        all
    }

    /// The formulas for amounts of a call, by key.
    fn amounts(&self) -> impl Iterator<Item = (&'static str, &Expression)> {
        let all = [("flops", &self.flops), ("bytes", &self.bytes)];
        all.into_iter()
            .filter_map(|(key, formula)| Some((key, formula.as_ref()?)))
    }

    /// The operands that a worker gets for a problem.
    ///
    /// # Errors
    /// The key that has no value for this problem, and the reason.
    pub fn operands(&self, problem: &DeclaredProblem) -> Result<Operands, (String, String)> {
        let figures = self.figures(problem);
        for (place, requires) in self.requires.iter().enumerate() {
            let key = || format!("requires[{place}]");
            if !requires.holds(&figures).map_err(|why| (key(), why))? {
                let why = format!("`{requires}` does not hold for {problem}");
                return Err((key(), why));
            }
        }
        let mut operands = Operands {
            words: self.words(problem),
            left_out: self.left_out(problem),
            ..Operands::default()
        };
        for (name, input) in &self.inputs {
            if operands.left_out.contains(name) {
                continue;
            }
            let shape = shape(&input.shape, &figures)
                .map_err(|(place, why)| (format!("inputs.{name}.shape[{place}]"), why))?;
            let dtype = input.dtype.unwrap_or_else(|| problem.dtype.into());
            let arguments = input.draw.arguments.iter().map(|one| one.real(&figures));
            let draw = arguments
                .collect::<Result<Vec<f64>, String>>()
                .and_then(|arguments| {
                    let draw = Draw {
                        kind: input.draw.kind,
                        arguments,
                    };
                    // The scale is chosen so that the divided values fit the type.
                    let scaled = input.scale.as_ref().map(|_| ElementType::F32);
                    let elements = shape.iter().product();
                    let completed = draw.completed(elements, scaled.unwrap_or(dtype));
                    completed.map_err(|error| error.to_string())
                })
                .map_err(|why| (format!("inputs.{name}.draw"), why))?;
            operands.inputs.push(InputTensor {
                name: name.clone(),
                shape,
                dtype,
                draw,
                role: input.role,
                scale: None,
                scales: None,
            });
        }
        for (key, formula) in self.amounts() {
            let amount = formula.real(&figures).and_then(|amount| {
                let why = || format!("`{formula}` is {amount}; an amount is above 0, or left out");
                (amount > 0.0).then_some(amount).ok_or_else(why)
            });
            amount.map_err(|why| (key.to_owned(), why))?;
        }
        self.scale(&mut operands)?;
        for (name, formula) in &self.scalars {
            let value = formula.real(&figures);
            let value = value.map_err(|why| (format!("scalars.{name}"), why))?;
            operands.scalars.insert(name.clone(), value);
        }
        for output in &self.outputs {
            let name = &output.name;
            let shape = shape(&output.shape, &figures)
                .map_err(|(place, why)| (format!("outputs.{name}.shape[{place}]"), why))?;
            let dtype = output.dtype.unwrap_or(problem.dtype.into());
            let mut states = operands.inputs.iter();
            if let Some(state) = states.find(|input| output.in_place.as_ref() == Some(&input.name))
                && (&state.shape, state.dtype) != (&shape, dtype)
            {
                let why = format!(
                    "`{name}` is of {dtype} and shape {shape:?}, and the state `{}` of {} and shape \
                     {:?}: give the output those",
                    state.name, state.dtype, state.shape
                );
                return Err((format!("outputs.{name}.in_place"), why));
            }
            operands.outputs.push(OutputTensor {
                name: name.clone(),
                shape,
                dtype,
                limit: output.limit(problem.dtype),
                in_place: output.in_place.clone(),
            });
        }
        self.differentiate(problem, &mut operands)
            .map_err(|why| ("gradients".to_owned(), why))?;
        Ok(operands)
    }

    /// The floating-point operations of a forward problem, if the operator declares them.
    ///
    /// # Errors
    /// The formula has no value.
    pub fn flops_of(&self, problem: &DeclaredProblem) -> Result<Option<f64>, String> {
        let flops = self.flops.as_ref();
        let is_forward = self.direction(problem) == Direction::Forward;
        flops
            .filter(|_| is_forward)
            .map(|flops| flops.real(&self.figures(problem)))
            .transpose()
    }

    /// Bytes that a call of a problem must move.
    ///
    /// # Errors
    /// A formula has no value.
    pub fn bytes_of(&self, problem: &DeclaredProblem) -> Result<f64, String> {
        match &self.bytes {
            Some(bytes) if self.direction(problem) == Direction::Forward => {
                bytes.real(&self.figures(problem))
            }
            _ => {
                let operands = self.operands(problem).map_err(|(_, why)| why)?;
                Ok(operands.bytes())
            }
        }
    }

    /// The size of all tensors of a problem in bytes.
    pub fn memory_bytes(&self, problem: &DeclaredProblem) -> f64 {
        let operands = self.operands(problem);
        operands.map_or(0.0, |operands| operands.bytes())
    }
}

/// The kind of value that a formula has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormulaKind {
    /// A whole number.
    Whole,
    /// A real number.
    Real,
    /// True or false.
    Condition,
}

impl Output {
    /// The largest relative L2 error in problems of this type. If inputs have 16 bits, so do the
    /// products that a 32-bit output sums, so a declared tolerance is chosen by the problem's type.
    pub fn limit(&self, dtype: Dtype) -> f64 {
        let real = self.dtype.map_or(Some(dtype), ElementType::real);
        let usual = real.map_or(0.0, |dtype| limit(dtype, false, Direction::Forward));
        match &self.tolerance {
            None => usual,
            Some(Tolerance::One(tolerance)) => *tolerance,
            Some(Tolerance::ByType(by_type)) => by_type.get(&dtype).copied().unwrap_or(usual),
        }
    }
}

/// The extents of a tensor, or the place of an invalid one with the reason.
fn shape(shape: &[Expression], figures: &Figures) -> Result<Vec<u64>, (usize, String)> {
    let mut extents = Vec::new();
    let mut elements = 1u64;
    for (place, formula) in shape.iter().enumerate() {
        let extent = formula.value(figures).map_err(|why| (place, why))?;
        let positive = u64::try_from(extent).ok().filter(|extent| *extent > 0);
        let extent = positive.ok_or_else(|| {
            (
                place,
                format!("`{formula}` is {extent}; an extent is at least 1"),
            )
        })?;
        elements = elements.saturating_mul(extent);
        if elements > MAX_ELEMENTS {
            let why = format!("the tensor has {elements} elements; {MAX_ELEMENTS} are the most");
            return Err((place, why));
        }
        extents.push(extent);
    }
    Ok(extents)
}
