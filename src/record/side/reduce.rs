//! From the entries of a run to one record a case.

use std::collections::{BTreeMap, BTreeSet};

use super::{CaseRecord, Side, Status, Unconfirmed, median};
use crate::attention::CaseId;
use crate::last_words;
use crate::record::types::{Entry, Fault, Measurement, Outcome, Run};

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
        let owed = run.owed.as_ref().filter(|_| takes(planned));
        let suspects: BTreeSet<&CaseId> = owed.iter().flat_map(|owed| &owed.cases).collect();
        let settings = &run.header.settings;
        let cases = run.header.plan.iter().map(|case| {
            let outcomes = entries.get(case).unwrap_or(&none);
            let owed = owed.filter(|_| suspects.contains(case));
            let owed = owed.map(|owed| owed.fresh);
            let mut record = record(outcomes, planned, owed, settings.structure_only);
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

/// The record of one case: `planned` regular invocations, and `owed` fresh ones where it is a
/// suspect.
fn record(outcomes: &ByInvocation, planned: u32, owed: Option<u32>, untimed: bool) -> CaseRecord {
    let mut record = CaseRecord::empty(Status::Measured);
    let mut hosts = 0;
    for (&invocation, outcome) in outcomes {
        if let Outcome::Measured(measurement) = outcome {
            record.add(measurement, invocation >= planned);
            hosts += usize::from(median(&measurement.host_ns).is_some());
        }
    }
    let measured = record.first_call_ns.len();
    if hosts < measured {
        // Paired with others by invocation: a list with gaps would be paired wrongly.
        record.host_ns.clear();
    }
    record.status = status(outcomes.range(..planned), planned, untimed);
    record.unconfirmed = unconfirmed(outcomes.range(planned..), owed);
    record
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
    fn add(&mut self, measurement: &Measurement, confirms: bool) {
        let times = if confirms {
            &mut self.confirm_ns
        } else {
            &mut self.device_ns
        };
        times.extend(median(&measurement.device_ns));
        self.host_ns.extend(median(&measurement.host_ns));
        self.clock_mhz.extend(median(&measurement.clock_mhz));
        self.first_call_ns.push(measurement.first_call_ns);
        self.several |= measurement.several;
        self.samples += measurement.device_ns.len() as u64;
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
mod tests {
    use super::*;
    use crate::record::testing::header;
    use crate::record::types::{BaseId, Owed};
    use crate::units::{Nanoseconds, numbers};

    const CASE: &str = "cpu/flash:s64,d64";

    fn measured(ns: f64) -> Outcome {
        Outcome::Measured(Measurement {
            device_ns: vec![Nanoseconds(ns)],
            ..Measurement::default()
        })
    }

    /// A run of one case with these outcomes, each with its invocation, in the file's order.
    fn run(outcomes: Vec<(u32, Outcome)>) -> Run {
        let mut header = header();
        header.plan = vec![CaseId(CASE.to_owned())];
        let entries = outcomes.into_iter().map(|(invocation, outcome)| Entry {
            start: None,
            case: CaseId(CASE.to_owned()),
            invocation,
            outcome,
            spent: None,
        });
        Run {
            entries: entries.collect(),
            ..Run::begun(header)
        }
    }

    fn reduced(run: &Run) -> CaseRecord {
        Side::from_run("run", run).cases[&CaseId(CASE.to_owned())].clone()
    }

    fn five() -> Vec<(u32, Outcome)> {
        (0..5).map(|n| (n, measured(f64::from(n) + 1.0))).collect()
    }

    #[test]
    fn times_stand_in_the_order_of_invocations_whatever_the_files_is() {
        // A torn line of invocation 0, measured again: last in the file.
        let mut outcomes = five();
        outcomes.rotate_left(1);
        let record = reduced(&run(outcomes));
        assert_eq!(numbers(&record.device_ns), [1.0, 2.0, 3.0, 4.0, 5.0]);
    }

    #[test]
    fn host_times_with_a_gap_are_no_list_to_pair_by() {
        let mut outcomes = five();
        for (invocation, outcome) in &mut outcomes {
            if let (Outcome::Measured(measurement), true) = (outcome, *invocation != 2) {
                measurement.host_ns = vec![Nanoseconds(9.0)];
            }
        }
        assert!(reduced(&run(outcomes)).host_ns.is_empty());
    }

    #[test]
    fn what_is_measured_in_some_invocations_alone_is_missing() {
        let refused = || Outcome::Unsupported {
            reason: "no workspace".to_owned(),
        };
        let mut some = five();
        some[1].1 = refused();
        some[4].1 = refused();
        let Status::Missing { reason } = reduced(&run(some)).status else {
            panic!("measured");
        };
        assert_eq!(reason, "unsupported in 2 of 5 invocations: no workspace");
        let none = (0..5).map(|n| (n, refused())).collect();
        assert!(matches!(
            reduced(&run(none)).status,
            Status::Unsupported { .. }
        ));
        let few = five().into_iter().take(4).collect();
        assert!(matches!(reduced(&run(few)).status, Status::Missing { .. }));
        let mut empty = five();
        empty[3].1 = Outcome::Measured(Measurement::default());
        let Status::Missing { reason } = reduced(&run(empty)).status else {
            panic!("measured");
        };
        assert_eq!(reason, "invocation 3 has no sample");
    }

    #[test]
    fn a_part_of_what_is_owed_confirms_nothing() {
        let mut outcomes = five();
        outcomes.push((5, measured(9.0)));
        let mut run = run(outcomes);
        assert_eq!(
            reduced(&run).unconfirmed,
            None,
            "an older file owes nothing"
        );
        run.owed = Some(Owed {
            base: BaseId {
                name: "s".to_owned(),
                sum: String::new(),
            },
            cases: vec![CaseId(CASE.to_owned())],
            fresh: 2,
        });
        let lost = reduced(&run).unconfirmed.unwrap();
        assert_eq!(
            lost.reason,
            "1 of 2 fresh invocations that it owes are in the file"
        );
        let screen = Side::screen("run", &run);
        let record = &screen.cases[&CaseId(CASE.to_owned())];
        assert_eq!((record.confirm_ns.len(), &record.unconfirmed), (0, &None));
        run.entries.push(Entry {
            start: None,
            case: CaseId(CASE.to_owned()),
            invocation: 6,
            outcome: Outcome::Failed {
                reason: "it died".to_owned(),
                fault: Fault::Crash,
                log: String::new(),
            },
            spent: None,
        });
        let record = reduced(&run);
        assert_eq!(record.status, Status::Measured);
        assert_eq!(record.unconfirmed.unwrap().fault, Fault::Crash);
    }
}
