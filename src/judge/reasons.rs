//! Why a row's word is what it is, in sentences with the figures.

use super::floor::beyond;
use super::statistics::needed_per_side;
use super::values::{CONFIRM_P, FEWEST, SCREEN_P, UNCONFIRMED_P, Values};
use crate::units::{Probability, Share, counted};

/// Called although p alone would not have.
pub fn unmistakable(values: &Values) -> String {
    let (base, head) = values.sizes();
    format!(
        "{head} against {base} invocations cannot give the p that is asked for otherwise, but \
         they do not overlap: every ratio lies between {} and {}",
        values.estimate.low.times(),
        values.estimate.high.times(),
    )
}

/// A suspicion that fresh invocations took back.
pub fn withdrawn(screen: &Values, fresh: &Values) -> String {
    format!(
        "suspected at {}, but {} on {}",
        screen.estimate.ratio.told(),
        fresh.estimate.ratio.told(),
        counted(fresh.sizes().1, "fresh invocation"),
    )
}

/// A suspicion that fresh invocations neither bear out nor take back.
pub fn not_confirmed(
    screen: &Values,
    fresh: &Values,
    adjusted: Probability,
    together: usize,
    floor: Share,
) -> String {
    let said = withdrawn(screen, fresh);
    let needed = CONFIRM_P.among(together);
    if !beyond(fresh.estimate.ratio, floor) {
        format!("{said}; {}", reach(fresh, floor))
    } else if fresh.reachable() > needed {
        let (base, head) = fresh.sizes();
        format!(
            "{said}; {head} against {base} cannot decide {} together, {} a side could",
            counted(together, "case"),
            needed_per_side(needed.0)
        )
    } else {
        format!(
            "{said} with p {}, which is {} over {} tested together",
            fresh.p,
            adjusted,
            counted(together, "case"),
        )
    }
}

/// Neither a change nor its absence is shown, and there are no fresh invocations.
pub fn undecided(screen: &Values, floor: Share) -> String {
    let (base, head) = screen.sizes();
    let ratio = screen.estimate.ratio;
    let said = ratio.told();
    if !beyond(ratio, floor) {
        return format!("{said}; {}", reach(screen, floor));
    }
    if screen.reachable() > UNCONFIRMED_P {
        return format!(
            "{said}, but {head} against {base} invocations cannot decide; {} a side could",
            needed_per_side(UNCONFIRMED_P.0)
        );
    }
    let p = screen.p;
    if screen.p <= SCREEN_P {
        let calls = UNCONFIRMED_P.0;
        format!("{said} with p {p}: suspected; p {calls} or fresh invocations would decide")
    } else {
        format!("{said}, but the invocations of both sides overlap (p {p})")
    }
}

/// Why a ratio within the floor is not "same".
fn reach(values: &Values, floor: Share) -> String {
    let estimate = &values.estimate;
    if !beyond(estimate.low, floor) && !beyond(estimate.high, floor) {
        let (base, head) = values.sizes();
        return format!(
            "{head} against {base} invocations are too few to show that nothing changed; \
             {FEWEST} a side could"
        );
    }
    format!(
        "it may be anything from {} to {}, and the floor is {}",
        estimate.low.told(),
        estimate.high.told(),
        floor
    )
}
