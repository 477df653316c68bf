//! Whole tensors are copied that were not copied before.

use super::launches::{moves_data, short};
use super::{Pair, finding};
use crate::attention::{Launch, Structure};
use crate::judge::judgement::Finding;
use crate::judge::structure::normalised;

/// Finds more copies as the worker counts them, or more kernels that move data.
pub fn find(pair: &Pair) -> Option<Finding> {
    let mut evidence = Vec::new();
    if let Some((base, head)) = pair.counts("copies").filter(|(base, head)| head > base) {
        evidence.push(format!("copies {base} -> {head}"));
    }
    let (base, head) = pair.structures()?;
    let (before, after) = (moving(base), moving(head));
    if after.len() > before.len() {
        let known = |launch: &&&Launch| {
            let name = normalised(&launch.name);
            before.iter().any(|other| normalised(&other.name) == name)
        };
        let new = after.iter().find(|launch| !known(launch)).or(after.last());
        let example = new.map_or_else(String::new, |launch| short(&launch.name));
        evidence.push(format!(
            "launches that move data {} -> {} ({example})",
            before.len(),
            after.len()
        ));
    }
    (!evidence.is_empty()).then(|| finding("copies-added", evidence.join(", "), 0.9))
}

/// Launches that move data.
pub fn moving(structure: &Structure) -> Vec<&Launch> {
    let launches = structure.launches.iter();
    launches.filter(|launch| moves_data(&launch.name)).collect()
}
