//! Another kernel does the work.

use super::launches::{by_kernel, short};
use super::{Pair, finding};
use crate::attention::{Structure, moves_data};
use crate::judge::judgement::Finding;

/// Kernels named on each side of the evidence.
const NAMED: usize = 3;

/// Finds kernels that are gone together with kernels that are new.
pub fn find(pair: &Pair) -> Option<Finding> {
    let (base, head) = pair.structures()?;
    let gone = only_in(base, head);
    let new = only_in(head, base);
    if gone.is_empty() || new.is_empty() {
        return None;
    }
    let (before, after) = (names(&gone), names(&new));
    let evidence = if before == after {
        format!("{before}: its arguments differ further on in the name")
    } else {
        format!("{before} → {after}")
    };
    Some(finding("kernel-replaced", evidence, 0.8))
}

fn only_in(here: &Structure, there: &Structure) -> Vec<String> {
    let there = by_kernel(there);
    let names = by_kernel(here).into_keys();
    names
        .filter(|name| !moves_data(name) && !there.contains_key(name))
        .collect()
}

fn names(kernels: &[String]) -> String {
    let named: Vec<String> = kernels.iter().take(NAMED).map(|name| short(name)).collect();
    let more = if kernels.len() > NAMED { ", ..." } else { "" };
    format!("{}{more}", named.join(", "))
}
