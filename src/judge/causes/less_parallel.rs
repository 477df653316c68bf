//! Less of the device does the work: fewer blocks, threads or independent pieces.
//!
//! This is the bug the tool exists for: a sentinel lost on its way made one block
//! do what 157 had done, with the same kernel and the same result.

use super::launches::{blocks, by_kernel, short, sizes, threads};
use super::{Pair, finding};
use crate::attention::{Launch, ParamValue};
use crate::judge::judgement::Finding;

/// Parts of the names of parameters that say into how many pieces work is cut.
const PIECES: [&str; 7] = ["split", "thread", "block", "task", "worker", "cta", "warp"];

/// True for a parameter that says into how many pieces work is cut.
pub fn cuts_work(parameter: &str) -> bool {
    PIECES.iter().any(|pieces| parameter.contains(pieces))
}

/// Finds the counts that went down, and by how much in all.
pub fn find(pair: &Pair) -> Option<Finding> {
    let mut evidence = Vec::new();
    let mut worst: f64 = 1.0;
    for name in ["threads", "tasks"] {
        if let Some((base, head)) = pair.counts(name).filter(|(base, head)| head < base) {
            evidence.push(format!("{name} {base} → {head}"));
            worst = worst.max(base as f64 / head.max(1) as f64);
        }
    }
    for (text, factor) in smaller_grids(pair) {
        evidence.push(text);
        worst = worst.max(factor);
    }
    for (text, factor) in fewer_pieces(pair) {
        evidence.push(text);
        worst = worst.max(factor);
    }
    // Losing a tenth of the blocks explains little; losing half explains much.
    let confidence = if worst >= 1.5 { 0.95 } else { 0.6 };
    (!evidence.is_empty()).then(|| finding("less-parallel", evidence.join(", "), confidence))
}

/// Kernels whose largest launch has fewer blocks and threads than it had, unless as many
/// blocks were cut into more launches.
fn smaller_grids(pair: &Pair) -> Vec<(String, f64)> {
    let Some((base, head)) = pair.structures() else {
        return Vec::new();
    };
    let head = by_kernel(head);
    let shrunk = by_kernel(base).into_iter().filter_map(|(name, before)| {
        let all = |launches: &[&Launch]| launches.iter().copied().map(blocks).sum::<u64>();
        // The same work in more launches is not done by less of the device.
        let after = head
            .get(&name)
            .filter(|after| after.len() <= before.len() || all(after) < all(&before))?;
        let largest =
            |launches: &[&Launch]| launches.iter().copied().max_by_key(|l| blocks(l)).cloned();
        let (before, after) = (largest(&before)?, largest(after)?);
        let fewer = blocks(&after) < blocks(&before) && threads(&after) < threads(&before);
        let text = format!(
            "grid {} → {} of {}{}",
            sizes(before.grid),
            sizes(after.grid),
            short(&name),
            idle(blocks(&after), pair.sms)
        );
        fewer.then(|| {
            (
                text,
                threads(&before) as f64 / threads(&after).max(1) as f64,
            )
        })
    });
    shrunk.collect()
}

/// How much of the device a grid leaves idle: `, 1 of 132 SMs`.
fn idle(blocks: u64, sms: Option<u64>) -> String {
    match sms {
        Some(sms) if blocks < sms => format!(", {blocks} of {sms} SMs"),
        _ => String::new(),
    }
}

/// Parameters that cut work into pieces and became smaller.
fn fewer_pieces(pair: &Pair) -> Vec<(String, f64)> {
    let effective = &pair.head.effective;
    let fewer = pair.base.effective.iter().filter_map(|(name, before)| {
        match (before, effective.get(name)?) {
            (ParamValue::Int(before), ParamValue::Int(after))
                if cuts_work(name) && after < before && *after > 0 =>
            {
                let text = format!("{name} became {after} (was {before})");
                Some((text, *before as f64 / *after as f64))
            }
            _ => None,
        }
    });
    fewer.collect()
}
