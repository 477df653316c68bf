//! Cases counted by variant, where there are more than one reads.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::summary::tally_of;
use crate::text::one_line;
use regatta_core::record::side::median;
use regatta_judge::judgement::Row;
use regatta_worker::units::{NONE, Ratio};

/// Rows of the table by variant; of more it is by variant alone.
const MOST_KINDS: usize = 100;

/// Of fewer cases the table itself says it.
const LEAST: usize = 200;

/// Cases of a kind.
#[derive(Serialize)]
pub(super) struct Kind {
    name: String,
    cases: usize,
    told: String,
    median: String,
    slowest: String,
}

/// Every case by variant, number format and direction, or by variant where these are many;
/// none of few cases.
pub(super) fn kinds(rows: &[Row]) -> Vec<Kind> {
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
    kinds.map(|(name, rows)| kind(&name, &rows)).collect()
}

fn kind(name: &str, rows: &[&Row]) -> Kind {
    let words = tally_of(rows.iter().map(|row| row.word));
    let words = words
        .iter()
        .map(|(word, count)| format!("{count} {}", word.text()));
    let ratios = rows.iter().filter_map(|row| row.times_ratio());
    let ratios: Vec<Ratio> = ratios.filter(|ratio| ratio.is_finite()).collect();
    let slowest = ratios.iter().copied().max_by(Ratio::total_cmp);
    let shown = |ratio: Option<Ratio>| ratio.map_or(NONE.to_owned(), |ratio| ratio.to_string());
    Kind {
        name: one_line(name),
        cases: rows.len(),
        told: words.collect::<Vec<_>>().join(", "),
        median: shown(median(&ratios)),
        slowest: shown(slowest),
    }
}
