//! Where the time of a run went: what its phases took, in a line, in figures, on a page.

mod page;
mod said;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::attention::CaseId;
use crate::record::RecordError;
use crate::record::entries::Entries;
use crate::record::spent::{Phase, Spent, Stretch};
use crate::record::types::{Entry, How, Outcome, Run, Start};
use crate::suite::Settings;
use crate::units::{Nanoseconds, Share};

/// Where the time of a run went.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Timings {
    /// The suite's name.
    pub suite: String,
    /// From the start of its first process to the last thing that is known of it, less the
    /// time between its parts.
    pub took_ns: Nanoseconds,
    /// What its samples took on the device: the only time that measured something.
    pub timed_ns: Nanoseconds,
    /// The same, as a part of what it took.
    pub timed_share: Share,
    /// What lay between the phases: writing down what was found, for the most part.
    pub between_ns: Nanoseconds,
    /// What of it went into fresh invocations, which confirm a suspicion; 0 without any.
    pub confirming_ns: Nanoseconds,
    /// Entries that do not say what they took.
    pub untold: usize,
    /// What it was measured in.
    pub parts: Vec<PartTime>,
    /// Phases of the whole run, those that took longest first.
    pub phases: Vec<PhaseTime>,
    /// Invocations of workers, in the order in which they began.
    pub invocations: Vec<InvocationTime>,
    /// Cases, those that took longest first.
    pub cases: Vec<CaseTime>,
    /// Judging and reporting.
    #[serde(skip)]
    after: Vec<Stretch>,
}

/// What one process of the harness did before it measured.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PartTime {
    /// When its workers had introduced themselves.
    pub started: jiff::Timestamp,
    /// What it did before its first invocation.
    pub spent: Stretch,
}

/// A phase, over the whole run.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PhaseTime {
    /// Which.
    pub phase: Phase,
    /// What it took.
    pub took_ns: Nanoseconds,
    /// The same, as a part of the whole.
    pub share: Share,
}

/// A worker in an invocation.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct InvocationTime {
    /// Counts from 0 over the run.
    pub invocation: u32,
    /// `worker` or `worker@environment`.
    pub worker: String,
    /// True where it confirms a suspicion.
    pub fresh: bool,
    /// How its process came to be; where it had several, that which was to be forked and was
    /// not, or else the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<How>,
    /// Why it was started where it was to be forked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// What it took.
    pub took_ns: Nanoseconds,
    /// The same, by phase.
    pub phases: Spent,
    /// Its cases, with what it took to start and end it.
    #[serde(skip)]
    stretches: Vec<Stretch>,
}

/// A case, over all of its invocations.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct CaseTime {
    /// Which.
    pub case: CaseId,
    /// In how many invocations it says what it took.
    pub invocations: usize,
    /// What it took, without starting and ending its worker.
    pub took_ns: Nanoseconds,
    /// What its samples took on the device.
    pub timed_ns: Nanoseconds,
    /// What its first calls took, a part of preparing.
    pub first_calls_ns: Nanoseconds,
    /// What it took, by phase.
    pub phases: Spent,
}

impl Timings {
    /// Where the time of a run went; `None` where its file does not say.
    ///
    /// # Errors
    /// When its entries cannot be read any more.
    pub fn of(run: &Run, entries: Entries) -> Result<Option<Timings>, RecordError> {
        let mut found = Found::default();
        let before = run.parts.iter().map(|part| &part.spent);
        for stretch in before.chain(run.end.iter().flat_map(|end| &end.spent)) {
            found.add(stretch);
        }
        entries.each(|entry| found.take(entry, &run.header.settings))?;
        Ok(found.any.then(|| found.told(run)))
    }
}

/// What is found of a run, an entry at a time.
#[derive(Default)]
struct Found {
    any: bool,
    all: Spent,
    until: Nanoseconds,
    untold: usize,
    cases: BTreeMap<CaseId, CaseTime>,
    invocations: BTreeMap<(u32, String), Vec<Stretch>>,
    starts: BTreeMap<(u32, String), Start>,
}

impl Found {
    fn add(&mut self, stretch: &Stretch) {
        self.any = true;
        self.all.add_all(&stretch.phases);
        self.until = self.until.max(stretch.until_ns());
    }

    fn take(&mut self, entry: &Entry, settings: &Settings) {
        let key = (entry.invocation, worker(&entry.case));
        match &entry.start {
            // Told once for a process: what comes after says nothing more.
            Some(start) if start.because.is_some() || !self.starts.contains_key(&key) => {
                self.starts.insert(key.clone(), start.clone());
            }
            _ => {}
        }
        let Some(spent) = &entry.spent else {
            self.untold += 1;
            return;
        };
        self.add(spent);
        let of_worker = self.invocations.entry(key).or_default();
        of_worker.push(spent.clone());
        let empty = || CaseTime {
            case: entry.case.clone(),
            invocations: 0,
            took_ns: Nanoseconds::ZERO,
            timed_ns: Nanoseconds::ZERO,
            first_calls_ns: Nanoseconds::ZERO,
            phases: Spent::default(),
        };
        let of = self.cases.entry(entry.case.clone()).or_insert_with(empty);
        of.invocations += 1;
        for (phase, time) in spent.phases.iter().filter(|(phase, _)| phase.is_of_case()) {
            of.phases.add(phase, time);
        }
        of.timed_ns += timed(entry, settings.calls_per_sample);
        if let Outcome::Measured(measurement) = &entry.outcome {
            of.first_calls_ns += measurement.first_call_ns;
        }
    }

    fn told(self, run: &Run) -> Timings {
        let took_ns = self.until;
        let phases = self.all.iter().map(|(phase, time)| PhaseTime {
            phase,
            took_ns: time,
            share: time.share_of(took_ns),
        });
        let mut phases: Vec<PhaseTime> = phases.collect();
        phases.sort_by(|a, b| b.took_ns.total_cmp(&a.took_ns));
        let cases = cases(self.cases);
        let timed_ns = cases.iter().map(|case| case.timed_ns).sum::<Nanoseconds>();
        let regular = run.header.settings.invocations;
        let invocations = invocations(self.invocations, &self.starts, regular);
        let fresh = invocations.iter().filter(|invocation| invocation.fresh);
        let parts = run.parts.iter().map(|part| PartTime {
            started: part.started,
            spent: part.spent.clone(),
        });
        Timings {
            suite: run.header.suite.name.clone(),
            took_ns,
            timed_ns,
            timed_share: timed_ns.share_of(took_ns),
            between_ns: (took_ns - self.all.sum()).max(Nanoseconds::ZERO),
            confirming_ns: fresh.map(|invocation| invocation.took_ns).sum(),
            untold: self.untold,
            parts: parts.collect(),
            phases,
            invocations,
            cases,
            after: run.end.iter().flat_map(|end| end.spent.clone()).collect(),
        }
    }
}

/// The invocations of a run's workers, by when they began.
fn invocations(
    found: BTreeMap<(u32, String), Vec<Stretch>>,
    starts: &BTreeMap<(u32, String), Start>,
    regular: u32,
) -> Vec<InvocationTime> {
    let told = found.into_iter().map(|((invocation, worker), stretches)| {
        let mut phases = Spent::default();
        for stretch in &stretches {
            phases.add_all(&stretch.phases);
        }
        let key = (invocation, worker);
        let start = starts.get(&key);
        let (start, because) = start.map_or((None, None), |start| {
            (Some(start.how), start.because.clone())
        });
        let (invocation, worker) = key;
        InvocationTime {
            invocation,
            worker,
            fresh: invocation >= regular,
            start,
            because,
            took_ns: phases.sum(),
            phases,
            stretches,
        }
    });
    let mut told: Vec<InvocationTime> = told.collect();
    let began = |of: &InvocationTime| {
        let from = of.stretches.iter().map(|stretch| stretch.from_ns);
        from.fold(Nanoseconds(f64::INFINITY), Nanoseconds::min)
    };
    told.sort_by(|a, b| began(a).total_cmp(&began(b)));
    told
}

/// The cases of a run that say what they took, the longest first.
fn cases(found: BTreeMap<CaseId, CaseTime>) -> Vec<CaseTime> {
    let mut cases: Vec<CaseTime> = found.into_values().collect();
    for case in &mut cases {
        case.took_ns = case.phases.sum();
    }
    cases.sort_by(|a, b| b.took_ns.total_cmp(&a.took_ns));
    cases
}

/// The worker of a case, as schedules name it.
fn worker(case: &CaseId) -> String {
    match case.case() {
        Ok(case) => case.variant.worker_name(),
        Err(_) => case.0.clone(),
    }
}

/// What an entry's samples took on the device; each is so many calls.
fn timed(entry: &Entry, calls_per_sample: u32) -> Nanoseconds {
    match &entry.outcome {
        Outcome::Measured(measurement) => {
            let samples = measurement.device_ns.iter().copied();
            samples.sum::<Nanoseconds>() * f64::from(calls_per_sample)
        }
        Outcome::Unsupported { .. } | Outcome::Failed { .. } => Nanoseconds::ZERO,
    }
}

/// What a phase is called.
fn doing(phase: Phase) -> &'static str {
    match phase {
        Phase::SettingUp => "setting up",
        Phase::Preflight => "preflight",
        Phase::Starting => "starting workers",
        Phase::Preparing => "preparing",
        Phase::Checking => "checking",
        Phase::Measuring => "measuring",
        Phase::CheckingAfter => "checking after timing",
        Phase::Waiting => "waiting for quiet",
        Phase::Census => "census",
        Phase::Releasing => "releasing",
        Phase::Ending => "ending workers",
        Phase::Judging => "judging",
        Phase::Reporting => "writing reports",
    }
}
