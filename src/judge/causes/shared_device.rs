//! Other processes computed on the device: the machine, not the code.

use super::{Pair, disturbed};
use crate::judge::judgement::Finding;

/// Finds other processes beside the slower side that the other side did not have so
/// often.
pub fn find(pair: &Pair) -> Option<Finding> {
    let share = |record: &super::CaseRecord| record.conditions.shared_share();
    let (slower, faster) = disturbed(pair, share)?;
    let evidence = format!(
        "other processes computed on the device in {} of {} invocations (up to {}), before in \
         {} of {}: the machine, not the code",
        slower.conditions.shared,
        slower.conditions.known,
        slower.conditions.other_processes,
        faster.conditions.shared,
        faster.conditions.known
    );
    Some(pair.finding_of_the_machine("shared-device", evidence))
}
