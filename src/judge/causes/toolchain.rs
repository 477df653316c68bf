//! Another library or toolchain, and the same structure.

use super::{Pair, finding};
use crate::judge::judgement::Finding;

/// Versions named in the evidence.
const NAMED: usize = 4;

/// Finds versions of the case's worker that changed, where time did too.
///
/// Equal launches with other versions leave the code inside the kernels; without
/// a structure to compare, or with another one, versions may only be the occasion.
pub fn find(pair: &Pair) -> Option<Finding> {
    if pair.versions.is_empty() || !pair.moved() {
        return None;
    }
    let each = pair.versions.iter().take(NAMED);
    let named = each.map(|change| format!("{} {} → {}", change.field, change.base, change.head));
    let mut evidence = named.collect::<Vec<_>>().join(", ");
    if pair.versions.len() > NAMED {
        evidence += ", ...";
    }
    let equal = pair.structures().is_some() && pair.same_structure();
    if equal {
        evidence += "; structure unchanged";
    }
    Some(finding(
        "toolchain",
        evidence,
        // With equal instructions it is what surrounds them: `environment` says so.
        if equal && !pair.same_code() { 0.6 } else { 0.4 },
    ))
}
