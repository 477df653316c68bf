//! Whether every planned case was measured, and what is said of those that were not.

use super::judgement::Word;
use regatta_core::machine::CENSUS;
use regatta_core::record::side::{CaseRecord, Status};
use regatta_core::record::types::{Fault, RunHeader};
use regatta_core::suite::glob;
use regatta_core::suite::rules::Metric;
use regatta_worker::attention::CaseId;

/// What there is to judge of one case.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing<'a> {
    /// Both sides have times.
    Both(&'a CaseRecord, &'a CaseRecord),
    /// There is nothing to compare; this is said instead, and what kind of failure it is.
    Uncompared(Word, Option<String>, Fault),
}

/// A standing of a case in which nothing failed.
fn uncompared<'a>(word: Word, reason: Option<String>) -> Standing<'a> {
    Standing::Uncompared(word, reason, Fault::Unknown)
}

/// Sorts a case by what its two sides are. `base` is `None` when the base does not
/// have the case, `has_base` is false when there is no base at all.
pub fn standing<'a>(base: Option<&'a CaseRecord>, head: Option<&'a CaseRecord>) -> Standing<'a> {
    let Some(head) = head else {
        return uncompared(Word::Missing, Some("only the base has it".to_owned()));
    };
    match (trouble(head), &head.status) {
        (None, _) => {}
        (Some(_), Status::Unsupported { reason }) => return unsupported(base, reason),
        (Some(reason), status) => return failed(reason, status),
    }
    let Some(base) = base else {
        return uncompared(Word::New, None);
    };
    match trouble(base) {
        None => Standing::Both(base, head),
        Some(reason) => without_base(base, &reason, Word::New),
    }
}

/// What is said of a case that failed: what the code did is an error, the rest is missing.
fn failed<'a>(reason: String, status: &Status) -> Standing<'a> {
    let fault = fault(status);
    let word = match fault {
        Fault::WrongResult | Fault::Crash | Fault::Hang => Word::Error,
        _ => Word::Missing,
    };
    Standing::Uncompared(word, Some(reason), fault)
}

/// What is said of a case that the head measured and the base did not. A variant that does
/// it now, and did not, is news; else there should have been something to hold it against.
fn without_base<'a>(base: &CaseRecord, reason: &str, new: Word) -> Standing<'a> {
    let word = match base.status {
        Status::Unsupported { .. } => new,
        _ => Word::Missing,
    };
    let why = match base.status {
        // It was measured once, and the file no longer says so.
        Status::Missing { .. } => format!("the base has lost it: {reason}"),
        _ => format!("the base has no time for it: {reason}"),
    };
    uncompared(word, Some(why))
}

fn fault(status: &Status) -> Fault {
    match status {
        Status::Failed { fault, .. } => *fault,
        _ => Fault::Unknown,
    }
}

/// The same where nothing was timed: a case whose structure is known is compared by that.
pub fn standing_untimed<'a>(
    base: Option<&'a CaseRecord>,
    head: Option<&'a CaseRecord>,
) -> Standing<'a> {
    let Some(head) = head else {
        return uncompared(Word::Missing, Some("only the base has it".to_owned()));
    };
    let counted = |record: &CaseRecord| {
        let structure = record.structure.as_ref();
        record.status == Status::Measured && structure.is_some_and(|s| !s.is_empty())
    };
    let missing = |reason: &str| uncompared(Word::Missing, Some(reason.to_owned()));
    match &head.status {
        Status::Measured if !counted(head) => {
            let structure = head.structure.as_ref();
            let reason = structure.and_then(|structure| structure.why_uncounted(CENSUS));
            missing(reason.unwrap_or("its worker counts no structure"))
        }
        Status::Measured => match base {
            Some(base) if counted(base) => Standing::Both(base, head),
            Some(base) if base.status != Status::Measured => match trouble(base) {
                Some(reason) => without_base(base, &reason, Word::New),
                None => uncompared(Word::New, None),
            },
            Some(_) => uncompared(
                Word::New,
                Some("the base has no structure of it".to_owned()),
            ),
            None => uncompared(Word::New, None),
        },
        Status::Unsupported { reason } if base.is_some_and(counted) => {
            missing(&format!("no longer supported: {reason}"))
        }
        Status::Unsupported { reason } => uncompared(Word::Skipped, Some(reason.clone())),
        Status::Failed { reason, .. } => failed(format!("failed: {reason}"), &head.status),
        Status::Missing { reason } => missing(reason),
    }
}

/// A variant that never did this is no news; one that stopped doing it is.
fn unsupported<'a>(base: Option<&CaseRecord>, reason: &str) -> Standing<'a> {
    if base.is_some_and(|base| trouble(base).is_none()) {
        let reason = format!("no longer supported: {reason}");
        return uncompared(Word::Missing, Some(reason));
    }
    uncompared(Word::Skipped, Some(reason.to_owned()))
}

/// Why there is no time of a case; `None` when there is one.
fn trouble(record: &CaseRecord) -> Option<String> {
    match &record.status {
        Status::Unsupported { reason } => Some(format!("unsupported: {reason}")),
        Status::Failed { reason, .. } => Some(format!("failed: {reason}")),
        Status::Missing { reason } => Some(reason.clone()),
        Status::Measured if record.median(Metric::Device).is_none() => {
            Some("none of its times is one that a clock can have shown".to_owned())
        }
        Status::Measured => None,
    }
}

/// True for a case that does not run on the CPU.
pub fn gpu(header: &RunHeader, case: &CaseId) -> bool {
    let case = case.case();
    case.is_ok_and(|case| !header.runs_on_processor(&case.variant.worker_name()))
}

/// True when one of the patterns allows this case to fail or be unsupported.
pub fn allowed(case: &CaseId, patterns: &[String]) -> bool {
    patterns.iter().any(|pattern| glob(pattern, &case.0))
}
