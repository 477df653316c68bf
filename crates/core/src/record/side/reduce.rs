//! Reduces the entries of a run to one record for each case.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{CaseRecord, Circumstances, Invocation, Side, add_choice, median, median_count};
use crate::last_words;
use crate::machine::{
    ASKED_OF_CUDA, Counters, Division, Structure, Work, is_evidence, moves_data, normalised,
    of_calls, short,
};
use crate::metric::{Values, host_ratios};
use crate::record::run_file::each;
use crate::record::{
    Choices, Damage, Entry, Fault, Measurement, Outcome, Parts, RecordError, Run, reduced,
};
use crate::suite::Settings;
use crate::text;
use regatta_worker::case::ParamValue;
use regatta_worker::protocol::{Measured, Taken};
use regatta_worker::units::Nanoseconds;

impl Side {
    /// Reads the reduced cases beside a run's file, or else the run's file itself. The run comes
    /// back without its entries.
    ///
    /// # Errors
    /// As [`run_file::read`](crate::record::run_file::read).
    pub fn read(path: &Path, label: &str) -> Result<(Run, Side), RecordError> {
        match reduced::read(path, label) {
            Some(read) => Ok(read),
            None => Side::reduced(path, label),
        }
    }

    /// Reads a run's file and reduces each entry as it is read, so that none is kept.
    ///
    /// # Errors
    /// As [`run_file::read`](crate::record::run_file::read).
    pub(in crate::record) fn reduced(path: &Path, label: &str) -> Result<(Run, Side), RecordError> {
        let mut folds: Vec<Fold> = Vec::new();
        // Cases whose invocations are out of order, because torn entries are measured last.
        let mut late: BTreeMap<usize, BTreeMap<u32, Entry>> = BTreeMap::new();
        let new = |run: &Run| vec![Fold::new(&run.header.settings); run.header.plan.len()];
        let run = each(
            path,
            |_| true,
            |run, place, entry| {
                if folds.is_empty() {
                    folds = new(run);
                }
                if !folds[place].add(entry) {
                    late.insert(place, BTreeMap::new());
                }
            },
        )?;
        if folds.is_empty() {
            folds = new(&run);
        }
        if !late.is_empty() {
            // There are few such cases, so all their invocations are collected and sorted.
            each(
                path,
                |_| true,
                |_, place, entry| {
                    if let Some(of_case) = late.get_mut(&place) {
                        of_case.insert(entry.invocation, entry);
                    }
                },
            )?;
        }
        for (place, invocations) in late {
            folds[place] = Fold::new(&run.header.settings);
            for entry in invocations.into_values() {
                folds[place].add(entry);
            }
        }
        let side = assembled(label, &run, folds);
        Ok((run, side))
    }

    /// The side of a run that has its entries in memory.
    #[cfg(any(test, feature = "testing"))]
    pub fn from_run(label: &str, run: &Run) -> Side {
        let mut folds = vec![Fold::new(&run.header.settings); run.header.plan.len()];
        let mut entries = run.entries.clone();
        entries.sort_by_key(|entry| entry.invocation);
        for entry in entries {
            let place = run.header.plan.iter().position(|id| *id == entry.case);
            folds[place.expect("a case of the plan")].add(entry);
        }
        assembled(label, run, folds)
    }
}

/// The side of a run whose cases were reduced, in the order of its plan.
fn assembled(label: &str, run: &Run, folds: Vec<Fold>) -> Side {
    let settings = &run.header.settings;
    let cases = run.header.plan.iter().zip(folds);
    let cases = cases.map(|(case, mut fold)| {
        if let Some(limited) = &run.limited {
            fold.planned.1 = limited.invocations;
        }
        (case.clone(), fold.record(settings))
    });
    let line = |damage: &Damage| format!("line {}: {}", damage.line, damage.problem);
    Side {
        label: label.to_owned(),
        header: run.header.clone(),
        cases: cases.collect(),
        damage: run.damage.iter().map(line).collect(),
    }
}

/// Reduces one case from its invocations, in order.
#[derive(Clone, Debug, Default)]
struct Fold {
    record: CaseRecord,
    /// The number of its invocations in the file, and the number of those that every case has.
    seen: u32,
    planned: (u32, u32),
    last: Option<u32>,
    refused: u32,
    /// The reason of the first unsupported invocation.
    refusal: Option<String>,
    failure: Option<(String, Fault)>,
    /// The first invocation without a sample.
    without: Option<u32>,
    /// The times of operations in each invocation that has them.
    divisions: Vec<(u32, Division)>,
    /// The hardware counters of each invocation in which they were read.
    counters: Vec<Counters>,
    /// The parts of the first call in each invocation that has them.
    parts: Vec<Parts>,
    /// The number of invocations whose results were checked only before timing.
    before_only: u32,
}

impl Fold {
    /// A case without invocations.
    fn new(settings: &Settings) -> Fold {
        Fold {
            planned: (0, settings.invocations),
            ..Fold::default()
        }
    }

    /// Adds an invocation. Returns false, and adds nothing, if a later one was already added.
    fn add(&mut self, entry: Entry) -> bool {
        let number = entry.invocation;
        if self.last.is_some_and(|last| last > number) {
            return false;
        }
        self.last = Some(number);
        self.seen += 1;
        self.planned.0 += u32::from(number < self.planned.1);
        match entry.outcome {
            Outcome::Measured(measurement) => self.learn(number, measurement),
            Outcome::Unsupported { reason } => {
                self.refused += 1;
                self.refusal.get_or_insert_with(|| text::reason(&reason));
            }
            Outcome::Failed { reason, fault, log } => {
                let reason = || match last_words::fault(&log) {
                    Some(line) => format!("{reason}; its last words: {line}"),
                    None => reason.clone(),
                };
                self.failure
                    .get_or_insert_with(|| (text::reason(&reason()), fault));
            }
            // The reader of lines refuses such an entry.
            Outcome::Missing { reason } => {
                self.failure.get_or_insert((reason, Fault::Other));
            }
        }
        true
    }

    fn learn(&mut self, number: u32, measurement: Measurement) {
        let record = &mut self.record;
        record.samples += measurement.samples.device_ns.len() as u64;
        record
            .clock_mhz
            .extend(median(&measurement.samples.clock_mhz));
        if !measurement.tuned.is_empty() {
            add_choice(&mut record.choices, number, &measurement.tuned);
        }
        let before = !measurement.errors.is_empty() && measurement.compared.is_none();
        self.before_only += u32::from(before && measurement.errors_after.is_empty());
        if measurement.samples.device_ns.is_empty() {
            self.without.get_or_insert(number);
        }
        record.conditions.add(&measurement);
        let invocation = Invocation::reduced(number, &measurement);
        let division = measurement.division.map(|division| (number, *division));
        self.divisions.extend(division);
        self.counters
            .extend(measurement.counters.map(|counters| *counters));
        if !measurement.first_call_disturbed {
            self.parts.extend(measurement.first_call_parts);
        }
        record.several |= measurement.several;
        record.effective(number, measurement.effective, &measurement.tuned);
        for (result, error) in measurement.errors {
            record.errors.raise(result, error);
        }
        match (&record.structure, measurement.structure) {
            // Another choice of a tuner is another structure.
            (Some(usual), Some(other)) if measurement.tuned.is_empty() => {
                let first = record.invocations.first().map_or(0, |first| first.number);
                for (name, how) in varying_structure([first, number], usual, &other) {
                    record.varying.entry(name).or_insert(how);
                }
            }
            (None, Some(structure)) => record.structure = Some(structure.into()),
            _ => {}
        }
        if let (None, Some(activity)) = (&record.activity, measurement.activity) {
            record.activity = Some(activity.summary());
        }
        record.invocations.push(invocation);
    }

    /// The record of the case.
    fn record(mut self, settings: &Settings) -> CaseRecord {
        let status = self.status(settings);
        let record = &mut self.record;
        record.status = status;
        if settings.input_sets > 1 && !settings.structure_only {
            record.conditions.checked_before_only = self.before_only;
        }
        if !record.choices.is_empty() {
            let chosen = record.choices.iter().flat_map(|choice| &choice.invocations);
            let chosen: BTreeSet<u32> = chosen.copied().collect();
            let all = record.invocations.iter().map(|one| one.number);
            for number in all.filter(|number| !chosen.contains(number)) {
                add_choice(&mut record.choices, number, &Choices::new());
            }
            record.choices.sort_by_key(|choice| choice.invocations[0]);
        }
        if let Some(structure) = &record.structure {
            record.effective.extend(structure.effective.clone());
        }
        record.first_call_parts = median_parts(&self.parts);
        if let Some(how) = varying_launches(&self.divisions) {
            record.varying.insert("launches".to_owned(), how);
        }
        let divisions: Vec<Division> = self
            .divisions
            .drain(..)
            .map(|(_, division)| division)
            .collect();
        record.division = Division::merged(&divisions).map(Box::new);
        record.counters = Counters::merged(&self.counters).map(Box::new);
        record.invocations.shrink_to_fit();
        record.clock_mhz.shrink_to_fit();
        self.record
    }

    fn status(&self, settings: &Settings) -> Outcome<()> {
        // A failure outranks everything: one crash in five is a crash.
        if let Some((reason, fault)) = self.failure.clone() {
            return Outcome::failed(reason, fault);
        }
        let (there, planned) = self.planned;
        if there < planned {
            return Outcome::missing(format!("{there} of {planned} invocations are in the file"));
        }
        let (seen, refused) = (self.seen, self.refused);
        if let Some(reason) = self.refusal.clone() {
            // A case that is supported in some invocations only was not measured.
            return if refused == seen {
                Outcome::Unsupported { reason }
            } else {
                let part = format!("{refused} of {seen} invocations");
                Outcome::missing(format!("unsupported in {part}: {reason}"))
            };
        }
        match self.without.filter(|_| !settings.structure_only) {
            Some(invocation) => Outcome::missing(format!("invocation {invocation} has no sample")),
            None => Outcome::Measured(()),
        }
    }
}

impl Invocation {
    /// Reduces the samples of an invocation to one value for each metric.
    fn reduced(number: u32, measurement: &Measurement) -> Invocation {
        let circumstances = Circumstances {
            ratios: measurement.ratios.clone(),
            host_ratio: host_ratio(&measurement.samples),
            threads: median_count(&measurement.samples.threads),
            page_faults: median_count(&measurement.samples.page_faults),
            waits_taken_out: waits_taken_out(&measurement.samples),
            waited_ns: median(&measurement.samples.waited_ns),
            growth_bytes_per_call: measurement.samples.growth_bytes_per_call,
            disturbed: measurement.disturbed.clone(),
            first_call_disturbed: measurement.first_call_disturbed,
        };
        Invocation::new(number, Values::reduced(measurement), circumstances)
    }
}

/// True if waits for a core are known and 9 of 10 samples ran on one thread, so that the worker
/// subtracted the waits from those samples. In the others, a housekeeping thread of the process may
/// have woken up, which no median shows.
fn waits_taken_out(samples: &Measured) -> bool {
    let one = samples.threads.iter().filter(|count| **count == 1).count();
    !samples.waited_ns.is_empty() && one > 0 && 10 * one >= 9 * samples.threads.len()
}

/// The median of ratios, rather than the ratio of medians: if the host's speed changes between
/// samples, both times change (15 of an H200's runs: 7.6 % between pairs of backward, not 14.3 %).
fn host_ratio(samples: &Measured) -> Option<f64> {
    median(&host_ratios(samples))
}

/// A sentence on the computing kernels of the first invocation that knows them, and those of the
/// first that differs.
fn varying_launches(divisions: &[(u32, Division)]) -> Option<String> {
    let kernels = |of: &Division| {
        let names = of.parts.iter().filter_map(|part| match &part.work {
            Work::Kernel(kernel) => Some(kernel.name.as_str()),
            _ => None,
        });
        computing(names)
    };
    let (first, rest) = divisions.split_first()?;
    let usual = kernels(&first.1);
    let mut rest = rest.iter();
    rest.find_map(|(number, activity)| {
        other_kernels([first.0, *number], &usual, &kernels(activity))
    })
}

/// The kernels that compute, by their normalised names.
fn computing<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = names
        .filter(|name| !moves_data(name))
        .map(normalised)
        .collect();
    names.sort();
    names
}

/// The difference between the kernels of two invocations, as text.
fn other_kernels([first, number]: [u32; 2], usual: &[String], other: &[String]) -> Option<String> {
    let only = |these: &[String], those: &[String]| -> String {
        let only = these.iter().find(|name| !those.contains(name));
        only.map_or(String::new(), |name| format!(", with {}", short(name)))
    };
    (usual != other).then(|| {
        format!(
            "{}{} in invocation {first}, {}{} in invocation {number}",
            usual.len(),
            only(usual, other),
            other.len(),
            only(other, usual),
        )
    })
}

/// The differences between the structures of two invocations, by name. The number of working
/// threads and the requests for driver memory are left out, because they depend on the rest of the
/// process and the machine.
fn varying_structure(
    numbers: [u32; 2],
    usual: &Structure,
    other: &Structure,
) -> Vec<(String, String)> {
    let [first, number] = numbers;
    let in_both = |before: &str, after: &str| {
        format!("{before} in invocation {first}, {after} in invocation {number}")
    };
    if other.is_empty() && !usual.is_empty() {
        let how = in_both("counted", "not counted");
        return vec![("structure".to_owned(), how)];
    }
    let kernels = |of: &Structure| computing(of.launches.iter().map(|launch| &*launch.name));
    if let Some(how) = other_kernels(numbers, &kernels(usual), &kernels(other)) {
        return vec![("launches".to_owned(), how)];
    }
    let mut changes = Vec::new();
    for kernel in of_calls(usual, other, None) {
        for change in &kernel.changes {
            let name = kernel.called();
            let how = format!(
                "{change} of {} from invocation {first} to {number}",
                short(name)
            );
            changes.push((change.name().to_owned(), how));
        }
    }
    // Working threads depend on the machine, and memory on the rest of the process. Evidence for
    // causes decides nothing.
    let asked = ASKED_OF_CUDA.map(|(_, count)| count);
    let inexact = |name: &str| name == "threads" || asked.contains(&name) || is_evidence(name);
    let exact = |name: &&String| !inexact(name);
    // Calls are counted only if a module is loaded, which may depend on earlier cases.
    let is_known = |of: &Structure, name: &str| {
        of.counts.contains_key(name)
            || !name.starts_with("calls.")
            || of.why_uncounted(name).is_some()
    };
    let names: BTreeSet<&String> = usual.counts.keys().chain(other.counts.keys()).collect();
    for name in names.into_iter().filter(exact) {
        let count = |of: &Structure| match of.counts.get(name) {
            Some(count) => count.to_string(),
            None => "not counted".to_owned(),
        };
        let (before, after) = (count(usual), count(other));
        if before != after && is_known(usual, name) && is_known(other, name) {
            changes.push((name.clone(), in_both(&before, &after)));
        }
    }
    changes
}

/// The median of each part over the invocations that report parts; `None` without any.
fn median_parts(all: &[Parts]) -> Option<Parts> {
    if all.is_empty() {
        return None;
    }
    let names: BTreeSet<&String> = all.iter().flat_map(BTreeMap::keys).collect();
    let part = |name: &String| {
        let value = |parts: &Parts| parts.get(name).copied().unwrap_or_default();
        let times = all.iter().map(|parts| value(parts).ns);
        // A worker may report anything, but no part takes a negative time.
        let times: Vec<Nanoseconds> = times.filter(|ns| ns.0 >= 0.0 && ns.0.is_finite()).collect();
        let mut counts: Vec<u64> = all.iter().map(|parts| value(parts).count).collect();
        counts.sort_unstable();
        Taken {
            ns: median(&times).unwrap_or_default(),
            count: counts[counts.len() / 2],
        }
    };
    Some(
        names
            .into_iter()
            .map(|name| (name.clone(), part(name)))
            .collect(),
    )
}

impl CaseRecord {
    /// Adds the effective parameters of an invocation, before its times.
    fn effective(&mut self, number: u32, now: BTreeMap<String, ParamValue>, tuned: &Choices) {
        let Some(first) = self.invocations.first() else {
            self.effective = now.into();
            return;
        };
        if *self.effective == now {
            return;
        }
        let first = first.number;
        let names = self.effective.keys().chain(now.keys());
        for name in names.filter(|name| !tuned.contains_key(*name)) {
            let value = |of: &BTreeMap<String, ParamValue>| match of.get(name) {
                Some(value) => value.to_string(),
                None => "not reported".to_owned(),
            };
            let (before, now) = (value(&self.effective), value(&now));
            if before != now && !self.varying.contains_key(name) {
                let how = format!("{before} in invocation {first}, {now} in invocation {number}");
                self.varying.insert(name.clone(), how);
            }
        }
    }
}

#[cfg(test)]
mod tests;
