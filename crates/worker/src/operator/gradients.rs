//! Gradients of a declared operator for some of its inputs, given drawn gradients of its outputs.
//!
//! A problem asks for them with the axis `direction`. The gradient of tensor `out` is named `dout`.
//! Workers draw gradients of outputs in the same way as inputs.

use serde::{Deserialize, Serialize};

use super::draw::{Draw, DrawKind};
use super::operands::{InputTensor, Operands, OutputTensor, Role};
use super::{DeclaredProblem, Direction, Operator, Output};
use crate::case::{Dtype, ParamValue};
use crate::joined::Joined;
use crate::tolerance::limit;

/// The key in a sweep that asks for gradients. A forward problem does not have it.
pub const DIRECTION: &str = "direction";

/// The gradients of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Gradients {
    /// `backward`: all outputs are gradients. `both`: they follow the operator's own outputs.
    pub direction: Direction,
    /// The inputs with respect to which a call is differentiated, in the order of their gradients.
    pub by: Vec<String>,
    /// The inputs that are gradients of the operator's outputs, in the order of the outputs. A
    /// function that takes them computes the gradients itself.
    pub given: Vec<String>,
}

/// The name of a tensor's gradient.
pub fn gradient_name(tensor: &str) -> String {
    format!("d{tensor}")
}

impl DeclaredProblem {
    /// The direction; forward unless the problem asks for gradients.
    pub fn direction(&self) -> Direction {
        match self.axes.get(DIRECTION) {
            Some(ParamValue::Word(word)) => word.parse().unwrap_or(Direction::Forward),
            _ => Direction::Forward,
        }
    }

    /// The same problem in another direction.
    #[must_use]
    pub fn with(mut self, direction: Direction) -> DeclaredProblem {
        self.axes.remove(DIRECTION);
        if direction != Direction::Forward {
            let word = ParamValue::from(direction.name());
            self.axes.insert(DIRECTION.to_owned(), word);
        }
        self
    }
}

impl Operator {
    /// The direction of a problem; forward if the operator has no gradients.
    pub fn direction(&self, problem: &DeclaredProblem) -> Direction {
        if self.gradients.is_empty() {
            return Direction::Forward;
        }
        problem.direction()
    }

    /// The reason for which a call has no gradients with respect to `gradients`, if any.
    pub fn objection_to_gradients(&self) -> Option<String> {
        let by = &self.gradients;
        if by.is_empty() {
            return None;
        }
        let listed = self.inputs.keys().joined(", ");
        for (place, name) in by.iter().enumerate() {
            let Some(input) = self.inputs.get(name) else {
                return Some(format!("unknown input `{name}` (inputs: {listed})"));
            };
            if by[..place].contains(name) {
                return Some(format!("`{name}` is listed twice"));
            }
            if input.role == Role::Index || input.dtype.is_some_and(|dtype| dtype.real().is_none())
            {
                let dtype = input
                    .dtype
                    .map_or_else(|| "index".to_owned(), |dtype| dtype.to_string());
                return Some(format!(
                    "the input `{name}` is of {dtype}, and a gradient is by real numbers: list \
                     inputs of f32, f16 or bf16"
                ));
            }
        }
        let whole = |output: &&Output| output.dtype.is_some_and(|dtype| dtype.real().is_none());
        if let Some(output) = self.outputs.iter().find(whole) {
            return Some(format!(
                "the output `{}` has no gradient: declare another operator without it, and without \
                 `gradients` this one",
                output.name
            ));
        }
        let state = self
            .inputs
            .iter()
            .find(|(_, input)| input.role == Role::State);
        if let Some((state, _)) = state {
            return Some(format!(
                "a call writes into the state `{state}`, and what it had is lost to its gradient: \
                 declare `{state}` with role = \"data\", and what is left in it as an output \
                 without `in_place`"
            ));
        }
        if self.axes.contains_key(DIRECTION) {
            return Some("a sweep asks for gradients by `direction`: rename that axis".to_owned());
        }
        let outputs = self.outputs.iter().map(|output| &output.name);
        let mut tensors = self.inputs.keys().chain(outputs);
        let taken = |name: &String| {
            let is_output = self.outputs.iter().any(|output| output.name == *name);
            self.inputs.contains_key(name) || self.scalars.contains_key(name) || is_output
        };
        tensors
            .find(|tensor| taken(&gradient_name(tensor)))
            .map(|tensor| {
                let name = gradient_name(tensor);
                format!("the gradient of `{tensor}` is named `{name}`: rename what has this name")
            })
    }

    /// Adds the gradients that a problem asks for to the operands of its forward call, for the
    /// inputs that the problem has.
    pub(super) fn differentiate(
        &self,
        problem: &DeclaredProblem,
        operands: &mut Operands,
    ) -> Result<(), String> {
        let direction = self.direction(problem);
        if !direction.has_backward() {
            return Ok(());
        }
        let mut gradients = Gradients {
            direction,
            by: self.gradients.clone(),
            given: Vec::new(),
        };
        gradients
            .by
            .retain(|name| !operands.left_out.contains(name));
        if gradients.by.is_empty() {
            return Err(format!(
                "{problem} leaves out each input that it is differentiated by"
            ));
        }
        let by = gradients.by.iter();
        let by = by.filter_map(|name| operands.inputs.iter().find(|one| one.name == *name));
        // A gradient cannot be more exact than the output with the widest tolerance.
        let outputs = operands.outputs.iter();
        let widest = outputs.map(|output| output.limit).fold(0.0, f64::max);
        let results: Vec<OutputTensor> = by
            .map(|input| {
                let dtype = input.dtype.real().unwrap_or(Dtype::F32);
                OutputTensor {
                    name: gradient_name(&input.name),
                    shape: input.shape.clone(),
                    dtype: dtype.into(),
                    limit: widest.max(limit(dtype, false, Direction::Backward)),
                    in_place: None,
                }
            })
            .collect();
        for output in &operands.outputs {
            let name = gradient_name(&output.name);
            gradients.given.push(name.clone());
            operands.inputs.push(InputTensor {
                name,
                shape: output.shape.clone(),
                dtype: output.dtype,
                draw: Draw {
                    kind: DrawKind::Normal,
                    arguments: vec![1.0],
                },
                role: Role::Data,
                scale: None,
                scales: None,
            });
        }
        if direction == Direction::Backward {
            operands.outputs.clear();
        }
        operands.outputs.extend(results);
        operands.gradients = Some(gradients);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Arguments;

    #[test]
    fn a_function_is_differentiated_or_takes_the_gradients_of_the_outputs() {
        let tensor = |name: &str| InputTensor {
            name: name.to_owned(),
            shape: vec![4],
            dtype: Dtype::F32.into(),
            draw: Draw {
                kind: DrawKind::Normal,
                arguments: vec![1.0],
            },
            role: Role::Data,
            scale: None,
            scales: None,
        };
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>()
        };
        let operands = Operands {
            inputs: ["x", "dout", "dstate"].map(tensor).to_vec(),
            gradients: Some(Gradients {
                direction: Direction::Backward,
                by: names(&["x"]),
                given: names(&["dout", "dstate"]),
            }),
            ..Operands::default()
        };
        let objection = |takes: &[&str], any: bool, differentiated: bool| {
            let arguments = Arguments {
                required: names(takes),
                any,
                differentiated,
                ..Arguments::default()
            };
            arguments.objection(&operands).unwrap_or_default()
        };
        assert_eq!(objection(&["x"], false, true), "");
        assert_eq!(objection(&["x"], true, true), "");
        assert_eq!(objection(&["x", "dout", "dstate"], false, false), "");
        let why = objection(&["x"], true, false);
        assert!(
            why.contains("NumPy and CuPy differentiate no function: add `dout, dstate`"),
            "{why}"
        );
        let why = objection(&["x", "dout"], false, true);
        assert!(why.contains("takes x, dout, and no `dstate`"), "{why}");
        let left_out = Operands {
            left_out: names(&["bias"]),
            ..operands.clone()
        };
        let takes = |names: Vec<String>| Arguments {
            required: names,
            differentiated: true,
            ..Arguments::default()
        };
        let linear = takes(names(&["x", "bias"]));
        assert_eq!(linear.objection(&left_out), None);
        assert_eq!(takes(names(&["x"])).objection(&left_out), None);
        let why = linear.objection(&operands).unwrap_or_default();
        assert!(why.contains("it takes an argument `bias`"), "{why}");
        let why = objection(&[], false, true);
        assert!(why.contains("takes nothing by name, and no `x`"), "{why}");
    }
}
