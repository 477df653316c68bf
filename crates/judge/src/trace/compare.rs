//! Compares two traces.

use std::collections::BTreeSet;

use serde::Serialize;

use super::runs::{FEWEST, Runs, RunsOf, THRESHOLD, comparable, judge};
use super::{Analysis, analyse};
use crate::account::{AccountInputs, account};
use crate::causes::{Facts, Found, found};
use crate::comparable::differ;
use crate::judgement::{Account, Finding, Mismatch, Verdict, VerdictOutcome};
use regatta_core::machine::{
    Division, KernelChange, Launches, Recorded, Scope, SideFigures, Sides, Summary, in_each,
    of_recordings, repetition, whole,
};
use regatta_core::record::trace::{Spent, Trace};
use regatta_worker::joined::Joined;
use regatta_worker::units::{Nanoseconds, Share};

/// The result of comparing two traces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceComparison {
    /// The compared part of each trace: a repetition, or the whole.
    pub scope: Scope,
    /// The smallest change of one run's time that counts, for the rows of kernels.
    pub threshold: Share,
    /// The times of both sides, judged by all runs; absent where a side has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<Runs>,
    /// The figures of both sides.
    pub sides: Sides<SideFigures>,
    /// Facts that keep times from being compared.
    pub incomparable: Vec<Mismatch>,
    /// The kernels, sorted by growth of total time, largest first.
    pub kernels: Vec<KernelChange>,
    /// Causes, those that account for most first.
    pub findings: Vec<Finding>,
    /// The breakdown of the change in elapsed time, if both sides used one device and are divided
    /// into operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
    /// The caveats, as sentences.
    pub notes: Vec<String>,
    /// The verdict on the comparison.
    pub verdict: Verdict,
}

/// One side with its analysis.
struct TracedSide<'a> {
    trace: &'a Trace,
    /// The analysis; without its steady part if the other side has none.
    analysis: Analysis,
    label: &'a str,
}

impl<'a> TracedSide<'a> {
    fn new((label, trace): (&'a str, &'a Trace)) -> TracedSide<'a> {
        let analysis = analyse(&trace.recording);
        TracedSide {
            trace,
            analysis,
            label,
        }
    }

    /// The figures of the compared part, and its number of repetitions.
    fn summary(&self) -> (&Summary, f64) {
        match &self.analysis.steady {
            Some(part) => (&part.summary, part.steady.repeats as f64),
            None => (&self.analysis.whole, 1.0),
        }
    }

    fn launches(&self) -> Launches<'_> {
        let recording = &self.trace.recording;
        let mut operations: Vec<&Recorded> = match &self.analysis.steady {
            Some(part) => part.steady.last(recording),
            None => recording.operations.iter().collect(),
        };
        // The program decides the order of launches, the device that of starts.
        operations.sort_by_key(|o| {
            let start = o.start_ns.cast_signed();
            (o.process, o.device, o.launched_ns.unwrap_or(start), start)
        });
        let rows = self.summary().0.kernels.iter();
        Launches {
            recording,
            operations,
            mean_ns: rows.map(|row| (row.name.as_str(), row.mean())).collect(),
        }
    }

    /// The division of its time into operations.
    fn division(&self) -> Option<Division> {
        let recording = &self.trace.recording;
        match &self.analysis.steady {
            Some(part) => repetition(recording, &part.steady),
            None => whole(recording),
        }
    }

    /// The times of its runs.
    fn runs(&self) -> Vec<Spent> {
        comparable(self.trace, &self.analysis)
    }

    fn figures(&self) -> SideFigures {
        let (summary, times) = self.summary();
        let per = |ns: u64| Nanoseconds::whole(ns) / times;
        let time = &summary.time;
        let recording = &self.trace.recording;
        let steady = self.analysis.steady.as_ref();
        let copies = summary.copies.iter().map(|row| {
            let count = row.count as f64 / times;
            (row.what.clone(), (count, per(row.total_ns)))
        });
        let all = summary.calls.iter();
        let calls = match steady {
            Some(part) => in_each(recording, &part.steady),
            None => all.map(|(name, n)| (name.clone(), *n as f64)).collect(),
        };
        SideFigures {
            label: self.label.to_owned(),
            elapsed_ns: match steady {
                Some(part) => part.steady.period_time(),
                None => Nanoseconds::whole(time.span_ns),
            },
            busy_ns: per(time.busy_ns),
            idle_ns: per(time.idle_ns()),
            host_bound_ns: time.host_bound_ns.map(per),
            overlap: time.overlap(),
            streams_at_once_ns: time.streams_at_once_ns.map(per),
            copies: copies.collect(),
            calls,
            lost: recording.dropped() + recording.damage.len() as u64,
        }
    }

    /// The names of the GPUs, with their numbers of multiprocessors.
    fn devices(&self) -> String {
        let devices = self
            .trace
            .recording
            .processes
            .iter()
            .flat_map(|p| &p.devices);
        let names = devices.map(|device| match device.sms {
            0 => device.name.clone(),
            sms => format!("{} ({sms} SMs)", device.name),
        });
        BTreeSet::from_iter(names).into_iter().joined(", ")
    }
}

/// Compares two traces, each with the times of the earlier runs that it lists. `asked` replaces the
/// smallest change that counts, for one run and for several.
pub fn compare(
    base: (&str, &Trace),
    head: (&str, &Trace),
    asked: Option<Share>,
) -> TraceComparison {
    let threshold = asked.unwrap_or(THRESHOLD);
    let [mut base, mut head] = [base, head].map(TracedSide::new);
    let unsteady: Vec<String> = [&base, &head]
        .into_iter()
        .filter(|side| side.analysis.steady.is_none())
        .map(|side| {
            let label = side.label;
            format!(
                "{label} has no part that repeats, so warm-up and compilation are in what is \
                 compared"
            )
        })
        .collect();
    let scope = if unsteady.is_empty() {
        Scope::Repetition
    } else {
        Scope::Whole
    };
    if scope == Scope::Whole {
        (base.analysis.steady, head.analysis.steady) = (None, None);
    }
    let mut incomparable = Vec::new();
    let differing = &mut incomparable;
    differ(differing, "devices", base.devices(), head.devices());
    let method = |side: &TracedSide| side.trace.header.method;
    differ(differing, "method", method(&base), method(&head));
    let recorder = |side: &TracedSide| {
        let name = side.trace.header.recorder.clone();
        name.unwrap_or_else(|| "regatta".to_owned())
    };
    differ(differing, "recorder", recorder(&base), recorder(&head));
    let mut comparison = TraceComparison {
        scope,
        threshold,
        runs: judge(&Sides::new(base.runs(), head.runs()), asked),
        kernels: of_recordings(&base.launches(), &head.launches()),
        sides: Sides::new(base.figures(), head.figures()),
        incomparable,
        findings: Vec::new(),
        account: None,
        notes: Vec::new(),
        verdict: Verdict::default(),
    };
    let (found, account) = {
        let TraceComparison { sides, kernels, .. } = &comparison;
        let divisions = Sides::both(base.division(), head.division());
        let account = divisions.map(|divisions| {
            account(&AccountInputs {
                times: sides.map(|side| side.elapsed_ns),
                divisions: Sides::new(&divisions.base, &divisions.head),
                holds_host: Sides::new(true, true),
                host: None,
                mhz: None,
                counters: None,
                kernels,
            })
        });
        let facts = Facts::of_traces(sides, scope, kernels, account, threshold);
        (found(&facts), facts.account)
    };
    comparison.account = account;
    comparison.verdict = verdict(&comparison, &found, [&base, &head]);
    comparison.findings = found.into_iter().map(|cause| cause.finding).collect();
    comparison.notes = notes(&comparison, [&base, &head]);
    comparison.notes.extend(unsteady);
    comparison
}

fn verdict(comparison: &TraceComparison, findings: &[Found], sides: [&TracedSide; 2]) -> Verdict {
    let comparable = comparison.incomparable.is_empty();
    if let Some(empty) = sides
        .iter()
        .find(|s| s.trace.recording.operations.is_empty())
    {
        return Verdict::inconclusive(vec![format!("{} has no operation", empty.label)]);
    }
    let runs = comparison.runs.as_ref().filter(|_| comparable);
    let mut reasons = runs.map_or_else(Vec::new, |runs| slower(runs, VerdictOutcome::Failed));
    let worse = findings.iter().filter(|findings| findings.worse);
    reasons.extend(
        worse.map(|findings| format!("the structure is worse: {}", findings.finding.cause)),
    );
    let open = runs.map_or_else(Vec::new, |runs| slower(runs, VerdictOutcome::Inconclusive));
    let outcome = match (reasons.is_empty(), comparable && open.is_empty()) {
        (false, _) => VerdictOutcome::Failed,
        (true, true) => VerdictOutcome::Passed,
        (true, false) => VerdictOutcome::Inconclusive,
    };
    reasons.extend(
        open.into_iter()
            .map(|reason| format!("not decided: {reason}")),
    );
    if outcome == VerdictOutcome::Inconclusive && !comparable {
        reasons.push("the traces are of different devices, methods or recorders".to_owned());
    }
    Verdict {
        outcome,
        reasons,
        ..Verdict::default()
    }
}

/// A sentence for each time that has this outcome. The elapsed time is left out if it grew no more
/// than the device's busy time.
fn slower(runs: &Runs, outcome: VerdictOutcome) -> Vec<String> {
    let Runs { busy, elapsed, .. } = runs;
    let is = |time: &RunsOf| time.outcome() == outcome;
    let sentence = |what: &str, comparison: &RunsOf| {
        if runs.are_several() {
            format!("{what} {} ({})", comparison.sentence(), runs.sentence())
        } else {
            format!("{what} {}", comparison.change.ratio.in_words())
        }
    };
    let busy_reason = is(busy).then(|| sentence("the device works", busy));
    let more = is(elapsed) && (!is(busy) || elapsed.change.ratio > busy.change.ratio);
    let elapsed_reason = more.then(|| sentence("the program takes", elapsed));
    busy_reason.into_iter().chain(elapsed_reason).collect()
}

fn notes(comparison: &TraceComparison, sides: [&TracedSide; 2]) -> Vec<String> {
    let mut notes = vec![match &comparison.runs {
        Some(runs) if runs.are_enough() => format!(
            "times are of {} under a profiler, judged by the spread of these; what changed on the \
             machine between the two sides is not known",
            runs.sentence()
        ),
        _ => format!(
            "a trace is one run under a profiler: structure is exact, times are an indication; \
             {FEWEST} runs of each side (`regatta trace --runs {FEWEST}`) are judged by the rule \
             of gates"
        ),
    }];
    if let Some(runs) = comparison.runs.as_ref().filter(|runs| runs.are_several()) {
        notes.push(format!(
            "{}: the device works {}; the program takes {}",
            runs.sentence(),
            runs.busy.sentence(),
            runs.elapsed.sentence()
        ));
    }
    for side in sides {
        let recorded = 1 + side.trace.header.earlier.len();
        let used = side.runs().len();
        if used < recorded && !side.trace.recording.operations.is_empty() {
            notes.push(format!(
                "{}: {} of {recorded} runs repeat another number of operations, or nothing, and do \
                 not count",
                side.label,
                recorded - used
            ));
        }
        let recording = &side.trace.recording;
        for (number, what) in [
            (recording.dropped(), "records were lost while recording"),
            (recording.damage.len() as u64, "lines could not be used"),
            (recording.left_out, "operations were left out by --limit"),
        ] {
            if number > 0 {
                notes.push(format!("{}: {number} {what}", side.label));
            }
        }
    }
    if comparison.sides.base.host_bound_ns.is_none() {
        notes.push(
            "the base has no launches: idle time cannot be attributed to the host".to_owned(),
        );
    }
    notes
}
