//! From the entries of a run to one record a case.

use std::collections::BTreeMap;

use super::{CaseRecord, Disturbed, Side, Status, Unconfirmed, median};
use crate::last_words;
use crate::machine::{Counters, Division};
use crate::record::choices;
use crate::record::disturbance::{self, Disturbance};
use crate::record::first_call;
use crate::record::types::{Damage, Entry, Fault, Measurement, Outcome, Parts, Run};
use crate::suite::Settings;
use regatta_worker::attention::CaseId;

impl Side {
    /// Reduces a run.
    pub fn from_run(label: impl Into<String>, run: &Run) -> Side {
        // The file's order is that in which they were measured, and one that was torn is
        // measured last.
        let mut entries: BTreeMap<&CaseId, BTreeMap<u32, &Entry>> = BTreeMap::new();
        for entry in &run.entries {
            let of_case = entries.entry(&entry.case).or_default();
            of_case.insert(entry.invocation, entry);
        }
        let folds = run.header.plan.iter().map(|case| {
            let mut fold = Fold::new(&run.header.settings);
            for entry in entries.get(case).into_iter().flat_map(BTreeMap::values) {
                fold.add(entry);
            }
            fold
        });
        let folds: Vec<Fold> = folds.collect();
        assembled(label.into(), run, folds)
    }
}

/// The side of a run whose cases were folded, in the order of its plan.
pub(super) fn assembled(label: String, run: &Run, folds: Vec<Fold>) -> Side {
    // A case is in one batch after the other until it is decided.
    let mut owes: BTreeMap<&CaseId, u32> = BTreeMap::new();
    for batch in &run.owed {
        for case in &batch.cases {
            let fresh = owes.entry(case).or_default();
            *fresh = batch.fresh.max(*fresh);
        }
    }
    let settings = &run.header.settings;
    let cases = run.header.plan.iter().zip(folds).map(|(case, fold)| {
        let record = fold.record(owes.get(case).copied(), settings);
        (case.clone(), record)
    });
    let line = |damage: &Damage| format!("line {}: {}", damage.line, damage.problem);
    Side {
        label,
        header: run.header.clone(),
        cases: cases.collect(),
        damage: run.damage.iter().map(line).collect(),
    }
}

/// One case, invocation by invocation in their order, reduced as they come.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    record: CaseRecord,
    planned: u32,
    /// Whether times that the machine was in are left out.
    wants_quiet: bool,
    last: Option<u32>,
    /// Of the regular invocations and of the fresh ones.
    screen: Part,
    fresh: Part,
    /// The first regular invocation without a sample.
    without: Option<u32>,
    /// What operations took in each invocation that tells.
    divisions: Vec<Division>,
    /// What hardware counted in each that was asked.
    counters: Vec<Counters>,
    /// What the first call was made of in each that tells.
    parts: Vec<Parts>,
    /// Invocations whose times count.
    quiet: usize,
    /// Invocations whose results were checked before timing only.
    before_only: u32,
}

/// What came of a part of the invocations.
#[derive(Clone, Debug, Default)]
struct Part {
    seen: u32,
    refused: u32,
    /// Why the first that was refused was.
    refusal: Option<String>,
    failure: Option<(String, Fault)>,
}

impl Part {
    fn add(&mut self, outcome: &Outcome) {
        self.seen += 1;
        if let Outcome::Unsupported { reason } = outcome {
            self.refused += 1;
            self.refusal.get_or_insert_with(|| reason.clone());
        }
        if self.failure.is_none() {
            self.failure = failure(outcome);
        }
    }
}

impl Fold {
    /// A case of which nothing was seen yet.
    pub(super) fn new(settings: &Settings) -> Fold {
        Fold {
            record: CaseRecord::empty(Status::Measured),
            planned: settings.invocations,
            wants_quiet: settings.wants_quiet(),
            last: None,
            screen: Part::default(),
            fresh: Part::default(),
            without: None,
            divisions: Vec::new(),
            counters: Vec::new(),
            parts: Vec::new(),
            quiet: 0,
            before_only: 0,
        }
    }

    /// Adds an invocation; `false` where it comes before one that was added, and is not.
    pub(super) fn add(&mut self, entry: &Entry) -> bool {
        let (invocation, outcome) = (entry.invocation, &entry.outcome);
        if self.last.is_some_and(|last| last > invocation) {
            return false;
        }
        self.last = Some(invocation);
        let confirms = invocation >= self.planned;
        match confirms {
            true => self.fresh.add(outcome),
            false => self.screen.add(outcome),
        }
        if let Outcome::Measured(measurement) = outcome {
            self.record.learn(measurement);
            choices::add(&mut self.record.choices, invocation, &measurement.tuned);
            self.divisions
                .extend(measurement.division.as_deref().cloned());
            self.counters
                .extend(measurement.counters.as_deref().cloned());
            self.times(invocation, measurement, confirms);
            self.before_only += u32::from(measurement.errors_after.is_empty());
            if measurement.device_ns.is_empty() && !confirms {
                self.without.get_or_insert(invocation);
            }
        }
        true
    }

    /// Takes in the times of an invocation, or that the machine was in them.
    fn times(&mut self, invocation: u32, measurement: &Measurement, confirms: bool) {
        let disturbed = self.wants_quiet && !measurement.disturbed.is_empty();
        match median(&measurement.device_ns) {
            Some(device_ns) if disturbed => self.record.disturbed.push(Disturbed {
                invocation,
                confirms,
                device_ns,
                cpu_ns: median(&measurement.cpu_ns),
                by: measurement.disturbed.clone(),
            }),
            _ => {
                self.record.add(measurement, confirms);
                self.quiet += 1;
            }
        }
        if !(self.wants_quiet && measurement.first_call_disturbed) {
            self.record.first_call_ns.push(measurement.first_call_ns);
            self.parts.extend(measurement.first_call_parts.clone());
        }
    }

    /// The record of the case, which owes so many fresh invocations where it is a suspect.
    fn record(mut self, owed: Option<u32>, settings: &Settings) -> CaseRecord {
        // Paired with others by invocation: a list with gaps would be paired wrongly.
        for list in [&mut self.record.host_ns, &mut self.record.cpu_ns] {
            if list.len() < self.quiet {
                list.clear();
            }
        }
        if settings.input_sets > 1 && !settings.structure_only {
            self.record.conditions.checked_before_only = self.before_only;
        }
        if self.record.choices.iter().all(|one| one.tuned.is_empty()) {
            self.record.choices.clear();
        }
        self.record.first_call_parts = first_call::medians(&self.parts);
        self.record.division = Division::merged(&self.divisions).map(Box::new);
        self.record.counters = Counters::merged(&self.counters).map(Box::new);
        self.record.status = status(self.screen, self.planned, self.without, settings);
        let lost = unconfirmed(self.fresh, owed);
        self.record.unconfirmed = lost.or_else(|| shaken(&self.record));
        for times in [
            &mut self.record.device_ns,
            &mut self.record.confirm_ns,
            &mut self.record.host_ns,
            &mut self.record.cpu_ns,
            &mut self.record.first_call_ns,
        ] {
            times.shrink_to_fit();
        }
        self.record.clock_mhz.shrink_to_fit();
        self.record
    }
}

/// Why the fresh invocations of a case decide nothing, where the machine was in half of them
/// or more.
fn shaken(record: &CaseRecord) -> Option<Unconfirmed> {
    let fresh = || record.disturbed.iter().filter(|one| one.confirms);
    let (lost, quiet) = (fresh().count(), record.confirm_ns.len());
    let by: Vec<Disturbance> = disturbance::worst(fresh().flat_map(|one| &one.by));
    (lost > 0 && lost >= quiet).then(|| Unconfirmed {
        reason: format!(
            "the machine was in {lost} of its {} fresh invocations: {}",
            lost + quiet,
            disturbance::told(&by)
        ),
        fault: Fault::Unknown,
    })
}

fn status(screen: Part, planned: u32, without: Option<u32>, settings: &Settings) -> Status {
    // A failure outranks everything: one crash in five is a crash.
    if let Some((reason, fault)) = screen.failure {
        return Status::Failed { reason, fault };
    }
    let (seen, refused) = (screen.seen, screen.refused);
    if seen < planned {
        return Status::Missing {
            reason: format!("{seen} of {planned} invocations are in the file"),
        };
    }
    if let Some(reason) = screen.refusal {
        // What is supported by chance was not measured.
        return match refused == seen {
            true => Status::Unsupported { reason },
            false => Status::Missing {
                reason: format!("unsupported in {refused} of {seen} invocations: {reason}"),
            },
        };
    }
    match without.filter(|_| !settings.structure_only) {
        Some(invocation) => Status::Missing {
            reason: format!("invocation {invocation} has no sample"),
        },
        None => Status::Measured,
    }
}

/// Why the fresh invocations of a case decide nothing, where that is so.
fn unconfirmed(fresh: Part, owed: Option<u32>) -> Option<Unconfirmed> {
    if let Some((reason, fault)) = fresh.failure {
        return Some(Unconfirmed { reason, fault });
    }
    let unknown = |reason| {
        Some(Unconfirmed {
            reason,
            fault: Fault::Unknown,
        })
    };
    if let Some(reason) = fresh.refusal {
        return unknown(format!("unsupported: {reason}"));
    }
    let taken = fresh.seen;
    let owed = owed.filter(|owed| taken < *owed)?;
    unknown(format!(
        "{taken} of {owed} fresh invocations that it owes are in the file"
    ))
}

/// What a failed invocation says, with the worker's last words.
fn failure(outcome: &Outcome) -> Option<(String, Fault)> {
    let Outcome::Failed { reason, fault, log } = outcome else {
        return None;
    };
    let reason = match last_words::fault(log) {
        Some(line) => format!("{reason}; its last words: {line}"),
        None => reason.clone(),
    };
    Some((reason, *fault))
}

impl CaseRecord {
    /// Takes in the times of one invocation.
    fn add(&mut self, measurement: &Measurement, confirms: bool) {
        let times = if confirms {
            &mut self.confirm_ns
        } else {
            &mut self.device_ns
        };
        times.extend(median(&measurement.device_ns));
        self.host_ns.extend(median(&measurement.host_ns));
        self.cpu_ns.extend(median(&measurement.cpu_ns));
        self.clock_mhz.extend(median(&measurement.clock_mhz));
        self.samples += measurement.device_ns.len() as u64;
    }

    /// What an invocation tells beside its times, whether or not they count.
    fn learn(&mut self, measurement: &Measurement) {
        self.several |= measurement.several;
        self.peak_bytes = self.peak_bytes.max(measurement.peak_bytes);
        self.conditions.add(measurement);
        self.effective.clone_from(&measurement.effective);
        for (result, &error) in &measurement.errors {
            match self.errors.get_mut(result) {
                Some(worst) => *worst = worst.max(error),
                None => drop(self.errors.insert(result.clone(), error)),
            }
        }
        if let Some(structure) = &measurement.structure {
            self.structure = Some(Box::new(structure.clone()));
        }
        if let Some(activity) = &measurement.activity {
            self.activity = Some(activity.summary());
        }
    }
}

#[cfg(test)]
mod tests;
