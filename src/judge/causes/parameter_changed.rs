//! The same request became another parameter: a default or a heuristic changed.

use std::collections::BTreeSet;

use super::less_parallel::cuts_work;
use super::{Pair, finding};
use crate::attention::ParamValue;
use crate::judge::judgement::Finding;

/// Finds parameters whose effective value differs, but for those that
/// `less-parallel` speaks of.
pub fn find(pair: &Pair) -> Option<Finding> {
    let (base, head) = (&pair.base.effective, &pair.head.effective);
    let names: BTreeSet<&String> = base.keys().chain(head.keys()).collect();
    let changed = names.into_iter().filter_map(|name| {
        // What only one side reports may be a worker that reports more, not a change.
        let (before, after) = base.get(name).zip(head.get(name))?;
        let told = match (before, after) {
            (ParamValue::Int(before), ParamValue::Int(after)) => {
                cuts_work(name) && after < before && *after > 0
            }
            _ => false,
        };
        (before != after && !told).then(|| format!("{name} became {after} (was {before})"))
    });
    let changed: Vec<String> = changed.collect();
    (!changed.is_empty()).then(|| finding("parameter-changed", changed.join(", "), 0.85))
}
