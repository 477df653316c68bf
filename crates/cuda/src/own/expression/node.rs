//! What a formula is made of, and its value.

/// A part of a formula.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Number(i64),
    Name(String),
    Negative(Box<Node>),
    Of(Operator, Box<(Node, Node)>),
}

/// What is done with two figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Least,
    Most,
    CeilDivide,
}

/// How two figures are held beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The value of a part.
///
/// # Errors
/// As [`Expression::value`](super::Expression::value).
pub(super) fn value(node: &Node, figure: &dyn Fn(&str) -> Option<i64>) -> Result<i64, String> {
    let too_large = || "the value is too large".to_owned();
    match node {
        Node::Number(number) => Ok(*number),
        Node::Name(name) => figure(name).ok_or_else(|| format!("there is no `{name}` here")),
        Node::Negative(inner) => value(inner, figure)?.checked_neg().ok_or_else(too_large),
        Node::Of(operator, sides) => {
            let (a, b) = (value(&sides.0, figure)?, value(&sides.1, figure)?);
            let divides = matches!(
                operator,
                Operator::Divide | Operator::Remainder | Operator::CeilDivide
            );
            if divides && b == 0 {
                return Err("this divides by 0".to_owned());
            }
            let found = match operator {
                Operator::Add => a.checked_add(b),
                Operator::Subtract => a.checked_sub(b),
                Operator::Multiply => a.checked_mul(b),
                Operator::Divide => a.checked_div(b),
                Operator::Remainder => a.checked_rem(b),
                Operator::Least => Some(a.min(b)),
                Operator::Most => Some(a.max(b)),
                Operator::CeilDivide => ceil_div(a, b),
            };
            found.ok_or_else(too_large)
        }
    }
}

/// The quotient, rounded up.
fn ceil_div(a: i64, b: i64) -> Option<i64> {
    let (quotient, rest) = (a.checked_div(b)?, a.checked_rem(b)?);
    match rest != 0 && (rest > 0) == (b > 0) {
        true => quotient.checked_add(1),
        false => Some(quotient),
    }
}
