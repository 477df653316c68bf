//! From the entries of a run to one record a case.

use std::collections::{BTreeMap, BTreeSet};

use super::{CaseRecord, Side, Status, Unconfirmed, median};
use crate::attention::CaseId;
use crate::last_words;
use crate::record::run_file::Beside;
use crate::record::types::{Damage, Fault, Measurement, Outcome, Run};
use crate::suite::Settings;

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
        // The file's order is that in which they were measured, and one that was torn is
        // measured last.
        let mut entries: BTreeMap<&CaseId, BTreeMap<u32, &Outcome>> = BTreeMap::new();
        for entry in run.entries.iter().filter(|entry| takes(entry.invocation)) {
            let of_case = entries.entry(&entry.case).or_default();
            of_case.insert(entry.invocation, &entry.outcome);
        }
        let planned = run.header.settings.invocations;
        let folds = run.header.plan.iter().map(|case| {
            let mut fold = Fold::new(planned);
            for (&invocation, &outcome) in entries.get(case).into_iter().flatten() {
                fold.add(invocation, outcome, &Beside::of(outcome));
            }
            fold
        });
        let folds: Vec<Fold> = folds.collect();
        assembled(label, run, folds, takes(planned))
    }
}

/// The side of a run whose cases were folded, in the order of its plan. `fresh` where fresh
/// invocations were among them.
pub(super) fn assembled(label: String, run: &Run, folds: Vec<Fold>, fresh: bool) -> Side {
    let owed = run.owed.as_ref().filter(|_| fresh);
    let suspects: BTreeSet<&CaseId> = owed.iter().flat_map(|owed| &owed.cases).collect();
    let settings = &run.header.settings;
    let cases = run.header.plan.iter().zip(folds).map(|(case, fold)| {
        let owed = owed.filter(|_| suspects.contains(case));
        let record = fold.record(owed.map(|owed| owed.fresh), settings);
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
    last: Option<u32>,
    /// Of the regular invocations and of the fresh ones.
    screen: Part,
    fresh: Part,
    /// The first regular invocation without a sample.
    without: Option<u32>,
    /// Invocations with host times.
    hosts: u32,
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
    /// A case of which nothing was seen yet, with so many regular invocations planned.
    pub(super) fn new(planned: u32) -> Fold {
        Fold {
            record: CaseRecord::empty(Status::Measured),
            planned,
            last: None,
            screen: Part::default(),
            fresh: Part::default(),
            without: None,
            hosts: 0,
            before_only: 0,
        }
    }

    /// Adds an invocation; `false` where it comes before one that was added, and is not.
    pub(super) fn add(&mut self, invocation: u32, outcome: &Outcome, beside: &Beside) -> bool {
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
            self.record.add(measurement, beside, confirms);
            self.hosts += u32::from(!measurement.host_ns.is_empty());
            self.before_only += u32::from(measurement.errors_after.is_empty());
            if measurement.device_ns.is_empty() && !confirms {
                self.without.get_or_insert(invocation);
            }
        }
        true
    }

    /// The record of the case, which owes so many fresh invocations where it is a suspect.
    fn record(mut self, owed: Option<u32>, settings: &Settings) -> CaseRecord {
        let measured = self.record.first_call_ns.len();
        if (self.hosts as usize) < measured {
            // Paired with others by invocation: a list with gaps would be paired wrongly.
            self.record.host_ns.clear();
        }
        if settings.input_sets > 1 && !settings.structure_only {
            self.record.conditions.checked_before_only = self.before_only;
        }
        self.record.status = status(self.screen, self.planned, self.without, settings);
        self.record.unconfirmed = unconfirmed(self.fresh, owed);
        for times in [
            &mut self.record.device_ns,
            &mut self.record.confirm_ns,
            &mut self.record.host_ns,
            &mut self.record.first_call_ns,
        ] {
            times.shrink_to_fit();
        }
        self.record.clock_mhz.shrink_to_fit();
        self.record
    }
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
    fn add(&mut self, measurement: &Measurement, beside: &Beside, confirms: bool) {
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
        self.effective = beside.effective.clone().unwrap_or_default();
        for (result, &error) in &measurement.errors {
            match self.errors.get_mut(result) {
                Some(worst) => *worst = worst.max(error),
                None => drop(self.errors.insert(result.clone(), error)),
            }
        }
        if let Some(structure) = &beside.structure {
            self.structure = Some(structure.clone());
        }
        if let Some(activity) = &beside.activity {
            self.activity = Some(activity.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::testing::header;
    use crate::record::types::{BaseId, Entry, Owed};
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
