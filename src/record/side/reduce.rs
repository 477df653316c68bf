//! From the entries of a run to one record a case.

use std::collections::BTreeMap;

use super::{CaseRecord, Disturbed, Side, Status, Unconfirmed, median};
use crate::attention::CaseId;
use crate::last_words;
use crate::record::disturbance::{self, Disturbance};
use crate::record::types::{Entry, Fault, Measurement, Outcome, Run};
use crate::suite::Settings;

/// Entries of one case by invocation: the file's order is that in which they were measured,
/// and one that was torn is measured last.
type ByInvocation<'a> = BTreeMap<u32, &'a Outcome>;

impl Side {
    /// Reduces a run.
    pub fn from_run(label: impl Into<String>, run: &Run) -> Side {
        Side::reduced(label.into(), run, |_| true)
    }

    /// Reduces the regular invocations of a run: what its suspects are chosen by, whatever of
    /// their confirmation is there.
    pub fn screen(label: impl Into<String>, run: &Run) -> Side {
        let planned = run.header.settings.invocations;
        Side::reduced(label.into(), run, |invocation| invocation < planned)
    }

    fn reduced(label: String, run: &Run, takes: impl Fn(u32) -> bool) -> Side {
        let planned = run.header.settings.invocations;
        let mut entries: BTreeMap<&CaseId, ByInvocation> = BTreeMap::new();
        for Entry {
            case,
            invocation,
            outcome,
            spent: _,
            start: _,
        } in &run.entries
        {
            if takes(*invocation) {
                let of_case = entries.entry(case).or_default();
                of_case.insert(*invocation, outcome);
            }
        }
        let none = ByInvocation::new();
        // A case is in one batch after the other until it is decided.
        let mut owes: BTreeMap<&CaseId, u32> = BTreeMap::new();
        for batch in run.owed.iter().filter(|_| takes(planned)) {
            for case in &batch.cases {
                let fresh = owes.entry(case).or_default();
                *fresh = batch.fresh.max(*fresh);
            }
        }
        let settings = &run.header.settings;
        let cases = run.header.plan.iter().map(|case| {
            let outcomes = entries.get(case).unwrap_or(&none);
            let owed = owes.get(case).copied();
            let mut record = record(outcomes, owed, settings);
            if settings.input_sets > 1 && !settings.structure_only {
                let before_only = outcomes.values().filter(|outcome| match outcome {
                    Outcome::Measured(measurement) => measurement.errors_after.is_empty(),
                    _ => false,
                });
                record.conditions.checked_before_only = before_only.count() as u32;
            }
            (case.clone(), record)
        });
        Side {
            label,
            header: run.header.clone(),
            cases: cases.collect(),
            damage: run
                .damage
                .iter()
                .map(|damage| format!("line {}: {}", damage.line, damage.problem))
                .collect(),
        }
    }
}

/// The record of one case: its regular invocations, and `owed` fresh ones where it is a
/// suspect.
fn record(outcomes: &ByInvocation, owed: Option<u32>, settings: &Settings) -> CaseRecord {
    let planned = settings.invocations;
    let mut record = CaseRecord::empty(Status::Measured);
    let mut quiet = 0;
    for (&invocation, outcome) in outcomes {
        let Outcome::Measured(measurement) = outcome else {
            continue;
        };
        let confirms = invocation >= planned;
        record.learn(measurement);
        match median(&measurement.device_ns) {
            Some(device_ns) if !measurement.counts_under(settings) => {
                record.disturbed.push(Disturbed {
                    invocation,
                    confirms,
                    device_ns,
                    by: measurement.disturbed.clone(),
                });
            }
            _ => {
                record.add(measurement, confirms);
                quiet += 1;
            }
        }
        if !(settings.wants_quiet() && measurement.first_call_disturbed) {
            record.first_call_ns.push(measurement.first_call_ns);
        }
    }
    // Paired with others by invocation: a list with gaps would be paired wrongly.
    for list in [&mut record.host_ns, &mut record.cpu_ns] {
        if list.len() < quiet {
            list.clear();
        }
    }
    record.status = status(outcomes.range(..planned), planned, settings.structure_only);
    let lost = unconfirmed(outcomes.range(planned..), owed);
    record.unconfirmed = lost.or_else(|| shaken(&record));
    record
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

fn status<'a>(
    screen: impl Iterator<Item = (&'a u32, &'a &'a Outcome)> + Clone,
    planned: u32,
    untimed: bool,
) -> Status {
    // A failure outranks everything: one crash in five is a crash.
    if let Some((reason, fault)) = screen.clone().find_map(|(_, outcome)| failure(outcome)) {
        return Status::Failed { reason, fault };
    }
    let seen = screen.clone().count();
    let refusals = screen.clone().filter_map(|(_, outcome)| match outcome {
        Outcome::Unsupported { reason } => Some(reason),
        _ => None,
    });
    let refused = refusals.clone().count();
    if seen < planned as usize {
        return Status::Missing {
            reason: format!("{seen} of {planned} invocations are in the file"),
        };
    }
    if let Some(reason) = refusals.clone().next() {
        // What is supported by chance was not measured.
        return match refused == seen {
            true => Status::Unsupported {
                reason: reason.clone(),
            },
            false => Status::Missing {
                reason: format!("unsupported in {refused} of {seen} invocations: {reason}"),
            },
        };
    }
    let mut without = screen.filter(|(_, outcome)| match outcome {
        Outcome::Measured(measurement) => measurement.device_ns.is_empty() && !untimed,
        _ => false,
    });
    match without.next() {
        Some((invocation, _)) => Status::Missing {
            reason: format!("invocation {invocation} has no sample"),
        },
        None => Status::Measured,
    }
}

/// Why the fresh invocations of a case decide nothing, where that is so.
fn unconfirmed<'a>(
    fresh: impl Iterator<Item = (&'a u32, &'a &'a Outcome)> + Clone,
    owed: Option<u32>,
) -> Option<Unconfirmed> {
    if let Some((reason, fault)) = fresh.clone().find_map(|(_, outcome)| failure(outcome)) {
        return Some(Unconfirmed { reason, fault });
    }
    let unknown = |reason| {
        Some(Unconfirmed {
            reason,
            fault: Fault::Unknown,
        })
    };
    let refusal = fresh.clone().find_map(|(_, outcome)| match outcome {
        Outcome::Unsupported { reason } => Some(reason),
        _ => None,
    });
    if let Some(reason) = refusal {
        return unknown(format!("unsupported: {reason}"));
    }
    let taken = fresh.count() as u32;
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
            let worst = self.errors.entry(result.clone()).or_insert(error);
            *worst = worst.max(error);
        }
        if let Some(structure) = &measurement.structure {
            self.structure = Some(structure.clone());
        }
        if let Some(activity) = &measurement.activity {
            self.activity = Some(activity.summary());
        }
    }
}

#[cfg(test)]
mod tests;
