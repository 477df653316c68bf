//! What a verdict says of the suite as a whole.

use super::sentences::rows;
use crate::judgement::{CommonShift, Judgement, Word};
use regatta_worker::units::counted;

/// Everything slower at once, beyond the floor, and nobody can say whether it is the code:
/// that is no reason to pass.
pub fn all_slower(judgement: &Judgement) -> Option<String> {
    let shift = judgement.common_shift.filter(|shift| shift.looks_worse)?;
    Some(format!(
        "{} of {} are slower together, in the middle {}: a change that all of them run \
         through, or the machine; sessions stored on other days, or the base measured again, \
         would tell",
        shift.sharing,
        counted(shift.cases, "case"),
        shift.ratio.told(),
    ))
}

/// The whole suite is slower beyond doubt: one thing, however many rows.
pub fn regressed(judgement: &Judgement) -> Option<String> {
    let worse = |shift: &CommonShift| shift.word == Word::Regressed;
    let shift = judgement.common_shift.filter(worse)?;
    let rows = rows(judgement, |row| row.word == Word::Regressed);
    if rows.len() >= shift.sharing {
        // Beyond what a day does each case is told by itself.
        return None;
    }
    Some(format!(
        "the suite as a whole regressed: {} of {} are slower together, in the middle {}",
        shift.sharing,
        counted(shift.cases, "case"),
        shift.ratio.told(),
    ))
}
