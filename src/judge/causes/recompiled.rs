//! The same kernel was compiled into something else.

use super::launches::{by_kernel, short};
use super::{Pair, finding};
use crate::judge::judgement::Finding;

/// Finds kernels whose registers, shared memory or block changed.
pub fn find(pair: &Pair) -> Option<Finding> {
    let (base, head) = pair.structures()?;
    let head = by_kernel(head);
    let changed = by_kernel(base).into_iter().filter_map(|(name, before)| {
        let (before, after) = (before.first()?, head.get(&name)?.first()?);
        let mut facts = Vec::new();
        let mut differ = |what: &str, before: Option<u64>, after: Option<u64>| {
            if let (Some(before), Some(after), true) = (before, after, before != after) {
                facts.push(format!("{what} {before} → {after}"));
            }
        };
        differ(
            "registers",
            before.registers.map(u64::from),
            after.registers.map(u64::from),
        );
        differ("shared memory", before.shared_bytes, after.shared_bytes);
        // More local memory is a cause of its own.
        if after.local_bytes <= before.local_bytes {
            differ("local memory", before.local_bytes, after.local_bytes);
        }
        if before.block != after.block {
            let [x, y, z] = before.block;
            let [to_x, to_y, to_z] = after.block;
            facts.push(format!("block {x}x{y}x{z} → {to_x}x{to_y}x{to_z}"));
        }
        (!facts.is_empty()).then(|| format!("{} of {}", facts.join(", "), short(&name)))
    });
    let changed: Vec<String> = changed.collect();
    (!changed.is_empty()).then(|| finding("recompiled", changed.join("; "), 0.65))
}
