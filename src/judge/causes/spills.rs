//! The same kernel keeps more in local memory.

use super::launches::{by_kernel, short};
use super::{Pair, finding};
use crate::judge::judgement::Finding;

/// Finds kernels whose threads have more local memory: registers that spill go through
/// the caches at each use.
pub fn find(pair: &Pair) -> Option<Finding> {
    let (base, head) = pair.structures()?;
    let head = by_kernel(head);
    let grown = by_kernel(base).into_iter().filter_map(|(name, before)| {
        let most = |launches: &[&crate::attention::Launch]| {
            launches
                .iter()
                .filter_map(|launch| launch.local_bytes)
                .max()
        };
        let (before, after) = (most(&before)?, most(head.get(&name)?)?);
        let text = || format!("{before} → {after} bytes a thread of {}", short(&name));
        (after > before).then(text)
    });
    let grown: Vec<String> = grown.collect();
    let evidence = format!("local memory {}", grown.join("; "));
    (!grown.is_empty()).then(|| finding("spills", evidence, 0.85))
}
