//! The same instructions, launched alike, take another time: what surrounds them changed.

use super::{Pair, finding};
use crate::judge::judgement::Finding;

/// Finds equal machine code in an equal structure where time moved.
pub fn find(pair: &Pair) -> Option<Finding> {
    let equal = pair.same_code() && pair.structures().is_some() && pair.same_structure();
    let evidence = "the machine code and what is launched are the same: the environment, not \
                    the code";
    // Below a clock, throttling or another process, which say what of the environment.
    (pair.moved() && equal).then(|| finding("environment", evidence.to_owned(), 0.5))
}
