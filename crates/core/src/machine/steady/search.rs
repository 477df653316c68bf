//! Loops in a sequence: which is inside another, and which is the outermost.

use std::collections::HashMap;
use std::hash::Hash;

/// Repetitions below which a sequence may have come twice by chance.
pub const FEWEST: usize = 3;

/// Operations that a repeated part has at least, unless it is a quarter of all.
pub const ENOUGH: usize = 30;

/// Turns of a loop, one behind the other: so many of so many tokens, from the first on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    pub first: usize,
    pub period: usize,
    pub repeats: usize,
}

/// Of each token so many distances to its next one are looked into.
const DISTANCES: usize = 2;

/// Periods that are looked into, the longest first.
const PERIODS: usize = 64;

impl Loop {
    pub fn covered(&self) -> usize {
        self.period * self.repeats
    }

    pub fn end(&self) -> usize {
        self.first + self.covered()
    }

    /// Tokens of turns that come twice in a row somewhere else: a layer of a step, in the other
    /// steps.
    pub fn elsewhere<T: PartialEq>(&self, tokens: &[T]) -> usize {
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
pub fn outermost<T: Copy + Eq + Hash>(tokens: &[T]) -> Option<Loop> {
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
