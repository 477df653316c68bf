//! The device ran at another clock: the machine, not the code.

use super::{Pair, finding};
use crate::judge::complete::usable;
use crate::judge::judgement::Finding;
use crate::judge::phrase::percent;
use crate::record::side::median;

/// Smaller differences of the clock are its resolution.
const SMALLEST: f64 = 0.01;

/// Finds a clock that moved the way the time did, far enough to explain at least
/// half of it. Work bound by memory slows less than its clock, so more than all
/// of a change may be explained.
pub fn find(pair: &Pair) -> Option<Finding> {
    let base = median(&usable(&pair.base.clock_mhz))?;
    let head = median(&usable(&pair.head.clock_mhz))?;
    if !pair.moved() || !pair.of_device() || (head / base - 1.0).abs() < SMALLEST {
        return None;
    }
    let share = (base / head).ln() / pair.ratio.ln();
    if !(0.5..=2.0).contains(&share) {
        return None;
    }
    let evidence = format!(
        "clock {base:.0} → {head:.0} MHz, which accounts for {} of the change: the machine, \
         not the code",
        percent(share.min(1.0))
    );
    // A change of structure explains better than a clock that moved along with it.
    let same = pair.same_structure();
    let confidence = if same { 0.9 } else { 0.6 } * share.min(1.0);
    let cause = if head < base {
        "lower-clock"
    } else {
        "higher-clock"
    };
    Some(finding(cause, evidence, confidence))
}
