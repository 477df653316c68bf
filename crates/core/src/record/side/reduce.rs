//! From the entries of a run to one record a case.

use std::collections::BTreeMap;

use super::{CaseRecord, Invocation, Side, Status, is_time, median};
use crate::last_words;
use crate::machine::{Counters, Division};
use crate::record::choices;
use crate::record::first_call;
use crate::record::types::{Damage, Entry, Fault, Measurement, Outcome, Parts, Run};
use crate::suite::Settings;
use crate::suite::rules::{Metric, Values};
use regatta_worker::attention::CaseId;
use regatta_worker::units::{Nanoseconds, numbers};

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
    let settings = &run.header.settings;
    let cases = run.header.plan.iter().zip(folds);
    let cases = cases.map(|(case, fold)| (case.clone(), fold.record(settings)));
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
    /// Invocations in the file, and those of them that every case has.
    seen: u32,
    planned: (u32, u32),
    last: Option<u32>,
    refused: u32,
    /// Why the first that was refused was.
    refusal: Option<String>,
    failure: Option<(String, Fault)>,
    /// The first invocation without a sample.
    without: Option<u32>,
    /// What operations took in each invocation that tells.
    divisions: Vec<Division>,
    /// What hardware counted in each that was asked.
    counters: Vec<Counters>,
    /// What the first call was made of in each that tells.
    parts: Vec<Parts>,
    /// Invocations whose results were checked before timing only.
    before_only: u32,
}

impl Fold {
    /// A case of which nothing was seen yet.
    pub(super) fn new(settings: &Settings) -> Fold {
        Fold {
            record: CaseRecord::empty(Status::Measured),
            seen: 0,
            planned: (0, settings.invocations),
            last: None,
            refused: 0,
            refusal: None,
            failure: None,
            without: None,
            divisions: Vec::new(),
            counters: Vec::new(),
            parts: Vec::new(),
            before_only: 0,
        }
    }

    /// Adds an invocation; `false` where it comes before one that was added, and is not.
    pub(super) fn add(&mut self, entry: &Entry) -> bool {
        let number = entry.invocation;
        if self.last.is_some_and(|last| last > number) {
            return false;
        }
        self.last = Some(number);
        self.seen += 1;
        self.planned.0 += u32::from(number < self.planned.1);
        match &entry.outcome {
            Outcome::Measured(measurement) => self.learn(number, measurement),
            Outcome::Unsupported { reason } => {
                self.refused += 1;
                self.refusal.get_or_insert_with(|| reason.clone());
            }
            Outcome::Failed { reason, fault, log } => {
                let reason = || match last_words::fault(log) {
                    Some(line) => format!("{reason}; its last words: {line}"),
                    None => reason.clone(),
                };
                self.failure.get_or_insert_with(|| (reason(), *fault));
            }
        }
        true
    }

    fn learn(&mut self, number: u32, measurement: &Measurement) {
        let record = &mut self.record;
        record.learn(measurement);
        record.samples += measurement.device_ns.len() as u64;
        record.clock_mhz.extend(median(&measurement.clock_mhz));
        record
            .invocations
            .push(Invocation::reduced(number, measurement));
        choices::add(&mut record.choices, number, &measurement.tuned);
        let (division, counters) = (&measurement.division, &measurement.counters);
        self.divisions.extend(division.as_deref().cloned());
        self.counters.extend(counters.as_deref().cloned());
        if !measurement.first_call_disturbed {
            self.parts.extend(measurement.first_call_parts.clone());
        }
        self.before_only += u32::from(measurement.errors_after.is_empty());
        if measurement.device_ns.is_empty() {
            self.without.get_or_insert(number);
        }
    }

    /// The record of the case.
    fn record(mut self, settings: &Settings) -> CaseRecord {
        let status = self.status(settings);
        let record = &mut self.record;
        record.status = status;
        if settings.input_sets > 1 && !settings.structure_only {
            record.conditions.checked_before_only = self.before_only;
        }
        if record.choices.iter().all(|one| one.tuned.is_empty()) {
            record.choices.clear();
        }
        record.first_call_parts = first_call::medians(&self.parts);
        record.division = Division::merged(&self.divisions).map(Box::new);
        record.counters = Counters::merged(&self.counters).map(Box::new);
        record.invocations.shrink_to_fit();
        record.clock_mhz.shrink_to_fit();
        self.record
    }

    fn status(&self, settings: &Settings) -> Status {
        // A failure outranks everything: one crash in five is a crash.
        if let Some((reason, fault)) = self.failure.clone() {
            return Status::Failed { reason, fault };
        }
        let (there, planned) = self.planned;
        if there < planned {
            return Status::Missing {
                reason: format!("{there} of {planned} invocations are in the file"),
            };
        }
        let (seen, refused) = (self.seen, self.refused);
        if let Some(reason) = self.refusal.clone() {
            // What is supported by chance was not measured.
            return match refused == seen {
                true => Status::Unsupported { reason },
                false => Status::Missing {
                    reason: format!("unsupported in {refused} of {seen} invocations: {reason}"),
                },
            };
        }
        match self.without.filter(|_| !settings.structure_only) {
            Some(invocation) => Status::Missing {
                reason: format!("invocation {invocation} has no sample"),
            },
            None => Status::Measured,
        }
    }
}

impl Invocation {
    /// Reduces the samples of an invocation to a value a metric.
    fn reduced(number: u32, measurement: &Measurement) -> Invocation {
        let mut values = Values::default();
        let first_call_ns = measurement.first_call_ns.0;
        for (metric, value) in [
            (Metric::Device, median(&numbers(&measurement.device_ns))),
            (Metric::DeviceP90, ninth_of_ten(&measurement.device_ns)),
            (Metric::Host, median(&numbers(&measurement.host_ns))),
            (
                Metric::FirstCall,
                (first_call_ns > 0.0).then_some(first_call_ns),
            ),
            (
                Metric::PeakMemory,
                measurement.peak_bytes.map(|of| (of.0 as f64).max(1.0)),
            ),
            (Metric::CpuTime, median(&numbers(&measurement.cpu_ns))),
        ] {
            // A file can be edited: what no clock can have shown is left out.
            values.set(metric, value.filter(|value| is_time(Nanoseconds(*value))));
        }
        Invocation {
            number,
            values,
            host_reference_ns: median(&measurement.host_reference_ns),
            disturbed: measurement.disturbed.clone(),
            first_call_disturbed: measurement.first_call_disturbed,
        }
    }
}

/// The 9th of 10 samples, by rank; `None` for fewer than 10.
fn ninth_of_ten(samples: &[Nanoseconds]) -> Option<f64> {
    let mut sorted = numbers(samples);
    let place = (9 * sorted.len()).div_ceil(10).checked_sub(1)?;
    (sorted.len() >= 10).then(|| {
        let (_, value, _) = sorted.select_nth_unstable_by(place, f64::total_cmp);
        *value
    })
}

impl CaseRecord {
    /// What an invocation tells beside its times.
    fn learn(&mut self, measurement: &Measurement) {
        self.several |= measurement.several;
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
