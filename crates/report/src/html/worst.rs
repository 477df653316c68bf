//! The worst cases as a table, for those without scripts.

use serde::Serialize;

use super::context::{sign, tone};
use crate::text::one_line;
use regatta_judge::judgement::{Row, Timing};
use regatta_worker::units::NONE;

/// Rows that are listed.
const LISTED: usize = 50;

/// A case, as the template takes it.
#[derive(Serialize)]
pub(super) struct WorstRow {
    case: String,
    word: &'static str,
    tone: &'static str,
    sign: &'static str,
    base: String,
    head: String,
    change: String,
}

/// The first of the cases at these places.
pub(super) fn worst_rows(rows: &[Row], worst: &[usize]) -> Vec<WorstRow> {
    let worst = worst.iter().take(LISTED).map(|&place| &rows[place]);
    let time = |timing: &Option<Timing>| match timing {
        Some(timing) => timing.median_ns.to_string(),
        None => NONE.to_owned(),
    };
    let row = |row: &Row| WorstRow {
        case: one_line(&row.case.0),
        word: row.word.text(),
        tone: tone(row.word),
        sign: sign(row.word),
        base: time(&row.base),
        head: time(&row.head),
        change: row
            .times_ratio()
            .map_or(NONE.to_owned(), |ratio| ratio.to_string()),
    };
    worst.map(row).collect()
}
