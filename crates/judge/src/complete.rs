//! Whether every planned case was measured, and what is said of those that were not.

use super::judgement::Word;
use regatta_core::machine::CENSUS;
use regatta_core::record::side::{CaseRecord, Status};
use regatta_core::record::types::{Fault, RunHeader, WorkerRecord};
use regatta_core::suite::glob;
use regatta_core::suite::rules::Metric;
use regatta_worker::attention::{Case, CaseId};

/// What there is to judge of one case.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing<'a> {
    /// Both sides have what is compared.
    Both(&'a CaseRecord, &'a CaseRecord),
    /// There is nothing to compare; this is said instead, and what kind of failure it is.
    Uncompared(Word, Option<String>, Fault),
}

/// Sorts a case by what its two sides are. `base` is `None` where the base does not have the
/// case. Where nothing was timed, a case is measured if its structure is known.
pub fn standing<'a>(
    base: Option<&'a CaseRecord>,
    head: Option<&'a CaseRecord>,
    header: &RunHeader,
    id: &CaseId,
) -> Standing<'a> {
    let untimed = header.settings.structure_only;
    let uncompared = |word, reason: Option<String>| {
        let fault = head.map_or(Fault::Unknown, |head| fault(&head.status));
        Standing::Uncompared(word, reason, fault)
    };
    let Some(head) = head else {
        return uncompared(Word::Missing, Some("only the base has it".to_owned()));
    };
    let base_trouble = base.map(|base| trouble(base, untimed));
    let measured_before = base_trouble == Some(None);
    if let Some(reason) = trouble(head, untimed) {
        return match &head.status {
            Status::Unsupported { .. } if is_absent(header, id) => {
                let case = id.case().ok();
                let worker = case
                    .map(|case| case.variant.worker_name())
                    .unwrap_or_default();
                let fix = format!(
                    "{reason}; install it, or name its cases in the suite: [policy] optional = \
                     [\"{worker}/*\"]"
                );
                uncompared(Word::Missing, Some(fix))
            }
            Status::Unsupported { .. } if measured_before => uncompared(
                Word::Missing,
                Some(format!("no longer supported: {reason}")),
            ),
            Status::Unsupported { .. } => uncompared(Word::Skipped, Some(reason)),
            status => uncompared(word_of(fault(status), measured_before), Some(reason)),
        };
    }
    match (base, base_trouble.flatten()) {
        (None, _) => uncompared(Word::New, None),
        (Some(base), None) => Standing::Both(base, head),
        (Some(base), Some(reason)) => {
            // A variant that does it now, and did not, is new.
            let word = match base.status {
                Status::Unsupported { .. } => Word::New,
                _ => Word::Missing,
            };
            let why = match base.status {
                Status::Missing { .. } => format!("the base has lost it: {reason}"),
                _ if untimed => format!("the base has no structure of it: {reason}"),
                _ => format!("the base has no time for it: {reason}"),
            };
            uncompared(word, Some(why))
        }
    }
}

/// The word for a case that failed: what the code did is an error, the rest is missing.
fn word_of(fault: Fault, measured_before: bool) -> Word {
    match fault {
        Fault::WrongResult | Fault::Crash | Fault::Hang => Word::Error,
        Fault::Failed if measured_before => Word::Error,
        _ => Word::Missing,
    }
}

fn fault(status: &Status) -> Fault {
    match status {
        Status::Failed { fault, .. } => *fault,
        _ => Fault::Unknown,
    }
}

/// Why a case was not measured; `None` where it was.
fn trouble(record: &CaseRecord, untimed: bool) -> Option<String> {
    match &record.status {
        Status::Unsupported { reason } | Status::Missing { reason } => Some(reason.clone()),
        Status::Failed { reason, .. } => Some(format!("failed: {reason}")),
        Status::Measured if untimed => {
            let structure = record.structure.as_ref();
            let why = structure.and_then(|structure| structure.why_uncounted(CENSUS));
            let counted = structure.is_some_and(|structure| !structure.is_empty());
            (!counted).then(|| why.unwrap_or("its worker counts no structure").to_owned())
        }
        Status::Measured => {
            let timed = record.median(Metric::Device).is_some();
            let none = "none of its times is one that a clock can have shown";
            (!timed).then(|| none.to_owned())
        }
    }
}

/// True where the worker of a case could not load its library. Such a worker has no device, and
/// the run does not list it.
fn is_absent(header: &RunHeader, id: &CaseId) -> bool {
    id.case()
        .is_ok_and(|case| header.worker_of(&case).is_none())
}

/// True for a case that does not run on the CPU.
pub fn gpu(header: &RunHeader, id: &CaseId) -> bool {
    let on_cpu = |case: &Case| {
        let worker = header.worker_of(case);
        worker.is_some_and(WorkerRecord::runs_on_processor)
    };
    id.case().is_ok_and(|case| !on_cpu(&case))
}

/// True when one of the patterns allows this case to fail or be unsupported.
pub fn allowed(case: &CaseId, patterns: &[String]) -> bool {
    patterns.iter().any(|pattern| glob(pattern, &case.0))
}

/// What becomes of a demand on cases of which none was measured: it is skipped where `optional`
/// names each of them. `None` of no case.
pub fn unmeasured(cases: &[&CaseId], optional: &[String]) -> Option<(Word, String)> {
    let first = cases.first()?;
    let required = cases.iter().find(|id| !allowed(id, optional));
    Some(match required {
        Some(id) => (
            Word::Missing,
            format!(
                "{id} was not measured; measure it, or name it in the suite: [policy] optional"
            ),
        ),
        None => (
            Word::Skipped,
            format!("{first} was not measured, as `optional` allows"),
        ),
    })
}
