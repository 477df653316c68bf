//! The host's calls to CUDA in a trace: their number and their times.
//!
//! Some kinds are recorded call by call ([`Moments`]), so that they can be assigned to repetitions.
//! For launches and copies, a process reports only one total.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::Recording;
use super::steady::Steady;
use regatta_worker::machine::SYNCHRONISATIONS;
use regatta_worker::units::is_zero;

/// Kinds that are recorded call by call, as [`Process::calls`](super::Process::calls) names them.
const RECORDED_CALLS: &str = "module_loads allocations frees device_synchronisations \
     stream_synchronisations event_synchronisations stream_memory_operations host_callbacks \
     graph_launches";

/// The calls that [`SYNCHRONISATIONS`] sums have names with this ending.
const WAITS: &str = "_synchronisations";

/// The largest number of moments that are kept for a process; the earliest are dropped.
const MAX_MOMENTS: usize = 1_000_000;

/// The times of a process's calls of CUDA, for kinds that are recorded call by call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moments {
    /// From here on every call is recorded; earlier ones are missing if there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub since: u64,
    /// The start times of calls by kind, sorted, in nanoseconds of CUPTI's clock.
    pub of: BTreeMap<String, Vec<u64>>,
}

impl Moments {
    /// Adds moments, in any order.
    pub fn add(&mut self, of: BTreeMap<String, Vec<u64>>) {
        for (name, more) in of {
            self.of.entry(name).or_default().extend(more);
        }
        if self.len() >= 2 * MAX_MOMENTS {
            self.settle();
        }
    }

    /// Sorts the moments, and drops the earliest if there are too many.
    pub fn settle(&mut self) {
        self.of
            .values_mut()
            .for_each(|moments| moments.sort_unstable());
        let beyond = self.len().saturating_sub(MAX_MOMENTS);
        if beyond == 0 {
            return;
        }
        let mut all: Vec<u64> = self.of.values().flatten().copied().collect();
        let (_, since, _) = all.select_nth_unstable(beyond);
        self.since = *since;
        for moments in self.of.values_mut() {
            moments.drain(..moments.partition_point(|at| *at < self.since));
        }
    }

    fn len(&self) -> usize {
        self.of.values().map(Vec::len).sum()
    }

    fn count(&self, name: &str, within: &Range<u64>) -> u64 {
        let moments = self.of.get(name).map_or(&[][..], Vec::as_slice);
        let before = |moment: u64| moments.partition_point(|at| *at < moment);
        before(within.end).saturating_sub(before(within.start)) as u64
    }

    /// The number of calls of each kind in the time range `within`, and of all waits together;
    /// `None` if the moments do not cover that range.
    pub(super) fn within(&self, within: &Range<u64>) -> Option<Vec<(&'static str, u64)>> {
        let names = RECORDED_CALLS.split_whitespace();
        let each = names.map(|name| (name, self.count(name, within)));
        let mut each: Vec<(&str, u64)> = each.collect();
        let waits = each.iter().filter(|(name, _)| name.ends_with(WAITS));
        each.push((SYNCHRONISATIONS, waits.map(|(_, count)| count).sum()));
        (self.since <= within.start).then_some(each)
    }
}

/// The times at which the host began to issue each repetition, and the work after the last one
/// where that is known. The device runs behind the host, so its times differ. If launches are
/// unknown, the times at which the device began are used.
pub(super) fn turns(recording: &Recording, steady: &Steady) -> Vec<u64> {
    let lane = (steady.process, steady.device, steady.stream);
    let from = |start| {
        let all = &recording.operations;
        &all[all.partition_point(|o| o.start_ns < start)..]
    };
    let first_at = |start: u64| {
        let mut own = from(start).iter();
        own.find(|o| (o.process, o.device, o.stream) == lane)
    };
    let starts = steady.starts(recording);
    let launched: Option<Vec<u64>> = starts
        .iter()
        .map(|start| u64::try_from(first_at(*start)?.launched_ns?).ok())
        .collect();
    let Some(mut launched) = launched else {
        return starts.into_iter().chain([steady.to_ns]).collect();
    };
    let behind = first_at(steady.to_ns).and_then(|o| u64::try_from(o.launched_ns?).ok());
    launched.extend(behind);
    launched
}

/// Calls of all processes, by kind.
pub fn calls(recording: &Recording) -> BTreeMap<String, u64> {
    let mut total: BTreeMap<String, u64> = BTreeMap::new();
    for (name, count) in recording
        .processes
        .iter()
        .flat_map(|process| &process.calls)
    {
        *total.entry(name.clone()).or_default() += count;
    }
    total
}

/// The calls in a time range, for the kinds that every process records call by call; empty if one
/// of them records none.
pub fn calls_within(recording: &Recording, within: &Range<u64>) -> BTreeMap<String, u64> {
    let mut total: BTreeMap<String, u64> = BTreeMap::new();
    for process in &recording.processes {
        let moments = process.moments.as_ref();
        let Some(calls) = moments.and_then(|moments| moments.within(within)) else {
            return BTreeMap::new();
        };
        for (name, count) in calls {
            *total.entry(name.to_owned()).or_default() += count;
        }
    }
    total
}

/// The calls that the host made while it issued the steady part, by [`calls_within`].
pub fn in_steady(recording: &Recording, steady: &Steady) -> BTreeMap<String, u64> {
    let turns = turns(recording, steady);
    let from = turns.first().copied().unwrap_or(steady.from_ns);
    let to = turns.get(steady.repeats).copied().unwrap_or(steady.to_ns);
    calls_within(recording, &(from..to))
}

/// The calls of a repetition, by kind: the interquartile mean over repetitions. Calls that occur
/// only in a few repetitions, such as allocations until there is enough memory, do not belong to
/// each. Only kinds that are recorded call by call are included.
pub fn in_each(recording: &Recording, steady: &Steady) -> BTreeMap<String, f64> {
    let mut counts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for turn in turns(recording, steady).windows(2) {
        for (name, count) in calls_within(recording, &(turn[0]..turn[1])) {
            counts.entry(name).or_default().push(count);
        }
    }
    let each = counts.into_iter();
    each.map(|(name, counts)| (name, interquartile_mean(counts)))
        .collect()
}

/// The mean without a quarter of the values at either end.
fn interquartile_mean(mut values: Vec<u64>) -> f64 {
    values.sort_unstable();
    let quarter = values.len() / 4;
    let middle = &values[quarter..values.len() - quarter];
    middle.iter().sum::<u64>() as f64 / middle.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::steady::steady;
    use crate::machine::testing::Writer;

    #[test]
    fn of_too_many_moments_the_last_are_kept_and_it_is_known_since_when() {
        let mut moments = Moments::default();
        let (most, frees) = (MAX_MOMENTS as u64, || "frees".to_owned());
        let first = (0..most).map(|at| 2 * at).collect();
        moments.add([(frees(), first)].into());
        let allocations = ("allocations".to_owned(), vec![2 * most + 1]);
        moments.add([(frees(), vec![2 * most]), allocations].into());
        moments.settle();
        assert_eq!((moments.len(), moments.since), (MAX_MOMENTS, 4));
        assert!(moments.within(&(0..100)).is_none());
        let counts: BTreeMap<&str, u64> = moments.within(&(4..11)).unwrap().into_iter().collect();
        assert_eq!((counts["frees"], counts["allocations"]), (4, 0));
    }

    /// Twelve steps of two kernels, and the calls of each in its first and its others.
    fn steps(calls: impl Fn(u64) -> Vec<&'static str>) -> Recording {
        let mut writer = Writer::new();
        writer.moments(&[]);
        for number in 0..12 {
            writer.moments(&calls(number));
            writer.kernel("product", 132, 40_000);
            writer.kernel("softmax", 132, 10_000);
        }
        writer.recording
    }

    fn each(recording: &Recording) -> BTreeMap<String, f64> {
        in_each(recording, &steady(recording).unwrap())
    }

    #[test]
    fn a_repetition_has_exactly_its_calls() {
        let counts = each(&steps(|_| {
            vec!["device_synchronisations", "frees", "frees"]
        }));
        assert_eq!((counts["synchronisations"], counts["frees"]), (1.0, 2.0));
        assert_eq!(counts["allocations"], 0.0);
        assert_eq!(counts["event_synchronisations"], 0.0);
        // Neither launches nor copies are recorded call by call.
        assert!(!counts.contains_key("launches"));
        // In every second one.
        let counts = each(&steps(|number| {
            vec!["allocations"; 2 * (number as usize % 2)]
        }));
        assert!((0.8..1.2).contains(&counts["allocations"]), "{counts:?}");
    }
}
