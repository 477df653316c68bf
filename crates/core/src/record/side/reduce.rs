//! From the entries of a run to one record a case.

use std::collections::{BTreeMap, BTreeSet};

use super::{CaseRecord, Invocation, Side, Status, median};
use crate::last_words;
use crate::machine::{
    Counters, Division, LaunchChange, Structure, Work, moves_data, normalised, of_calls, short,
    sizes,
};
use crate::metric::Values;
use crate::record::choices;
use crate::record::types::{Damage, Entry, Fault, Measurement, Outcome, Parts, Run};
use crate::suite::Settings;
use crate::suite::structural::is_steady;
use crate::text;
use regatta_worker::attention::{CaseId, ParamValue};
use regatta_worker::protocol::{Measured, Taken};
use regatta_worker::units::Nanoseconds;

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
    divisions: Vec<(u32, Division)>,
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
                self.refusal.get_or_insert_with(|| text::reason(reason));
            }
            Outcome::Failed { reason, fault, log } => {
                let reason = || match last_words::fault(log) {
                    Some(line) => format!("{reason}; its last words: {line}"),
                    None => reason.clone(),
                };
                self.failure
                    .get_or_insert_with(|| (text::reason(&reason()), *fault));
            }
        }
        true
    }

    fn learn(&mut self, number: u32, measurement: &Measurement) {
        let record = &mut self.record;
        record.learn(number, measurement);
        record.samples += measurement.samples.device_ns.len() as u64;
        record
            .clock_mhz
            .extend(median(&measurement.samples.clock_mhz));
        record
            .invocations
            .push(Invocation::reduced(number, measurement));
        choices::add(&mut record.choices, number, &measurement.tuned);
        let (division, counters) = (&measurement.division, &measurement.counters);
        let division = division.as_deref().cloned();
        self.divisions.extend(division.map(|of| (number, of)));
        self.counters.extend(counters.as_deref().cloned());
        if !measurement.first_call_disturbed {
            self.parts.extend(measurement.first_call_parts.clone());
        }
        self.before_only += u32::from(measurement.errors_after.is_empty());
        if measurement.samples.device_ns.is_empty() {
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
        record.first_call_parts = median_parts(&self.parts);
        if let Some(how) = varying_launches(&self.divisions) {
            record.varying.insert("launches".to_owned(), how);
        }
        let divisions: Vec<Division> = self.divisions.drain(..).map(|(_, of)| of).collect();
        record.division = Division::merged(&divisions).map(Box::new);
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
        Invocation {
            number,
            values: Values::reduced(measurement),
            host_ratio: host_ratio(&measurement.samples),
            disturbed: measurement.disturbed.clone(),
            first_call_disturbed: measurement.first_call_disturbed,
        }
    }
}

/// The median ratio and not that of medians: where the host's speed changes between samples, it
/// changes for both (15 of an H200's runs: 7.6 % between pairs of backward, not 14.3 %).
fn host_ratio(samples: &Measured) -> Option<f64> {
    let pairs = samples.host_ns.iter().zip(&samples.host_reference_ns);
    let ratios: Vec<f64> = pairs
        .map(|(host, reference)| host.0 / reference.0)
        .collect();
    median(&ratios)
}

/// The kernels that compute in the first invocation of which they are known, and in the first
/// with others.
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
    rest.find_map(|(number, of)| other_kernels([first.0, *number], &usual, &kernels(of)))
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

/// In what the kernels of two invocations differ.
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

/// In what the structures of two invocations differ, by name. Threads that did work, and what was
/// asked of the driver's memory, depend on what else the process and the machine did.
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
    let mut found = Vec::new();
    for kernel in of_calls(usual, other, None) {
        for change in &kernel.changes {
            let (name, before, after) = match *change {
                LaunchChange::Grid(before, after) => ("grid", before, after),
                LaunchChange::Block(before, after) => ("block", before, after),
                _ => continue,
            };
            let of = format!(" of {}", short(kernel.called()));
            found.push((
                name.to_owned(),
                in_both(&sizes(before), &(sizes(after) + &of)),
            ));
        }
    }
    let exact = |name: &str| ["tasks", "copies"].contains(&name) || is_steady(name);
    for (name, before) in usual.counts.iter().filter(|(name, _)| exact(name)) {
        if let Some(after) = other.counts.get(name).filter(|after| *after != before) {
            found.push((
                name.clone(),
                in_both(&before.to_string(), &after.to_string()),
            ));
        }
    }
    found
}

/// The medians of each part over invocations that tell; `None` where none does.
fn median_parts(all: &[Parts]) -> Option<Parts> {
    if all.is_empty() {
        return None;
    }
    let names: BTreeSet<&String> = all.iter().flat_map(BTreeMap::keys).collect();
    let part = |name: &String| {
        let of = |parts: &Parts| parts.get(name).copied().unwrap_or_default();
        let times = all.iter().map(|parts| of(parts).ns);
        // A worker may tell anything; nothing takes less than no time.
        let times: Vec<Nanoseconds> = times.filter(|ns| ns.0 >= 0.0 && ns.0.is_finite()).collect();
        let mut counts: Vec<u64> = all.iter().map(|parts| of(parts).count).collect();
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
    /// What an invocation tells beside its times.
    fn learn(&mut self, number: u32, measurement: &Measurement) {
        self.several |= measurement.several;
        self.conditions.add(measurement);
        match self.invocations.first() {
            None => self.effective.clone_from(&measurement.effective),
            Some(_) if self.effective == measurement.effective => {}
            Some(first) => {
                let first = first.number;
                let names = self.effective.keys().chain(measurement.effective.keys());
                for name in names.filter(|name| !measurement.tuned.contains_key(*name)) {
                    let value = |of: &BTreeMap<String, ParamValue>| match of.get(name) {
                        Some(value) => value.to_string(),
                        None => "not reported".to_owned(),
                    };
                    let (before, now) = (value(&self.effective), value(&measurement.effective));
                    if before != now && !self.varying.contains_key(name) {
                        let how =
                            format!("{before} in invocation {first}, {now} in invocation {number}");
                        self.varying.insert(name.clone(), how);
                    }
                }
            }
        }
        for (result, &error) in &measurement.errors {
            match self.errors.get_mut(result) {
                Some(worst) => *worst = worst.max(error),
                None => drop(self.errors.insert(result.clone(), error)),
            }
        }
        match (&self.structure, &measurement.structure) {
            // Another choice of a tuner is another structure.
            (Some(usual), Some(other)) if measurement.tuned.is_empty() => {
                let first = self.invocations.first().map_or(0, |first| first.number);
                for (name, how) in varying_structure([first, number], usual, other) {
                    self.varying.entry(name).or_insert(how);
                }
            }
            (None, Some(structure)) => self.structure = Some(Box::new(structure.clone())),
            _ => {}
        }
        if let (None, Some(activity)) = (&self.activity, &measurement.activity) {
            self.activity = Some(activity.summary());
        }
    }
}

#[cfg(test)]
mod tests;
