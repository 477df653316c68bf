//! What every part of the page looks up.

use std::collections::BTreeMap;

use serde::Serialize;

use super::chosen::in_full;
use crate::attention::CaseId;
use crate::judge::judgement::Word;
use crate::record::side::CaseRecord;
use crate::record::types::Entry;
use crate::report::exporter::{RenderError, Report};
use crate::report::summary::Summary;
use crate::report::text::one_line;
use crate::units::Share;

/// A report with what its parts look up.
pub struct Context<'a> {
    pub report: &'a Report<'a>,
    pub summary: Summary<'a>,
    /// The places of the rows that are shown in full, in the order in which they are shown.
    pub in_full: Vec<usize>,
    /// What was measured of each of these cases, in the order of invocations.
    pub entries: BTreeMap<&'a CaseId, Vec<Entry>>,
    /// The number of each case in the table, which names its row.
    pub numbers: BTreeMap<&'a CaseId, usize>,
}

impl<'a> Context<'a> {
    /// # Errors
    /// When the samples cannot be read again.
    pub fn of(report: &'a Report<'a>) -> Result<Context<'a>, RenderError> {
        let summary = Summary::of(report.judgement);
        let in_full = in_full(report.judgement, &summary);
        let rows = &report.judgement.rows;
        let shown = in_full.iter().map(|&place| (&rows[place].case, Vec::new()));
        let mut entries: BTreeMap<&CaseId, Vec<Entry>> = shown.collect();
        report.entries.each(|entry| {
            if let Some(of_case) = entries.get_mut(&entry.case) {
                of_case.push(entry.clone());
            }
        })?;
        let rows = rows.iter().enumerate();
        Ok(Context {
            report,
            summary,
            in_full,
            entries,
            numbers: rows.map(|(i, row)| (&row.case, i)).collect(),
        })
    }

    /// True where every case is shown in full.
    pub fn few(&self) -> bool {
        self.in_full.len() == self.report.judgement.rows.len()
    }

    pub fn head_record(&self, case: &CaseId) -> Option<&CaseRecord> {
        self.report.side.cases.get(case)
    }

    pub fn base_record(&self, case: &CaseId) -> Option<&CaseRecord> {
        self.report.base?.cases.get(case)
    }

    /// The floor of changes that count, within what a figure can show.
    pub fn floor(&self) -> Share {
        let floor = self.report.head.header.rules.policy.floor;
        if floor.is_finite() {
            floor.max(Share(0.01)).min(Share(1.0))
        } else {
            Share(0.05)
        }
    }
}

/// A fact in which the sides differ.
#[derive(Serialize)]
pub struct DifferenceView {
    pub field: String,
    pub base: String,
    pub head: String,
}

pub fn difference(difference: &crate::judge::judgement::Difference) -> DifferenceView {
    DifferenceView {
        field: one_line(&difference.field),
        base: one_line(&difference.base),
        head: one_line(&difference.head),
    }
}

/// How a word is coloured; the word itself always stands beside its colour.
pub fn tone(word: Word) -> &'static str {
    match word {
        Word::Regressed => "bad",
        Word::Improved => "good",
        Word::NotMeasured | Word::Inconclusive => "doubtful",
        _ => "calm",
    }
}
