//! Aligns two sequences of operations.
//!
//! First, a longest common subsequence by kernel name is found. Remaining operations that have the
//! same name on both sides were moved. Those between the same two common operations were replaced,
//! one by one in their order. The rest was added or removed.

use std::collections::HashMap;

/// The largest number of cells in the table of lengths. Longer sequences are aligned by name and
/// order alone.
const CELLS: usize = 16_000_000;

/// The alignment of two sequences of operations, by their indices in both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alignment {
    /// Operations that are the same on both sides.
    pub same: Vec<(usize, usize)>,
    /// Operations of the base, each with the one of the head that replaced it.
    pub replaced: Vec<(usize, usize)>,
    /// Operations that only the base has.
    pub removed: Vec<usize>,
    /// Operations that only the head has.
    pub added: Vec<usize>,
    /// The replaced, removed and added operations between each two common ones: those of the base,
    /// and those of the head.
    pub stretches: Vec<(Vec<usize>, Vec<usize>)>,
}

/// Aligns two sequences of names.
pub fn align(base: &[&str], head: &[&str]) -> Alignment {
    let mut same = common(base, head);
    let moved = moved(base, head, &same);
    let mut alignment = between(base.len(), head.len(), &same, &moved);
    same.extend(moved);
    same.sort_unstable();
    alignment.same = same;
    alignment
}

/// A longest common subsequence.
fn common(base: &[&str], head: &[&str]) -> Vec<(usize, usize)> {
    let front = base.iter().zip(head).take_while(|(a, b)| a == b).count();
    let (rest_base, rest_head) = (&base[front..], &head[front..]);
    let back = rest_base.iter().rev().zip(rest_head.iter().rev());
    let back = back.take_while(|(a, b)| a == b).count();
    let (rows, columns) = (rest_base.len() - back, rest_head.len() - back);
    let mut pairs: Vec<(usize, usize)> = (0..front).map(|i| (i, i)).collect();
    if rows.saturating_mul(columns) <= CELLS {
        let middle = table(&rest_base[..rows], &rest_head[..columns]);
        pairs.extend(middle.into_iter().map(|(i, j)| (i + front, j + front)));
    }
    pairs.extend(
        (0..back)
            .rev()
            .map(|k| (base.len() - 1 - k, head.len() - 1 - k)),
    );
    pairs
}

/// Finds the subsequence by dynamic programming over all suffixes.
fn table(base: &[&str], head: &[&str]) -> Vec<(usize, usize)> {
    let width = head.len() + 1;
    let mut length = vec![0u16; (base.len() + 1) * width];
    for i in (0..base.len()).rev() {
        for j in (0..head.len()).rev() {
            length[i * width + j] = if base[i] == head[j] {
                length[(i + 1) * width + j + 1].saturating_add(1)
            } else {
                length[(i + 1) * width + j].max(length[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < base.len() && j < head.len() {
        if base[i] == head[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if length[(i + 1) * width + j] >= length[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

/// Remaining operations that have the same name on both sides, in their order.
fn moved(base: &[&str], head: &[&str], same: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut taken = vec![false; base.len()];
    let mut given = vec![false; head.len()];
    for &(i, j) in same {
        (taken[i], given[j]) = (true, true);
    }
    let mut free: HashMap<&str, Vec<usize>> = HashMap::new();
    for (i, name) in base.iter().enumerate().rev().filter(|(i, _)| !taken[*i]) {
        free.entry(name).or_default().push(i);
    }
    let left = (0..head.len()).filter(|j| !given[*j]);
    left.filter_map(|j| Some((free.get_mut(head[j])?.pop()?, j)))
        .collect()
}

/// The operations that are neither common nor moved, for each stretch between common ones.
fn between(
    base: usize,
    head: usize,
    same: &[(usize, usize)],
    moved: &[(usize, usize)],
) -> Alignment {
    let mut moved_base = vec![false; base];
    let mut moved_head = vec![false; head];
    for &(i, j) in moved {
        (moved_base[i], moved_head[j]) = (true, true);
    }
    let mut alignment = Alignment::default();
    let (mut i, mut j) = (0, 0);
    for &(next_i, next_j) in same.iter().chain([&(base, head)]) {
        let left: Vec<usize> = (i..next_i).filter(|i| !moved_base[*i]).collect();
        let new: Vec<usize> = (j..next_j).filter(|j| !moved_head[*j]).collect();
        let both = left.len().min(new.len());
        let pairs = left.iter().copied().zip(new.iter().copied());
        alignment.replaced.extend(pairs);
        alignment.removed.extend(&left[both..]);
        alignment.added.extend(&new[both..]);
        if !(left.is_empty() && new.is_empty()) {
            alignment.stretches.push((left, new));
        }
        (i, j) = (next_i + 1, next_j + 1);
    }
    alignment
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn aligned(base: &str, head: &str) -> Alignment {
        let base: Vec<&str> = base.split_whitespace().collect();
        let head: Vec<&str> = head.split_whitespace().collect();
        align(&base, &head)
    }

    #[test]
    fn what_was_added_removed_replaced_and_moved_is_told_apart() {
        let same = aligned("a b c", "a b c");
        assert_eq!(same.same.len(), 3);
        assert_eq!(aligned("a b c", "a copy b c").added, [1]);
        assert_eq!(aligned("a copy b c", "a b c").removed, [1]);
        assert_eq!(aligned("a b c", "a x c").replaced, [(1, 1)]);
        let moved = aligned("a b c d", "b c d a");
        assert_eq!(moved.same.len(), 4);
        assert_eq!((moved.replaced.len(), moved.added.len()), (0, 0));
        let two = aligned("a b c", "a x y c");
        assert_eq!((two.replaced, two.added), (vec![(1, 1)], vec![2]));
        assert_eq!(two.stretches, [(vec![1], vec![1, 2])]);
        assert_eq!(aligned("", "a").added, [0]);
    }

    proptest! {
        #[test]
        fn every_operation_is_in_one_place(
            base in prop::collection::vec(0u8..4, 0..30),
            head in prop::collection::vec(0u8..4, 0..30),
        ) {
            const NAMES: [&str; 4] = ["a", "b", "c", "d"];
            let names = |of: &[u8]| -> Vec<&str> { of.iter().map(|n| NAMES[*n as usize]).collect() };
            let (base, head) = (names(&base), names(&head));
            let alignment = align(&base, &head);
            let pairs = || alignment.same.iter().chain(&alignment.replaced);
            let mut left: Vec<usize> = pairs().map(|(i, _)| *i).chain(alignment.removed.clone()).collect();
            let mut right: Vec<usize> = pairs().map(|(_, j)| *j).chain(alignment.added.clone()).collect();
            left.sort_unstable();
            right.sort_unstable();
            prop_assert_eq!(left, (0..base.len()).collect::<Vec<_>>());
            prop_assert_eq!(right, (0..head.len()).collect::<Vec<_>>());
            prop_assert!(alignment.same.iter().all(|(i, j)| base[*i] == head[*j]));
        }
    }
}
