//! The draws of an input's contents: a closed list, with the same values in every language.
//!
//! An element is a pure function of the seed, the input's name and its index. SplitMix64 gives
//! words of 64 bits, which a draw transforms. `tests/vectors/draws.json` has elements of each draw.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::formula::Expression;
use crate::case::{Dtype, ParseError, refuse};
use crate::inputs::{self, GOLDEN, mixed};
use crate::joined::Joined;
use crate::words;

use super::operands::{ElementType, InputTensor};
use super::quantised;

/// A draw with its arguments: formulas in a declaration, numbers for a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Draw<T> {
    /// The kind of draw.
    pub kind: DrawKind,
    /// The arguments, including defaults for those that a declaration leaves out.
    pub arguments: Vec<T>,
}

words! {
    "draw",
    /// The kinds of draws.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub enum DrawKind {
        /// `normal(deviation = 1)`: the sum of eight uniform 16-bit numbers, less its mean, scaled
        /// to `deviation`. Its values are within 4.9 deviations.
        Normal = "normal",
        /// `uniform(low = -√3, high = √3)`.
        Uniform = "uniform",
        /// `sigmoid(gain = 1)`: `1 / (1 + exp(-gain normal))`, as for a gate.
        Sigmoid = "sigmoid",
        /// `log-decay(low = 0.005, high = 0.5)`: `-exp(uniform(ln low, ln high))`, the logarithm of
        /// a decay.
        LogDecay = "log-decay",
        /// `l2-normalised`: normal vectors along the last axis, each divided by its length.
        L2Normalised = "l2-normalised",
        /// `constant(value)`.
        Constant = "constant",
        /// `permutation(of = elements)`: the places of a permutation of the numbers from 0 to
        /// `of - 1`.
        Permutation = "permutation",
        /// `lengths(low, high)`: whole numbers evenly spaced from low to high, in random order.
        Lengths = "lengths",
        /// `integers(low, high)`: whole numbers from low to high with equal probability: labels,
        /// tokens, counts.
        Integers = "integers",
        /// `bernoulli(probability = 0.5)`: 1 with this probability, otherwise 0: a mask.
        Bernoulli = "bernoulli",
        /// `shared-exponent`: powers of two for blocks of the input that a scale of e8m0 scales:
        /// 2^(floor(log2(largest)) - emax), where `largest` is the block's largest absolute value
        /// as drawn, and `emax` the exponent of the largest number of its type: 8 for e4m3, 15 for
        /// e5m2, 6 for i8. At least 2⁻¹²⁷.
        SharedExponent = "shared-exponent",
    }
}

impl DrawKind {
    /// The minimum and maximum number of arguments.
    fn arity(self) -> (usize, usize) {
        match self {
            DrawKind::Normal | DrawKind::Sigmoid | DrawKind::Permutation | DrawKind::Bernoulli => {
                (0, 1)
            }
            DrawKind::Uniform | DrawKind::LogDecay => (0, 2),
            DrawKind::L2Normalised | DrawKind::SharedExponent => (0, 0),
            DrawKind::Constant => (1, 1),
            DrawKind::Lengths | DrawKind::Integers => (2, 2),
        }
    }

    /// The default type of an input with this draw. `None`: that of the problem.
    pub fn usual_type(self) -> Option<ElementType> {
        match self {
            DrawKind::Bernoulli => Some(ElementType::Bool),
            DrawKind::SharedExponent => Some(ElementType::E8m0),
            _ => self.is_whole().then_some(ElementType::I32),
        }
    }

    /// True for draws of whole numbers.
    pub fn is_whole(self) -> bool {
        matches!(
            self,
            DrawKind::Permutation | DrawKind::Lengths | DrawKind::Integers | DrawKind::Bernoulli
        )
    }
}

impl Draw<Expression> {
    /// The default draw of a scale, whose numbers follow from the input that it scales.
    pub fn open() -> Draw<Expression> {
        Draw {
            kind: DrawKind::Uniform,
            arguments: Vec::new(),
        }
    }

    /// The default draw of an input of this type.
    pub fn usual(dtype: Option<ElementType>) -> Draw<Expression> {
        let kind = match dtype {
            Some(ElementType::Bool) => DrawKind::Bernoulli,
            Some(ElementType::E8m0) => DrawKind::SharedExponent,
            _ => DrawKind::Normal,
        };
        Draw {
            kind,
            arguments: Vec::new(),
        }
    }
}

impl FromStr for Draw<Expression> {
    type Err = ParseError;

    /// Parses `normal`, `uniform(-1, 1)`, `permutation(pages)`.
    fn from_str(text: &str) -> Result<Draw<Expression>, ParseError> {
        let (name, arguments) = match text.split_once('(') {
            None => (text, Vec::new()),
            Some((name, rest)) => {
                let inner = rest.trim_end().strip_suffix(')').ok_or_else(|| {
                    ParseError::new(format!("`{text}` lacks its closing parenthesis"))
                })?;
                (name, split_arguments(inner))
            }
        };
        let kind: DrawKind = name.trim().parse()?;
        let (fewest, most) = kind.arity();
        if !(fewest..=most).contains(&arguments.len()) {
            let takes = match (fewest, most) {
                (0, 0) => "no argument".to_owned(),
                (a, b) if a == b => format!("{a} argument{}", if a == 1 { "" } else { "s" }),
                (a, b) => format!("{a} to {b} arguments"),
            };
            refuse!("`{kind}` takes {takes}");
        }
        let arguments = arguments.iter().map(|text| Expression::from_text(text));
        Ok(Draw {
            kind,
            arguments: arguments.collect(),
        })
    }
}

/// Splits a list at commas outside of parentheses.
pub fn split_arguments(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0i32);
    for c in text.chars() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        match (c, parts.last_mut()) {
            (',', _) if depth == 0 => parts.push(String::new()),
            (c, Some(part)) => part.push(c),
            (_, None) => {}
        }
    }
    parts.iter().map(|part| part.trim().to_owned()).collect()
}

impl<T: fmt::Display> fmt::Display for Draw<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        if self.arguments.is_empty() {
            return Ok(());
        }
        write!(f, "({})", self.arguments.iter().joined(", "))
    }
}

/// The largest absolute value of a normal draw of deviation 1.
const NORMAL_REACH: f64 = 4.899;

impl Draw<f64> {
    /// Fills in defaults for missing arguments, for a tensor of `elements` elements.
    ///
    /// # Errors
    /// With these arguments, an element would not be a finite number of its type.
    pub fn completed(mut self, elements: u64, dtype: ElementType) -> Result<Draw<f64>, ParseError> {
        let defaults: &[f64] = match self.kind {
            DrawKind::Normal | DrawKind::Sigmoid => &[1.0],
            DrawKind::Uniform => &[-1.732_050_807_568_877_2, 1.732_050_807_568_877_2],
            DrawKind::LogDecay => &[0.005, 0.5],
            DrawKind::Permutation => &[elements as f64],
            DrawKind::Bernoulli => &[0.5],
            DrawKind::L2Normalised
            | DrawKind::SharedExponent
            | DrawKind::Constant
            | DrawKind::Lengths
            | DrawKind::Integers => &[],
        };
        let given = self.arguments.len();
        self.arguments.extend(defaults.iter().skip(given));
        if let Some(wrong) = self.objection(elements) {
            refuse!("`{self}` {wrong}");
        }
        let of_any_type = matches!(self.kind, DrawKind::Constant | DrawKind::Bernoulli);
        if !of_any_type && self.kind.is_whole() != dtype.is_whole() {
            let fix = match dtype {
                ElementType::I8 => {
                    "name the input that multiplies its values, as in scale = \"x_scale\", or draw it \
                     by `integers`"
                }
                ElementType::Bool => "draw it by `bernoulli(probability)` or `constant`",
                _ if dtype.is_whole() => {
                    "draw it by `integers(low, high)`, `permutation`, `lengths`, `bernoulli` or \
                     `constant`"
                }
                _ => "give it dtype = \"i32\"",
            };
            refuse!("`{self}` does not draw {dtype}: {fix}");
        }
        if (self.kind == DrawKind::SharedExponent) != (dtype == ElementType::E8m0) {
            refuse!(
                "`{self}` does not draw {dtype}: `shared-exponent` draws e8m0, and nothing else does: \
                 leave the draw out"
            );
        }
        if dtype == ElementType::Bool && !self.arguments.iter().all(|one| (0.0..=1.0).contains(one))
        {
            refuse!("`{self}` does not draw bool, which is 0 and 1 alone");
        }
        if self.reach() > dtype.largest() {
            refuse!(
                "`{self}` draws numbers up to {:.3e}, and the largest {dtype} is {:.3e}",
                self.reach(),
                dtype.largest()
            );
        }
        Ok(self)
    }

    /// The largest absolute value of an element.
    pub(super) fn reach(&self) -> f64 {
        let largest = self.arguments.iter().fold(0.0f64, |a, b| a.max(b.abs()));
        match self.kind {
            DrawKind::Normal => NORMAL_REACH * largest,
            DrawKind::Sigmoid | DrawKind::L2Normalised | DrawKind::Bernoulli => 1.0,
            _ => largest,
        }
    }

    /// The reason for which the arguments give no number, as the end of a sentence.
    fn objection(&self, elements: u64) -> Option<String> {
        let arguments = &self.arguments[..];
        if arguments.iter().any(|number| !number.is_finite()) {
            return Some("has an argument that is not a finite number".to_owned());
        }
        let whole =
            |number: f64| number.fract() == 0.0 && (0.0..=4_294_967_295.0).contains(&number);
        let wrong = match (self.kind, arguments) {
            (DrawKind::LogDecay, &[low, high]) if !(0.0 < low && low <= high) => {
                "makes NaN: it needs 0 < low <= high"
            }
            (DrawKind::Normal | DrawKind::Sigmoid, &[factor]) if factor <= 0.0 => {
                "draws one number alone: give a factor above 0"
            }
            (DrawKind::Uniform, &[low, high]) if low >= high => "needs low < high",
            (DrawKind::Permutation, &[of]) if !(whole(of) && of >= elements as f64) => {
                return Some(format!(
                    "has to be of a whole number that is at least the {elements} elements drawn"
                ));
            }
            (DrawKind::Lengths, &[low, high]) if !(whole(low) && whole(high) && low <= high) => {
                "needs whole numbers, low <= high"
            }
            (DrawKind::Integers, &[low, high])
                if !(low.fract() == 0.0 && high.fract() == 0.0 && low < high) =>
            {
                "needs whole numbers, low < high"
            }
            (DrawKind::Bernoulli, &[probability]) if !(0.0 < probability && probability < 1.0) => {
                "draws one number alone: give a probability above 0 and below 1"
            }
            _ => return None,
        };
        Some(wrong.to_owned())
    }
}

/// The random stream of the input `name` in the set of `seed`: FNV-1a of the name, mixed with the
/// seed.
pub fn stream(seed: u64, name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mixed(seed ^ hash)
}

/// The random word `which` (0 or 1) of an element.
fn word(stream: u64, index: u64, which: u64) -> u64 {
    let counter = index.wrapping_mul(2).wrapping_add(which + 1);
    mixed(stream.wrapping_add(counter.wrapping_mul(GOLDEN)))
}

/// Uniform in `[0, 1)`.
fn unit(stream: u64, index: u64) -> f64 {
    (word(stream, index, 0) >> 11) as f64 / (1u64 << 53) as f64
}

/// Mean 0, variance 1: a sum of eight 16-bit numbers, which is exact in every language.
fn normal(stream: u64, index: u64) -> f64 {
    let fields = |word: u64| (0..4).map(|k| (word >> (16 * k)) & 0xffff).sum::<u64>();
    let sum = fields(word(stream, index, 0)) + fields(word(stream, index, 1));
    let deviation = (8.0 * (65536.0f64 * 65536.0 - 1.0) / 12.0).sqrt();
    (sum as f64 - 262_140.0) / deviation
}

/// The numbers in `0..of` sorted by their random words; equal words keep the order of the numbers.
fn permutation(stream: u64, of: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..of).collect();
    order.sort_by_key(|&index| (word(stream, index, 0), index));
    order
}

/// All elements of an input in the set of a seed, before scaling and rounding.
fn unscaled(input: &InputTensor, seed: u64) -> Vec<f64> {
    let stream = stream(seed, &input.name);
    let elements: u64 = input.shape.iter().product();
    let arguments = &input.draw.arguments;
    let each = |make: &dyn Fn(u64) -> f64| (0..elements).map(make).collect::<Vec<f64>>();
    let argument = |place: usize| arguments.get(place).copied().unwrap_or_default();
    match input.draw.kind {
        DrawKind::Normal => each(&|i| argument(0) * normal(stream, i)),
        DrawKind::Uniform => {
            let span = argument(1) - argument(0);
            each(&|i| argument(0) + span * unit(stream, i))
        }
        DrawKind::Sigmoid => each(&|i| 1.0 / (1.0 + (-argument(0) * normal(stream, i)).exp())),
        DrawKind::LogDecay => {
            let (low, high) = (argument(0).ln(), argument(1).ln());
            each(&|i| -(low + (high - low) * unit(stream, i)).exp())
        }
        DrawKind::L2Normalised => {
            let width = input.shape.last().copied().unwrap_or(1).max(1) as usize;
            let mut values = each(&|i| normal(stream, i));
            for vector in values.chunks_mut(width) {
                let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
                vector.iter_mut().for_each(|x| *x /= length);
            }
            values
        }
        DrawKind::Constant => vec![argument(0); elements as usize],
        DrawKind::Permutation => {
            let order = permutation(stream, argument(0) as u64);
            order
                .iter()
                .take(elements as usize)
                .map(|&x| x as f64)
                .collect()
        }
        DrawKind::Lengths => {
            let (low, high) = (argument(0) as u64, argument(1) as u64);
            let order = permutation(stream, elements);
            let length = |place: u64| match elements {
                1 => high,
                _ => low + place * (high - low) / (elements - 1),
            };
            order.iter().map(|&place| length(place) as f64).collect()
        }
        DrawKind::Integers => {
            let span = argument(1) - argument(0) + 1.0;
            each(&|i| argument(0) + (span * unit(stream, i)).floor())
        }
        DrawKind::Bernoulli => each(&|i| f64::from(unit(stream, i) < argument(0))),
        DrawKind::SharedExponent => input.scales.as_deref().map_or_else(Vec::new, |value| {
            quantised::shared_exponents(value, input, &unscaled(value, seed))
        }),
    }
}

/// All elements of an input in the set of a seed, rounded to its type.
pub fn values(input: &InputTensor, seed: u64) -> Vec<f64> {
    let scale = input.scale.as_deref();
    let scales = scale.map(|scale| (scale, self::values(scale, seed)));
    let divided = |(value, element): (f64, u64)| match &scales {
        None => value,
        Some((scale, by)) => value / by[quantised::block(input, scale, element)],
    };
    let rounded = |value: f64| match input.dtype {
        ElementType::F32 => inputs::rounded(value, Dtype::F32),
        ElementType::F16 => inputs::rounded(value, Dtype::F16),
        ElementType::Bf16 => inputs::rounded(value, Dtype::Bf16),
        ElementType::E4m3 | ElementType::E5m2 | ElementType::I8 => {
            quantised::rounded(value, input.dtype)
        }
        ElementType::E8m0 | ElementType::I32 | ElementType::I64 | ElementType::Bool => value,
    };
    let values = unscaled(input, seed).into_iter().zip(0..).map(divided);
    values.map(rounded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn input(draw: &str, shape: &[u64], dtype: ElementType) -> InputTensor {
        let draw: Draw<Expression> = draw.parse().unwrap();
        let arguments = draw.arguments.iter();
        let arguments = arguments.map(|argument| argument.to_string().parse().unwrap());
        let draw = Draw {
            kind: draw.kind,
            arguments: arguments.collect(),
        };
        InputTensor {
            name: "x".to_owned(),
            shape: shape.to_vec(),
            dtype,
            draw: draw.completed(shape.iter().product(), dtype).unwrap(),
            role: super::super::Role::Data,
            scale: None,
            scales: None,
        }
    }

    /// 8-bit values with a shared exponent for each block.
    fn microscaled_input(draw: &str, dtype: ElementType, blocks: &[u64]) -> InputTensor {
        let value = InputTensor {
            dtype,
            ..input(draw, &[2, 8], ElementType::F32)
        };
        let scale = InputTensor {
            name: "x_scale".to_owned(),
            scales: Some(Box::new(value.clone())),
            ..input("shared-exponent", blocks, ElementType::E8m0)
        };
        InputTensor {
            scale: Some(Box::new(scale)),
            ..value
        }
    }

    /// 8-bit values with a scale for each row or block.
    fn quantised_input(
        draw: &str,
        shape: &[u64],
        dtype: ElementType,
        blocks: &[u64],
    ) -> InputTensor {
        let scale = InputTensor {
            name: "x_scale".to_owned(),
            ..input("uniform(0.05, 0.2)", blocks, ElementType::F32)
        };
        InputTensor {
            dtype,
            scale: Some(Box::new(scale)),
            ..input(draw, shape, ElementType::F32)
        }
    }

    /// Elements of each draw, for other languages.
    fn vectors() -> Value {
        let float = ElementType::F32;
        let examples = [
            input("normal", &[3, 4], float),
            input("normal(0.25)", &[8], ElementType::Bf16),
            input("uniform", &[8], float),
            input("uniform(-2, 3)", &[8], ElementType::F16),
            input("sigmoid", &[8], float),
            input("log-decay", &[8], float),
            input("l2-normalised", &[3, 5], float),
            input("constant(0.1)", &[3], ElementType::Bf16),
            input("permutation", &[11], ElementType::I32),
            input("permutation(40)", &[2, 3], ElementType::I64),
            input("lengths(16, 100)", &[5], ElementType::I32),
            input("lengths(16, 100)", &[1], ElementType::I32),
            input("integers(-3, 5)", &[2, 5], ElementType::I64),
            input("integers(0, 9)", &[6], ElementType::I8),
            input("bernoulli", &[8], ElementType::Bool),
            input("bernoulli(0.9)", &[8], ElementType::I32),
            input("normal", &[8], ElementType::E4m3),
            input("normal", &[8], ElementType::E5m2),
            quantised_input("normal", &[3, 4], ElementType::I8, &[3, 1]),
            quantised_input("uniform(-2, 3)", &[4, 6], ElementType::E4m3, &[2, 3]),
            quantised_input("normal(0.01)", &[4, 6], ElementType::E5m2, &[2, 3]),
        ];
        let microscaled = [
            microscaled_input("normal", ElementType::E4m3, &[2, 2]),
            microscaled_input("normal(1e-39)", ElementType::E4m3, &[1, 2]),
            microscaled_input("normal(1e4)", ElementType::E5m2, &[2, 2]),
            microscaled_input("constant(0)", ElementType::E5m2, &[2, 1]),
            microscaled_input("uniform", ElementType::I8, &[2, 2]),
        ];
        let scales = microscaled.iter().filter_map(|one| one.scale.as_deref());
        let rows = examples
            .iter()
            .chain(scales)
            .chain(&microscaled)
            .flat_map(|input| {
                [0u64, 42].map(
                    |seed| json!({ "input": input, "seed": seed, "values": values(input, seed) }),
                )
            });
        Value::Array(rows.collect())
    }

    /// Set `REGATTA_WRITE_VECTORS=1` to write the file again.
    #[test]
    fn other_languages_draw_the_same() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/vectors/draws.json"
        );
        let text = serde_json::to_string_pretty(&vectors()).unwrap() + "\n";
        if std::env::var_os("REGATTA_WRITE_VECTORS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let there = std::fs::read_to_string(path).unwrap();
        assert!(
            there == text,
            "{path} has other draws: REGATTA_WRITE_VECTORS=1 cargo test -p regatta-worker"
        );
    }

    #[test]
    fn draws_have_the_moments_that_they_promise() {
        let input = input("normal", &[100_000], ElementType::F32);
        let values = values(&input, 7);
        let mean = values.iter().sum::<f64>() / 1e5;
        let variance = values.iter().map(|x| x * x).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.01, "{mean}");
        assert!((variance - 1.0).abs() < 0.02, "{variance}");
        assert!(values.iter().all(|x| x.abs() < NORMAL_REACH));
    }

    #[test]
    fn draws_that_make_no_numbers_are_refused() {
        let reason = |draw: &str, dtype| {
            let draw: Draw<Expression> = match draw.parse() {
                Ok(draw) => draw,
                Err(error) => return format!("{error}"),
            };
            let arguments = draw.arguments.iter();
            let arguments = arguments
                .map(|one| one.to_string().parse().unwrap())
                .collect();
            let draw: Draw<f64> = Draw {
                kind: draw.kind,
                arguments,
            };
            draw.completed(8, dtype).unwrap_err().to_string()
        };
        let float = ElementType::F32;
        assert!(reason("log-decay(0, 1)", float).contains("makes NaN"));
        assert!(reason("uniform(3, 1)", float).contains("needs low < high"));
        assert!(reason("normal(20000)", ElementType::F16).contains("the largest f16 is 6.550e4"));
        assert!(reason("normal", ElementType::I32).contains("draw it by `integers(low, high)`"));
        assert!(
            reason("normal", ElementType::Bool).contains("draw it by `bernoulli(probability)`")
        );
        assert!(reason("integers(0, 2)", ElementType::Bool).contains("which is 0 and 1 alone"));
        assert!(reason("integers(-1, 0)", ElementType::Bool).contains("which is 0 and 1 alone"));
        assert!(reason("integers(0, 0.5)", ElementType::I32).contains("needs whole numbers"));
        assert!(reason("bernoulli(1)", ElementType::Bool).contains("a probability above 0"));
        assert!(reason("normal", ElementType::I8).contains("as in scale = \"x_scale\""));
        assert!(reason("normal(200)", ElementType::E4m3).contains("the largest e4m3 is 4.480e2"));
        assert!(reason("permutation(4)", ElementType::I32).contains("at least the 8 elements"));
        assert!(reason("lengths(1, 2)", float).contains("give it dtype = \"i32\""));
        assert!(reason("lengths(1)", float).contains("takes 2 arguments"));
        assert!(reason("gauss", float).contains("is not a draw; use `normal`, `uniform`"));
        assert!(reason("normal(1", float).contains("closing parenthesis"));
    }
}
