//! The axes of a sweep: lists of values that multiply into problems.

use std::collections::BTreeMap;

use super::document::{DocumentError, Table, Value};
use crate::attention::{
    Direction, Dtype, LONGEST_AXIS, Layout, Mask, ParseError, Problem, Projection, ProjectionKind,
    Varlen,
};

/// The axes a sweep or a shape may set. `seq` sets `seq_q` and `seq_k` alike.
pub const AXES: [&str; 16] = [
    "batch",
    "heads",
    "kv_heads",
    "seq",
    "seq_q",
    "seq_k",
    "head_dim",
    "head_dim_v",
    "varlen",
    "dtype",
    "mask",
    "layout",
    "direction",
    "projection",
    "hidden",
    "ranks",
];

/// More cases than these are a slip of the pen.
pub const MOST_CASES: usize = 100_000;

/// Values of some axes, as text.
pub type Point = BTreeMap<&'static str, String>;

/// Lists of values by what they are values of; their product is made last, once it is known
/// how large it is.
pub struct Lists<K>(Vec<(K, Vec<String>)>);

impl<K: Clone + Ord> Lists<K> {
    /// No list: the product is one empty point.
    pub fn new() -> Lists<K> {
        Lists(Vec::new())
    }

    /// Adds a list.
    pub fn push(&mut self, key: K, values: Vec<String>) {
        self.0.push((key, values));
    }

    /// How many points the product has.
    pub fn len(&self) -> usize {
        let lengths = self.0.iter().map(|(_, values)| values.len());
        lengths.fold(1, usize::saturating_mul)
    }

    /// The product.
    pub fn points(&self) -> Vec<BTreeMap<K, String>> {
        self.0
            .iter()
            .fold(vec![BTreeMap::new()], |points, (key, values)| {
                let with = |point: &BTreeMap<K, String>, value: &String| {
                    let mut point = point.clone();
                    point.insert(key.clone(), value.clone());
                    point
                };
                let longer = points
                    .iter()
                    .flat_map(|point| values.iter().map(|value| with(point, value)));
                longer.collect()
            })
    }
}

/// The lists of a table's axes.
///
/// # Errors
/// An axis without values, or a value its axis cannot have.
pub fn lists(table: &Table<'_>) -> Result<Lists<&'static str>, DocumentError> {
    let mut lists = Lists::new();
    for axis in AXES {
        let Some(value) = table.get(axis) else {
            continue;
        };
        let mut texts = Vec::new();
        for item in value.one_or_more()? {
            texts.push(checked(axis, &item)?);
        }
        lists.push(axis, texts);
    }
    Ok(lists)
}

/// A value's text, once it is known to be one that the axis can have.
fn checked(axis: &str, value: &Value<'_>) -> Result<String, DocumentError> {
    let parsed =
        |result: Result<String, ParseError>| result.map_err(|error| value.error(error.to_string()));
    match axis {
        "dtype" => parsed(value.string()?.parse::<Dtype>().map(|v| v.to_string())),
        "layout" => parsed(value.string()?.parse::<Layout>().map(|v| v.to_string())),
        "direction" => parsed(value.string()?.parse::<Direction>().map(|v| v.to_string())),
        "projection" => parsed(
            value
                .string()?
                .parse::<ProjectionKind>()
                .map(|v| v.to_string()),
        ),
        "varlen" => parsed(value.string()?.parse::<Varlen>().map(|v| v.to_string())),
        "mask" => {
            let text = value.string()?;
            parsed(text.parse::<Mask>().map(|_| text))
        }
        _ => Ok(value.integer_within(1, LONGEST_AXIS.into())?.to_string()),
    }
}

/// The problem at a point.
///
/// # Errors
/// When an axis without a default is not set, or the values contradict each other.
pub fn problem(point: &Point) -> Result<Problem, ParseError> {
    let number = |axis: &str| -> Option<u32> { point.get(axis)?.parse().ok() };
    let text = |axis: &str| point.get(axis).map(String::as_str);
    if point.contains_key("seq") && (point.contains_key("seq_q") || point.contains_key("seq_k")) {
        return Err(ParseError::new(
            "`seq` sets both `seq_q` and `seq_k`; give either it or those two",
        ));
    }
    let varlen: Option<Varlen> = text("varlen").map(str::parse).transpose()?;
    if varlen.is_some() {
        let fixed = ["batch", "seq", "seq_q", "seq_k"];
        if let Some(axis) = fixed.iter().find(|axis| point.contains_key(*axis)) {
            return Err(ParseError::new(format!(
                "`varlen` fixes `{axis}`; leave `{axis}` out"
            )));
        }
    }
    let missing =
        |axis: &str| ParseError::new(format!("`{axis}` has no default; give it in the sweep"));
    let head_dim = number("head_dim").ok_or_else(|| missing("head_dim"))?;
    let mut problem = Problem::new(0, head_dim);
    problem.head_dim_v = number("head_dim_v").unwrap_or(head_dim);
    problem.heads = number("heads").unwrap_or(1);
    problem.kv_heads = number("kv_heads").unwrap_or(problem.heads);
    match varlen {
        Some(lengths) => {
            problem.batch = lengths.q.len() as u32;
            problem.seq_q = lengths.q.iter().copied().max().unwrap_or(0);
            problem.seq_k = lengths.k.iter().copied().max().unwrap_or(0);
            problem.varlen = Some(lengths);
        }
        None => {
            problem.batch = number("batch").unwrap_or(1);
            let seq = number("seq");
            problem.seq_q = number("seq_q").or(seq).ok_or_else(|| missing("seq"))?;
            problem.seq_k = number("seq_k").or(seq).unwrap_or(problem.seq_q);
        }
    }
    if let Some(dtype) = text("dtype") {
        problem.dtype = dtype.parse()?;
    }
    if let Some(layout) = text("layout") {
        problem.layout = layout.parse()?;
    }
    if let Some(direction) = text("direction") {
        problem.direction = direction.parse()?;
    }
    if let Some(mask) = text("mask") {
        problem.mask = Mask::parse(mask, problem.is_square())?;
    }
    problem.projection = projection(point)?;
    problem.validated()
}

/// The projection at a point, where there is one.
fn projection(point: &Point) -> Result<Option<Projection>, ParseError> {
    let number = |axis: &str| -> Option<u32> { point.get(axis)?.parse().ok() };
    let Some(kind) = point.get("projection") else {
        return match ["hidden", "ranks"]
            .iter()
            .find(|axis| point.contains_key(*axis))
        {
            Some(axis) => Err(ParseError::new(format!(
                "`{axis}` is of a projection; add `projection = \"all-gather\"` or \
                 `\"reduce-scatter\"`, or leave `{axis}` out"
            ))),
            None => Ok(None),
        };
    };
    let needed = |axis: &str| {
        number(axis).ok_or_else(|| {
            ParseError::new(format!("a projection needs `{axis}`; give it in the sweep"))
        })
    };
    Ok(Some(Projection {
        kind: kind.parse()?,
        hidden: needed("hidden")?,
        ranks: needed("ranks")?,
    }))
}
