//! The part of a program that repeats: what is left when warm-up and compilation are over.
//!
//! Found on the busiest stream, whose order is the program's, as the sequence of operations that
//! comes at least [`FEWEST`] times in a row and covers most of its end; something else may follow
//! it (a result that is fetched, a last step that differs). A sequence of many operations need come
//! only twice: layers of a model repeat inside a step, and two steps alike are no chance. Other
//! streams belong to it by time.

use std::collections::BTreeMap;

use regatta_worker::machine::Work;
use regatta_worker::units::Nanoseconds;
use serde::Serialize;

use super::recording::{Recorded, Recording};
use super::summary::Summary;

/// Repetitions below which a sequence may have come twice by chance.
pub const FEWEST: usize = 3;

/// Operations that a repeated part has at least, unless it is a quarter of all.
const ENOUGH: usize = 30;

/// Operations of the busiest stream that are searched from its end.
const SEARCHED: usize = 50_000;

/// Operations that may follow the last repetition, each number of which is tried.
const TAIL: usize = 64;

/// Further places from which what repeats is looked for: something that is done once in a while,
/// or a last step that differs, may lie behind it.
const PLACES: usize = 16;

/// Operations of a sequence that comes twice by no chance.
const LONG: usize = 64;

/// A repeated sequence of operations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Steady {
    /// Operations of the busiest stream in one repetition.
    pub period: usize,
    /// How often it came in a row.
    pub repeats: usize,
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
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
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
    // Backwards, so that what is sought is at the front.
    let tokens: Vec<Token> = searched.iter().rev().map(|o| token(o)).collect();
    let found = repetition(&tokens)?;
    // The same kernel a few times at a program's end is no loop.
    if found.covered() < ENOUGH && 4 * found.covered() < operations.len() {
        return None;
    }
    let end = searched.len() - found.tail;
    let first = end - found.period * found.repeats;
    let starts = searched[first..end].iter().step_by(found.period);
    let warm_up = warm_up(
        &starts
            .map(|operation| operation.start_ns)
            .collect::<Vec<_>>(),
    );
    let first = first + found.period * warm_up;
    let last = end - found.period;
    Some(Steady {
        period: found.period,
        repeats: found.repeats - warm_up,
        from_ns: searched[first].start_ns,
        to_ns: match searched.get(end) {
            Some(next) => next.start_ns,
            None => searched[end - 1].end_ns + 1,
        },
        last_ns: searched[last].start_ns,
        process,
        device,
        stream,
    })
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The repetition that covers most of `tokens`, and of those that cover nearly as much the one
/// with the shortest period.
fn repetition<T: PartialEq>(tokens: &[T]) -> Option<Repetition> {
    let mut best: Option<Repetition> = None;
    for tail in 0..TAIL.min(tokens.len()) {
        best = better(tokens, tail, best);
        // Nothing further back can be told from a shift of what was found.
        if best.is_some_and(|best| tail >= best.tail + best.period) {
            break;
        }
    }
    // What repeats does so from any place within it.
    for place in 1..PLACES {
        let tail = tokens.len() * place / PLACES;
        let uncovered = best.is_none_or(|best| tail >= best.tail + best.covered());
        if tail >= TAIL && uncovered {
            best = better(tokens, tail, best);
        }
    }
    best
}

/// The repetition that begins `tail` tokens from the front, or as far before as it goes on, where
/// it is better than the best so far.
fn better<T: PartialEq>(
    tokens: &[T],
    tail: usize,
    mut best: Option<Repetition>,
) -> Option<Repetition> {
    let rest = &tokens[tail..];
    let matches = prefix_matches(rest);
    let periods = matches.iter().enumerate().take(rest.len() / 2 + 1);
    for (period, matched) in periods.skip(1) {
        let repeats = matched / period + 1;
        let fewest = if period >= LONG { 2 } else { FEWEST };
        if repeats < fewest {
            continue;
        }
        let found = Repetition {
            tail,
            period,
            repeats,
        };
        let is_better = best.is_none_or(|best| match found.period < best.period {
            true => 20 * found.covered() >= 19 * best.covered(),
            false => 19 * found.covered() > 20 * best.covered(),
        });
        if is_better {
            best = Some(found);
        }
    }
    best.map(|best| match best.tail == tail {
        true => extended(tokens, best),
        false => best,
    })
}

/// The same with the whole repetitions that come before it.
fn extended<T: PartialEq>(tokens: &[T], found: Repetition) -> Repetition {
    let Repetition {
        mut tail,
        period,
        mut repeats,
    } = found;
    while tail >= period && tokens[tail - period..tail] == tokens[tail..tail + period] {
        tail -= period;
        repeats += 1;
    }
    Repetition {
        tail,
        period,
        repeats,
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::testing::Writer;
    use proptest::prelude::*;

    fn found(text: &str) -> Option<(usize, usize, usize)> {
        let tokens: Vec<u64> = text.bytes().rev().map(u64::from).collect();
        repetition(&tokens).map(|found| (found.period, found.repeats, found.tail))
    }

    #[test]
    fn the_last_repeated_sequence_is_found_behind_a_warm_up_and_before_a_tail() {
        assert_eq!(found("xyzwabcabcabcabc"), Some((3, 4, 0)));
        assert_eq!(found("xyzwabcabcabcabcq"), Some((3, 4, 1)));
        assert_eq!(found("wwwwwwwwaab aab aab aab aab "), Some((4, 5, 0)));
        assert_eq!(found("abcdefgh"), None);
        assert_eq!(found("abab"), None, "twice may be chance");
        assert_eq!(found(""), None);
        assert_eq!(found("aaaa"), Some((1, 4, 0)));
        // Three alike at the end of each repetition are not the repetition.
        assert_eq!(found("baaabaaabaaabaaa"), Some((4, 4, 0)));
    }

    /// Forty repetitions of the same: how long each is, and how many were found.
    fn forty(step: fn(&mut Writer)) -> Option<(usize, usize)> {
        let mut writer = Writer::new();
        (0..40).for_each(|_| step(&mut writer));
        let found = steady(&writer.recording)?;
        Some((found.period, found.repeats))
    }

    #[test]
    fn kinds_of_operations_and_directions_are_told_apart() {
        // The first kernel of a recording has the number 0.
        let set_and_kernel = |writer: &mut Writer| {
            writer.set(4096, 900);
            writer.kernel("flash", 157, 1_000);
        };
        assert_eq!(forty(set_and_kernel), Some((2, 40)));
        // The same letters, and as many bytes.
        let there_and_back = |writer: &mut Writer| {
            writer.copy("HtoD", 4096, 900);
            writer.copy("DtoH", 4096, 900);
        };
        assert_eq!(forty(there_and_back), Some((2, 40)));
        // Sizes may follow a length.
        let set = |writer: &mut Writer| {
            let bytes = writer.recording_len() as u64;
            writer.set(bytes, 900);
        };
        assert_eq!(forty(set), Some((1, 40)));
    }

    /// A training step: layers alike within it, forward and backward.
    fn step(more: &str) -> String {
        let forward = "abcdefghi".repeat(24);
        let backward = "jklmnopqrstuvwxyz0".repeat(24);
        format!("EF{forward}GHI{more}{backward}JKOOO")
    }

    #[test]
    fn layers_inside_a_step_are_not_what_repeats() {
        let plain = step("");
        let long = plain.len();
        for steps in [2, 3, 4, 40] {
            let program = format!("IIWW{}", plain.repeat(steps));
            assert_eq!(found(&program), Some((long, steps, 0)), "{steps}");
            // A result that is fetched, and a first step that does more.
            let program = format!("{}{}D", step("!?"), plain.repeat(steps));
            assert_eq!(found(&program), Some((long, steps, 1)), "{steps}");
        }
    }

    #[test]
    fn what_is_done_once_in_a_while_may_be_in_the_last_step() {
        let (plain, other) = (step(""), step("L"));
        let (found_last, tail) = {
            let program = format!("{}{other}", plain.repeat(39));
            let (period, repeats, tail) = found(&program).unwrap();
            assert_eq!(period, plain.len());
            (repeats, tail)
        };
        // The other step may begin as the others do, and be taken for a part of the next one.
        assert!((38..=39).contains(&found_last), "{found_last}");
        assert!(tail <= 2 * other.len(), "{tail}");
        // Each tenth step logs: nine alike lie between two that do.
        let ten = format!("{}{other}", plain.repeat(9));
        let (period, repeats, _) = found(&ten.repeat(4)).unwrap();
        assert_eq!((period, repeats), (ten.len(), 4));
    }

    #[test]
    fn repetitions_that_are_long_at_first_are_warm_up() {
        let after = |lengths: &[u64]| {
            let starts = lengths.iter().scan(0, |at, ns| {
                let start = *at;
                *at += ns;
                Some(start)
            });
            warm_up(&starts.collect::<Vec<_>>())
        };
        assert_eq!(after(&[78, 9, 4, 4, 4, 5, 4, 4, 4]), 2);
        assert_eq!(after(&[5, 4, 4, 4, 9, 4]), 0, "within half as long again");
        assert_eq!(after(&[4, 4, 90, 4, 4]), 0, "no longer the first");
        assert_eq!(after(&[90, 3, 3, 2]), 1);
        assert_eq!(after(&[90, 3, 3]), 0, "three are left at least");
        assert_eq!(after(&[]), 0);
    }

    proptest! {
        #[test]
        fn matches_are_those_of_the_definition(tokens in prop::collection::vec(0u64..3, 0..40)) {
            let matches = prefix_matches(&tokens);
            for at in 1..tokens.len() {
                let length = tokens.iter().zip(&tokens[at..]).take_while(|(a, b)| a == b).count();
                prop_assert_eq!(matches[at], length);
            }
        }
    }
}
