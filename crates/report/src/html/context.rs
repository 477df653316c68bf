//! Data that all parts of the page share: the cases shown in full, and the lengths of lists.

use std::collections::{BTreeMap, HashSet};

use super::linked;
use super::samples::{most, taken};
use crate::document::Block;
use crate::facts::log;
use crate::judgement::Lists;
use crate::summary::SortedRows;
use crate::{RenderError, Report};
use regatta_judge::judgement::Word;
use regatta_worker::case::CaseId;
use regatta_worker::units::Share;

/// A report with the data that the parts of its page share.
pub struct PageContext<'a> {
    pub report: &'a Report<'a>,
    pub summary: SortedRows<'a>,
    /// The cases that are shown in full, with their samples and logs.
    pub in_full: BTreeMap<&'a CaseId, InFull>,
}

/// Samples and log of a case, from its entries.
#[derive(Default)]
pub struct InFull {
    /// The samples, in the order of invocations.
    pub invocations: Vec<Vec<f64>>,
    /// The samples of the base, if it is a run.
    pub base: Vec<Vec<f64>>,
    /// The last lines of a worker that failed.
    pub log: Option<String>,
}

/// The largest total length of all reasons, and of all logs, in columns.
const EXCERPTS: usize = 2_000_000;

impl<'a> PageContext<'a> {
    /// # Errors
    /// When the samples cannot be read again.
    pub fn new(report: &'a Report<'a>, limits: PageLimits) -> Result<PageContext<'a>, RenderError> {
        let summary = SortedRows::new(report.judgement);
        let rows = &report.judgement.rows;
        // If there are many cases, only the worst are shown in full.
        let opened = if rows.len() > limits.many {
            limits.in_full
        } else {
            rows.len()
        };
        let places = &summary.places[..rows.len().min(opened)];
        let planned = report.head.header.settings.invocations;
        let sides = if report.base_files.is_empty() { 1 } else { 2 };
        let samples = most(limits.samples / sides / places.len().max(1), planned);
        let shown = places.iter();
        let shown = shown.map(|&place| (&rows[place].case, InFull::default()));
        let names: HashSet<&str> = places.iter().map(|&at| &*rows[at].case.0).collect();
        let mut context = PageContext {
            report,
            in_full: shown.collect(),
            summary,
        };
        let excerpt = context.excerpt();
        report.entries(Some(&names), |entry| {
            if let Some(of_case) = context.in_full.get_mut(&entry.case) {
                of_case.invocations.extend(taken(entry, samples));
                of_case.log = log(entry, excerpt).or(of_case.log.take());
            }
        })?;
        report.base_entries(&names, |case, entry| {
            if let Some(of_case) = context.in_full.get_mut(case) {
                of_case.base.extend(taken(entry, samples));
            }
        })?;
        Ok(context)
    }

    /// Turns the ids of cases in tables into links, if the page has the case.
    pub fn linked(&self, mut blocks: Vec<Block>) -> Vec<Block> {
        let rows = self.report.judgement.rows.iter();
        let cases: HashSet<&str> = rows.map(|row| &*row.case.0).collect();
        for block in &mut blocks {
            let Block::Table(table) = block else { continue };
            for row in table.rows.iter_mut().filter(|_| table.ids) {
                if cases.contains(&*row.label) {
                    row.link = linked(&row.label);
                }
            }
        }
        blocks
    }

    /// True if every case is shown in full.
    pub fn few(&self) -> bool {
        self.in_full.len() == self.report.judgement.rows.len()
    }

    /// The longest reason or log, in columns, such that a page with thousands of them can still be
    /// opened.
    pub fn excerpt(&self) -> usize {
        (EXCERPTS / self.in_full.len().max(1)).clamp(200, EXCERPT)
    }

    /// The threshold of device time, limited to what a figure can show.
    pub fn threshold(&self) -> Share {
        let threshold = self.report.head.header.rules.policy.threshold;
        if threshold.is_finite() {
            threshold.max(Share(0.01)).min(Share(1.0))
        } else {
            Share(0.05)
        }
    }
}

/// The sign before a verdict, for readers who cannot distinguish its colour.
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

/// The limits of a page with many cases.
#[derive(Clone, Copy)]
pub(super) struct PageLimits {
    /// The number of cases up to which all are shown in full.
    pub many: usize,
    /// The number shown in full if there are more than `many` cases.
    pub in_full: usize,
    /// The total number of samples of all cases, besides a few of each.
    pub samples: usize,
}

pub(super) const LIMITS: PageLimits = PageLimits {
    many: 10_000,
    in_full: 1_000,
    samples: 80_000,
};

/// The limits of any one list of a page.
pub(super) const LISTED: Lists = Lists {
    most: 100,
    elsewhere: ", which --json lists",
};

/// The longest reason or log, in columns.
pub(super) const EXCERPT: usize = 4000;

/// The number of cases of a kind that are shown above the table, the worst first.
pub(super) const WORST: usize = 5;
