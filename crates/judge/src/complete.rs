//! Checks that every planned case was measured, and gives the reason where one was not.

use super::judgement::Word;
use regatta_core::machine::CENSUS;
use regatta_core::record::{CaseRecord, Fault, Outcome, RunHeader, WorkerRecord};
use regatta_core::suite::{Metric, glob};
use regatta_worker::case::{Case, CaseId};

/// The records of both sides; or the word for a case without them, its reason and the kind of
/// failure.
type Standing<'a> = Result<(&'a CaseRecord, &'a CaseRecord), (Word, Option<String>, Option<Fault>)>;

/// Returns the records of a case to compare, or the word for a case that has none. `base` is `None`
/// where the base does not have the case. Where nothing was timed, a case counts as measured if its
/// structure is known.
pub fn standing<'a>(
    base: Option<&'a CaseRecord>,
    head: Option<&'a CaseRecord>,
    header: &RunHeader,
    id: &CaseId,
) -> Standing<'a> {
    let untimed = header.settings.structure_only;
    let Some(head) = head else {
        let reason = "only the base has it".to_owned();
        return Err((Word::Missing, Some(reason), None));
    };
    let fault = head.status.fault();
    let base_trouble = base.map(|base| trouble(base, untimed));
    let measured_before = base_trouble == Some(None);
    if let Some(reason) = trouble(head, untimed) {
        let (word, reason) = match (&head.status, absent_worker(header, id)) {
            (Outcome::Unsupported { .. }, Some(worker)) => {
                let fix = "install it, or name its cases in the suite: [policy] optional";
                (Word::Missing, format!("{reason}; {fix} = [\"{worker}/*\"]"))
            }
            (Outcome::Unsupported { .. }, None) if measured_before => {
                (Word::Missing, format!("no longer supported: {reason}"))
            }
            (Outcome::Unsupported { .. }, None) => (Word::Skipped, reason),
            _ => (word_of(fault), reason),
        };
        return Err((word, Some(reason), fault));
    }
    let (Some(base), Some(base_trouble)) = (base, base_trouble) else {
        return Err((Word::New, None, fault));
    };
    let Some(reason) = base_trouble else {
        return Ok((base, head));
    };
    let (word, why) = match base.status {
        Outcome::Missing { .. } => (Word::Missing, "the base did not measure it"),
        // A variant that supports the case now, and did not before, is new.
        Outcome::Unsupported { .. } => (Word::New, "the base did not support it"),
        _ if untimed => (Word::Missing, "the base has no structure for it"),
        _ => (Word::Missing, "the base has no time for it"),
    };
    Err((word, Some(format!("{why}: {reason}")), fault))
}

/// The word for a case that failed: a failure of the code under test is an error, any other makes
/// it missing.
fn word_of(fault: Option<Fault>) -> Word {
    match fault {
        Some(Fault::WrongResult | Fault::Crash | Fault::Hang | Fault::Failed) => Word::Error,
        _ => Word::Missing,
    }
}

/// Why a case was not measured; `None` where it was.
fn trouble(record: &CaseRecord, untimed: bool) -> Option<String> {
    match &record.status {
        Outcome::Unsupported { reason } | Outcome::Missing { reason } => Some(reason.clone()),
        Outcome::Failed { reason, .. } => Some(format!("failed: {reason}")),
        Outcome::Measured(()) if untimed => {
            let structure = record.structure.as_ref();
            let why = structure.and_then(|structure| structure.why_uncounted(CENSUS));
            let counted = structure.is_some_and(|structure| !structure.is_empty());
            (!counted).then(|| why.unwrap_or("its worker counts no structure").to_owned())
        }
        Outcome::Measured(()) => {
            let timed = record.median(Metric::Device).is_some();
            let reason = "none of its times is one that a clock can have shown";
            (!timed).then(|| reason.to_owned())
        }
    }
}

/// The name of a case's worker, if that could not load its library. Such a worker has no device,
/// and the run does not list it.
fn absent_worker(header: &RunHeader, id: &CaseId) -> Option<String> {
    let case = id.case().ok()?;
    let listed = header.worker_of(&case).is_some();
    (!listed).then(|| case.variant.worker_name())
}

/// True for a case that does not run on the CPU.
pub fn gpu(header: &RunHeader, id: &CaseId) -> bool {
    let on_cpu = |case: &Case| {
        let worker = header.worker_of(case);
        worker.is_some_and(WorkerRecord::runs_on_processor)
    };
    id.case().is_ok_and(|case| !on_cpu(&case))
}

/// True when one of `patterns` allows this case to fail or to be unsupported.
pub fn allowed(case: &CaseId, patterns: &[String]) -> bool {
    patterns.iter().any(|pattern| glob(pattern, &case.0))
}

/// The word for a demand on cases that were not measured: skipped if each of them matches
/// `optional`, else missing. `None` without a case.
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
