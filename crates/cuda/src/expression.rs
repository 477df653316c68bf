//! Formulas of a launch contract: whole numbers that follow from a problem, such as
//! `ceil_div(seq_q, 64) * heads`, conditions on them, and arguments of kernels.
//!
//! The language is minijinja's, of which arithmetic and comparisons alone are let in. Division
//! rounds down.

use std::collections::HashSet;
use std::f32::consts::LOG2_E;
use std::fmt;
use std::sync::LazyLock;

use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use regatta_worker::attention::Problem;
use regatta_worker::words;
use serde::Deserialize;

use crate::argument::DeviceProblem;
use crate::contract::Numbers;
use crate::plan::{Given, Limits, Pointer};

static LANGUAGE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut language = Environment::empty();
    language.set_undefined_behavior(UndefinedBehavior::Strict);
    language.add_function("min", |a: i64, b: i64| a.min(b));
    language.add_function("max", |a: i64, b: i64| a.max(b));
    language.add_function("ceil_div", ceil_div);
    language.add_function("splits_that_fill", splits_that_fill);
    language
});

/// Names that a formula calls.
const FUNCTIONS: [&str; 4] = ["min", "max", "ceil_div", "splits_that_fill"];

/// Longest formula, in bytes: it bounds how deep one can be nested.
const MAX_FORMULA_BYTES: usize = 500;

const BY_ZERO: &str = "this divides by 0";

fn ceil_div(a: i64, b: i64) -> Result<i64, Error> {
    let (a, b) = (i128::from(a), i128::from(b));
    let rest = a.checked_rem_euclid(b).ok_or_else(|| invalid(BY_ZERO))?;
    let up = if b > 0 { i128::from(rest > 0) } else { 0 };
    i64::try_from(a.div_euclid(b) + up).map_err(|_| invalid("the value is too large"))
}

/// The fewest splits of each of so many tiles, up to `most`, whose last wave is at least 85 % as full
/// as the best's, on a device that holds so many blocks at once: each split more is another row of
/// workspace (FlashAttention's rule; see the head of `split_kv.cu`).
fn splits_that_fill(tiles: i64, slots: i64, most: i64) -> i64 {
    let fullness = |splits: i64| {
        let waves = splits as f64 * tiles as f64 / slots as f64;
        waves / waves.ceil()
    };
    let most = most.min(65_535);
    let best = (1..=most).map(fullness).fold(0.0, f64::max);
    let enough = (1..=most).find(|&splits| fullness(splits) >= 0.85 * best);
    enough.unwrap_or(1)
}

fn invalid(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

/// The figures of a problem on a device, and parameters, by the names that formulas have for
/// them.
///
/// Lengths count elements, also those of strides (`q.seq`); `mask_left` and `mask_right` are -1
/// where they are unbounded, and a query `i` sees a key `j` where
/// `band_low <= j - i <= band_high`.
#[derive(Clone)]
pub struct ProblemFigures(Value);

impl ProblemFigures {
    /// Those of a problem on a device, and further ones, which go before a figure of their name.
    pub fn new(problem: &Problem, limits: Limits, more: &Numbers) -> ProblemFigures {
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
        ProblemFigures(Value::from_pairs(figures))
    }

    /// Those of some problem, to read formulas by.
    pub fn example(more: &Numbers) -> ProblemFigures {
        let device = Limits {
            capability: (8, 0),
            sms: 1,
            l2_bytes: 1,
            shared_bytes: 1,
        };
        ProblemFigures::new(&Problem::new(1, 1), device, more)
    }

    /// The figure of this name; `None` for an unknown name.
    pub fn get(&self, name: &str) -> Option<i64> {
        let mut figures = self.0.clone();
        for part in name.split('.') {
            figures = figures
                .get_attr(part)
                .ok()
                .filter(|value| !value.is_undefined())?;
        }
        figures.as_i64()
    }
}

/// A formula in whole numbers: `+`, `-`, `*`, `/`, `%`, parentheses, `min(a, b)`, `max(a, b)`,
/// `ceil_div(a, b)`, and names of figures and parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a whole number or a formula in quotes")]
pub enum Expression {
    Number(i64),
    Formula(String),
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Number(number) => number.fmt(f),
            Expression::Formula(text) => text.fmt(f),
        }
    }
}

impl Expression {
    /// The value of the formula, a whole number.
    ///
    /// # Errors
    /// A division by 0, or what 64 bits do not hold, with the text.
    pub fn value(&self, figures: &ProblemFigures) -> Result<i64, String> {
        let value = self
            .evaluate(figures)
            .and_then(|value| match value.as_i64() {
                Some(number) if value.is_integer() => Ok(number),
                None if value.is_integer() => Err("the value is too large".to_owned()),
                _ => Err("this is not a whole number".to_owned()),
            });
        value.map_err(|why| format!("`{self}`: {why}"))
    }

    /// Returns true if the condition holds.
    ///
    /// # Errors
    /// As [`Expression::value`].
    pub fn holds(&self, figures: &ProblemFigures) -> Result<bool, String> {
        let value = self.evaluate(figures).and_then(|value| {
            let wrong = || "write a condition, such as `head_dim == 64`".to_owned();
            bool::try_from(value).map_err(|_| wrong())
        });
        value.map_err(|why| format!("`{self}`: {why}"))
    }

    /// Checks that the text is a formula, or a condition, of names that there are.
    ///
    /// # Errors
    /// The fault in it, with the text.
    pub fn check(&self, figures: &ProblemFigures, condition: bool) -> Result<(), String> {
        self.names()
            .and_then(|names| {
                let unknown = |name: &&String| figures.get(name).is_none();
                match names.iter().filter(unknown).min() {
                    Some(name) => Err(format!("unknown name `{name}`")),
                    None => Ok(()),
                }
            })
            .map_err(|why| format!("`{self}`: {why}"))?;
        // A formula without a value for the example may have one for another problem.
        if self.evaluate(figures).is_err() {
            return Ok(());
        }
        if condition {
            self.holds(figures).map(drop)
        } else {
            self.value(figures).map(drop)
        }
    }

    /// The text in the language's form, or the first character that a formula cannot have.
    fn source(&self) -> Result<String, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || " _.,()+-*/%<>=!".contains(c);
        let text = self.to_string();
        if let Some(other) = text.chars().find(|c| !plain(*c)) {
            return Err(format!("`{other}` is not understood here"));
        }
        if text.len() <= MAX_FORMULA_BYTES {
            Ok(text.replace('/', "//"))
        } else {
            Err(format!(
                "a formula is nested or longer than {MAX_FORMULA_BYTES} characters"
            ))
        }
    }

    fn names(&self) -> Result<HashSet<String>, String> {
        let source = self.source()?;
        let compiled = LANGUAGE
            .compile_expression(&source)
            .map_err(|error| reason(&error))?;
        let mut names = compiled.undeclared_variables(true);
        names.retain(|name| !FUNCTIONS.contains(&name.as_str()));
        Ok(names)
    }

    fn evaluate(&self, figures: &ProblemFigures) -> Result<Value, String> {
        let source = self.source()?;
        let compiled = LANGUAGE.compile_expression(&source);
        let value = compiled.and_then(|compiled| compiled.eval(figures.0.clone()));
        value.map_err(|error| reason(&error))
    }
}

/// The words of an error, without its place in the one line.
fn reason(error: &Error) -> String {
    let detail = error.detail().unwrap_or_default();
    match error.kind() {
        ErrorKind::InvalidOperation if detail.ends_with("// 0") || detail.ends_with("% 0") => {
            BY_ZERO.to_owned()
        }
        ErrorKind::InvalidOperation if detail.starts_with("unable to") => {
            "the value is too large".to_owned()
        }
        kind if detail.is_empty() => kind.to_string(),
        _ => detail.to_owned(),
    }
}

/// An argument of a kernel: a tensor's address, the whole problem, a scale, or a figure.
#[derive(Clone, Debug)]
pub enum Argument {
    Problem,
    Pointer(Pointer),
    Scale(NumberType),
    /// The scale times log2(e), a `float`.
    ScaleLog2,
    /// A tensor map, and the rows of a box.
    Map(Pointer, Expression),
    Figure(NumberType, Expression),
}

/// Types that C has for a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberType {
    Int,
    Unsigned,
    Long,
    Float,
    Double,
}

words!(
    NumberType,
    "type",
    Int = "int",
    Unsigned = "unsigned",
    Long = "long",
    Float = "float",
    Double = "double"
);

/// The whole problem.
const PROBLEM: &str = "problem";

/// The factor of the scores, and the same for powers of two.
const SCALE: &str = "scale";
const SCALE_LOG2: &str = "scale_log2";

/// A tensor map: `map q 64`.
const MAP: &str = "map ";

/// True for a name that means something else than a parameter, as an argument or in a formula.
pub fn is_taken(name: &str) -> bool {
    [PROBLEM, SCALE, SCALE_LOG2].contains(&name)
        || FUNCTIONS.contains(&name)
        || name.parse::<NumberType>().is_ok()
        || name.parse::<Pointer>().is_ok()
}

impl Argument {
    /// Reads `q`, `problem`, `scale`, `seq_q`, `long q.batch`.
    ///
    /// # Errors
    /// The fault in it.
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

    /// Checks its formula and that its tensor is there.
    ///
    /// # Errors
    /// The fault in it.
    pub fn check(&self, figures: &ProblemFigures, backward: bool) -> Result<(), String> {
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

    /// The value that a kernel is given for one problem, whose scores are multiplied by `scale`.
    ///
    /// # Errors
    /// A figure that its type does not hold, or that cannot be computed.
    pub fn given(&self, scale: f32, figures: &ProblemFigures) -> Result<Given, String> {
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

    fn figures() -> ProblemFigures {
        let huge = Numbers::from([("huge".to_owned(), 1 << 40)]);
        let device = Limits {
            capability: (9, 0),
            sms: 132,
            l2_bytes: 60 << 20,
            shared_bytes: 232_448,
        };
        ProblemFigures::new(&"h4,s130,d8".parse().unwrap(), device, &huge)
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
            ("seq", "no `seq`"),
            ("q.sequence", "no `q.sequence`"),
            ("q", "no `q`"),
            ("(heads", "unexpected end"),
            ("heads heads", "unexpected input"),
            ("min(heads)", "missing"),
            ("heads $ 2", "`$`"),
            ("\"a\" * 2", "`\"`"),
            ("99999999999999999999", "too large"),
            ("1.5", "no whole number"),
            ("heads == 4", "no whole number"),
        ] {
            let error = valued(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
        for repeated in ["(", "-"] {
            let deep = |times| valued(&repeated.repeat(times)).unwrap_err();
            assert!(deep(100_000).contains("nested"));
            assert!(!deep(MAX_FORMULA_BYTES).is_empty());
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
