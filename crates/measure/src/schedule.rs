//! The order in which cases run: random within an invocation, from a seed. The two sides of a pair
//! take turns.
//!
//! Order effects (a warm cache, a hot chip) then affect every case alike, and a resumed run
//! continues in the order that it would have had.

use std::collections::BTreeSet;

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;

use regatta_core::record::PairSide;
use regatta_worker::case::{Case, CaseId};

/// Workers that run at the same time in one invocation: one, or base and head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The number of the invocation, from 0 over the run.
    pub invocation: u32,
    /// The lanes in the order in which they take turns.
    pub lanes: Vec<Lane>,
}

/// One start of a worker, and the cases that it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The side whose run it belongs to.
    pub side: PairSide,
    /// `worker` or `worker@environment`.
    pub worker: String,
    /// The cases in the order in which they run, each beside the other lane's case at the same
    /// place. `None` if this lane has no such case, or has already measured it.
    pub cases: Vec<Option<Case>>,
}

impl Block {
    /// The cases of all lanes.
    pub fn cases(&self) -> impl Iterator<Item = &Case> {
        self.lanes
            .iter()
            .flat_map(|lane| lane.cases.iter().flatten())
    }
}

/// A case of the head, and the base's case beside it if there is a base.
pub type CasePair = (Option<Case>, Case);

/// The blocks of the invocations in `range`, in the order in which they run, without the cases that
/// base and head have already `done`.
///
/// Every invocation starts each worker once, in random order, and runs its cases in random order.
/// The order depends only on the seed, the invocation and the cases. The two workers of a pair are
/// up at the same time; which one takes the first turn is random.
pub fn blocks(
    cases: &[CasePair],
    done: [&BTreeSet<(u32, CaseId)>; 2],
    range: std::ops::Range<u32>,
    seed: u64,
) -> Vec<Block> {
    let name = |case: &Case| case.variant.worker_name();
    let workers_of = |(base, head): &CasePair| (base.as_ref().map(name), name(head));
    let workers: BTreeSet<(Option<String>, String)> = cases.iter().map(workers_of).collect();
    let mut blocks = Vec::new();
    for invocation in range {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(invocation));
        let mut order: Vec<&(Option<String>, String)> = workers.iter().collect();
        order.shuffle(&mut rng);
        for pair in order {
            let own = cases.iter().filter(|cases| workers_of(cases) == *pair);
            let mut own: Vec<&CasePair> = own.collect();
            // The calls of a script stay in its order.
            if own.iter().any(|(_, case)| !case.problem.is_call()) {
                own.shuffle(&mut rng);
            }
            let left = |case: &Case, done: &BTreeSet<_>| {
                (!done.contains(&(invocation, case.id()))).then(|| case.clone())
            };
            let base = own.iter().map(|(base, _)| left(base.as_ref()?, done[0]));
            let head = own.iter().map(|(_, head)| left(head, done[1]));
            let mut lanes = vec![Lane {
                side: PairSide::Head,
                worker: pair.1.clone(),
                cases: head.collect(),
            }];
            lanes.extend(pair.0.as_ref().map(|worker| Lane {
                side: PairSide::Base,
                worker: worker.clone(),
                cases: base.collect(),
            }));
            lanes.shuffle(&mut rng);
            lanes.retain(|lane| lane.cases.iter().any(Option::is_some));
            if !lanes.is_empty() {
                blocks.push(Block { invocation, lanes });
            }
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases() -> Vec<CasePair> {
        ["cpu/a", "cpu/b", "torch/c", "torch/c@old"]
            .iter()
            .flat_map(|variant| (1..9).map(move |h| format!("{variant}:h{h},s64,d64")))
            .map(|id| (None, id.parse().unwrap()))
            .collect()
    }

    const NONE: &BTreeSet<(u32, CaseId)> = &BTreeSet::new();

    #[test]
    fn every_invocation_runs_every_case_once_in_another_order() {
        let cases = cases();
        let blocks = blocks(&cases, [NONE; 2], 0..3, 1);
        assert_eq!(blocks.len(), 9, "three workers, three invocations");
        let cases_of = |invocation| -> Vec<Case> {
            let blocks = blocks.iter().filter(|b| b.invocation == invocation);
            blocks.flat_map(|b| b.cases().cloned()).collect()
        };
        assert_ne!(cases_of(0), cases_of(1));
        let all: BTreeSet<Case> = cases.iter().map(|(_, case)| case.clone()).collect();
        for invocation in 0..3 {
            let ran = cases_of(invocation);
            assert_eq!(ran.len(), cases.len());
            assert_eq!(BTreeSet::from_iter(ran), all);
        }
    }

    #[test]
    fn what_is_done_is_left_out_and_the_rest_keeps_its_order() {
        let cases = cases();
        let whole = blocks(&cases, [NONE; 2], 0..2, 7);
        let done: BTreeSet<_> = whole[0].cases().take(5).map(|c| (0, c.id())).collect();
        let rest = blocks(&cases, [NONE, &done], 0..2, 7);
        let flat = |blocks: &[Block]| -> Vec<Case> {
            blocks.iter().flat_map(|b| b.cases().cloned()).collect()
        };
        assert_eq!(flat(&rest), flat(&whole)[5..]);
    }

    #[test]
    fn sides_alternate_and_each_pair_has_one_order() {
        let pairs = cases()
            .into_iter()
            .map(|(_, case)| (Some(case.clone()), case));
        let pairs: Vec<CasePair> = pairs.collect();
        let blocks = blocks(&pairs, [NONE; 2], 0..40, 3);
        assert_eq!(blocks.len(), 3 * 40);
        let mut first = 0;
        for block in &blocks {
            let [one, other] = &block.lanes[..] else {
                panic!("{block:?}");
            };
            assert_ne!(one.side, other.side);
            assert_eq!(one.cases, other.cases);
            first += usize::from(one.side == PairSide::Base);
        }
        // Each side comes first about half of the time.
        assert!((40..80).contains(&first), "{first} of 120");
    }

    #[test]
    fn a_case_that_one_side_has_done_has_none_of_it_beside_the_other() {
        let pair = |case: Case| (Some(case.clone()), case);
        let pairs: Vec<CasePair> = cases()
            .into_iter()
            .take(2)
            .map(|(_, case)| pair(case))
            .collect();
        let done = BTreeSet::from([(0, pairs[0].1.id())]);
        let blocks = blocks(&pairs, [NONE, &done], 0..1, 1);
        for lane in &blocks[0].lanes {
            let there = lane.cases.iter().flatten().count();
            assert_eq!(there, if lane.side == PairSide::Base { 2 } else { 1 });
            assert_eq!(lane.cases.len(), 2);
        }
    }

    #[test]
    fn what_one_side_has_is_measured_of_the_other_alone() {
        let [base, head] =
            ["cpu/a:s64,d64", "torch/b:s64,d64"].map(|id| id.parse::<Case>().unwrap());
        let done = BTreeSet::from([(0, base.id())]);
        let blocks = blocks(&[(Some(base), head)], [&done, NONE], 0..1, 1);
        let [Block { lanes, .. }] = &blocks[..] else {
            panic!("{blocks:?}");
        };
        assert_eq!(lanes.len(), 1);
        assert_eq!(lanes[0].side, PairSide::Head);
        assert_eq!(&*lanes[0].worker, "torch");
    }
}
