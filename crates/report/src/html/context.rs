//! What every part of the page looks up: which cases it shows in full, and how long its lists are.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::case::log;
use super::figures::{InvocationSamples, most};
use super::linked;
use crate::document::{Block, Table, TableRow, Tone};
use crate::judgement::{Lists, time};
use crate::summary::{RowList, SortedRows};
use crate::{RenderError, Report};
use regatta_core::record::side::CaseRecord;
use regatta_judge::judgement::{Row, Word};
use regatta_worker::attention::CaseId;
use regatta_worker::units::Share;

/// A report with what its parts look up.
pub struct PageContext<'a> {
    pub report: &'a Report<'a>,
    pub summary: SortedRows<'a>,
    /// The cases that are shown in full, with what was measured of each.
    pub in_full: BTreeMap<&'a CaseId, InFull>,
    /// The cases of the table.
    pub cases: BTreeSet<&'a CaseId>,
}

/// Samples and log of a case, from its entries.
#[derive(Default)]
pub struct InFull {
    /// Its samples, in the order of invocations.
    pub invocations: Vec<InvocationSamples>,
    /// The last lines of a worker that failed.
    pub log: Option<String>,
}

/// Columns of all reasons, and of all logs, together.
const EXCERPTS: usize = 2_000_000;

impl<'a> PageContext<'a> {
    /// # Errors
    /// When the samples cannot be read again.
    pub fn new(report: &'a Report<'a>, limits: PageLimits) -> Result<PageContext<'a>, RenderError> {
        let summary = SortedRows::new(report.judgement);
        let rows = &report.judgement.rows;
        let places = in_full(rows, limits);
        let planned = report.head.header.settings.invocations;
        let most = most(limits.samples / places.len().max(1), planned);
        let shown = places.iter();
        let shown = shown.map(|&place| (&rows[place].case, InFull::default()));
        let mut context = PageContext {
            report,
            summary,
            in_full: shown.collect(),
            cases: rows.iter().map(|row| &row.case).collect(),
        };
        let excerpt = context.excerpt();
        let names: HashSet<&str> = places.iter().map(|&at| rows[at].case.0.as_str()).collect();
        report.entries.each_of(&names, |entry| {
            if let Some(of_case) = context.in_full.get_mut(&entry.case) {
                of_case
                    .invocations
                    .extend(InvocationSamples::new(entry, most));
                of_case.log = log(entry, excerpt).or(of_case.log.take());
            }
        })?;
        Ok(context)
    }

    /// The blocks, in whose tables each case that the page has is a link to it.
    pub fn linked(&self, mut blocks: Vec<Block>) -> Vec<Block> {
        for block in &mut blocks {
            let Block::Table(table) = block else { continue };
            for row in table.rows.iter_mut().filter(|_| table.ids) {
                if self.cases.contains(&CaseId(row.label.clone())) {
                    row.link = linked(&row.label);
                }
            }
        }
        blocks
    }

    /// True where every case is shown in full.
    pub fn few(&self) -> bool {
        self.in_full.len() == self.report.judgement.rows.len()
    }

    /// Columns of one reason or log at the most: thousands of them must still be a page that
    /// opens.
    pub fn excerpt(&self) -> usize {
        (EXCERPTS / self.in_full.len().max(1)).clamp(200, EXCERPT)
    }

    pub fn head_record(&self, case: &CaseId) -> Option<&CaseRecord> {
        self.report.side.cases.get(case)
    }

    pub fn base_record(&self, case: &CaseId) -> Option<&CaseRecord> {
        self.report.base?.cases.get(case)
    }

    /// The threshold of device times, within what a figure can show.
    pub fn threshold(&self) -> Share {
        let threshold = self.report.head.header.rules.policy.threshold;
        if threshold.is_finite() {
            threshold.max(Share(0.01)).min(Share(1.0))
        } else {
            Share(0.05)
        }
    }
}

/// What stands before a word, for those who do not tell its colour from another.
pub fn sign(word: Word) -> &'static str {
    match word {
        Word::Regressed => "▲",
        Word::Improved => "▼",
        Word::Same => "=",
        Word::Inconclusive => "?",
        Word::Error => "✕",
        Word::Skipped => "∅",
        Word::New => "+",
        Word::Missing => "−",
    }
}

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

/// How much of any one list of a page is shown.
pub(super) const LISTED: Lists = Lists {
    most: 100,
    elsewhere: ", which --json lists",
};

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

/// The places of all rows, those of a [`RowList`] first. Within a list those that changed most
/// come first.
pub(super) fn worst_first(rows: &[Row]) -> Vec<usize> {
    // Those of no list come last, of them the inconclusive first.
    let rank = |row: &Row| {
        let list = RowList::of_row(row);
        (
            list.is_none(),
            list,
            row.word != Word::Inconclusive,
            row.word,
        )
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

/// A table of the first of the cases at these places.
pub(super) fn worst_rows(rows: &[Row], worst: &[usize]) -> Vec<Block> {
    let listed = LISTED.shown(worst).iter().map(|&place| &rows[place]);
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
        rest: LISTED.rest(rows.len()),
        ..Table::new("case", vec!["base", "head", "change", "verdict"], listed)
    })]
}
