//! What deserves to be read first, the same in every format.

use super::Report;
use super::format::{Probability, RatioChange, RatioInterval, ShortTime};
use super::text::shell_command;
use crate::judge::judgement::{ExpectationResult, Held, Judgement, LimitResult, Row, Stage, Word};

/// A judgement sorted by what a reader has to act upon.
#[derive(Clone, Debug)]
pub struct Summary<'a> {
    /// Slower ones, the slowest first.
    pub regressed: Vec<&'a Row>,
    /// Broken expectations, the worst first.
    pub broken: Vec<&'a ExpectationResult>,
    /// Cases whose structure got worse in a way that the suite does not accept, and that
    /// are not slower.
    pub structure: Vec<&'a Row>,
    /// Broken limits on structure.
    pub limits: Vec<&'a LimitResult>,
    /// Failed or missing ones that the policy does not allow.
    pub not_measured: Vec<&'a Row>,
    /// Neither slower nor faster, but with a finding or a change of structure that the
    /// suite lets pass: another kernel, another
    /// grid, which time alone did not show.
    pub restructured: Vec<&'a Row>,
    /// Faster ones, the fastest first.
    pub improved: Vec<&'a Row>,
    /// How many rows each remaining word has, in the order of [`Word`].
    pub rest: Vec<(Word, usize)>,
}

impl<'a> Summary<'a> {
    /// Sorts a judgement.
    pub fn of(judgement: &'a Judgement) -> Summary<'a> {
        let mut summary = Summary {
            regressed: Vec::new(),
            broken: Vec::new(),
            structure: Vec::new(),
            limits: Vec::new(),
            not_measured: Vec::new(),
            restructured: Vec::new(),
            improved: Vec::new(),
            rest: Vec::new(),
        };
        for row in &judgement.rows {
            match row.word {
                Word::Regressed => summary.regressed.push(row),
                _ if row.fails_by_structure() => summary.structure.push(row),
                Word::Improved => summary.improved.push(row),
                Word::NotMeasured if !row.allowed => summary.not_measured.push(row),
                _ if !row.findings.is_empty() || !row.structure_told().is_empty() => {
                    summary.restructured.push(row)
                }
                word => count(&mut summary.rest, word),
            }
        }
        summary.rest.sort();
        summary
            .regressed
            .sort_by(|a, b| severity(b).total_cmp(&severity(a)));
        summary
            .improved
            .sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        let held = judgement.expectations.iter();
        summary.broken = held.filter(|e| e.held == Held::Broken).collect();
        let limits = judgement.limits.iter();
        summary.limits = limits.filter(|limit| limit.held == Held::Broken).collect();
        let excess = |e: &ExpectationResult| e.ratio.unwrap_or(f64::INFINITY) / e.within;
        summary
            .broken
            .sort_by(|a, b| excess(b).total_cmp(&excess(a)));
        summary
    }

    /// True when nothing needs to be acted upon.
    pub fn is_quiet(&self) -> bool {
        self.regressed.is_empty()
            && self.broken.is_empty()
            && self.structure.is_empty()
            && self.limits.is_empty()
            && self.not_measured.is_empty()
            && self.restructured.is_empty()
            && self.improved.is_empty()
    }

    /// The rest in one line: `40 same, 2 inconclusive`; empty when there is none.
    pub fn rest_line(&self) -> String {
        let parts: Vec<String> = self
            .rest
            .iter()
            .map(|(word, count)| match word {
                // The others of this word are in `not_measured`.
                Word::NotMeasured => format!("{count} not measured, as allowed"),
                word => format!("{count} {}", word.text()),
            })
            .collect();
        parts.join(", ")
    }
}

/// How many rows have each word, in the order of [`Word`].
pub fn tally(rows: &[Row]) -> Vec<(Word, usize)> {
    let mut counts = Vec::new();
    for row in rows {
        count(&mut counts, row.word);
    }
    counts.sort();
    counts
}

fn count(counts: &mut Vec<(Word, usize)>, word: Word) {
    match counts.iter_mut().find(|(counted, _)| *counted == word) {
        Some((_, count)) => *count += 1,
        None => counts.push((word, 1)),
    }
}

/// What a slower case costs: its own time, or that of a training step.
fn severity(row: &Row) -> f64 {
    row.severity.unwrap_or_else(|| ratio(row) - 1.0)
}

/// Head over base; 1 where there is no comparison.
fn ratio(row: &Row) -> f64 {
    row.change.as_ref().map_or(1.0, |change| change.ratio)
}

/// A row's times in a line's worth of words: what the base took, what the head
/// takes, how sure that is.
pub fn evidence(row: &Row) -> Option<String> {
    let head = ShortTime(row.head.as_ref()?.median_ns);
    let (Some(base), Some(change)) = (&row.base, &row.change) else {
        return Some(head.to_string());
    };
    let stage = match change.stage {
        Stage::Screen => "",
        Stage::Confirm => ", confirmed",
    };
    Some(format!(
        "{} → {head}   {} {}   p {}{stage}",
        ShortTime(base.median_ns),
        RatioChange(change.ratio),
        RatioInterval(change.low, change.high),
        Probability(change.p),
    ))
}

/// The command that measures again the cases whose id matches `pattern`.
pub fn reproduce(report: &Report, pattern: &str) -> String {
    let suite = &report.head.header.suite;
    let mut words = vec!["regatta".to_owned(), "run".to_owned()];
    match suite.arguments.is_empty() {
        true => words.push(suite.name.clone()),
        false => words.extend(suite.arguments.iter().cloned()),
    }
    words.extend(["--filter".to_owned(), pattern.to_owned()]);
    shell_command(&words)
}
