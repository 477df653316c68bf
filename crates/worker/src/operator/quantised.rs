//! Quantised inputs: whole numbers or narrow floats that are multiplied by a scale, which is an
//! input too.
//!
//! `value × scale` is the number that the value's draw gives, to the precision of its type. Each
//! extent of the scale is that of the value or divides it, so one number scales a block. A scale of
//! e8m0 follows from the values, as in OCP Microscaling Formats (MX) v1.0, whose blocks have 32
//! elements along the last axis.

use super::draw::{Draw, DrawKind};
use super::operands::{ElementType, InputTensor, Operands, Role};
use super::{Input, Operator};

/// The ratio of the largest to the smallest number of a scale, if a declaration does not give them.
/// With such a spread, a kernel that uses another row's scale has a large error.
const SPREAD: f64 = 4.0;

impl Operator {
    /// The key of a scale that is not valid, and the reason.
    pub fn objection_to_scale(&self) -> Option<(String, String)> {
        let scales = || self.inputs.values().filter_map(|one| one.scale.as_ref());
        let is_alone = |(name, input): &(&String, &Input)| {
            input.dtype == Some(ElementType::E8m0) && !scales().any(|scale| scale == *name)
        };
        if let Some((name, _)) = self.inputs.iter().find(is_alone) {
            let why = format!("e8m0 is of scales: name the input in another's scale = \"{name}\"");
            return Some((format!("inputs.{name}.dtype"), why));
        }
        let mut names: Vec<&String> = Vec::new();
        for (of, input) in &self.inputs {
            let Some(name) = &input.scale else { continue };
            let scale = self.inputs.get(name);
            let fits = |scale: &Input| {
                let fits = |one: ElementType| one.real().is_some() || one == ElementType::E8m0;
                scale.role == Role::Scale && scale.dtype.is_none_or(fits)
            };
            let is_narrow = input.dtype.is_some_and(ElementType::is_narrow);
            let why = if scale.is_none() {
                let inputs: Vec<&str> = self.inputs.keys().map(String::as_str).collect();
                format!("unknown input `{name}` (inputs: {})", inputs.join(", "))
            } else if names.contains(&name) {
                format!("`{name}` scales another input too: give each its own")
            } else if !is_narrow || input.draw.kind.is_whole() {
                "a scale is for real numbers in 8 bits: give it dtype = \"i8\", \"e4m3\" or \
                 \"e5m2\", and a draw of real numbers"
                    .to_owned()
            } else if !scale.is_some_and(fits) {
                format!("`{name}` has to be of f32, f16, bf16 or e8m0, and its role `scale`")
            } else {
                names.push(name);
                continue;
            };
            return Some((format!("inputs.{of}.scale"), why));
        }
        None
    }

    /// Gives each quantised input its scale. The scale's numbers follow from the input unless they
    /// are declared.
    pub(super) fn scale(&self, operands: &mut Operands) -> Result<(), (String, String)> {
        for (name, input) in &self.inputs {
            let place =
                |wanted: &String| operands.inputs.iter().position(|one| one.name == *wanted);
            let scale = input.scale.as_ref();
            let Some((scale, (at, of))) =
                scale.and_then(|scale| Some((scale, (place(name)?, place(scale)?))))
            else {
                continue;
            };
            let error = |why: String| Err((format!("inputs.{name}.scale"), why));
            let (value, mut by) = (&operands.inputs[at], operands.inputs[of].clone());
            let fits = |(extent, blocks): (&u64, &u64)| extent % blocks == 0;
            let mut axes = value.shape.iter().zip(&by.shape);
            if value.shape.len() != by.shape.len() || !axes.all(fits) {
                return error(format!(
                    "`{scale}` is of shape {:?}, and `{name}` of {:?}: give it as many axes, each \
                     as long or a part of it, such as 1",
                    by.shape, value.shape
                ));
            }
            if by.dtype == ElementType::E8m0 {
                by.scales = Some(Box::new(value.clone()));
                operands.inputs[of] = by.clone();
                operands.inputs[at].scale = Some(Box::new(by));
                continue;
            }
            let (reach, dtype) = (value.draw.reach(), value.dtype);
            let least = reach / dtype.largest();
            let draw = self.inputs.get(scale).map(|input| &input.draw);
            if draw.is_some_and(|draw| *draw == Draw::open()) {
                by.draw.arguments = vec![least, SPREAD * least];
            }
            let lowest = match by.draw.kind {
                DrawKind::Uniform | DrawKind::Constant => by.draw.arguments.first().copied(),
                _ => None,
            };
            if lowest.is_none_or(|lowest| lowest < least) {
                return error(format!(
                    "`{name}` is drawn up to {reach:.3e}, for which {dtype} needs a scale of \
                     {least:.3e} at the least, and `{scale}` is drawn by `{}`: leave out its draw, or \
                     draw it by `uniform(low, high)` or `constant(value)` of that size",
                    by.draw
                ));
            }
            operands.inputs[of] = by.clone();
            operands.inputs[at].scale = Some(Box::new(by));
        }
        Ok(())
    }
}

/// The index in `scale` of an element of `value`.
pub(super) fn block(value: &InputTensor, scale: &InputTensor, element: u64) -> usize {
    let (mut rest, mut stride, mut at) = (element, 1, 0);
    for (extent, blocks) in value.shape.iter().zip(&scale.shape).rev() {
        at += rest % extent / (extent / blocks) * stride;
        rest /= extent;
        stride *= blocks;
    }
    at as usize
}

/// The numbers of a scale of e8m0: for each block 2^(floor(log2(largest)) - emax), where `largest`
/// is the largest absolute value in the block as drawn, and `emax` the exponent of the largest
/// number of the scaled type: 8 for e4m3 and 15 for e5m2 (OCP Microscaling Formats v1.0, section
/// 6.3). A block of zeros has 2⁻¹²⁷, the smallest scale.
pub(super) fn shared_exponents(
    value: &InputTensor,
    scale: &InputTensor,
    drawn: &[f64],
) -> Vec<f64> {
    let blocks = scale.shape.iter().product::<u64>();
    let mut largest = vec![0.0f64; blocks as usize];
    for (number, element) in drawn.iter().zip(0..) {
        let of_block = &mut largest[block(value, scale, element)];
        *of_block = of_block.max(number.abs());
    }
    let shared = |largest: f64| exponent(largest) - exponent(value.dtype.largest());
    let largest = largest.into_iter();
    largest
        .map(|largest| 2f64.powi(shared(largest).clamp(-127, 127)))
        .collect()
}

/// The exponent of a number: floor(log2(|number|)). For 0 it is smaller than all others.
fn exponent(number: f64) -> i32 {
    ((number.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

/// Rounds a number to a narrow type, to nearest even, and clamps it to the type's range.
pub(super) fn rounded(value: f64, dtype: ElementType) -> f64 {
    // The bits after the leading one, and the exponent below which numbers are evenly spaced.
    let step = |bits: i32, least: i32| 2f64.powi(exponent(value).max(least) - bits);
    let step = match dtype {
        ElementType::E4m3 => step(3, -6),
        ElementType::E5m2 => step(2, -14),
        _ => 1.0,
    };
    let largest = dtype.largest();
    ((value / step).round_ties_even() * step).clamp(-largest, largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_types_round_to_nearest_even() {
        for (value, narrow) in [
            (0.0, 0.0),
            (1.0625, 1.0),
            (1.1875, 1.25),
            (-17.0, -16.0),
            (-17.1, -18.0),
            (447.0, 448.0),
            (1e6, 448.0),
            (0.001, 0.001_953_125),
            (0.000_9, 0.0),
            (0.0166, 0.017_578_125 - 0.001_953_125),
        ] {
            assert_eq!(rounded(value, ElementType::E4m3), narrow, "{value}");
        }
        for (value, narrow) in [
            (1.125, 1.0),
            (1.375, 1.5),
            (-18.1, -20.0),
            (53_249.0, 57_344.0),
            (1e6, 57_344.0),
            (1.6 * 2f64.powi(-16), 2f64.powi(-15)),
            (0.5 * 2f64.powi(-16), 0.0),
        ] {
            assert_eq!(rounded(value, ElementType::E5m2), narrow, "{value}");
        }
        for (value, narrow) in [(2.5, 2.0), (-3.5, -4.0), (126.6, 127.0), (-200.0, -127.0)] {
            assert_eq!(rounded(value, ElementType::I8), narrow, "{value}");
        }
    }
}
