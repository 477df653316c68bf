//! What a tuner chose otherwise, and what would tell that from the code.

use super::sentences::{is_of_several_times, rows};
use crate::judgement::{Judgement, Row, Tuner, Word};
use regatta_worker::units::counted;

/// Cases that are worse, where a tuner chose otherwise.
pub fn otherwise(judgement: &Judgement) -> Option<String> {
    let worse = |row: &Row| row.word == Word::Regressed || row.fails_by_structure();
    let chosen = |row: &Row| row.tuner.as_ref().is_some_and(|of| !of.changed.is_empty());
    let rows = rows(judgement, |row| worse(row) && chosen(row));
    let (first, tuner) = first(&rows)?;
    Some(format!(
        "in {} the tuner chose otherwise, first {}: {}; what tells its choice from the code: {}",
        counted(rows.len(), "case"),
        first.case,
        tuner.chosen(),
        tuner.advice(&first.case),
    ))
}

/// Cases of several times.
pub fn several_times(judgement: &Judgement) -> Option<String> {
    let rows = rows(judgement, is_of_several_times);
    let (first, tuner) = first(&rows)?;
    Some(format!(
        "{} not judged, since a tuner chose now this, now that and the times lie apart by it, \
         first {}: {}; {}",
        match rows.len() {
            1 => "1 case is".to_owned(),
            number => format!("{number} cases are"),
        },
        first.case,
        tuner.unsteady.as_deref().unwrap_or_default(),
        tuner.advice(&first.case),
    ))
}

/// The first case that can be pinned, or else the first.
fn first<'a>(rows: &[&'a Row]) -> Option<(&'a Row, &'a Tuner)> {
    let tuned = || {
        rows.iter()
            .filter_map(|row| Some((*row, row.tuner.as_deref()?)))
    };
    let pinnable = tuned().find(|(_, tuner)| !tuner.pin.is_empty());
    pinnable.or_else(|| tuned().next())
}
