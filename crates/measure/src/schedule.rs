//! In which order cases run: random within an invocation, from a seed.
//!
//! Order effects (a warm cache, a hot chip) then hit every case alike, and a run
//! that is resumed goes on in the order it would have had.

use std::collections::BTreeSet;

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;

use regatta_core::record::header::TurnSide;
use regatta_worker::attention::{Case, CaseId};

/// One start of one worker, and the cases it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerBlock {
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
) -> Vec<WorkerBlock> {
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
                blocks.push(WorkerBlock {
                    invocation,
                    worker: worker.clone(),
                    cases,
                });
            }
        }
    }
    blocks
}

/// The blocks of a base and a head in the order in which they run, less what each has `done`;
/// `cases` has those of the base and the head side by side.
///
/// Every invocation starts each pair of workers once, in random order; the two of a pair come
/// one after the other, which comes first is random, and both have their cases in one order.
/// A process is never up beside the other's: what it holds of memory and caches goes with it.
pub fn interleaved(
    cases: &[(Case, Case)],
    done: [&BTreeSet<(u32, CaseId)>; 2],
    range: std::ops::Range<u32>,
    seed: u64,
) -> Vec<(TurnSide, WorkerBlock)> {
    let pair_of =
        |(base, head): &(Case, Case)| (base.variant.worker_name(), head.variant.worker_name());
    let workers: BTreeSet<(String, String)> = cases.iter().map(pair_of).collect();
    let mut found = Vec::new();
    for invocation in range {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(invocation));
        let mut order: Vec<&(String, String)> = workers.iter().collect();
        order.shuffle(&mut rng);
        for pair in order {
            let own = cases.iter().filter(|cases| pair_of(cases) == *pair);
            let mut cases: Vec<&(Case, Case)> = own.collect();
            cases.shuffle(&mut rng);
            let block = |worker: &String, of: fn(&(Case, Case)) -> &Case, done: &BTreeSet<_>| {
                let cases = cases.iter().map(|cases| of(cases).clone());
                let left = cases.filter(|case| !done.contains(&(invocation, case.id())));
                WorkerBlock {
                    invocation,
                    worker: worker.clone(),
                    cases: left.collect(),
                }
            };
            let base = block(&pair.0, |cases| &cases.0, done[0]);
            let head = block(&pair.1, |cases| &cases.1, done[1]);
            let mut both = [(TurnSide::Base, base), (TurnSide::Head, head)];
            both.shuffle(&mut rng);
            found.extend(
                both.into_iter()
                    .filter(|(_, block)| !block.cases.is_empty()),
            );
        }
    }
    found
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
        let all: BTreeSet<Case> = cases.iter().cloned().collect();
        for invocation in 0..3 {
            let ran = of(invocation);
            assert_eq!(ran.len(), cases.len());
            assert_eq!(BTreeSet::from_iter(ran), all);
        }
    }

    #[test]
    fn what_is_done_is_left_out_and_the_rest_keeps_its_order() {
        let cases = cases();
        let whole = blocks(&cases, 0..2, 7, &BTreeSet::new());
        let done: BTreeSet<_> = whole[0].cases[..5].iter().map(|c| (0, c.id())).collect();
        let rest = blocks(&cases, 0..2, 7, &done);
        let flat = |blocks: &[WorkerBlock]| -> Vec<Case> {
            blocks.iter().flat_map(|b| b.cases.clone()).collect()
        };
        assert_eq!(flat(&rest), flat(&whole)[5..]);
    }

    #[test]
    fn sides_alternate_and_each_pair_has_one_order() {
        let head = cases();
        let pairs: Vec<(Case, Case)> = head.iter().cloned().map(|c| (c.clone(), c)).collect();
        let none = BTreeSet::new();
        let turns = interleaved(&pairs, [&none; 2], 0..40, 3);
        assert_eq!(turns.len(), 2 * 3 * 40);
        let mut first = 0;
        for pair in turns.chunks(2) {
            let [(side, one), (other, two)] = pair else {
                panic!("a side is alone")
            };
            assert_ne!(side, other);
            assert_eq!(one, two);
            first += usize::from(*side == TurnSide::Base);
        }
        // Which of the two comes first is a coin's.
        assert!((40..80).contains(&first), "{first} of 120");
    }

    #[test]
    fn what_one_side_has_is_measured_of_the_other_alone() {
        let pairs = [("cpu/a:s64,d64", "torch/b:s64,d64")];
        let pairs = pairs.map(|(b, h)| (b.parse::<Case>().unwrap(), h.parse::<Case>().unwrap()));
        let done = BTreeSet::from([(0, pairs[0].0.id())]);
        let turns = interleaved(&pairs, [&done, &BTreeSet::new()], 0..1, 1);
        assert_eq!(turns.len(), 1);
        assert_eq!((turns[0].0, &*turns[0].1.worker), (TurnSide::Head, "torch"));
    }
}
