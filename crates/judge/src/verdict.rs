//! What follows from all of it: an outcome and its reasons.

pub(super) mod families;
mod sentences;

pub use sentences::incomparable;

use std::collections::BTreeMap;

use crate::judgement::{Judgement, Row, Verdict, VerdictOutcome, Word};
use regatta_core::suite::rules::Metric;
use regatta_core::suite::structural::Action;
use regatta_worker::units::{Share, counted};

/// How to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Another suite is another experiment, and refused.
    pub same_suite: bool,
    /// Without a base there is nothing to pass by.
    pub wants_base: bool,
    /// No more invocations follow.
    pub last: bool,
}

impl Options {
    /// A run alone: what its suite expects.
    pub const ALONE: Options = Options {
        same_suite: false,
        wants_base: false,
        last: true,
    };

    /// A run against a baseline of its suite.
    pub const GATE: Options = Options {
        same_suite: true,
        wants_base: true,
        last: true,
    };

    /// Two versions that are measured for it.
    pub const COMPARISON: Options = Options {
        same_suite: false,
        wants_base: true,
        last: true,
    };
}

/// Combines everything that was found, gravest first. A failure outranks what is missing or
/// inconclusive: one regression in an incomplete run is a regression.
pub fn verdict(judgement: &Judgement, options: &Options) -> Verdict {
    let failures = [
        sentences::errors(judgement),
        sentences::violated(judgement),
        sentences::regressed(judgement),
        sentences::restructured(judgement),
    ];
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    let no_base = options.wants_base && judgement.base.is_none();
    let gaps = [
        no_base.then(|| "there is no baseline to compare it with".to_owned()),
        incomparable(&judgement.incomparable),
        sentences::nothing(judgement),
        sentences::missing(judgement),
        sentences::expectations_missing(judgement),
        sentences::inconclusive(judgement),
        sentences::expectations_inconclusive(judgement),
    ];
    let gaps = gaps.into_iter().flatten();
    let mut gaps: Vec<String> = gaps.chain(judgement.gaps.iter().cloned()).collect();
    let outcome = match (failures.is_empty(), gaps.is_empty()) {
        (false, _) => VerdictOutcome::Failed,
        (true, false) => VerdictOutcome::Inconclusive,
        (true, true) => VerdictOutcome::Passed,
    };
    let mut reasons = failures;
    reasons.append(&mut gaps);
    Verdict {
        outcome,
        reasons,
        shown: shown(judgement),
    }
}

/// What was shown of how many cases, and how: `48 same, 2 inconclusive (at most +2.9 %); 40 by
/// pairs, 10 against the stored run`.
fn shown(judgement: &Judgement) -> String {
    let mut words: BTreeMap<Word, usize> = BTreeMap::new();
    for row in &judgement.rows {
        *words.entry(row.word).or_default() += 1;
    }
    let told = words.into_iter().map(|(word, number)| {
        let compared = judgement.base.is_some() && judgement.incomparable.is_empty();
        let name = match (word, compared) {
            (Word::New, false) => "measured",
            (word, _) => word.text(),
        };
        let open = judgement
            .rows
            .iter()
            .filter(|row| row.word == Word::Inconclusive);
        let most = open.filter_map(|row| Some(row.first_metric()?.change.high?.growth()));
        let most = most.fold(Share(0.0), Share::max);
        match word == Word::Inconclusive && most > Share(0.0) {
            true => format!("{number} {name} (at most +{most})"),
            false => format!("{number} {name}"),
        }
    });
    let mut told: Vec<String> = told.collect();
    let skipped = judgement.expectations.iter();
    match skipped.filter(|of| of.word == Word::Skipped).count() {
        0 => {}
        skipped => told.push(format!("{} skipped", counted(skipped, "expectation"))),
    }
    let mut told = told.join(", ");
    let compared = || judgement.rows.iter().filter_map(|row| row.change());
    let pairs = compared().filter(|change| change.paired).count();
    let stored = compared().count() - pairs;
    match (pairs, stored) {
        (0, 0) => {}
        (_, 0) => told += "; by pairs",
        (0, _) => told += "; against a stored run",
        _ => told += &format!("; {pairs} by pairs, {stored} against a stored run"),
    }
    // What is disturbed is the same by its CPU time alone.
    let by_cpu = judgement.rows.iter().filter(|row| {
        let device = row.metric(Metric::Device);
        row.word == Word::Same && device.is_some_and(|of| of.disturbed && of.word == Word::Same)
    });
    match by_cpu.count() {
        0 => {}
        by_cpu => told += &format!(", {by_cpu} by CPU time"),
    }
    told + &restructured(judgement).unwrap_or_default()
}

/// Structure that changed where no time got worse: `; structure changed in 2 cases, first CASE:
/// launches 1 → 3 of flash`.
fn restructured(judgement: &Judgement) -> Option<String> {
    let as_fast = |row: &&Row| matches!(row.word, Word::Same | Word::Improved);
    let changed = judgement.rows.iter().filter(as_fast).filter_map(|row| {
        let first = row.structure_at(Action::Warn).next()?;
        Some((row, first))
    });
    let changed: Vec<_> = changed.collect();
    let (row, change) = changed.first()?;
    let number = counted(changed.len(), "case");
    Some(format!(
        "; structure changed in {number}, first {}: {change}",
        row.case
    ))
}
