//! Formulas of a launch contract: whole numbers that depend on a problem, such as
//! `ceil_div(seq_q, 64) * heads`, conditions on them, and arguments of kernels.
//!
//! The language is that of [`formula`](regatta_worker::operator::formula).

use std::f32::consts::LOG2_E;

use minijinja::Value;
use regatta_worker::attention::Attention;
use regatta_worker::operator::formula::FUNCTIONS;
pub use regatta_worker::operator::formula::{Expression, Figures};
use regatta_worker::words;

use crate::argument::DeviceProblem;
use crate::contract::Numbers;
use crate::plan::{Given, Limits, Pointer};

/// The numbers of a problem on a device, by their names in formulas, and `more` numbers, such as
/// parameters, which take precedence.
///
/// Lengths and strides (`q.seq`) are in elements. `mask_left` and `mask_right` are -1 if unbounded,
/// and a query `i` sees a key `j` if `band_low <= j - i <= band_high`.
pub fn problem_figures(problem: &Attention, limits: Limits, more: &Numbers) -> Figures {
    let p = DeviceProblem::sized(problem, 1);
    let (low, high) = p.band();
    let device = [
        ("sms", limits.sms.into()),
        ("l2_bytes", limits.l2_bytes),
        ("block_shared_bytes", limits.shared_bytes.into()),
    ];
    let numbers = [
        ("batch", p.batch),
        ("heads", p.heads),
        ("kv_heads", p.kv_heads),
        ("seq_q", p.seq_q),
        ("seq_k", p.seq_k),
        ("head_dim", p.head_dim),
        ("head_dim_v", p.head_dim_v),
        ("mask_left", p.mask_left),
        ("mask_right", p.mask_right),
        ("mask_bottom_right", p.mask_align),
        ("band_low", low),
        ("band_high", high),
        ("element_bytes", problem.dtype.bytes() as i32),
        ("backward", problem.direction.has_backward().into()),
    ];
    let tensors = Pointer::TENSORS.into_iter().zip(p.tensors);
    let strides = tensors.map(|(pointer, tensor)| {
        let axes = [
            ("batch", tensor.batch),
            ("seq", tensor.seq),
            ("head", tensor.head),
        ];
        (pointer.name(), Value::from_pairs(axes))
    });
    let numbers = numbers.map(|(name, number)| (name, Value::from(number)));
    let device = device.map(|(name, number)| (name, Value::from(number)));
    let more = more.iter();
    let more = more.map(|(name, value)| (name.as_str(), Value::from(*value)));
    let figures = numbers.into_iter().chain(device).chain(strides).chain(more);
    let figures = figures.map(|(name, value)| (name.to_owned(), value));
    Figures::new(figures)
}

/// The numbers of an example problem, with which formulas are checked.
pub fn example_figures(more: &Numbers) -> Figures {
    let device = Limits {
        capability: (8, 0),
        sms: 1,
        l2_bytes: 1,
        shared_bytes: 1,
    };
    problem_figures(&Attention::new(1, 1), device, more)
}

/// An argument of a kernel: a tensor's address, the whole problem, a scale, or a number.
#[derive(Clone, Debug)]
pub enum Argument {
    Problem,
    Pointer(Pointer),
    Scale(NumberType),
    /// The scale times log2(e), a `float`.
    ScaleLog2,
    /// A tensor map, and the number of rows in a box.
    Map(Pointer, Expression),
    Figure(NumberType, Expression),
}

words! {
    "type",
    /// The C type of a number.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NumberType {
        Int = "int",
        Unsigned = "unsigned",
        Long = "long",
        Float = "float",
        Double = "double",
    }
}

/// The whole problem.
const PROBLEM: &str = "problem";

/// The factor of the scores, and the factor for powers of two.
const SCALE: &str = "scale";
const SCALE_LOG2: &str = "scale_log2";

/// A tensor map: `map q 64`.
const MAP: &str = "map ";

/// True for a name that means something other than a parameter in an argument or a formula.
pub fn is_taken(name: &str) -> bool {
    [PROBLEM, SCALE, SCALE_LOG2].contains(&name)
        || FUNCTIONS.contains(&name)
        || name.parse::<NumberType>().is_ok()
        || name.parse::<Pointer>().is_ok()
}

impl Argument {
    /// Parses `q`, `problem`, `scale`, `seq_q`, `long q.batch`.
    ///
    /// # Errors
    /// The fault in the text.
    pub fn parse(text: &str) -> Result<Argument, String> {
        if let Ok(pointer) = text.parse() {
            return Ok(Argument::Pointer(pointer));
        }
        if let Some((of, rows)) = text.strip_prefix(MAP).and_then(|map| map.split_once(' ')) {
            let pointer = of.parse().map_err(|error| format!("`{text}`: {error}"))?;
            return Ok(Argument::Map(pointer, Expression::Formula(rows.to_owned())));
        }
        let typed = text.split_once(' ');
        let typed = typed.and_then(|(word, rest)| Some((word.parse().ok()?, rest.trim())));
        match typed {
            None if text == PROBLEM => Ok(Argument::Problem),
            None if text == SCALE => Ok(Argument::Scale(NumberType::Float)),
            None if text == SCALE_LOG2 => Ok(Argument::ScaleLog2),
            Some((number @ (NumberType::Float | NumberType::Double), SCALE)) => {
                Ok(Argument::Scale(number))
            }
            Some((_, SCALE)) => Err(format!("`{text}`: the scale is a `float` or a `double`")),
            found => {
                let (number, formula) = found.unwrap_or((NumberType::Int, text));
                Ok(Argument::Figure(
                    number,
                    Expression::Formula(formula.to_owned()),
                ))
            }
        }
    }

    /// Checks its formula, and that its tensor exists.
    ///
    /// # Errors
    /// The fault in the argument.
    pub fn check(&self, figures: &Figures, backward: bool) -> Result<(), String> {
        match self {
            Argument::Pointer(pointer) if pointer.is_of_backward() && !backward => {
                Err(format!("`{}` is there in `backward` alone", pointer.name()))
            }
            Argument::Figure(_, formula) | Argument::Map(_, formula) => formula.check(figures, false).map_err(|why| {
                format!(
                    "{why}; an argument is a tensor ({}), `problem`, `scale`, or a formula such \
                     as `seq_q` or `long q.batch`",
                    Pointer::ALL.map(Pointer::name).join(", ")
                )
            }),
            _ => Ok(()),
        }
    }

    /// The value that a kernel gets for a problem whose scores are multiplied by `scale`.
    ///
    /// # Errors
    /// A number does not fit its type, or cannot be computed.
    pub fn given(&self, scale: f32, figures: &Figures) -> Result<Given, String> {
        let (number, expression) = match self {
            Argument::Problem => return Ok(Given::Problem),
            Argument::Pointer(pointer) => return Ok(Given::Pointer(*pointer)),
            Argument::Scale(NumberType::Double) => return Ok(Given::Double(scale.into())),
            Argument::Scale(_) => return Ok(Given::Float(scale)),
            Argument::ScaleLog2 => return Ok(Given::Float(scale * LOG2_E)),
            Argument::Map(of, rows) => {
                let rows = rows.value(figures)?;
                let rows = u32::try_from(rows).map_err(|_| format!("a box of {rows} rows"))?;
                return Ok(Given::Map(*of, rows));
            }
            Argument::Figure(number, expression) => (number, expression),
        };
        let value = expression.value(figures)?;
        let given = match number {
            NumberType::Int => i32::try_from(value).ok().map(Given::Int),
            NumberType::Unsigned => u32::try_from(value).ok().map(Given::Unsigned),
            NumberType::Long => Some(Given::Long(value)),
            NumberType::Float => Some(Given::Float(value as f32)),
            NumberType::Double => Some(Given::Double(value as f64)),
        };
        given.ok_or_else(|| {
            format!("`{expression}` is {value}, which its type does not hold; write `long ...`")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        let huge = Numbers::from([("huge".to_owned(), 1 << 40)]);
        let device = Limits {
            capability: (9, 0),
            sms: 132,
            l2_bytes: 60 << 20,
            shared_bytes: 232_448,
        };
        problem_figures(&"h4,s130,d8".parse().unwrap(), device, &huge)
    }

    fn valued(text: &str) -> Result<i64, String> {
        let expression = Expression::Formula(text.to_owned());
        expression.check(&figures(), false)?;
        expression.value(&figures())
    }

    #[test]
    fn sums_products_and_functions() {
        for (text, expected) in [
            ("128", 128),
            ("2 + 3 * heads", 14),
            ("(2 + 3) * heads", 20),
            ("10 - 2 - 3", 5),
            ("seq_q / 4", 32),
            ("-seq_q / 4", -33),
            ("seq_q % 64", 2),
            ("ceil_div(seq_q, 64)", 3),
            ("ceil_div(-seq_q, 64)", -2),
            ("ceil_div(seq_q, -64)", -2),
            ("min(heads, max(1, seq_q))", 4),
            ("q.seq * 2", 64),
            ("huge * 2", 1 << 41),
            ("232_448", 232_448),
        ] {
            assert_eq!(valued(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for (text, words) in [
            ("", "unexpected end"),
            ("seq_q +", "unexpected end"),
            ("seq", "unknown name `seq`"),
            ("q.sequence", "unknown name `q.sequence`"),
            ("q", "unknown name `q`"),
            ("(heads", "unexpected end"),
            ("heads heads", "unexpected input"),
            ("min(heads)", "missing"),
            ("heads $ 2", "`$`"),
            ("\"a\" * 2", "`\"`"),
            ("99999999999999999999", "too large"),
            ("1.5", "not a whole number"),
            ("heads == 4", "not a whole number"),
        ] {
            let error = valued(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
        for repeated in ["(", "-"] {
            let deep = |times| valued(&repeated.repeat(times)).unwrap_err();
            assert!(deep(100_000).contains("nested"));
            assert!(!deep(500).is_empty());
        }
    }

    #[test]
    fn what_has_no_value_is_said() {
        for (text, words) in [
            ("heads / 0", "divides by 0"),
            ("heads % (heads - 4)", "divides by 0"),
            ("ceil_div(heads, 0)", "divides by 0"),
            ("huge * huge", "too large"),
            ("huge * huge * huge * huge", "too large"),
        ] {
            let error = valued(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn conditions_hold_or_do_not() {
        let holds = |text: &str| {
            let condition = Expression::Formula(text.to_owned());
            condition.check(&figures(), true)?;
            condition.holds(&figures())
        };
        for (text, expected) in [
            ("heads == 4", true),
            ("heads != 4", false),
            ("seq_q % 64 == 0", false),
            ("seq_q <= 130", true),
            ("seq_q < 130", false),
            ("seq_q >= 131", false),
            ("seq_q > heads * 2", true),
        ] {
            assert_eq!(holds(text), Ok(expected), "{text}");
        }
        for text in [
            "heads",
            "heads = 4",
            "heads ! 4",
            "heads == ",
            "heads == 4 5",
        ] {
            assert!(holds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_no_argument_can_be_is_said() {
        for (text, words) in [
            ("huge", "write `long ...`"),
            ("unsigned 0 - seq_q", "-130"),
            ("int scale", "`float` or a `double`"),
            (
                "qq",
                "unknown name `qq`; an argument is a tensor (q, k, v, out",
            ),
            ("dq", "in `backward` alone"),
        ] {
            let given = Argument::parse(text).and_then(|argument| {
                argument.check(&figures(), false)?;
                argument.given(0.125, &figures())
            });
            let error = given.unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
