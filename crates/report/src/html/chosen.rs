//! Which cases a page shows in full, how long its lists are, and cases counted by variant.

use std::collections::BTreeMap;

use super::context::sign;
use crate::document::{Block, Table, TableRow, Tone};
use crate::judgement::time;
use crate::summary::tally_of;
use regatta_core::record::side::median;
use regatta_judge::judgement::{Row, Word};
use regatta_worker::units::Ratio;

/// How much of many cases a page shows.
#[derive(Clone, Copy)]
pub(super) struct PageLimits {
    /// Up to so many cases it shows all of them in full.
    pub many: usize,
    /// Of more it shows so many in full.
    pub in_full: usize,
    /// Samples of all cases together, but for a few of each.
    pub samples: usize,
}

pub(super) const LIMITS: PageLimits = PageLimits {
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

/// Which rows a page shows in full: of many the worst.
pub(super) fn in_full(rows: &[Row], limits: PageLimits) -> Vec<usize> {
    let mut places = worst_first(rows);
    if rows.len() > limits.many {
        places.truncate(limits.in_full);
    }
    places
}

/// The places of all rows, the worst first: failed, inconclusive, changed, and those of one
/// side alone. Within a kind those that changed most come first.
pub(super) fn worst_first(rows: &[Row]) -> Vec<usize> {
    let rank = |row: &Row| match row.word {
        Word::Error => 0,
        Word::Regressed => 1,
        Word::Missing => 2,
        Word::Inconclusive if row.may_be_worse() => 3,
        Word::Inconclusive => 4,
        _ if row.restructured() => 5,
        Word::Improved => 6,
        Word::Same => 7,
        Word::New => 8,
        Word::Skipped => 9,
    };
    let moved = |row: &Row| row.change().map_or(0.0, |of| of.ratio.0.ln());
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

/// A table of the first of the cases at these places.
pub(super) fn worst_rows(rows: &[Row], worst: &[usize]) -> Vec<Block> {
    let listed = worst.iter().take(LISTED).map(|&place| &rows[place]);
    let listed = listed.map(|row| TableRow {
        tone: Tone::from_word(row.word),
        ..TableRow::new(
            row.case.0.clone(),
            vec![
                time(&row.base),
                time(&row.head),
                row.change()
                    .map_or_else(String::new, |of| of.ratio.to_string()),
                format!("{} {}", sign(row.word), row.word.text()),
            ],
        )
    });
    vec![Block::Table(Table {
        ids: true,
        rest: match rows.len() > LISTED {
            true => format!("The worst {LISTED} of {} cases.", rows.len()),
            false => String::new(),
        },
        ..Table::new("case", vec!["base", "head", "change", "verdict"], listed)
    })]
}

/// Rows of the table by variant; of more it is by variant alone.
const MOST_KINDS: usize = 100;

/// Of fewer cases the table itself says it.
const LEAST: usize = 200;

/// A table of all cases by variant, number format and direction, or by variant where these are
/// many; none of few cases.
pub(super) fn kinds(rows: &[Row]) -> Vec<Block> {
    if rows.len() < LEAST {
        return Vec::new();
    }
    let by = |facets: &[&str]| {
        let mut kinds: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            let name = match row.case.case() {
                Ok(case) => {
                    let mut parts = vec![case.variant.to_string()];
                    parts.extend(facets.iter().map(|facet| case.facet(facet)));
                    parts.join(" ")
                }
                Err(_) => "other".to_owned(),
            };
            kinds.entry(name).or_default().push(row);
        }
        kinds
    };
    let mut kinds = by(&["dtype", "direction"]);
    if kinds.len() > MOST_KINDS {
        kinds = by(&[]);
    }
    let kinds = kinds.into_iter().take(MOST_KINDS);
    let table = Table::new(
        "variant",
        vec!["cases", "verdicts", "median change", "slowest"],
        kinds.map(|(name, rows)| kind(name, &rows)),
    );
    let title = "By variant, number format and direction".to_owned();
    vec![Block::Details(title, vec![Block::Table(table)])]
}

fn kind(label: String, rows: &[&Row]) -> TableRow {
    let words = tally_of(rows.iter().map(|row| row.word)).into_iter();
    let words = words.map(|(word, count)| format!("{count} {}", word.text()));
    let ratios = rows.iter().filter_map(|row| Some(row.change()?.ratio));
    let ratios: Vec<Ratio> = ratios.filter(|ratio| ratio.is_finite()).collect();
    let slowest = ratios.iter().copied().max_by(Ratio::total_cmp);
    let shown = |ratio: Option<Ratio>| ratio.map_or_else(String::new, |ratio| ratio.to_string());
    TableRow {
        label,
        cells: vec![
            rows.len().to_string(),
            words.collect::<Vec<_>>().join(", "),
            shown(median(&ratios)),
            shown(slowest),
        ],
        ..TableRow::default()
    }
}
