//! One argument of a kernel, as a contract lists it.

use super::expression::Expression;
use crate::plan::{Given, Pointer};

/// An argument: a tensor's address, the whole problem, a scale, or a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Problem,
    Pointer(Pointer),
    Scale(Number),
    Figure(Number, Expression),
}

/// Types that C has for a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Int,
    Unsigned,
    Long,
    Float,
    Double,
}

const TYPES: [(&str, Number); 5] = [
    ("int", Number::Int),
    ("unsigned", Number::Unsigned),
    ("long", Number::Long),
    ("float", Number::Float),
    ("double", Number::Double),
];

/// The whole problem.
const PROBLEM: &str = "problem";

/// What the scores are multiplied by.
const SCALE: &str = "scale";

/// True for a name that as an argument is something else than the figure of that name.
pub fn is_taken(name: &str) -> bool {
    let typed = TYPES.iter().any(|(word, _)| *word == name);
    typed || [PROBLEM, SCALE].contains(&name) || Pointer::named(name).is_some()
}

impl Argument {
    /// Reads `q`, `problem`, `scale`, `seq_q`, `long q.batch`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, known: &dyn Fn(&str) -> bool) -> Result<Argument, String> {
        let what = match (Pointer::named(text), text) {
            (Some(pointer), _) => What::Pointer(pointer),
            (None, PROBLEM) => What::Problem,
            (None, _) => number(text, known)?,
        };
        Ok(Argument { what })
    }

    /// True for what is there when gradients are asked for.
    pub fn needs_backward(&self) -> bool {
        matches!(self.what, What::Pointer(pointer) if pointer.is_of_backward())
    }

    /// What the kernel is given for one problem.
    ///
    /// # Errors
    /// A figure that its type does not hold, or that cannot be computed.
    pub fn given(&self, scale: f32, figure: &dyn Fn(&str) -> Option<i64>) -> Result<Given, String> {
        let (number, expression) = match &self.what {
            What::Problem => return Ok(Given::Problem),
            What::Pointer(pointer) => return Ok(Given::Pointer(*pointer)),
            What::Scale(Number::Double) => return Ok(Given::Double(scale.into())),
            What::Scale(_) => return Ok(Given::Float(scale)),
            What::Figure(number, expression) => (number, expression),
        };
        let value = expression.value(figure)?;
        let given = match number {
            Number::Int => i32::try_from(value).ok().map(Given::Int),
            Number::Unsigned => u32::try_from(value).ok().map(Given::Unsigned),
            Number::Long => Some(Given::Long(value)),
            Number::Float => Some(Given::Float(value as f32)),
            Number::Double => Some(Given::Double(value as f64)),
        };
        given.ok_or_else(|| {
            format!("`{expression}` is {value}, which its type does not hold; write `long ...`")
        })
    }
}

fn number(text: &str, known: &dyn Fn(&str) -> bool) -> Result<What, String> {
    let typed = TYPES.iter().find_map(|(word, number)| {
        let rest = text.strip_prefix(word)?;
        rest.starts_with(' ').then(|| (*number, rest.trim()))
    });
    match typed {
        None if text == SCALE => Ok(What::Scale(Number::Float)),
        Some((number @ (Number::Float | Number::Double), SCALE)) => Ok(What::Scale(number)),
        Some((_, SCALE)) => Err(format!("`{text}`: the scale is a `float` or a `double`")),
        found => {
            let (number, formula) = found.unwrap_or((Number::Int, text));
            let expression = Expression::parse(formula, known).map_err(|why| {
                format!(
                    "{why}; an argument is a tensor ({}), `problem`, `scale`, or a formula such \
                     as `seq_q` or `long q.batch`",
                    Pointer::ALL.map(Pointer::name).join(", ")
                )
            })?;
            Ok(What::Figure(number, expression))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> Result<Given, String> {
        let figure = |name: &str| match name {
            "seq_q" => Some(100),
            "q.batch" => Some(1 << 40),
            _ => None,
        };
        let known = |name: &str| figure(name).is_some();
        Argument::parse(text, &known)?.given(0.125, &figure)
    }

    #[test]
    fn what_does_not_fit_is_said() {
        for (text, words) in [
            ("q.batch", "write `long ...`"),
            ("unsigned 0 - seq_q", "-100"),
            ("int scale", "`float` or a `double`"),
            (
                "qq",
                "there is no `qq`; an argument is a tensor (q, k, v, out",
            ),
        ] {
            let error = given(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
