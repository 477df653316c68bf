//! Which cases are measured again, and how often.

use std::collections::BTreeSet;

use super::judgement::{Judgement, Row, Word};
use super::rule::Looks;
use regatta_core::suite::rules::Policy;
use regatta_worker::attention::CaseId;

/// Fewer and more companions than these are never taken along.
const COMPANY: (usize, usize) = (5, 20);

/// A batch of fresh invocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// What is undecided, and more invocations could decide.
    pub undecided: Vec<CaseId>,
    /// Others that are taken along, because they tell what all cases of an invocation share.
    pub company: Vec<CaseId>,
    /// Fresh invocations that all of these have after it.
    pub fresh: u32,
}

/// The batch that follows `fresh` fresh invocations, of what a judgement leaves undecided;
/// `None` where everything is decided, or nothing more would decide it, or the suite's bound
/// is reached. Companions are drawn by `seed`, the same for each batch.
pub fn next_batch(judgement: &Judgement, policy: &Policy, fresh: u32, seed: u64) -> Option<Batch> {
    let next = Looks::up_to(policy.confirm).next(fresh)?;
    // Another metric costs invocations where it looks worse, and the case fails by nothing yet.
    let worse = |row: &Row| {
        let any = row.metrics.iter().any(|of| of.open && of.looks_worse);
        any && row.word != Word::Regressed && !row.fails_by_metric()
    };
    let rows = judgement.rows.iter();
    let open = rows.filter(|row| row.open || worse(row));
    let undecided: Vec<CaseId> = open.map(|row| row.case.clone()).collect();
    if undecided.is_empty() {
        return None;
    }
    let chosen: BTreeSet<&CaseId> = undecided.iter().collect();
    let measured = judgement.rows.iter().filter(|row| row.change.is_some());
    let mut company: Vec<(u64, &CaseId)> = measured
        .map(|row| (row.case.drawn(seed), &row.case))
        .collect();
    company.sort_unstable();
    let wanted = (company.len() / 10).clamp(COMPANY.0, COMPANY.1);
    let company = company.into_iter().take(wanted).map(|(_, case)| case);
    let company = company.filter(|case| !chosen.contains(case)).cloned();
    Some(Batch {
        company: match judgement.needs_company {
            true => company.collect(),
            false => Vec::new(),
        },
        undecided,
        fresh: next,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{around, side, timed};
    use crate::{Options, judge};
    use regatta_core::record::side::CaseRecord;
    use regatta_worker::units::quantities;

    const GATE: Options = Options {
        strict: false,
        same_suite: true,
        wants_base: true,
        batches: true,
    };

    fn batch(base: &CaseRecord, head: &CaseRecord, fresh: u32) -> Option<Batch> {
        let of = |record: &CaseRecord| side("x", vec![("cpu/flash:s64,d64", record.clone())]);
        let judgement = judge(&of(head), Some(&of(base)), &GATE);
        next_batch(&judgement, &Policy::default(), fresh, 1)
    }

    #[test]
    fn what_is_decided_is_left_alone_and_what_is_not_gets_the_next_step() {
        let wide = |ns: f64| timed(&[0.93, 0.97, 1.0, 1.03, 1.07].map(|share| share * ns));
        assert_eq!(batch(&around(100.0), &around(100.0), 0), None);
        assert_eq!(batch(&around(100.0), &around(150.0), 0), None);
        let first = batch(&wide(100.0), &wide(101.0), 0).unwrap();
        assert_eq!((first.undecided.len(), first.fresh), (1, 2));
        assert_eq!(batch(&wide(100.0), &wide(101.0), 5).unwrap().fresh, 10);
        assert_eq!(batch(&wide(100.0), &wide(101.0), 30), None);
    }

    #[test]
    fn another_metric_is_measured_again_only_where_it_looks_worse() {
        let with_host = |ns: f64, hosts: [f64; 5]| {
            let mut record = around(ns);
            record.host_ns = quantities(hosts.map(|host| 1e3 * host));
            record
        };
        let base = with_host(100.0, [30.0, 60.0, 35.0, 90.0, 40.0]);
        let slower = [50.0, 260.0, 150.0, 90.0, 320.0];
        assert!(batch(&base, &with_host(100.0, slower), 0).is_some());
        let faster = [20.0, 160.0, 25.0, 50.0, 30.0];
        assert_eq!(batch(&base, &with_host(100.0, faster), 0), None);
        // The case fails by its device time: nothing more is to be known.
        assert_eq!(batch(&base, &with_host(150.0, slower), 0), None);
    }
}
