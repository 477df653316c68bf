//! What each repetition of a program asks of CUDA, and when the host began each.

use std::collections::BTreeMap;

use super::recording::Recording;
use super::steady::Steady;

/// When the host began each repetition, and what follows the last one where that is known: the
/// device is behind by as much as the host is ahead of it. When the device did, where launches
/// are not known.
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

/// Calls from one moment to another, of the kinds that every process tells one by one.
fn between(recording: &Recording, from: u64, to: u64) -> Option<BTreeMap<&'static str, u64>> {
    let mut total: BTreeMap<&str, u64> = BTreeMap::new();
    for process in &recording.processes {
        for (name, count) in process.moments.as_ref()?.within(&(from..to))? {
            *total.entry(name).or_default() += count;
        }
    }
    Some(total)
}

/// Calls that the host made while it issued the steady part, of the kinds that are told one by
/// one; none where they are not.
pub fn in_steady(recording: &Recording, steady: &Steady) -> BTreeMap<String, u64> {
    let turns = turns(recording, steady);
    let from = turns.first().copied().unwrap_or(steady.from_ns);
    let to = turns.get(steady.repeats).copied().unwrap_or(steady.to_ns);
    let told = between(recording, from, to).unwrap_or_default().into_iter();
    told.map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Calls of a repetition, by kind: the interquartile mean over repetitions, since what comes in
/// a few of them, as memory that is taken until there is enough, is not of each. Only kinds that
/// are told one by one.
pub fn in_each(recording: &Recording, steady: &Steady) -> BTreeMap<String, f64> {
    let mut counts: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for turn in turns(recording, steady).windows(2) {
        let Some(told) = between(recording, turn[0], turn[1]) else {
            return BTreeMap::new();
        };
        for (name, count) in told {
            counts.entry(name).or_default().push(count);
        }
    }
    let each = counts.into_iter();
    each.map(|(name, counts)| (name.to_owned(), interquartile_mean(counts)))
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
        let told = each(&steps(|_| {
            vec!["device_synchronisations", "frees", "frees"]
        }));
        assert_eq!((told["synchronisations"], told["frees"]), (1.0, 2.0));
        assert_eq!(
            (told["allocations"], told["event_synchronisations"]),
            (0.0, 0.0)
        );
        // Neither launches nor copies are told one by one.
        assert!(!told.contains_key("launches"));
        // In every second one.
        let told = each(&steps(|number| {
            vec!["allocations"; 2 * (number as usize % 2)]
        }));
        assert!((0.8..1.2).contains(&told["allocations"]), "{told:?}");
    }
}
