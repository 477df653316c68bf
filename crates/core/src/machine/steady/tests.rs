use super::*;
use crate::machine::testing::Writer;
use proptest::prelude::*;

fn found(text: &str) -> Option<(usize, usize, usize)> {
    chosen(&numbered(text.bytes())).map(|cycle| (cycle.first, cycle.period, cycle.repeats()))
}

#[test]
fn the_longest_sequence_that_repeats_is_found_behind_a_warm_up_and_before_a_tail() {
    assert_eq!(found("xyzwabcabcabcabc"), Some((4, 3, 4)));
    assert_eq!(found("xyzwabcabcabcabcq"), Some((4, 3, 4)));
    assert_eq!(found("wwwwwwwwaab aab aab aab aab "), Some((8, 4, 5)));
    assert_eq!(found("abcdefgh"), None);
    assert_eq!(found("abab"), None, "twice may be chance");
    assert_eq!(found(""), None);
    assert_eq!(found("aaaa"), Some((0, 1, 4)));
    // Three alike at the end of each repetition are not the repetition.
    assert_eq!(found("baaabaaabaaabaaa"), Some((0, 4, 4)));
    assert_eq!(found("aabbaabbaabb"), Some((0, 4, 3)));
    // Two long ones alike are not chance.
    let long: String = ('0'..'z').collect();
    assert_eq!(found(&long.repeat(2)), Some((0, long.len(), 2)));
    // The program's first operation begins a turn, if that leaves turns enough.
    assert_eq!(found("abcxbcabcabcabca"), Some((6, 3, 3)));
}

proptest! {
    #[test]
    fn a_loop_is_made_of_equal_turns(tokens in prop::collection::vec(0u32..3, 0..60)) {
        for Loop { first, length, period } in loops(&tokens) {
            let covered = &tokens[first..first + length];
            prop_assert!(covered[period..] == covered[..length - period]);
        }
    }

    #[test]
    fn what_comes_three_times_is_found(turn in prop::collection::vec(0u32..3, 1..20)) {
        let cycle = chosen(&turn.repeat(4)).unwrap();
        prop_assert!(turn.len().is_multiple_of(cycle.period), "{cycle:?}");
        prop_assert!(cycle.length + cycle.period >= 4 * turn.len(), "{cycle:?}");
    }
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

/// A program's operations, each a kernel of its own 1 µs long; `.` is a pause of the host.
struct Program(Writer);

impl Program {
    fn new() -> Program {
        Program(Writer::new())
    }

    fn does(&mut self, kernels: &[&str]) {
        for name in kernels {
            self.0.kernel(name, 1, 1_000);
        }
    }

    /// 24 layers of nine kernels.
    fn layers(&mut self, pass: &str) {
        for _ in 0..24 {
            for kernel in 0..9 {
                self.0.kernel(&format!("{pass}_{kernel}"), 1, 1_000);
            }
        }
    }

    fn forward(&mut self) {
        self.does(&["embed"]);
        self.layers("forward");
        self.does(&["head"]);
    }

    fn step(&mut self) {
        self.forward();
        self.layers("backward");
        self.does(&["norm", "scale", "adam"]);
    }

    /// Operations of a repetition, how many repetitions, and one's time.
    fn found(&self) -> Option<(usize, usize, f64)> {
        let steady = steady(&self.0.recording)?;
        Some((
            steady.period,
            steady.repeats,
            steady.period_time().0.round(),
        ))
    }
}

/// Operations of a step.
const STEP: usize = 437;

#[test]
fn a_step_is_the_period_and_not_its_layers() {
    let mut program = Program::new();
    program.does(&["fill", "fill", "cast"]);
    (0..40).for_each(|_| program.step());
    assert_eq!(program.found(), Some((STEP, 40, 437_000.0)));
}

#[test]
fn what_follows_the_last_step_is_no_loop_of_its_own() {
    // An evaluation: its layers come again and again, inside of every step, too.
    let mut program = Program::new();
    (0..40).for_each(|_| program.step());
    program.forward();
    program.does(&["loss"]);
    assert_eq!(program.found(), Some((STEP, 40, 437_000.0)));
    // A checkpoint: a hundred copies, none like the other for the most.
    let mut program = Program::new();
    (0..40).for_each(|_| program.step());
    for number in 0..100 {
        program.does(&[format!("gather_{number}").as_str()]);
    }
    assert_eq!(program.found(), Some((STEP, 40, 437_000.0)));
}

#[test]
fn one_long_gap_is_not_in_the_time_of_a_step() {
    let paused = |at: &[usize], ns: u64| {
        let mut program = Program::new();
        for number in 0..40 {
            if at.contains(&number) {
                program.0.host_pauses(ns);
            }
            program.step();
        }
        program.0.host_pauses(50_000_000);
        program.0.copy("DtoH", 4, 1_000);
        program.found().unwrap()
    };
    // Between the last step and what follows it.
    assert_eq!(paused(&[], 0), (STEP, 39, 437_000.0));
    // In the middle: the longer side of it.
    assert_eq!(paused(&[15], 90_000_000), (STEP, 24, 437_000.0));
    // Twice is how the program is.
    let (_, repeats, time) = paused(&[10, 20], 90_000_000);
    assert_eq!(repeats, 39);
    assert!(time > 4_000_000.0, "{time}");
    // So is what is not ten times as long.
    assert_eq!(paused(&[15], 2_000_000).1, 39);
}
