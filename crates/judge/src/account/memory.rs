//! Where a change of memory went: allocations by size, at the peak of the call that was counted.
//!
//! What lies there beside the call (its inputs, what a library keeps) is not explained.

use std::collections::BTreeMap;

use crate::judgement::{MemoryAccount, MemoryLine, saturated};
use regatta_core::machine::{Allocated, Sides};
use regatta_worker::units::Bytes;

/// Makes the account of a memory; `None` where a side tells no allocations.
pub fn of_memory(memory: Sides<Bytes>, allocated: Sides<&[Allocated]>) -> Option<MemoryAccount> {
    if allocated.base.is_empty() || allocated.head.is_empty() {
        return None;
    }
    let mut sizes: BTreeMap<Bytes, Sides<u64>> = BTreeMap::new();
    for one in allocated.base {
        let count = &mut sizes.entry(one.bytes).or_default().base;
        *count = count.saturating_add(one.count);
    }
    for one in allocated.head {
        let count = &mut sizes.entry(one.bytes).or_default().head;
        *count = count.saturating_add(one.count);
    }
    let lines = sizes
        .into_iter()
        .map(|(bytes, count)| MemoryLine { bytes, count });
    let mut lines: Vec<MemoryLine> = lines.filter(|line| line.growth() != 0).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.growth().unsigned_abs()));
    let change = i128::from(memory.head.0) - i128::from(memory.base.0);
    let explained: i128 = lines.iter().map(|line| i128::from(line.growth())).sum();
    Some(MemoryAccount {
        change_bytes: saturated(change),
        lines,
        unexplained_bytes: saturated(change - explained),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn sizes(all: &[(u64, u64)]) -> Vec<Allocated> {
        let all = all.iter();
        all.map(|&(size, count)| Allocated {
            bytes: Bytes(size),
            count,
        })
        .collect()
    }

    #[test]
    fn a_memory_is_accounted_for_by_the_sizes_of_what_is_allocated() {
        let base = sizes(&[(64 * MIB, 3), (MIB, 2)]);
        let head = sizes(&[(512 * MIB, 1), (64 * MIB, 1), (MIB, 2)]);
        let memory = Sides::of(Bytes(194 * MIB), Bytes(580 * MIB));
        let account = of_memory(memory, Sides::of(&base, &head)).unwrap();
        assert_eq!(
            account.to_string(),
            "+386.0 MiB = 1 x 512.0 MiB added, 2 x 64.0 MiB gone, not explained +2.00 MiB"
        );
        assert_eq!(account.unexplained_bytes, 2 * MIB as i64);
        assert_eq!(of_memory(memory, Sides::of(&[], &head)), None);
    }

    #[test]
    fn a_sentence_tells_the_largest_and_nothing_overflows() {
        let base = sizes(&[(1, 1)]);
        let head: Vec<(u64, u64)> = (1..=8).map(|size| (size * MIB, 1)).collect();
        let memory = Sides::of(Bytes(1), Bytes(36 * MIB));
        let account = of_memory(memory, Sides::of(&base, &sizes(&head))).unwrap();
        let text = account.to_string();
        assert!(text.ends_with("5 more sizes +10.0 MiB"), "{text}");
        let wild = sizes(&[(u64::MAX, u64::MAX), (u64::MAX - 1, u64::MAX)]);
        let memory = Sides::of(Bytes(0), Bytes(u64::MAX));
        let account = of_memory(memory, Sides::of(&base, &wild)).unwrap();
        assert_eq!(account.change_bytes, i64::MAX);
    }
}
