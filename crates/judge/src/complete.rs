//! Whether every planned case was measured, and what is said of those that were not.

use super::conditions::why_disturbed;
use super::judgement::Word;
use regatta_core::machine::CENSUS;
use regatta_core::record::side::{CaseRecord, Status, is_time, median};
use regatta_core::record::types::Fault;
use regatta_core::suite::glob;
use regatta_worker::attention::CaseId;
use regatta_worker::units::{Nanoseconds, Quantity};

/// What there is to judge of one case.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing<'a> {
    /// Both sides have times.
    Both(&'a CaseRecord, &'a CaseRecord),
    /// There is nothing to compare; this is said instead, and what kind of failure it is.
    Said(Word, Option<String>, Fault),
}

/// A standing of a case in which nothing failed.
fn said<'a>(word: Word, reason: Option<String>) -> Standing<'a> {
    Standing::Said(word, reason, Fault::Unknown)
}

/// Sorts a case by what its two sides are. `base` is `None` when the base does not
/// have the case, `has_base` is false when there is no base at all.
pub fn standing<'a>(
    base: Option<&'a CaseRecord>,
    head: Option<&'a CaseRecord>,
    has_base: bool,
) -> Standing<'a> {
    let Some(head) = head else {
        return said(Word::Removed, None);
    };
    match (trouble(head), &head.status) {
        (None, _) => {}
        (Some(_), Status::Unsupported { reason }) => return unsupported(base, reason),
        (Some(reason), status) => {
            return Standing::Said(Word::NotMeasured, Some(reason), fault(status));
        }
    }
    let Some(base) = base else {
        let word = if has_base {
            Word::Added
        } else {
            Word::Measured
        };
        return said(word, None);
    };
    // Its times are shown, and held against nothing.
    let machine = why_disturbed(head, "");
    if let Some(reason) = machine.or_else(|| why_disturbed(base, " of the base")) {
        return said(Word::Inconclusive, Some(reason));
    }
    match trouble(base) {
        None => Standing::Both(base, head),
        Some(reason) => without_base(base, &reason, Word::Measured),
    }
}

/// What is said of a case that the head measured and the base did not. A variant that does
/// it now, and did not, is news; else there should have been something to hold it against.
fn without_base<'a>(base: &CaseRecord, reason: &str, new: Word) -> Standing<'a> {
    let word = match base.status {
        Status::Unsupported { .. } => new,
        _ => Word::NotMeasured,
    };
    let why = match base.status {
        // It was measured once, and the file no longer says so.
        Status::Missing { .. } => format!("the base has lost it: {reason}"),
        _ => format!("the base has no time for it: {reason}"),
    };
    said(word, Some(why))
}

fn fault(status: &Status) -> Fault {
    match status {
        Status::Failed { fault, .. } => *fault,
        _ => Fault::Unknown,
    }
}

/// The same where nothing was timed: a case whose structure is known is counted, whether
/// or not there is a base to compare it with.
pub fn standing_untimed<'a>(
    base: Option<&'a CaseRecord>,
    head: Option<&'a CaseRecord>,
    has_base: bool,
) -> Standing<'a> {
    let Some(head) = head else {
        return said(Word::Removed, None);
    };
    let counted = |record: &CaseRecord| {
        let structure = record.structure.as_ref();
        record.status == Status::Measured && structure.is_some_and(|s| !s.is_empty())
    };
    let missing = |reason: &str| {
        let reason = Some(reason.to_owned());
        Standing::Said(Word::NotMeasured, reason, fault(&head.status))
    };
    match &head.status {
        Status::Measured if !counted(head) => {
            let structure = head.structure.as_ref();
            let reason = structure.and_then(|structure| structure.why_uncounted(CENSUS));
            missing(reason.unwrap_or("its worker counts no structure"))
        }
        Status::Measured => match base {
            None if has_base => said(Word::Added, None),
            Some(base) if !counted(base) => match trouble(base) {
                // What was not timed has no time to miss.
                Some(reason) if base.status != Status::Measured => {
                    without_base(base, &reason, Word::Counted)
                }
                _ => {
                    let reason = "the base has no structure of it".to_owned();
                    said(Word::Counted, Some(reason))
                }
            },
            _ => said(Word::Counted, None),
        },
        Status::Unsupported { reason } if base.is_some_and(counted) => {
            missing(&format!("no longer supported: {reason}"))
        }
        Status::Unsupported { reason } => said(Word::Unsupported, Some(reason.clone())),
        Status::Failed { reason, .. } => missing(&format!("failed: {reason}")),
        Status::Missing { reason } => missing(reason),
    }
}

/// A variant that never did this is no news; one that stopped doing it is.
fn unsupported<'a>(base: Option<&CaseRecord>, reason: &str) -> Standing<'a> {
    if base.is_some_and(|base| trouble(base).is_none()) {
        let reason = format!("no longer supported: {reason}");
        return said(Word::NotMeasured, Some(reason));
    }
    said(Word::Unsupported, Some(reason.to_owned()))
}

/// Why there is no time of a case; `None` when there is one.
fn trouble(record: &CaseRecord) -> Option<String> {
    match &record.status {
        Status::Unsupported { reason } => Some(format!("unsupported: {reason}")),
        Status::Failed { reason, .. } => Some(format!("failed: {reason}")),
        Status::Missing { reason } => Some(reason.clone()),
        Status::Measured if record.is_disturbed() => None,
        Status::Measured if usable(&record.device_ns).is_empty() => {
            Some("none of its times is one that a clock can have shown".to_owned())
        }
        Status::Measured => None,
    }
}

/// The times that can be used, or rates of a clock. A file can be edited: what is no
/// positive number, or beyond any clock (a femtosecond, a million years), is left out.
pub fn usable<Q: Quantity>(values: &[Q]) -> Vec<Q> {
    let shown = |value: &Q| is_time(Nanoseconds(value.number()));
    values.iter().copied().filter(shown).collect()
}

/// The median of those.
pub fn median_ns<Q: Quantity>(values: &[Q]) -> Option<Q> {
    median(&usable(values))
}

/// True when one of the patterns allows this case to fail or be unsupported.
pub fn allowed(case: &CaseId, patterns: &[String]) -> bool {
    patterns.iter().any(|pattern| glob(pattern, &case.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{failed, timed, unsupported as refused};

    fn said(standing: Standing<'_>) -> (Word, String) {
        match standing {
            Standing::Said(word, reason, _) => (word, reason.unwrap_or_default()),
            Standing::Both(..) => panic!("compared"),
        }
    }

    #[test]
    fn a_case_is_what_its_two_sides_are() {
        use Word::{Added, Measured, NotMeasured, Removed, Unsupported};
        let (fine, no, crashed) = (timed(&[1.0]), refused("y"), failed("x"));
        let (fine, no, crashed) = (Some(&fine), Some(&no), Some(&crashed));
        for (base, head, has_base, word, reason) in [
            (None, crashed, false, NotMeasured, "failed: x"),
            (fine, crashed, true, NotMeasured, "failed: x"),
            (crashed, crashed, true, NotMeasured, "failed: x"),
            (fine, no, true, NotMeasured, "no longer supported: y"),
            (None, no, true, Unsupported, "y"),
            (no, no, true, Unsupported, "y"),
            (crashed, no, true, Unsupported, "y"),
            (None, fine, true, Added, ""),
            (None, fine, false, Measured, ""),
            (fine, None, true, Removed, ""),
            (
                no,
                fine,
                true,
                Measured,
                "the base has no time for it: unsupported: y",
            ),
            // A base that failed is nothing to pass by.
            (
                crashed,
                fine,
                true,
                NotMeasured,
                "the base has no time for it: failed: x",
            ),
        ] {
            let found = said(standing(base, head, has_base));
            assert_eq!(found, (word, reason.to_owned()));
        }
        let record = timed(&[1.0]);
        let both = standing(Some(&record), Some(&record), true);
        assert_eq!(both, Standing::Both(&record, &record));
    }

    #[test]
    fn times_that_no_clock_shows_are_no_measurement() {
        let wild = [f64::NAN, 0.0, -3.0, f64::INFINITY, 1e300, 1e-300];
        let record = timed(&wild);
        assert_eq!(
            said(standing(None, Some(&record), false)).0,
            Word::NotMeasured
        );
        let times = [Nanoseconds(2.0), Nanoseconds(f64::NAN)];
        assert_eq!(usable(&times), times[..1]);
    }

    #[test]
    fn a_star_crosses_every_separator() {
        for (pattern, text, expected) in [
            ("*", "cpu/flash:s64,d64", true),
            ("*", "", true),
            ("cpu/*", "cpu/flash:s64,d64", true),
            ("*d256*", "cpu/flash:s64,d256,bwd", true),
            ("*bwd", "cpu/flash:s64,d256,bwd", true),
            ("*bwd", "cpu/flash:s64,bwd,d256", false),
            ("cpu/flash:s64", "cpu/flash:s64,d64", false),
            ("cpu/f*s64*d*", "cpu/flash:s64,d64", true),
            ("", "cpu", false),
            ("[c]pu", "cpu", false),
            ("**pu", "cpu", true),
        ] {
            assert_eq!(glob(pattern, text), expected, "{pattern} on {text}");
        }
    }
}
