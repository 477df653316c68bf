//! In which order cases run: random within an invocation, from a seed; those of two sides in turn.
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
    /// The side whose run it belongs to.
    pub side: TurnSide,
    /// Counts from 0 over the run.
    pub invocation: u32,
    /// `worker` or `worker@environment`.
    pub worker: String,
    /// Its cases, in the order they run.
    pub cases: Vec<Case>,
}

/// A case of the head, and the case of the base beside it, where there is a base.
pub type CasePair = (Option<Case>, Case);

/// The blocks of the invocations in `range`, in the order in which they run, less what the base
/// and the head have `done`.
///
/// Every invocation starts each worker once, in random order, and runs its cases in random order;
/// the order depends on the seed, the invocation and the cases alone. The two workers of a pair
/// come one after the other, which comes first is random, and both have their cases in one order.
/// A process is never up beside the other's: what it holds of memory and caches goes with it.
pub fn blocks(
    cases: &[CasePair],
    done: [&BTreeSet<(u32, CaseId)>; 2],
    range: std::ops::Range<u32>,
    seed: u64,
) -> Vec<WorkerBlock> {
    let name = |case: &Case| case.variant.worker_name();
    let workers_of = |(base, head): &CasePair| (base.as_ref().map(name), name(head));
    let workers: BTreeSet<(Option<String>, String)> = cases.iter().map(workers_of).collect();
    let mut found = Vec::new();
    for invocation in range {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(invocation));
        let mut order: Vec<&(Option<String>, String)> = workers.iter().collect();
        order.shuffle(&mut rng);
        for pair in order {
            let own = cases.iter().filter(|cases| workers_of(cases) == *pair);
            let mut own: Vec<&CasePair> = own.collect();
            own.shuffle(&mut rng);
            let block =
                |side, worker: &String, done: &BTreeSet<_>, cases: Vec<&Case>| WorkerBlock {
                    side,
                    invocation,
                    worker: worker.clone(),
                    cases: cases
                        .into_iter()
                        .filter(|case| !done.contains(&(invocation, case.id())))
                        .cloned()
                        .collect(),
                };
            let bases = own.iter().filter_map(|(base, _)| base.as_ref()).collect();
            let base = pair.0.as_ref();
            let base = base.map(|worker| block(TurnSide::Base, worker, done[0], bases));
            let heads = own.iter().map(|(_, head)| head).collect();
            let mut both: Vec<WorkerBlock> = base.into_iter().collect();
            both.push(block(TurnSide::Head, &pair.1, done[1], heads));
            both.shuffle(&mut rng);
            found.extend(both.into_iter().filter(|block| !block.cases.is_empty()));
        }
    }
    found
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
        let of = |invocation| -> Vec<Case> {
            let blocks = blocks.iter().filter(|b| b.invocation == invocation);
            blocks.flat_map(|b| b.cases.clone()).collect()
        };
        assert_ne!(of(0), of(1));
        let all: BTreeSet<Case> = cases.iter().map(|(_, case)| case.clone()).collect();
        for invocation in 0..3 {
            let ran = of(invocation);
            assert_eq!(ran.len(), cases.len());
            assert_eq!(BTreeSet::from_iter(ran), all);
        }
    }

    #[test]
    fn what_is_done_is_left_out_and_the_rest_keeps_its_order() {
        let cases = cases();
        let whole = blocks(&cases, [NONE; 2], 0..2, 7);
        let done: BTreeSet<_> = whole[0].cases[..5].iter().map(|c| (0, c.id())).collect();
        let rest = blocks(&cases, [NONE, &done], 0..2, 7);
        let flat = |blocks: &[WorkerBlock]| -> Vec<Case> {
            blocks.iter().flat_map(|b| b.cases.clone()).collect()
        };
        assert_eq!(flat(&rest), flat(&whole)[5..]);
    }

    #[test]
    fn sides_alternate_and_each_pair_has_one_order() {
        let pairs = cases()
            .into_iter()
            .map(|(_, case)| (Some(case.clone()), case));
        let pairs: Vec<CasePair> = pairs.collect();
        let turns = blocks(&pairs, [NONE; 2], 0..40, 3);
        assert_eq!(turns.len(), 2 * 3 * 40);
        let mut first = 0;
        for pair in turns.chunks(2) {
            assert_ne!(pair[0].side, pair[1].side);
            assert_eq!(pair[0].cases, pair[1].cases);
            first += usize::from(pair[0].side == TurnSide::Base);
        }
        // Which of the two comes first is a coin's.
        assert!((40..80).contains(&first), "{first} of 120");
    }

    #[test]
    fn what_one_side_has_is_measured_of_the_other_alone() {
        let [base, head] =
            ["cpu/a:s64,d64", "torch/b:s64,d64"].map(|id| id.parse::<Case>().unwrap());
        let done = BTreeSet::from([(0, base.id())]);
        let turns = blocks(&[(Some(base), head)], [&done, NONE], 0..1, 1);
        assert_eq!(turns.len(), 1);
        assert_eq!(
            (turns[0].side, &*turns[0].worker),
            (TurnSide::Head, "torch")
        );
    }
}
