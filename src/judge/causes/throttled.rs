//! The device held its clocks back: the machine, not the code.

use super::{Pair, disturbed};
use crate::judge::judgement::Finding;

/// Finds throttling on the slower side that the other side did not have so often. The
/// clock that is read between samples need not show it: a board at its power limit
/// lowers its clock under load alone.
pub fn find(pair: &Pair) -> Option<Finding> {
    let share = |record: &super::CaseRecord| record.conditions.throttled_share();
    let (slower, faster) = disturbed(pair, share)?;
    let reasons = slower.conditions.throttle_reasons.iter();
    let reasons: Vec<&str> = reasons.map(String::as_str).collect();
    let evidence = format!(
        "the device held its clocks back in {} of {} invocations ({}), before in {} of {}: \
         the machine, not the code",
        slower.conditions.throttled,
        slower.conditions.known,
        reasons.join(", "),
        faster.conditions.throttled,
        faster.conditions.known
    );
    Some(pair.finding_of_the_machine("throttled", evidence))
}
