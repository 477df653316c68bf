//! In which order cases run: random within an invocation, from a seed.
//!
//! Order effects (a warm cache, a hot chip) then hit every case alike, and a run
//! that is resumed goes on in the order it would have had.

use std::collections::BTreeSet;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::attention::{Case, CaseId};

/// One start of one worker, and the cases it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Counts from 0 over the run.
    pub invocation: u32,
    /// `worker` or `worker@environment`.
    pub worker: String,
    /// Its cases, in the order they run.
    pub cases: Vec<Case>,
}

/// The blocks of the invocations in `range`, less what is `done` already.
///
/// Every invocation starts each worker once, in random order, and runs its cases
/// in random order. The order depends on the seed, the invocation and the cases
/// alone.
pub fn blocks(
    cases: &[Case],
    range: std::ops::Range<u32>,
    seed: u64,
    done: &BTreeSet<(u32, CaseId)>,
) -> Vec<Block> {
    let workers: BTreeSet<String> = cases
        .iter()
        .map(|case| case.variant.worker_name())
        .collect();
    let mut blocks = Vec::new();
    for invocation in range {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(invocation));
        let mut order: Vec<&String> = workers.iter().collect();
        order.shuffle(&mut rng);
        for worker in order {
            let mut cases: Vec<Case> = cases
                .iter()
                .filter(|case| case.variant.worker_name() == *worker)
                .cloned()
                .collect();
            cases.shuffle(&mut rng);
            cases.retain(|case| !done.contains(&(invocation, case.id())));
            if !cases.is_empty() {
                blocks.push(Block {
                    invocation,
                    worker: worker.clone(),
                    cases,
                });
            }
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases() -> Vec<Case> {
        ["cpu/a", "cpu/b", "torch/c", "torch/c@old"]
            .iter()
            .flat_map(|variant| {
                (1..9).map(move |h| format!("{variant}:h{h},s64,d64").parse().unwrap())
            })
            .collect()
    }

    #[test]
    fn every_invocation_runs_every_case_once_in_another_order() {
        let cases = cases();
        let blocks = blocks(&cases, 0..3, 1, &BTreeSet::new());
        assert_eq!(blocks.len(), 9, "three workers, three invocations");
        let of = |invocation| -> Vec<Case> {
            let blocks = blocks.iter().filter(|b| b.invocation == invocation);
            blocks.flat_map(|b| b.cases.clone()).collect()
        };
        assert_ne!(of(0), of(1));
        for invocation in 0..3 {
            let mut ran = of(invocation);
            ran.sort();
            let mut all = cases.clone();
            all.sort();
            assert_eq!(ran, all);
        }
    }

    #[test]
    fn what_is_done_is_left_out_and_the_rest_keeps_its_order() {
        let cases = cases();
        let whole = blocks(&cases, 0..2, 7, &BTreeSet::new());
        let done: BTreeSet<_> = whole[0].cases[..5].iter().map(|c| (0, c.id())).collect();
        let rest = blocks(&cases, 0..2, 7, &done);
        let flat = |blocks: &[Block]| -> Vec<Case> {
            blocks.iter().flat_map(|b| b.cases.clone()).collect()
        };
        assert_eq!(flat(&rest), flat(&whole)[5..]);
    }
}
