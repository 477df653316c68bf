//! Divides a recording, or one repetition of its repeating part, among its operations.

use regatta_worker::machine::{Division, Named, Own, Ran, divide};

use super::calls::turns;
use super::steady::Steady;
use super::{Recorded, Recording};

/// The largest number of operations that are aligned one by one.
const MAX_ALIGNED: usize = 100_000;

/// One repetition, from its start to that of the next: the mean of those that ran the most frequent
/// sequence. Its parts and gaps add up to its time.
pub fn repetition(recording: &Recording, steady: &Steady) -> Option<Division> {
    let place = (steady.process, steady.device);
    let here = |o: &&Recorded| (o.process, o.device) == place;
    let mut own: Vec<&Recorded> = steady
        .operations(recording)
        .into_iter()
        .filter(here)
        .collect();
    let number = own.len();
    // Idle time after the last repetition ends with the next operation.
    let behind = recording
        .operations
        .partition_point(|o| o.start_ns < steady.to_ns);
    own.extend(recording.operations[behind..].iter().find(here));
    let divided = divide(&ran(&own));
    let turns = of_turns(recording, steady, &own[..number]);
    // A gap belongs to the repetition before it. Idle time before the first repetition belongs to
    // none.
    let first = |turn: &Vec<usize>| turn.first().copied();
    let mut gap = (own.len() > number).then(|| divided[number]);
    let mut parts = Vec::new();
    for turn in turns.iter().rev() {
        let mut mine: Vec<Own> = turn.iter().map(|&at| divided[at]).collect();
        if let (Some(mine), Some(first)) = (mine.first_mut(), first(turn)) {
            let before = gap.replace(divided[first]);
            mine.gap_ns = before.map_or(0.0, |own| own.gap_ns);
            mine.host_ns = before.map_or(mine.host_ns.map(|_| 0.0), |own| own.host_ns);
        }
        let operations: Vec<&Recorded> = turn.iter().map(|&at| own[at]).collect();
        parts.push(in_order(recording, &operations, &mine));
    }
    Division::averaged(&parts).filter(|parts| parts.parts.len() <= MAX_ALIGNED)
}

/// The operations of each repetition, sorted by start: those that the host launched in it, since a
/// separate stream may begin earlier or later than the others. If launches are unknown, those that
/// started in it.
fn of_turns(recording: &Recording, steady: &Steady, own: &[&Recorded]) -> Vec<Vec<usize>> {
    let launched = |o: &&Recorded| o.launched_ns.and_then(|at| u64::try_from(at).ok());
    let moments: Option<Vec<u64>> = own.iter().map(launched).collect();
    let (moments, begun) = match moments {
        Some(moments) => (moments, turns(recording, steady)),
        None => (
            own.iter().map(|o| o.start_ns).collect(),
            steady.starts(recording),
        ),
    };
    let mut each = vec![Vec::new(); steady.repeats];
    for (at, moment) in moments.into_iter().enumerate() {
        let turn = begun.partition_point(|begun| *begun <= moment);
        if let Some(turn) = turn.checked_sub(1).and_then(|turn| each.get_mut(turn)) {
            turn.push(at);
        }
    }
    each
}

/// The division of a whole recording, for the device with most operations.
pub fn whole(recording: &Recording) -> Option<Division> {
    let devices = regatta_worker::machine::by_device(&recording.operations);
    let busiest = devices.into_iter().max_by_key(Vec::len)?;
    let divided = divide(&ran(&busiest));
    (busiest.len() <= MAX_ALIGNED).then(|| in_order(recording, &busiest, &divided))
}

fn ran(operations: &[&Recorded]) -> Vec<Ran> {
    operations
        .iter()
        .map(|operation| Ran::from(*operation))
        .collect()
}

/// A division in the order of the program, not of the streams.
fn in_order(recording: &Recording, operations: &[&Recorded], own: &[Own]) -> Division {
    Division::laid_out(operations, own, |kernel| Named {
        name: recording.name(kernel).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::steady;
    use crate::machine::testing::Writer;

    #[test]
    fn a_repetition_and_its_gaps_are_all_of_its_time() {
        let mut writer = Writer::new();
        for _ in 0..30 {
            writer.kernel("flash", 132, 30_000);
            writer.host_pauses(70_000);
            writer.kernel("norm", 132, 5_000);
        }
        let steady = steady(&writer.recording).unwrap();
        let division = repetition(&writer.recording, &steady).unwrap();
        assert_eq!(division.parts.len(), 2);
        let all = division.busy_ns() + division.idle_ns();
        let period = steady.period_time();
        assert!(
            (all.0 - period.0).abs() < 0.02 * period.0,
            "{all} of {period}"
        );
        assert_eq!(division.parts[0].ns.0, 30_000.0);
        assert_eq!(whole(&writer.recording).unwrap().parts.len(), 60);
    }

    #[test]
    fn a_stream_that_begins_before_or_behind_the_others_is_of_the_repetition_that_launched_it() {
        let mut writer = Writer::new();
        for number in 0..30_u64 {
            writer.kernel("flash", 132, 30_000);
            writer.kernel("norm", 132, 5_000);
            // On a stream of its own, at the end of this step or the beginning of the next.
            writer.copy("HtoD", 1 << 20, 4_000);
            let copy = writer.recording.operations.last_mut().unwrap();
            copy.stream = Some(9);
            let early = 3_000 * (number % 2);
            copy.start_ns -= early;
            copy.end_ns -= early;
        }
        writer.recording.settle(usize::MAX);
        let steady = steady(&writer.recording).unwrap();
        let division = repetition(&writer.recording, &steady).unwrap();
        assert_eq!(division.parts.len(), 3);
        assert_eq!(division.calls as usize, steady.repeats);
        let all = division.busy_ns() + division.idle_ns();
        let period = steady.period_time();
        assert!(
            (all.0 - period.0).abs() < 0.02 * period.0,
            "{all} of {period}"
        );
    }
}
