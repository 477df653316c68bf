//! Whole numbers that follow from a problem: `ceil_div(seq_q, 64) * heads`.

mod node;
mod parser;

use std::fmt;

use node::{Node, Relation, value};
use parser::Parser;

/// A formula in whole numbers: `+`, `-`, `*`, `/` (rounded towards zero), `%`, parentheses,
/// `min(a, b)`, `max(a, b)`, `ceil_div(a, b)`, and names of figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    text: String,
    root: Node,
}

/// Two formulas held beside each other: `seq_k <= 12288`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    text: String,
    left: Node,
    relation: Relation,
    right: Node,
}

impl Expression {
    /// Reads a formula, whose names are all `known`.
    ///
    /// # Errors
    /// What is wrong with it, with the text.
    pub fn parse(text: &str, known: &dyn Fn(&str) -> bool) -> Result<Expression, String> {
        let mut parser = Parser::new(text, known);
        let root = parser.whole().map_err(|why| format!("`{text}`: {why}"))?;
        Ok(Expression {
            text: text.to_owned(),
            root,
        })
    }

    /// Its value.
    ///
    /// # Errors
    /// A division by 0, or what 64 bits do not hold.
    pub fn value(&self, figure: &dyn Fn(&str) -> Option<i64>) -> Result<i64, String> {
        let found = value(&self.root, figure);
        found.map_err(|why| format!("`{self}`: {why}"))
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Condition {
    /// Reads a condition, whose names are all `known`.
    ///
    /// # Errors
    /// What is wrong with it, with the text.
    pub fn parse(text: &str, known: &dyn Fn(&str) -> bool) -> Result<Condition, String> {
        let mut parser = Parser::new(text, known);
        let (left, relation, right) = parser
            .condition()
            .map_err(|why| format!("`{text}`: {why}"))?;
        Ok(Condition {
            text: text.to_owned(),
            left,
            relation,
            right,
        })
    }

    /// Whether it holds.
    ///
    /// # Errors
    /// As [`Expression::value`].
    pub fn holds(&self, figure: &dyn Fn(&str) -> Option<i64>) -> Result<bool, String> {
        let side = |node| value(node, figure).map_err(|why| format!("`{self}`: {why}"));
        let (left, right) = (side(&self.left)?, side(&self.right)?);
        Ok(match self.relation {
            Relation::Equal => left == right,
            Relation::Unequal => left != right,
            Relation::Less => left < right,
            Relation::LessOrEqual => left <= right,
            Relation::Greater => left > right,
            Relation::GreaterOrEqual => left >= right,
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &str) -> Option<i64> {
        match name {
            "seq_q" => Some(130),
            "heads" => Some(4),
            "q.batch" => Some(1 << 40),
            _ => None,
        }
    }

    fn known(name: &str) -> bool {
        figure(name).is_some()
    }

    fn valued(text: &str) -> Result<i64, String> {
        Expression::parse(text, &known)?.value(&figure)
    }

    #[test]
    fn sums_products_and_functions() {
        for (text, expected) in [
            ("128", 128),
            ("2 + 3 * heads", 14),
            ("(2 + 3) * heads", 20),
            ("10 - 2 - 3", 5),
            ("-seq_q / 4", -32),
            ("seq_q % 64", 2),
            ("ceil_div(seq_q, 64)", 3),
            ("ceil_div(-seq_q, 64)", -2),
            ("min(heads, max(1, seq_q))", 4),
            ("q.batch * 2", 1 << 41),
            ("232_448", 232_448),
        ] {
            assert_eq!(valued(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for (text, words) in [
            ("", "missing at the end"),
            ("seq_q +", "missing at the end"),
            ("seq", "no `seq`"),
            ("(heads", "`)` is missing"),
            ("heads heads", "`h` is not understood"),
            ("min(heads)", "two figures"),
            ("heads $ 2", "`$`"),
            ("99999999999999999999", "too large"),
            ("heads == 4", "`=` is not understood"),
        ] {
            let error = valued(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
        assert!(valued(&"(".repeat(100_000)).unwrap_err().contains("nested"));
        let signs = valued(&"-".repeat(100_000)).unwrap_err();
        assert!(signs.contains("not understood"));
    }

    #[test]
    fn what_has_no_value_is_said() {
        assert!(valued("heads / 0").unwrap_err().contains("divides by 0"));
        assert!(
            valued("q.batch * q.batch")
                .unwrap_err()
                .contains("too large")
        );
    }

    #[test]
    fn conditions_hold_or_do_not() {
        let holds = |text: &str| Condition::parse(text, &known)?.holds(&figure);
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
}
