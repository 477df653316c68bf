//! Takes the samples of a block. Two sides take turns: one works while the other waits.
//!
//! Other programs come and go within seconds. If two processes are measured one after the other,
//! each finds a different machine; if they take turns of a few samples, they share it.

use super::lane::{LaneCase, RunningSides, Stage};
use regatta_core::metric::turn_ratios;
use regatta_core::record::median;
use regatta_core::suite::Metric;

/// Asks each ready worker of a block for its samples. Two workers take turns, and swap their order
/// from one round to the next.
pub(super) fn take_turns<E>(block: &mut [LaneCase<'_, '_>], sides: &mut RunningSides<'_, E>) {
    let suite = sides.head.session.suite;
    if suite.settings.structure_only {
        return;
    }
    let is_ready = |case: &&mut LaneCase<'_, '_>| matches!(case.stage, Stage::Ready(_));
    let mut ready: Vec<_> = block.iter_mut().filter(is_ready).collect();
    let in_turns = ready.len() > 1;
    let threshold = suite.rules.policy.threshold_of(Metric::Device).0;
    let settings = &suite.settings;
    let min_samples = settings.samples.min(ENOUGH).max(settings.min_samples);
    let (mut round, mut last) = (0, false);
    loop {
        let mut paused = false;
        for at in 0..ready.len() {
            let at = if round % 2 == 1 {
                ready.len() - 1 - at
            } else {
                at
            };
            let case = &mut *ready[at];
            let session = &mut sides.get(case.side()).session;
            paused |= case.turn(session, in_turns, last);
        }
        // A worker must not pause more often than the request says, or this would never end.
        let turns = ready.iter().filter_map(|case| case.turns.as_ref());
        let most = turns.map(|turns| turns.measure.samples / turns.measure.pause_every.max(1));
        if !paused || round > most.max().unwrap_or(0) {
            break;
        }
        last = are_enough(&ready, min_samples, threshold);
        round += 1;
    }
}

/// True if there are at least `min_samples` and their error is small beside `threshold`. The error
/// of one side follows from the spread of its samples; of a pair it is the error of the ratio, from
/// the spread of the turns.
fn are_enough(ready: &[&mut LaneCase<'_, '_>], min_samples: u32, threshold: f64) -> bool {
    let turns = ready.iter().map(|case| case.turns.as_ref());
    let Some(turns) = turns.collect::<Option<Vec<_>>>() else {
        return false;
    };
    let (logs, first) = match &turns[..] {
        [alone] => (
            alone.device_ns.iter().map(|time| time.ln()).collect(),
            alone,
        ),
        [base, head] => {
            let turn = base.measure.pause_every;
            (turn_ratios(&base.device_ns, &head.device_ns, turn), base)
        }
        _ => return false,
    };
    let Some(middle) = median(&logs) else {
        return false;
    };
    let apart: Vec<f64> = logs.iter().map(|log| (log - middle).abs()).collect();
    // The standard error of a median, from the median absolute deviation of a normal distribution.
    let error = 1.2533 * 1.4826 * median(&apart).unwrap_or(f64::MAX) / (logs.len() as f64).sqrt();
    let next = first.device_ns.len() as u32 + first.measure.pause_every;
    next >= min_samples && error <= threshold / SMALL_ERROR
}

/// The number of samples a side after which the error is estimated, even if the suite asks for
/// more.
pub(super) const ENOUGH: u32 = 20;

/// An error is small if the threshold is this many times as large.
const SMALL_ERROR: f64 = 3.0;
