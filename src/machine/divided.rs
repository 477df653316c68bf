//! A recording, or one repetition of the part of it that repeats, divided among its operations.

use regatta_worker::machine::{Division, Named, Own, Ran, divide};

use super::recording::{Recorded, Recording};
use super::steady::Steady;

/// Operations beyond which nothing is laid side by side one by one.
const MOST: usize = 100_000;

/// One repetition, from its start to that of the next: the mean of those that did the same as
/// most. Its parts and gaps are all of its time.
pub fn repetition(recording: &Recording, steady: &Steady) -> Option<Division> {
    let place = (steady.process, steady.device);
    let operations = steady.operations(recording).into_iter();
    let own: Vec<&Recorded> = operations
        .filter(|o| (o.process, o.device) == place)
        .collect();
    let divided = divide(&ran(&own));
    let mut starts = steady.starts(recording);
    starts.push(steady.to_ns);
    let mut at = 0;
    let mut found = Vec::new();
    for (number, window) in starts.windows(2).enumerate() {
        let until = own[at..].partition_point(|operation| operation.start_ns < window[1]);
        let range = at..at + until;
        at = range.end;
        // What was idle before the first of all is nobody's.
        if number > 0 {
            found.push(in_order(recording, &own[range.clone()], &divided[range]));
        }
    }
    Division::averaged(&found).filter(|found| found.parts.len() <= MOST)
}

/// All of a recording, of the device with most operations.
pub fn whole(recording: &Recording) -> Option<Division> {
    let devices = regatta_worker::machine::by_device(&recording.operations);
    let busiest = devices.into_iter().max_by_key(Vec::len)?;
    let divided = divide(&ran(&busiest));
    (busiest.len() <= MOST).then(|| in_order(recording, &busiest, &divided))
}

fn ran(operations: &[&Recorded]) -> Vec<Ran> {
    operations
        .iter()
        .map(|operation| Ran::from(*operation))
        .collect()
}

/// In the order of the program, not of the streams.
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
        let found = steady(&writer.recording).unwrap();
        let division = repetition(&writer.recording, &found).unwrap();
        assert_eq!(division.parts.len(), 2);
        let all = division.busy_ns() + division.idle_ns();
        let period = found.period_time();
        assert!(
            (all.0 - period.0).abs() < 0.05 * period.0,
            "{all} of {period}"
        );
        assert_eq!(division.parts[0].ns.0, 30_000.0);
        assert_eq!(whole(&writer.recording).unwrap().parts.len(), 60);
    }
}
