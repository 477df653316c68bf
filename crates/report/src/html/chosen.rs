//! Which cases a page shows in full, and how long its lists are.

use super::context::{sign, tone};
use crate::summary::Summary;
use crate::text::one_line;
use regatta_judge::judgement::{Judgement, Row, Timing, Word};
use regatta_worker::attention::CaseId;
use regatta_worker::units::NONE;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};

/// How much of many cases a page shows.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Up to so many cases it shows all of them in full.
    pub many: usize,
    /// Of more it shows so many in full.
    pub in_full: usize,
    /// Samples of all cases together, but for a few of each.
    pub samples: usize,
}

pub(super) const LIMITS: Limits = Limits {
    many: 10_000,
    in_full: 1_000,
    samples: 80_000,
};

/// Entries of any one list of a page.
pub(super) const LONGEST: usize = 100;

/// Columns of one reason or log at the most.
pub(super) const EXCERPT: usize = 4000;

/// Cases of one kind that are shown above the table, the worst first.
pub(super) const WORST: usize = 5;

/// Which rows of a judgement a page shows in full, those to act upon first. Of few, all.
pub(super) fn in_full(judgement: &Judgement, summary: &Summary, limits: Limits) -> Vec<usize> {
    let rows = &judgement.rows;
    if rows.len() <= limits.many {
        return (0..rows.len()).collect();
    }
    let places = rows.iter().enumerate();
    let places: HashMap<&CaseId, usize> = places.map(|(place, row)| (&row.case, place)).collect();
    let of_rows = |lists: &[&Vec<&'_ Row>]| -> Vec<usize> {
        let rows = lists.iter().copied().flatten();
        rows.filter_map(|row| places.get(&row.case).copied())
            .collect()
    };
    let worse = of_rows(&[
        &summary.regressed,
        &summary.structure,
        &summary.not_measured,
        &summary.uncounted,
    ]);
    let doubtful = (0..rows.len()).filter(|&place| rows[place].looks_worse);
    let broken = summary.broken.iter().map(|broken| &broken.case);
    let broken = broken.chain(
        summary
            .limits
            .iter()
            .filter_map(|limit| limit.case.as_ref()),
    );
    let broken = broken.filter_map(|case| places.get(case).copied());
    let restructured: Vec<&Vec<&Row>> = summary.restructured.iter().map(|(_, rows)| rows).collect();
    let other = [of_rows(&restructured), of_rows(&[&summary.improved])].concat();
    let all = worse.into_iter().chain(doubtful).chain(broken).chain(other);
    let mut seen = BTreeSet::new();
    all.filter(|place| seen.insert(*place))
        .take(limits.in_full)
        .collect()
}

/// The places of all rows, the worst first: what fails, what cannot be said, what is good to
/// know, and what only one side has. Within a kind those that changed most come first.
pub(super) fn worst_first(rows: &[Row]) -> Vec<usize> {
    let rank = |row: &Row| match row.word {
        Word::Regressed => 0,
        _ if row.fails_by_metric() && !row.allowed => 1,
        _ if row.fails_by_structure() => 2,
        Word::NotMeasured if !row.allowed => 3,
        _ if row.looks_worse => 4,
        _ if row.structure_unjudged() => 5,
        Word::Inconclusive => 6,
        _ if row.restructured() => 7,
        Word::Improved => 8,
        Word::Same => 9,
        Word::Measured | Word::Counted => 10,
        Word::Added => 11,
        Word::Removed => 12,
        Word::NotMeasured | Word::Unsupported => 13,
    };
    let moved = |row: &Row| row.times_ratio().map_or(0.0, |ratio| ratio.0.ln());
    let mut places: Vec<usize> = (0..rows.len()).collect();
    places.sort_by(|&a, &b| {
        let (a, b) = (&rows[a], &rows[b]);
        let faster = a.word == Word::Improved && b.word == Word::Improved;
        let order = moved(b).total_cmp(&moved(a));
        let order = if faster { order.reverse() } else { order };
        rank(a).cmp(&rank(b)).then(order)
    });
    places
}

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
