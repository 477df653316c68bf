//! The part of a program that repeats: what is left when warm-up and compilation are over.
//!
//! Found on the busiest stream, whose order is the program's, as the last sequence of
//! operations that comes at least [`FEWEST`] times in a row; a few operations behind it
//! (a result that is fetched) may end the program. Where that is little of the program, an
//! evaluation or a checkpoint may stand behind it, or a step that is unlike the others: then
//! it is what repeats most, wherever that is ([`outermost`]). A loop inside a step is none: its
//! turns come again elsewhere. A sequence of many operations need come only twice: two steps alike
//! are no chance. Other streams belong to it by time.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::ops::Range;

use regatta_worker::machine::Work;
use regatta_worker::units::Nanoseconds;
use serde::Serialize;

use super::summary::Summary;
use super::{Recorded, Recording};

/// Operations of the busiest stream that are searched from its end.
const SEARCHED: usize = 50_000;

/// Operations that may follow the last repetition.
const TAIL: usize = 64;

/// Operations of a sequence that comes twice by no chance.
const LONG: usize = 64;

/// A repetition that takes so many times as long as the middle one was interrupted.
const INTERRUPTED: u64 = 10;

/// A repeated sequence of operations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Steady {
    /// Operations of the busiest stream in one repetition.
    pub period: usize,
    /// How often it came in a row.
    pub repeats: usize,
    /// Further repetitions, before or behind these, that are long for what the host does in them:
    /// warm-up, an interruption, the way to what follows; with what lies beyond them.
    pub set_aside: usize,
    /// Start of the first repetition.
    pub from_ns: u64,
    /// Start of what follows the last one, or its end.
    pub to_ns: u64,
    /// Start of the last repetition.
    pub last_ns: u64,
    /// Which process: its number in the recording.
    pub process: u32,
    /// Which of its devices.
    pub device: u32,
    /// Which stream it was found on, where its operations tell.
    pub stream: Option<u32>,
}

impl Steady {
    /// Time from one repetition to the next.
    pub fn period_time(&self) -> Nanoseconds {
        Nanoseconds((self.to_ns - self.from_ns) as f64 / self.repeats as f64)
    }

    /// Every operation that starts in it, of any process and stream.
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
    /// Where it is.
    #[serde(flatten)]
    pub steady: Steady,
    /// What happened in it, over all its repetitions.
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
    let tokens: Vec<Token> = searched.iter().map(|o| token(o)).collect();
    let found = chosen(&tokens)?;
    // The same kernel a few times at a program's end is no loop.
    if found.covered() < ENOUGH && 4 * found.covered() < operations.len() {
        return None;
    }
    let start = |at: usize| match searched.get(at) {
        Some(operation) => operation.start_ns,
        None => searched[searched.len() - 1].end_ns + 1,
    };
    let starts = (0..=found.repeats).map(|turn| start(found.first + turn * found.period));
    let starts: Vec<u64> = starts.collect();
    let turns = undisturbed(&starts);
    Some(Steady {
        period: found.period,
        repeats: turns.len(),
        set_aside: found.repeats - turns.len(),
        from_ns: starts[turns.start],
        to_ns: starts[turns.end],
        last_ns: starts[turns.end - 1],
        process,
        device,
        stream,
    })
}

/// The loop that is the program's: the last one, unless it is inside another.
fn chosen(tokens: &[Token]) -> Option<Loop> {
    // Backwards, so that what is sought is at the front.
    let backwards: Vec<Token> = tokens.iter().rev().copied().collect();
    let of_the_end = |fewest| {
        repetition(&backwards, fewest).map(|found| Loop {
            first: tokens.len() - found.tail - found.covered(),
            period: found.period,
            repeats: found.repeats,
        })
    };
    let twice = || of_the_end(2).filter(|found| found.repeats == 2);
    let last = of_the_end(FEWEST);
    let most = |covered: usize| 2 * covered >= tokens.len();
    if let Some(last) = last.filter(|last| most(last.covered())) {
        return Some(last);
    }
    let Some(last) = last else {
        return outermost(tokens).or_else(twice);
    };
    let elsewhere = last.elsewhere(tokens);
    if elsewhere == 0 {
        return Some(last);
    }
    let outer = outermost(tokens).filter(|outer| outer.period > last.period);
    let inner = || most(last.covered() + elsewhere).then_some(last);
    outer.or_else(inner).or_else(twice)
}

/// The repetitions, by their starts and the end of the last, that stand for the others: without
/// warm-up, and without a last one that takes half as long again, since what the host does
/// between the loop and what follows it is none of the loop. Where one alone takes
/// [`INTERRUPTED`] times as long as the middle one, the more of those before it or behind it.
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

/// How many of the first repetitions are still warm-up, though they run the same: a kernel
/// that is loaded, a plan that is made. They take half as long again as the middle one, so
/// they are fewer than half, and [`FEWEST`] are left.
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

/// What an operation is, sizes aside: they may change from one repetition to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Token<'a> {
    /// The kernel of this name, by its number.
    Kernel(u32),
    /// A copy in this direction.
    Copy(&'a str),
    Set,
}

fn token(operation: &Recorded) -> Token<'_> {
    match &operation.work {
        Work::Kernel(kernel) => Token::Kernel(kernel.name),
        Work::Copy { direction, .. } => Token::Copy(direction),
        Work::Set { .. } => Token::Set,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Repetition {
    tail: usize,
    period: usize,
    repeats: usize,
}

impl Repetition {
    fn covered(&self) -> usize {
        self.period * self.repeats
    }
}

/// The repetition that covers most of the front of `tokens`, and of those that cover
/// nearly as much the one with the shortest period.
fn repetition<T: PartialEq>(tokens: &[T], fewest: usize) -> Option<Repetition> {
    let mut best: Option<Repetition> = None;
    for tail in 0..TAIL.min(tokens.len()) {
        let tokens = &tokens[tail..];
        let matches = prefix_matches(tokens);
        let periods = matches.iter().enumerate().take(tokens.len() / fewest + 1);
        for (period, matched) in periods.skip(1) {
            let repeats = matched / period + 1;
            let found = Repetition {
                tail,
                period,
                repeats,
            };
            let better = best.is_none_or(|best| match found.period < best.period {
                true => 20 * found.covered() >= 19 * best.covered(),
                false => 19 * found.covered() > 20 * best.covered(),
            });
            let by_chance = repeats < FEWEST && period < LONG;
            if repeats >= fewest && !by_chance && better {
                best = Some(found);
            }
        }
        // Nothing further back can be told from a shift of what was found.
        if best.is_some_and(|best| tail >= best.tail + best.period) {
            break;
        }
    }
    best
}

/// For each index, how many tokens from there on equal those at the front (the Z function,
/// in linear time).
fn prefix_matches<T: PartialEq>(tokens: &[T]) -> Vec<usize> {
    let mut matches = vec![0; tokens.len()];
    let (mut left, mut right) = (0, 0);
    for at in 1..tokens.len() {
        let mut length = match at < right {
            true => (right - at).min(matches[at - left]),
            false => 0,
        };
        while at + length < tokens.len() && tokens[length] == tokens[at + length] {
            length += 1;
        }
        if at + length > right {
            (left, right) = (at, at + length);
        }
        matches[at] = length;
    }
    matches
}

/// Repetitions below which a sequence may have come twice by chance.
const FEWEST: usize = 3;

/// Operations that a repeated part has at least, unless it is a quarter of all.
const ENOUGH: usize = 30;

/// Turns of a loop, one behind the other: so many of so many tokens, from the first on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loop {
    first: usize,
    period: usize,
    repeats: usize,
}

/// Of each token so many distances to its next one are looked into.
const DISTANCES: usize = 2;

/// Periods that are looked into, the longest first.
const PERIODS: usize = 64;

impl Loop {
    fn covered(&self) -> usize {
        self.period * self.repeats
    }

    fn end(&self) -> usize {
        self.first + self.covered()
    }

    /// Tokens of turns that come twice in a row somewhere else: a layer of a step, in the other
    /// steps.
    fn elsewhere<T: PartialEq>(&self, tokens: &[T]) -> usize {
        let turn = &tokens[self.first..self.first + self.period];
        let is_turn = |at: usize| {
            tokens
                .get(at..at + self.period)
                .is_some_and(|of| of == turn)
        };
        let (mut at, mut found) = (0, 0);
        while at + 2 * self.period <= tokens.len() {
            if at + 2 * self.period > self.first && at < self.end() {
                at = self.end();
                continue;
            }
            let mut turns = 0;
            while is_turn(at + turns * self.period) {
                turns += 1;
            }
            match turns {
                0 | 1 => at += 1,
                _ => {
                    found += turns * self.period;
                    at += turns * self.period;
                }
            }
        }
        found
    }
}

/// The loop with the longest turns that come at least [`FEWEST`] times in a row and are not
/// themselves made of turns: a step, not what it repeats. It begins where the first of its
/// tokens stands that the program came to, so that two programs which do the same are cut at
/// the same place.
fn outermost<T: Copy + Eq + Hash>(tokens: &[T]) -> Option<Loop> {
    let enough = ENOUGH.max(tokens.len() / 20);
    let found = periods(tokens).into_iter().find_map(|period| {
        let (first, matched) = longest_run(tokens, period);
        let length = matched + period;
        let period = root(&tokens[first..first + period]);
        (length / period >= FEWEST && length >= enough).then_some((first, length, period))
    });
    let (first, length, period) = found?;
    let mut rank: HashMap<T, usize> = HashMap::new();
    for (at, token) in tokens.iter().enumerate() {
        rank.entry(*token).or_insert(at);
    }
    let turn: Vec<usize> = tokens[first..first + period]
        .iter()
        .map(|token| rank[token])
        .collect();
    let turned = least_rotation(&turn);
    // The beginning may cost a turn: then it stays where it is.
    let (first, left) = match (length - turned) / period >= FEWEST {
        true => (first + turned, length - turned),
        false => (first, length),
    };
    Some(Loop {
        first,
        period,
        repeats: left / period,
    })
}

/// Distances from a token to its next that come often, the longest first.
fn periods<T: Copy + Eq + Hash>(tokens: &[T]) -> Vec<usize> {
    let mut last: HashMap<T, usize> = HashMap::new();
    let mut distances: HashMap<T, HashMap<usize, usize>> = HashMap::new();
    for (at, token) in tokens.iter().enumerate() {
        if let Some(before) = last.insert(*token, at) {
            let of = distances.entry(*token).or_default();
            *of.entry(at - before).or_default() += 1;
        }
    }
    let mut found: Vec<usize> = Vec::new();
    for of in distances.into_values() {
        let mut often: Vec<(usize, usize)> = of
            .into_iter()
            .filter(|(_, count)| count + 1 >= FEWEST)
            .map(|(distance, count)| (count, distance))
            .collect();
        often.sort_unstable_by(|a, b| b.cmp(a));
        found.extend(often.iter().take(DISTANCES).map(|(_, distance)| *distance));
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.dedup();
    found.truncate(PERIODS);
    found
}

/// Where tokens equal those one period on for longest, and for how long; of two as long the
/// later.
fn longest_run<T: PartialEq>(tokens: &[T], period: usize) -> (usize, usize) {
    let (mut best, mut length) = ((0, 0), 0);
    for at in 0..tokens.len().saturating_sub(period) {
        length = match tokens[at] == tokens[at + period] {
            true => length + 1,
            false => 0,
        };
        if length > 0 && length >= best.1 {
            best = (at + 1 - length, length);
        }
    }
    best
}

/// The shortest turn that this one is made of.
fn root<T: PartialEq>(turn: &[T]) -> usize {
    let length = turn.len();
    let shorter = (1..length).find(|period| {
        length.is_multiple_of(*period) && turn[*period..] == turn[..length - period]
    });
    shorter.unwrap_or(length)
}

/// Where the rotation begins that is first in order (Booth 1980, by two pointers).
fn least_rotation(of: &[usize]) -> usize {
    let length = of.len();
    let (mut one, mut other, mut same) = (0, 1, 0);
    while one < length && other < length && same < length {
        let at = |from: usize| of[(from + same) % length];
        match at(one).cmp(&at(other)) {
            std::cmp::Ordering::Equal => {
                same += 1;
                continue;
            }
            std::cmp::Ordering::Greater => one += same + 1,
            std::cmp::Ordering::Less => other += same + 1,
        }
        if one == other {
            other += 1;
        }
        same = 0;
    }
    one.min(other)
}

#[cfg(test)]
mod tests;
