//! Code is loaded or compiled in every call, not only in the first.

use super::{Pair, finding};
use crate::judge::judgement::Finding;

/// Finds more modules loaded in steady state.
pub fn find(pair: &Pair) -> Option<Finding> {
    let (base, head) = pair.counts("module_loads")?;
    let evidence = format!("modules loaded by a call in steady state {base} -> {head}");
    (head > base).then(|| finding("modules-loaded", evidence, 0.94))
}
