//! The page of more cases than it can show in full: those that matter are, the others are
//! counted by variant, and are data of which the page's script makes a row when it is asked
//! for.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::context::Context;
use crate::judge::judgement::{Row, Timing, Word};
use crate::record::side::median;
use crate::report::summary::tally_of;
use crate::report::text::one_line;
use crate::units::{NONE, Ratio, counted};

/// Rows of the table by variant; of more it is by variant alone.
const MOST_KINDS: usize = 100;

/// What stands for the cases that are not shown in full.
#[derive(Serialize)]
pub(super) struct Rest {
    /// How many there are, and where all of them can be had.
    told: String,
    kinds: Vec<Kind>,
    /// The words that rows name by their place, and a list for each row: how many characters
    /// its id has in common with the one before, the others, its word, and its figures as
    /// they are printed.
    data: String,
}

/// Cases of a kind.
#[derive(Serialize)]
struct Kind {
    name: String,
    cases: usize,
    told: String,
    median: String,
    slowest: String,
}

impl Rest {
    /// `None` where every case is shown in full.
    pub(super) fn of(context: &Context) -> Option<Rest> {
        let rows = &context.report.judgement.rows;
        let shown: BTreeSet<usize> = context.in_full.iter().copied().collect();
        let left = rows.len() - shown.len();
        (left > 0).then(|| Rest {
            told: format!(
                "{} shown in full, those to act upon first; {left} more are figures in the \
                 table. Everything about every case is in cases.csv and samples.csv, which \
                 --csv DIR writes.",
                counted(shown.len(), "case")
            ),
            kinds: kinds(rows),
            data: data(rows, &shown),
        })
    }
}

/// Every case by variant, number format and direction, or by variant where these are many.
fn kinds(rows: &[Row]) -> Vec<Kind> {
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

fn data(rows: &[Row], shown: &BTreeSet<usize>) -> String {
    let words: Vec<Word> = tally_of(rows.iter().map(|row| row.word))
        .into_iter()
        .map(|(word, _)| word)
        .collect();
    let names: Vec<[&str; 2]> = words
        .iter()
        .map(|word| [word.text(), super::context::tone(*word)])
        .collect();
    let mut before = String::new();
    let mut list = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        if shown.contains(&number) {
            continue;
        }
        let id = one_line(&row.case.0);
        let same = id.bytes().zip(before.bytes());
        let mut same = same.take_while(|(a, b)| a == b).count();
        while !id.is_char_boundary(same) {
            same -= 1;
        }
        let word = words.iter().position(|word| *word == row.word);
        let time = |timing: &Option<Timing>| {
            let timing = timing.as_ref();
            timing.map_or(String::new(), |timing| timing.median_ns.to_string())
        };
        let head = row.head.as_ref();
        let ratio = row.times_ratio();
        let rate = head.and_then(|timing| Some(timing.tflops?.to_string()));
        let bytes = head.and_then(|timing| Some(crate::units::Digits(timing.gbps?).to_string()));
        let common = id[..same].encode_utf16().count();
        list.push(serde_json::json!([
            common,
            &id[same..],
            word,
            time(&row.base),
            time(&row.head),
            ratio.map_or(String::new(), |ratio| ratio.to_string()),
            ratio.and_then(|ratio| format!("{:.5}", ratio.0).parse::<f64>().ok()),
            rate.unwrap_or_default(),
            bytes.unwrap_or_default(),
        ]));
        before = id;
    }
    let data = serde_json::json!({ "words": names, "rows": list });
    // Nothing in it ends the element that it stands in.
    data.to_string().replace('<', "\\u003c")
}
