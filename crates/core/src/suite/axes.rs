//! The axes of a sweep: lists of values that multiply into problems.

use std::collections::BTreeMap;

use super::document::{DocumentError, Table, Value};
use regatta_worker::attention::LONGEST_AXIS;
use regatta_worker::attention::axes::{Form, axis, settable};

/// More cases than these are a slip of the pen.
pub const MOST_CASES: usize = 100_000;

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
    for axis in settable() {
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
fn checked(name: &str, value: &Value<'_>) -> Result<String, DocumentError> {
    match axis(name) {
        Some(axis) if !matches!(axis.form, Form::Number(_) | Form::Width(_)) => axis
            .check(&value.string()?)
            .map_err(|error| value.error(error.to_string())),
        // `seq` is one, too.
        _ => Ok(value.integer_within(1, LONGEST_AXIS.into())?.to_string()),
    }
}
