//! Inputs, scalars and outputs of a problem with every formula evaluated, as a worker gets them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::draw::Draw;
use super::gradients::Gradients;
use crate::case::Dtype;
use crate::words;

/// The tensors and numbers of one call of a declared operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Operands {
    /// The inputs of a call, by name.
    pub inputs: Vec<InputTensor>,
    /// Numbers that are passed to a call, by name.
    #[serde(default)]
    pub scalars: BTreeMap<String, f64>,
    /// The words that a call is given, by the names of their axes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub words: BTreeMap<String, String>,
    /// The outputs of a call, in the order in which they are returned.
    pub outputs: Vec<OutputTensor>,
    /// Optional inputs that the call leaves out. The argument is `None`, or not passed if it has a
    /// default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The gradients among the inputs and outputs. `None`: the call is forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradients: Option<Gradients>,
}

/// An input with its shape and draw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct InputTensor {
    /// The argument's name, which also determines its random stream.
    pub name: String,
    /// Extents; the last axis is contiguous.
    pub shape: Vec<u64>,
    /// Type of its elements.
    pub dtype: ElementType,
    /// The draw of its contents.
    pub draw: Draw<f64>,
    /// The role.
    #[serde(default)]
    pub role: Role,
    /// The scale of its values, which is an input of the call too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Box<InputTensor>>,
    /// The input that it scales, if its numbers are the `shared-exponent`s of that input's blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scales: Option<Box<InputTensor>>,
}

/// An output with its shape and limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct OutputTensor {
    /// The name.
    pub name: String,
    /// Extents.
    pub shape: Vec<u64>,
    /// Type of its elements.
    pub dtype: ElementType,
    /// The largest relative L2 error. 0: every element has to be equal.
    pub limit: f64,
    /// The state input into which a call writes this output, instead of returning it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place: Option<String>,
}

impl Operands {
    /// Bytes of all inputs and outputs, each once.
    pub fn bytes(&self) -> f64 {
        let size = |shape: &[u64]| shape.iter().map(|&extent| extent as f64).product::<f64>();
        let inputs = self.inputs.iter();
        let inputs = inputs.map(|input| size(&input.shape) * input.dtype.bytes() as f64);
        let outputs = self.outputs.iter();
        let outputs = outputs.map(|output| size(&output.shape) * output.dtype.bytes() as f64);
        inputs.chain(outputs).sum()
    }
}

words! {
    "role",
    /// The role of an input.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Role {
        /// Values that a call reads.
        #[default]
        Data = "data",
        /// Values that a call may change. They are restored before each call, outside of its time.
        State = "state",
        /// Whole numbers that say where to read: a page table, lengths.
        Index = "index",
        /// Scales of other inputs.
        Scale = "scale",
    }
}

words! {
    "type of elements",
    /// Type of a tensor's elements.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum ElementType {
        /// binary32.
        F32 = "f32",
        /// binary16.
        F16 = "f16",
        /// bfloat16.
        Bf16 = "bf16",
        /// 8-bit floats with four bits of exponent and three of mantissa, without infinities.
        E4m3 = "e4m3",
        /// 8-bit floats with five bits of exponent and two of mantissa. Inputs are finite.
        E5m2 = "e5m2",
        /// 8-bit powers of two, from 2⁻¹²⁷ to 2¹²⁷: scales.
        E8m0 = "e8m0",
        /// 8-bit whole numbers, from -127.
        I8 = "i8",
        /// 32-bit whole numbers.
        I32 = "i32",
        /// 64-bit whole numbers.
        I64 = "i64",
        /// True or false.
        Bool = "bool",
    }
}

impl ElementType {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            ElementType::E4m3
            | ElementType::E5m2
            | ElementType::E8m0
            | ElementType::I8
            | ElementType::Bool => 1,
            ElementType::F16 | ElementType::Bf16 => 2,
            ElementType::F32 | ElementType::I32 => 4,
            ElementType::I64 => 8,
        }
    }

    /// The problem type that this is, if results in it are real numbers.
    pub fn real(self) -> Option<Dtype> {
        match self {
            ElementType::F32 => Some(Dtype::F32),
            ElementType::F16 => Some(Dtype::F16),
            ElementType::Bf16 => Some(Dtype::Bf16),
            _ => None,
        }
    }

    /// True for a type whose values need a scale.
    pub fn is_narrow(self) -> bool {
        matches!(
            self,
            ElementType::E4m3 | ElementType::E5m2 | ElementType::I8
        )
    }

    /// True for whole numbers and booleans.
    pub fn is_whole(self) -> bool {
        matches!(
            self,
            ElementType::I8 | ElementType::I32 | ElementType::I64 | ElementType::Bool
        )
    }

    /// The extension of a file of results of this type, and its bytes for each element.
    pub fn written(self) -> (&'static str, u64) {
        if self.is_whole() {
            ("i64", 8)
        } else {
            ("f32", 4)
        }
    }

    /// The largest value.
    pub fn largest(self) -> f64 {
        match self {
            ElementType::F32 | ElementType::Bf16 => 3.38e38,
            ElementType::F16 => 65504.0,
            ElementType::E4m3 => 448.0,
            ElementType::E5m2 => 57344.0,
            ElementType::E8m0 => 1.702e38,
            ElementType::I8 => 127.0,
            ElementType::I32 => f64::from(i32::MAX),
            ElementType::I64 => 9e15,
            ElementType::Bool => 1.0,
        }
    }
}

impl From<Dtype> for ElementType {
    fn from(dtype: Dtype) -> ElementType {
        match dtype {
            Dtype::F32 => ElementType::F32,
            Dtype::F16 => ElementType::F16,
            Dtype::Bf16 => ElementType::Bf16,
        }
    }
}
