//! Compares the sides of a block: their results, where the base is the head's only reference, and
//! their samples.

use super::compared;
use super::declared::compare_sides;
use super::failed;
use super::lane::{LaneCase, RunningSides, Stage};
use regatta_core::metric::ratio_in_turns;
use regatta_core::record::{Compared, Outcome, PairSide};
use regatta_core::suite::Metric;

/// Returns base and head, if the block has both.
fn pair<'b, 'l, 'a>(
    block: &'b mut [LaneCase<'l, 'a>],
) -> Option<(&'b mut LaneCase<'l, 'a>, &'b mut LaneCase<'l, 'a>)> {
    let [one, other] = block else {
        return None;
    };
    if one.side() == PairSide::Base {
        Some((one, other))
    } else {
        Some((other, one))
    }
}

/// Compares the head's results with the base's for an operator without a reference. These are the
/// results of the last call if samples were taken (`after_timing`), and else of the first.
pub(super) fn compare_results<E>(
    block: &mut [LaneCase<'_, '_>],
    sides: &mut RunningSides<'_, E>,
    after_timing: bool,
) {
    let Some((base, head)) = pair(block) else {
        return;
    };
    if after_timing != matches!(head.stage, Stage::Timed(..)) {
        return;
    }
    let Some((operator, _)) = sides.head.session.declared(head.case) else {
        return;
    };
    let (Some((_, of_base)), Some((operands, of_head))) = (base.declared(), head.declared()) else {
        return;
    };
    if operator.reference.is_some() {
        return;
    }
    let folders = (of_base.as_path(), of_head.as_path());
    match compare_sides(&operator.name, operands, folders, after_timing) {
        Err(rejected) => head.stage = Stage::Ended(Outcome::from(rejected).into()),
        Ok(errors) => match &mut head.stage {
            Stage::Ready(ready) => ready.errors = errors,
            Stage::Timed(_, measurement) => measurement.errors_after = errors,
            _ => {}
        },
    }
}

/// Compares what a script's call returned on both sides, if both are ready.
pub(super) fn compare_calls<E>(block: &mut [LaneCase<'_, '_>], sides: &mut RunningSides<'_, E>) {
    let Some((base, head)) = pair(block) else {
        return;
    };
    let is_call = base.case.problem.is_call() && head.case.problem.is_call();
    let (Stage::Ready(of_base), Stage::Ready(of_head)) = (&mut base.stage, &mut head.stage) else {
        return;
    };
    if !is_call {
        return;
    }
    let [in_base, in_head] =
        [PairSide::Base, PairSide::Head].map(|side| sides.get(side).session.suite);
    let listed = [(in_base, base.case), (in_head, head.case)];
    let listed = listed.map(|(suite, case)| Some(&suite.listed.get(&case.id())?.outputs[..]));
    let outputs = [&of_base.prepared.outputs[..], &of_head.prepared.outputs[..]];
    match compared::compare(outputs, listed) {
        Ok((compared, errors)) => {
            of_base.compared = Some(compared.clone());
            (of_head.compared, of_head.errors) = (Some(compared), errors);
        }
        Err((fault, reason)) => {
            of_base.compared = Some(Compared::Base);
            head.stage = Stage::Ended(failed(fault, reason).into());
        }
    }
}

/// Stores in the head the ratio of its samples to the base's.
pub(super) fn compare_turns(block: &mut [LaneCase<'_, '_>]) {
    let Some((base, head)) = pair(block) else {
        return;
    };
    let turn = base.turn.max(head.turn);
    if let (Stage::Timed(_, base), Stage::Timed(_, head)) = (&base.stage, &mut head.stage) {
        let ratio = |metric| {
            let ratio = ratio_in_turns(metric, &base.samples, &head.samples, turn)?;
            Some((metric, ratio))
        };
        head.ratios = Metric::ALL.into_iter().filter_map(ratio).collect();
    }
}
