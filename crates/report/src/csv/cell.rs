//! What stands in a cell.

use std::io::Write;

use crate::text::one_line;
use regatta_worker::attention::ParamValue;

/// A table in the making.
pub(super) type Table<'o> = ::csv::Writer<&'o mut dyn Write>;

/// A text as a cell: on one line, and behind an apostrophe where a spreadsheet would take it
/// for a formula (OWASP, "CSV Injection"). Numbers are written as they are.
pub(super) fn text_cell(text: &str) -> String {
    let text = one_line(text);
    // The wide ones are what some spreadsheets take for the others.
    let formula = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];
    match text.starts_with(formula) {
        true => format!("'{text}"),
        false => text,
    }
}

/// A parameter's value as a cell.
pub(super) fn parameter(value: &ParamValue) -> String {
    match value {
        ParamValue::Int(number) => number.to_string(),
        ParamValue::Word(word) => text_cell(word),
    }
}

/// A plain number. Times and ratios print with a unit, which no table of figures has: they
/// are written by their numbers (`.0`).
pub(super) trait Number: ToString {}

impl Number for f64 {}
impl Number for u32 {}
impl Number for u64 {}
impl Number for usize {}

/// A figure as a cell, empty where there is none.
pub(super) fn cell(value: Option<impl Number>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}
