//! Which cases are measured again, and how often.

use std::collections::BTreeSet;

use super::judgement::Judgement;
use super::rule::Looks;
use crate::attention::CaseId;
use crate::suite::rules::Policy;

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
    let open = judgement
        .rows
        .iter()
        .filter(|row| row.open || row.metrics.iter().any(|metric| metric.open));
    let undecided: Vec<CaseId> = open.map(|row| row.case.clone()).collect();
    if undecided.is_empty() {
        return None;
    }
    let chosen: BTreeSet<&CaseId> = undecided.iter().collect();
    let measured = judgement.rows.iter().filter(|row| row.change.is_some());
    let mut company: Vec<(u64, &CaseId)> = measured
        .map(|row| (drawn(seed, &row.case), &row.case))
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

/// A number that follows from a seed and a case alone (FNV-1a).
fn drawn(seed: u64, case: &CaseId) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed;
    let bytes = case.0.bytes();
    bytes.fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
