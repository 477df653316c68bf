//! What every part of the page looks up.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::attention::CaseId;
use crate::judge::judgement::Word;
use crate::record::side::{CaseRecord, Side};
use crate::record::types::Entry;
use crate::report::exporter::Report;
use crate::report::text::one_line;
use crate::units::Share;

/// A report with what its parts look up.
pub struct Context<'a> {
    pub report: &'a Report<'a>,
    /// The head, reduced as the judge saw it.
    pub head: Side,
    /// What was measured of each case, in the order of invocations.
    pub entries: BTreeMap<&'a CaseId, Vec<&'a Entry>>,
    /// The number of each case in the table, which names its row.
    pub numbers: BTreeMap<&'a CaseId, usize>,
}

impl<'a> Context<'a> {
    pub fn of(report: &'a Report<'a>) -> Context<'a> {
        let mut entries: BTreeMap<&CaseId, Vec<&Entry>> = BTreeMap::new();
        for entry in &report.head.entries {
            entries.entry(&entry.case).or_default().push(entry);
        }
        let rows = report.judgement.rows.iter().enumerate();
        Context {
            report,
            head: Side::from_run("head", report.head),
            entries,
            numbers: rows.map(|(i, row)| (&row.case, i)).collect(),
        }
    }

    pub fn head_record(&self, case: &CaseId) -> Option<&CaseRecord> {
        self.head.cases.get(case)
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
