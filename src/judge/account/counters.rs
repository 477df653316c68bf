//! What hardware counters say of a kernel that takes longer, or less.

use crate::judge::judgement::{CounterChange, CounterKind};
use crate::machine::{KernelCounters, METRICS, Sides, Use};

/// Shares and amounts that differ by less say nothing: others use the device, and caches hold
/// what they did not.
const MOVED: f64 = 0.10;

/// The same in percentage points, of a share.
const POINTS: f64 = 1.0;

/// Most that a line tells, besides the instructions.
const TOLD: usize = 2;

/// Instructions first, whether or not they changed: the same work in a longer time is another
/// case than more work. Then what moved most.
pub fn counters(sides: &Sides<KernelCounters>) -> Vec<CounterChange> {
    let (base, head) = (&sides.base, &sides.head);
    let mut found = Vec::new();
    let mut moved = Vec::new();
    for metric in &METRICS {
        let kind = match metric.of {
            Use::Instructions => CounterKind::Instructions,
            Use::Percent => CounterKind::Percent,
            Use::Amount => CounterKind::Amount,
        };
        let change = |base: f64, head: f64| CounterChange {
            metric: metric.name.to_owned(),
            words: metric.words.to_owned(),
            kind,
            values: Sides::of(base, head),
        };
        if metric.of == Use::Instructions {
            // What may be the same by chance is neither told as that nor as a change.
            let exactly = |side: &KernelCounters| {
                let counts = side.instructions.get(metric.name)?;
                counts.is_exact().then_some(counts.least as f64)
            };
            let executed = metric.name == METRICS[0].name;
            match exactly(base).zip(exactly(head)) {
                Some((before, after)) if executed || before != after => {
                    found.push(change(before, after));
                }
                _ => {}
            }
            continue;
        }
        let value = |side: &KernelCounters| side.evidence.get(metric.name).copied();
        if let Some((before, after)) = value(base).zip(value(head)) {
            let share =
                (after - before).abs() / before.abs().max(after.abs()).max(f64::MIN_POSITIVE);
            let small = kind == CounterKind::Percent && (after - before).abs() < POINTS;
            if share >= MOVED && !small {
                moved.push((share, change(before, after)));
            }
        }
    }
    moved.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.extend(moved.into_iter().take(TOLD).map(|(_, change)| change));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{CountedCall, CountedKernel, Counters};

    fn kernel(counts: &[(usize, f64)]) -> KernelCounters {
        let counts = counts
            .iter()
            .map(|&(at, value)| (METRICS[at].name.to_owned(), value));
        let kernels = vec![CountedKernel {
            name: "k".to_owned(),
            counts: counts.collect(),
        }];
        let counted = Counters::of(&[CountedCall { kernels }]).unwrap();
        counted.kernels["k"].clone()
    }

    fn told(base: &[(usize, f64)], head: &[(usize, f64)]) -> Vec<String> {
        let changes = counters(&Sides::of(kernel(base), kernel(head)));
        changes.iter().map(ToString::to_string).collect()
    }

    /// The bug of xFormers 0.0.26, as an H200 counted it: 157 blocks became one.
    #[test]
    fn the_same_work_on_one_multiprocessor_is_told_as_that() {
        let base = [(0, 6.64e8), (4, 98.2), (6, 24.9), (7, 1.0e9)];
        let head = [(0, 6.64e8), (4, 0.65), (6, 25.0), (7, 1.01e9)];
        assert_eq!(
            told(&base, &head),
            ["same instructions", "SM cycles active 98.2 → 0.65 %"]
        );
    }

    #[test]
    fn more_work_is_told_with_what_it_is_and_noise_is_not() {
        let base = [(0, 1000.0), (2, 0.0), (4, 0.8), (5, 40.0), (7, 1e6)];
        let head = [(0, 1010.0), (2, 64.0), (4, 0.2), (5, 39.0), (7, 1.05e6)];
        assert_eq!(
            told(&base, &head),
            ["instructions +1.0 %", "local loads 0 → 64"]
        );
        assert!(told(&[], &[(0, 5.0)]).is_empty(), "unknown is no change");
    }
}
