//! Formulas of operators and of CUDA launch contracts: `ceil_div(seq_q, 64) * heads`.
//!
//! The language is a subset of minijinja's: only arithmetic and comparisons. Division rounds down,
//! except in the formula of a real number.

use std::collections::HashSet;
use std::fmt;
use std::sync::LazyLock;

use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use serde::{Deserialize, Serialize};

static LANGUAGE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut language = Environment::empty();
    language.set_undefined_behavior(UndefinedBehavior::Strict);
    language.add_function("min", |a: i64, b: i64| a.min(b));
    language.add_function("max", |a: i64, b: i64| a.max(b));
    language.add_function("ceil_div", ceil_div);
    language.add_function("splits_that_fill", splits_that_fill);
    language.add_function("sqrt", |number: f64| number.sqrt());
    language
});

/// Functions that a formula may call.
pub const FUNCTIONS: [&str; 5] = ["min", "max", "ceil_div", "splits_that_fill", "sqrt"];

/// The longest formula, in bytes. It bounds the depth of nesting.
const LONGEST: usize = 500;

const BY_ZERO: &str = "this divides by 0";

fn ceil_div(a: i64, b: i64) -> Result<i64, Error> {
    let (a, b) = (i128::from(a), i128::from(b));
    let rest = a.checked_rem_euclid(b).ok_or_else(|| invalid(BY_ZERO))?;
    let up = if b > 0 { i128::from(rest > 0) } else { 0 };
    i64::try_from(a.div_euclid(b) + up).map_err(|_| invalid("the value is too large"))
}

/// The smallest number of splits of each of `tiles` tiles, up to `most`, whose last wave is at
/// least 85 % as full as with the best number. `slots` is the number of blocks that the device
/// holds at the same time. Each further split is another row of workspace (see the head of
/// `split_kv.cu`).
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

/// The numbers that formulas can name.
#[derive(Clone, Debug)]
pub struct Figures(Value);

impl Figures {
    /// Numbers, or groups of numbers, by name.
    pub fn new(figures: impl IntoIterator<Item = (String, Value)>) -> Figures {
        Figures(Value::from_pairs(figures))
    }

    /// The number with this name; `None` if the name is unknown.
    pub fn get(&self, name: &str) -> Option<i64> {
        let mut figure = self.0.clone();
        for part in name.split('.') {
            figure = figure
                .get_attr(part)
                .ok()
                .filter(|value| !value.is_undefined())?;
        }
        figure.as_i64()
    }
}

/// A formula: `+`, `-`, `*`, `/`, `%`, parentheses, `min(a, b)`, `max(a, b)`, `ceil_div(a, b)`, and
/// names of figures and parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "expected a number or a formula in quotes")]
pub enum Expression {
    /// A whole number.
    Number(i64),
    /// A real number.
    Real(f64),
    /// A formula as text.
    Formula(String),
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Number(number) => number.fmt(f),
            Expression::Real(number) => number.fmt(f),
            Expression::Formula(text) => text.fmt(f),
        }
    }
}

impl Expression {
    /// Parses a number; any other text becomes a formula.
    pub fn from_text(text: &str) -> Expression {
        let whole = text.parse().map(Expression::Number).ok();
        let number = whole.or_else(|| text.parse().map(Expression::Real).ok());
        number.unwrap_or_else(|| Expression::Formula(text.to_owned()))
    }

    /// The formula's value, which must be a whole number.
    ///
    /// # Errors
    /// A division by 0, or a value beyond 64 bits; with the text.
    pub fn value(&self, figures: &Figures) -> Result<i64, String> {
        let value = self
            .evaluate(figures, false)
            .and_then(|value| match value.as_i64() {
                Some(number) if value.is_integer() => Ok(number),
                None if value.is_integer() => Err("the value is too large".to_owned()),
                _ => Err("this is not a whole number".to_owned()),
            });
        value.map_err(|why| format!("`{self}`: {why}"))
    }

    /// The formula's value as a real number: `/` does not round.
    ///
    /// # Errors
    /// As [`Expression::value`], or the value is not finite.
    pub fn real(&self, figures: &Figures) -> Result<f64, String> {
        let value = self.evaluate(figures, true).and_then(|value| {
            let number = f64::try_from(value).map_err(|_| "this is not a number".to_owned())?;
            let finite = Some(number).filter(|number| number.is_finite());
            finite.ok_or_else(|| "this is not a finite number".to_owned())
        });
        value.map_err(|why| format!("`{self}`: {why}"))
    }

    /// True if the condition holds.
    ///
    /// # Errors
    /// As [`Expression::value`].
    pub fn holds(&self, figures: &Figures) -> Result<bool, String> {
        let value = self.evaluate(figures, false).and_then(|value| {
            let wrong = || "write a condition, such as `head_dim == 64`".to_owned();
            bool::try_from(value).map_err(|_| wrong())
        });
        value.map_err(|why| format!("`{self}`: {why}"))
    }

    /// Checks that the text is a formula, or a condition, and that all names in it are known.
    ///
    /// # Errors
    /// The fault, with the text.
    pub fn check(&self, figures: &Figures, condition: bool) -> Result<(), String> {
        self.unknown_name(figures)
            .and_then(|unknown| match unknown {
                Some(name) => Err(format!("unknown name `{name}`")),
                None => Ok(()),
            })
            .map_err(|why| format!("`{self}`: {why}"))?;
        // A formula may have no value for the example, and one for another problem.
        if self.evaluate(figures, false).is_err() {
            return Ok(());
        }
        if condition {
            self.holds(figures).map(drop)
        } else {
            self.value(figures).map(drop)
        }
    }

    /// The first name in it, alphabetically, that `figures` do not have.
    ///
    /// # Errors
    /// The text is not a formula; with the reason.
    pub fn unknown_name(&self, figures: &Figures) -> Result<Option<String>, String> {
        let names = self.names()?;
        let unknown = names.into_iter().filter(|name| figures.get(name).is_none());
        Ok(unknown.min())
    }

    /// The formula in minijinja's syntax, or the first character that is not allowed.
    fn source(&self, real: bool) -> Result<String, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || " _.,()+-*/%<>=!".contains(c);
        let text = self.to_string();
        if let Some(other) = text.chars().find(|c| !plain(*c)) {
            return Err(format!("`{other}` is not understood here"));
        }
        if text.len() > LONGEST {
            return Err(format!(
                "a formula is nested or longer than {LONGEST} characters"
            ));
        }
        // `//` rounds down in both kinds of formula, as in Python.
        let rounded = || text.replace("//", "/").replace('/', "//");
        Ok(if real { text } else { rounded() })
    }

    fn names(&self) -> Result<HashSet<String>, String> {
        // A number may have more digits than minijinja reads.
        let Expression::Formula(_) = self else {
            return Ok(HashSet::new());
        };
        let source = self.source(false)?;
        let compiled = LANGUAGE
            .compile_expression(&source)
            .map_err(|error| reason(&error))?;
        let mut names = compiled.undeclared_variables(true);
        names.retain(|name| !FUNCTIONS.contains(&name.as_str()));
        Ok(names)
    }

    fn evaluate(&self, figures: &Figures, real: bool) -> Result<Value, String> {
        match self {
            Expression::Number(number) => return Ok(Value::from(*number)),
            Expression::Real(number) => return Ok(Value::from(*number)),
            Expression::Formula(_) => {}
        }
        let source = self.source(real)?;
        let compiled = LANGUAGE.compile_expression(&source);
        let value = compiled.and_then(|compiled| compiled.eval(figures.0.clone()));
        value.map_err(|error| reason(&error))
    }
}

/// The text of an error, without its position in the single line.
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
