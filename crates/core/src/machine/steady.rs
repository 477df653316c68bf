//! Finds the part of a program that repeats, without warm-up and compilation.
//!
//! The busiest stream has the program's order. On it, the repeating part is a sequence of
//! operations that occurs at least [`FEWEST`] times in a row. Among several, the longest that makes
//! up a good part of the program is taken: a training step, rather than its layers or the
//! preparation of data. A sequence of many operations may occur only twice, if none occurs more
//! often, since two equal steps are not chance. Operations of other streams belong to a repetition
//! by their time.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::ops::Range;

use regatta_worker::machine::Work;
use regatta_worker::units::Nanoseconds;
use serde::Serialize;

use super::summary::Summary;
use super::{Recorded, Recording};

/// The number of operations of the busiest stream that are searched, from its end.
const SEARCHED: usize = 50_000;

/// The length of a sequence from which two occurrences are not chance.
const LONG: usize = 64;

/// A repetition that takes this many times the median was interrupted.
const INTERRUPTED: u64 = 10;

/// A repeated sequence of operations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Steady {
    /// Operations of the busiest stream in one repetition.
    pub period: usize,
    /// The number of consecutive repetitions.
    pub repeats: usize,
    /// Repetitions before or after these that were left out because the host took long in them:
    /// warm-up, an interruption, or the transition to other work.
    pub set_aside: usize,
    /// Start of the first repetition.
    pub from_ns: u64,
    /// The start of the operation after the last repetition, or the end of that.
    pub to_ns: u64,
    /// Start of the last repetition.
    pub last_ns: u64,
    /// The index of the process in the recording.
    pub process: u32,
    /// The number of the device.
    pub device: u32,
    /// The stream on which it was found, if its operations record streams.
    pub stream: Option<u32>,
}

impl Steady {
    /// Time from one repetition to the next.
    pub fn period_time(&self) -> Nanoseconds {
        Nanoseconds((self.to_ns - self.from_ns) as f64 / self.repeats as f64)
    }

    /// Every operation that starts in the steady part, of any process and stream.
    pub fn operations<'a>(&self, recording: &'a Recording) -> Vec<&'a Recorded> {
        between(recording, self.from_ns, self.to_ns)
    }

    /// When each repetition starts.
    pub fn starts(&self, recording: &Recording) -> Vec<u64> {
        let lane = (self.process, self.device, self.stream);
        let operations = self.operations(recording).into_iter();
        let own = operations.filter(|o| (o.process, o.device, o.stream) == lane);
        own.step_by(self.period).map(|o| o.start_ns).collect()
    }

    /// Every operation that starts in its last repetition.
    pub fn last<'a>(&self, recording: &'a Recording) -> Vec<&'a Recorded> {
        between(recording, self.last_ns, self.to_ns)
    }
}

/// The part of a trace that repeats.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SteadyPart {
    /// The place of the loop.
    #[serde(flatten)]
    pub steady: Steady,
    /// The work in it, over all its repetitions.
    pub summary: Summary,
}

fn between(recording: &Recording, from: u64, to: u64) -> Vec<&Recorded> {
    let all = &recording.operations;
    let first = all.partition_point(|operation| operation.start_ns < from);
    let end = all.partition_point(|operation| operation.start_ns < to);
    all[first..end.max(first)].iter().collect()
}

/// Finds the part that repeats, if one does.
pub fn steady(recording: &Recording) -> Option<Steady> {
    let mut lanes: BTreeMap<(u32, u32, Option<u32>), Vec<&Recorded>> = BTreeMap::new();
    for operation in &recording.operations {
        let lane = (operation.process, operation.device, operation.stream);
        lanes.entry(lane).or_default().push(operation);
    }
    let busiest = lanes
        .into_iter()
        .max_by_key(|(_, operations)| operations.len());
    let ((process, device, stream), operations) = busiest?;
    let searched = &operations[operations.len().saturating_sub(SEARCHED)..];
    // Sizes are left out, since they may change from one repetition to the next.
    let tokens = searched.iter().map(|operation| match &operation.work {
        Work::Kernel(kernel) => (kernel.name, ""),
        Work::Copy { direction, .. } => (u32::MAX, direction.as_str()),
        Work::Set { .. } => (u32::MAX - 1, ""),
    });
    let cycle = chosen(&numbered(tokens))?;
    let start = |at: usize| match searched.get(at) {
        Some(operation) => operation.start_ns,
        None => searched[searched.len() - 1].end_ns + 1,
    };
    let starts = (0..=cycle.repeats()).map(|turn| start(cycle.first + turn * cycle.period));
    let starts: Vec<u64> = starts.collect();
    let turns = undisturbed(&starts);
    Some(Steady {
        period: cycle.period,
        repeats: turns.len(),
        set_aside: cycle.repeats() - turns.len(),
        from_ns: starts[turns.start],
        to_ns: starts[turns.end],
        last_ns: starts[turns.end - 1],
        process,
        device,
        stream,
    })
}

/// The range of repetitions that represent the others; `starts` are their starts and the end of the
/// last. Warm-up is left out, and a last repetition that takes half as long again, because the
/// host's work after the loop does not belong to it. If one repetition takes [`INTERRUPTED`] times
/// the median, the larger group of those before it or after it is kept.
fn undisturbed(starts: &[u64]) -> Range<usize> {
    let repeats = starts.len() - 1;
    let lengths: Vec<u64> = starts
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]))
        .collect();
    let mut turns = warm_up(&starts[..repeats])..repeats;
    let mut sorted = lengths[turns.clone()].to_vec();
    sorted.sort_unstable();
    let middle = sorted[sorted.len() / 2];
    if turns.len() > FEWEST && 2 * lengths[turns.end - 1] > 3 * middle {
        turns.end -= 1;
    }
    let long = |turn: &usize| lengths[*turn] > INTERRUPTED.saturating_mul(middle.max(1));
    let mut long = turns.clone().filter(long);
    if let (Some(turn), None) = (long.next(), long.next()) {
        let (before, behind) = (turns.start..turn, turn + 1..turns.end);
        let more = if before.len() > behind.len() {
            before
        } else {
            behind
        };
        if more.len() >= FEWEST {
            turns = more;
        }
    }
    turns
}

/// The number of first repetitions that are warm-up although they run the same operations: a kernel
/// is loaded, or a plan is made. They take half as long again as the median, so they are fewer than
/// half, and at least [`FEWEST`] remain.
fn warm_up(starts: &[u64]) -> usize {
    let lengths: Vec<u64> = starts
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]))
        .collect();
    let mut sorted = lengths.clone();
    sorted.sort_unstable();
    let Some(&middle) = sorted.get(sorted.len() / 2) else {
        return 0;
    };
    let long = lengths.iter().take_while(|&&ns| 2 * ns > 3 * middle);
    long.count()
}

/// The fewest repetitions of a short sequence that are not chance.
const FEWEST: usize = 3;

/// The fewest operations of a repeating part, unless it is a quarter of all.
const ENOUGH: usize = 30;

/// Consecutive turns of a loop: a range of tokens, whose last turn may be incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loop {
    first: usize,
    length: usize,
    period: usize,
}

impl Loop {
    fn repeats(&self) -> usize {
        self.length / self.period
    }
}

/// Replaces tokens by numbers from 0, in the order of their first occurrence.
fn numbered<T: Eq + Hash>(tokens: impl Iterator<Item = T>) -> Vec<u32> {
    let mut numbers = HashMap::new();
    let number = |token| {
        let next = numbers.len() as u32;
        *numbers.entry(token).or_insert(next)
    };
    tokens.map(number).collect()
}

/// Chooses the program's loop. Its beginning is the lexicographically smallest rotation of a turn,
/// where tokens are ordered by their first occurrence, so that two programs that do the same are
/// cut at the same place.
fn chosen(tokens: &[u32]) -> Option<Loop> {
    // A few launches of one kernel at a program's end are not a loop.
    let enough = (tokens.len() / 20).max(ENOUGH.min(tokens.len().div_ceil(4)));
    let all = loops(tokens).into_iter();
    let longest = all
        .filter(|cycle| cycle.length >= enough)
        .max_by_key(|cycle| (cycle.repeats() >= FEWEST, cycle.period, cycle.length))?;
    let turn = &tokens[longest.first..longest.first + longest.period];
    let rotated = |from: &usize| turn[*from..].iter().chain(&turn[..*from]);
    let turned = (0..longest.period).min_by(|one, other| rotated(one).cmp(rotated(other)))?;
    let later = Loop {
        first: longest.first + turned,
        length: longest.length - turned,
        period: longest.period,
    };
    // Moving the beginning may cost a turn, so it is not moved if few would remain.
    Some(if later.repeats() >= FEWEST {
        later
    } else {
        longest
    })
}

/// All ranges whose turns repeat often enough not to be chance.
///
/// Sequences of 1, 2, 4, ... tokens get numbers, computed from those of their halves (Karp, Miller
/// & Rosenberg 1972). If a sequence has occurred before, and the sequences after it repeat at the
/// same distance, that distance is a period. Sequences as long as a period or longer are equal only
/// at a multiple of it; sequences half as long find a turn that occurs twice.
fn loops(tokens: &[u32]) -> Vec<Loop> {
    let (mut found, mut length, mut names) = (Vec::new(), 1_usize, tokens.to_vec());
    while !names.is_empty() {
        let mut last: HashMap<u32, usize> = HashMap::new();
        let distance = |(at, name): (usize, &u32)| at - last.insert(*name, at).unwrap_or(at);
        let distances: Vec<usize> = names.iter().enumerate().map(distance).collect();
        let mut at = 0;
        for stretch in distances.chunk_by(|one, next| one == next) {
            let (period, from) = (stretch[0], at);
            at += stretch.len();
            if (length.div_ceil(2)..=2 * length).contains(&period) {
                let turns = Loop {
                    first: from - period,
                    length: period + stretch.len() - 1 + length,
                    period,
                };
                if turns.repeats() >= FEWEST || turns.repeats() == 2 && period >= LONG {
                    found.push(turns);
                }
            }
        }
        let halves = names.iter().zip(names.get(length..).unwrap_or_default());
        names = numbered(halves);
        length *= 2;
    }
    found
}

#[cfg(test)]
mod tests;
