//! Checks for values that no clock, counter or device can show.
//!
//! Anyone may edit a file, and a line's checksum does not sign it. An impossible value is damage,
//! like a torn line, and never judged.

use std::ops::RangeInclusive;

use super::{
    CaseRecord, DeviceState, Entry, MachineLoad, Measurement, OpenCases, Outcome, RunHeader,
    WorkerRecord, is_time,
};
use crate::machine::{Counters, Structure};
use crate::suite::plan::Place;
use crate::suite::{Expectation, Metric, Rules};
use regatta_worker::case::{Case, CaseId};
use regatta_worker::protocol::DeviceKind;
use regatta_worker::units::{Nanoseconds, Share};

/// Fastest clock of a device, in MHz.
const FASTEST_MHZ: f64 = 1e5;

/// Most device memory in use, by its name in files.
const PEAK: &str = "peak_bytes";

/// Most invocations of a case: a suite may ask for 1,000, older ones for more.
const MAX_INVOCATIONS: u32 = 100_000;

impl Entry {
    /// A sentence about the first impossible value, if there is one.
    pub fn objection(&self) -> Option<String> {
        let about = match &self.outcome {
            Outcome::Measured(measurement) => measurement.objection(),
            Outcome::Missing { .. } => {
                Some("an invocation that has a line is not missing".to_owned())
            }
            Outcome::Unsupported { .. } | Outcome::Failed { .. } => None,
        };
        about.map(|objection| format!("{}: {objection}", self.case))
    }
}

impl Measurement {
    /// A sentence about the first impossible value, if there is one.
    pub fn objection(&self) -> Option<String> {
        let samples = &self.samples;
        let bad = |(name, list): (_, &[Nanoseconds])| times(name, list.iter().copied());
        samples
            .uneven()
            .or_else(|| samples.times().into_iter().find_map(bad))
            .or_else(|| waits(&samples.waited_ns))
            .or_else(|| growth(samples.growth_bytes_per_call))
            .or_else(|| times("first_call_ns", [self.first_call_ns]))
            .or_else(|| clocks("clock_mhz", &samples.clock_mhz))
            .or_else(|| errors("errors", self.errors.values().copied()))
            .or_else(|| errors("errors_after", self.errors_after.values().copied()))
            .or_else(|| samples.state.as_ref().and_then(of_state))
            .or_else(|| self.load.as_deref().and_then(MachineLoad::objection))
            .or_else(|| samples.peak_bytes?.objection(PEAK))
            .or_else(|| self.structure.as_ref().and_then(Structure::objection))
            .or_else(|| self.counters.as_deref().and_then(Counters::objection))
    }
}

impl CaseRecord {
    /// A sentence about the first impossible value, if there is one.
    pub fn objection(&self) -> Option<String> {
        let invocations = || self.invocations.iter();
        let values = |metric: Metric| {
            let values = invocations().filter_map(|one| one.values.get(metric));
            times(metric.name(), values.map(Nanoseconds))
        };
        let ratios = invocations().filter_map(|one| one.host_ratio);
        let why = ": no ratio is negative or nothing";
        let mut all = Metric::ALL.into_iter();
        all.find_map(values)
            .or_else(|| impossible("host_ratio", ratios, 1e-9..=1e12, why))
            .or_else(|| self.out_of_order())
            .or_else(|| clocks("clock_mhz", &self.clock_mhz))
            .or_else(|| errors("errors", self.errors.iter().map(|(_, error)| error)))
            .or_else(|| self.structure.as_deref().and_then(Structure::objection))
            .or_else(|| self.counters.as_deref().and_then(Counters::objection))
    }

    /// A duplicate invocation would be counted twice.
    fn out_of_order(&self) -> Option<String> {
        let mut two = self.invocations.windows(2);
        let odd = two.find(|two| two[0].number >= two[1].number)?;
        let [before, after] = [odd[0].number, odd[1].number];
        Some(format!("invocation {after} follows invocation {before}"))
    }
}

impl WorkerRecord {
    /// The kind of its device; `None` if it is unknown.
    pub fn kind(&self) -> Option<DeviceKind> {
        self.device_kind.parse().ok()
    }

    /// True if its device is the CPU, whose only clock is the host's.
    pub fn runs_on_processor(&self) -> bool {
        self.kind() == Some(DeviceKind::Cpu)
    }
}

impl RunHeader {
    /// The worker of a case; `None` if the run does not list it.
    pub fn worker_of(&self, case: &Case) -> Option<&WorkerRecord> {
        let name = case.variant.worker_name();
        self.workers.iter().find(|worker| worker.name == name)
    }

    /// A sentence about the first impossible value, if there is one.
    pub fn objection(&self) -> Option<String> {
        if let Some(worker) = self.workers.iter().find(|worker| worker.kind().is_none()) {
            return Some(format!(
                "worker {:?} is on a device of kind {:?}; there are `cpu` and `cuda`",
                worker.name, worker.device_kind
            ));
        }
        let invocations = self.settings.invocations;
        if !(1..=MAX_INVOCATIONS).contains(&invocations) {
            return Some(format!("settings.invocations is {invocations}"));
        }
        for (what, built) in &self.built {
            if let Some(problem) = built.objection() {
                return Some(format!("the build of {what:?}: {problem}"));
            }
        }
        if let Some(shard) = &self.shard
            && let Err(problem) = Place::new(shard.place.index, shard.place.of)
        {
            return Some(problem.to_string());
        }
        for case in &self.plan {
            if let Err(problem) = case.case() {
                return Some(format!("its plan has an invalid case id: {problem}"));
            }
        }
        // It is sorted already, unless it was edited.
        let mut plan: Vec<&CaseId> = self.plan.iter().collect();
        plan.sort();
        if let Some(twice) = plan.windows(2).find(|two| two[0] == two[1]) {
            return Some(format!("its plan holds {} twice", twice[0]));
        }
        of_rules(&self.rules)
    }
}

impl OpenCases {
    /// A sentence about the first impossible value, if there is one.
    pub(super) fn objection(&self, is_planned: impl Fn(&CaseId) -> bool) -> Option<String> {
        if self.fresh > MAX_INVOCATIONS {
            return Some(format!("it asks for {} more invocations", self.fresh));
        }
        let foreign = self.cases.iter().find(|case| !is_planned(case));
        foreign.map(|case| format!("{case} is pending, which is not a case of the plan"))
    }
}

/// Checks the rules: a threshold or share that lets everything pass would hide regressions.
fn of_rules(rules: &Rules) -> Option<String> {
    let policy = &rules.policy;
    let shares = [
        ("policy.threshold", Some(policy.threshold)),
        ("policy.day", policy.day),
    ];
    let share = |(name, share): (&str, Option<Share>)| {
        impossible(
            name,
            share.map(|share| share.0),
            0.0..=1.0,
            ", beyond 0 to 1",
        )
    };
    let threshold = |(metric, threshold): (&Metric, &Share)| {
        let name = format!("policy.thresholds.{}", metric.name());
        impossible(&name, [threshold.0], 0.0..=1e3, ", beyond 0 to 1000")
    };
    let ratio = |one: &Expectation| {
        let name = format!("expectation {:?}", one.name);
        let ratio = one
            .against
            .as_ref()
            .map(|_| one.at_most.unwrap_or(f64::NAN));
        impossible(&name, ratio, 0.01..=100.0, " times, beyond 0.01 to 100")
    };
    shares
        .into_iter()
        .find_map(share)
        .or_else(|| policy.thresholds.iter().find_map(threshold))
        .or_else(|| rules.expectations.iter().find_map(ratio))
}

/// A sentence about the first impossible value: `clock_mhz holds -5 MHz: no device runs at it`.
fn impossible(
    name: &str,
    values: impl IntoIterator<Item = f64>,
    possible: RangeInclusive<f64>,
    why: &str,
) -> Option<String> {
    let mut values = values.into_iter();
    let bad = values.find(|value| !possible.contains(value))?;
    Some(format!("{name} holds {}{why}", number(bad)))
}

fn times(name: &str, values: impl IntoIterator<Item = Nanoseconds>) -> Option<String> {
    let bad = values.into_iter().find(|time| !is_time(*time))?;
    let why = match bad.0 {
        ns if ns <= 0.0 => "no time is negative or nothing",
        ns if ns < 1.0 => "no clock shows so little",
        _ => "it is beyond any clock",
    };
    Some(format!("{name} holds {} ns: {why}", number(bad.0)))
}

fn waits(waited_ns: &[Nanoseconds]) -> Option<String> {
    let values = waited_ns.iter().map(|time| time.0);
    impossible("waited_ns", values, 0.0..=1e23, " ns: no wait is negative")
}

/// A sentence about a growth of memory that is impossible.
pub fn growth(bytes_per_call: Option<f64>) -> Option<String> {
    let why = " bytes: no memory holds it";
    impossible("growth_bytes_per_call", bytes_per_call, 0.0..=1e15, why)
}

fn clocks(name: &str, values: &[f64]) -> Option<String> {
    let values = values.iter().copied();
    impossible(
        name,
        values,
        0.0..=FASTEST_MHZ,
        " MHz: no device runs at it",
    )
}

fn errors(name: &str, values: impl Iterator<Item = f64>) -> Option<String> {
    let why = ": a distance is never negative";
    impossible(name, values, 0.0..=f64::MAX, why)
}

fn of_state(state: &DeviceState) -> Option<String> {
    let (power, celsius) = (state.power_w, state.temperature_c);
    clocks("state.sm_mhz", state.sm_mhz.as_slice())
        .or_else(|| clocks("state.memory_mhz", state.memory_mhz.as_slice()))
        .or_else(|| impossible("state.power_w", power, 0.0..=1e5, " W: no device draws it"))
        .or_else(|| {
            let why = " °C: no device works at it";
            impossible("state.temperature_c", celsius, -273.15..=1000.0, why)
        })
}

/// A number as text, in scientific notation if it is very large or small.
fn number(value: f64) -> String {
    if value == 0.0 || (1e-4..1e15).contains(&value.abs()) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json, to_value};

    use super::*;
    use crate::record::testing::{timed, with};

    const MEASUREMENTS: &str = r#"
        /first_call_ns = -5.0 => first_call_ns holds -5 ns: no time is negative or nothing
        /samples/device_ns = [5120.0, 1e300] => device_ns holds 1e300 ns: it is beyond any clock
        /samples/device_ns = [1e-9, 5088.0] => device_ns holds 1e-9 ns: no clock shows so little
        /samples/clock_mhz = [-1980.0, 1980.0] => clock_mhz holds -1980 MHz: no device runs at it
        /errors/dq = -5.0 => errors holds -5: a distance is never negative
        /load = { "window_ns": 1.0, "cores": 1, "foreign": -1.0 } => load.foreign is -1: no machine shows it
        /samples/host_ns = [100.0] => 2 device times, but 1 of host_ns
        /samples/threads = [1] => 2 device times, but 1 of threads
        /samples/growth_bytes_per_call = -4096.0 => growth_bytes_per_call holds -4096 bytes: no memory holds it
        /samples/waited_ns = [0.0, -5.0] => waited_ns holds -5 ns: no wait is negative
        /samples/peak_bytes = 9223372036854775808 => peak_bytes is 9223372036854775808 bytes: no machine has so many
        /samples/state = { "power_w": -1.0 } => state.power_w holds -1 W: no device draws it"#;

    const POLICIES: &str = r#"
        /policy/threshold = 1.5 => policy.threshold holds 1.5, beyond 0 to 1
        /policy/day = -0.1 => policy.day holds -0.1, beyond 0 to 1
        /policy/thresholds = { "host": 1e9 } => policy.thresholds.host holds 1000000000, beyond 0 to 1000"#;

    /// Objects to nothing in a document, and in words to each value that a line has for a place.
    fn check(sound: Value, objection: impl Fn(Value) -> Option<String>, lines: &str) {
        assert_eq!(objection(sound.clone()), None);
        for line in lines.trim().lines() {
            let (change, says) = line.trim().split_once(" => ").unwrap();
            let (at, value) = change.split_once(" = ").unwrap();
            let (folder, name) = at.rsplit_once('/').unwrap();
            let mut changed = sound.clone();
            changed.pointer_mut(folder).unwrap()[name] = value.parse().unwrap();
            assert_eq!(objection(changed).as_deref(), Some(says));
        }
    }

    #[test]
    fn what_no_clock_shows_is_named() {
        let sound = json!({
            "samples": {
                "device_ns": [5120.0, 5088.0], "host_ns": [100.0, 90.0], "clock_mhz": [1980.0, 1980.0]
            },
            "first_call_ns": 1e6, "errors": { "out": 1e-7 },
        });
        check(
            sound,
            |value| from_value::<Measurement>(value).unwrap().objection(),
            MEASUREMENTS,
        );
    }

    #[test]
    fn what_no_invocation_of_a_case_can_have_is_named() {
        let record = with(timed(&[5.0, 6.0]), Metric::PeakMemory, &[1e9, 1e9]);
        assert_eq!(record.objection(), None);
        let says = |change: fn(&mut CaseRecord)| {
            let mut record = record.clone();
            change(&mut record);
            record.objection().unwrap()
        };
        let zero = says(|record| record.invocations[0].values.set(Metric::CpuTime, Some(0.0)));
        assert_eq!(zero, "cpu_time holds 0 ns: no time is negative or nothing");
        let negative = says(|record| record.invocations[1].host_ratio = Some(-2.0));
        let expected = "host_ratio holds -2: no ratio is negative or nothing";
        assert_eq!(negative, expected);
        let twice = says(|record| record.invocations[1].number = 0);
        assert_eq!(twice, "invocation 0 follows invocation 0");
    }

    #[test]
    fn a_policy_that_lets_anything_pass_is_named() {
        let objection = |of: Value| of_rules(&from_value(of).unwrap());
        check(to_value(Rules::default()).unwrap(), objection, POLICIES);
    }
}
