//! A gate replayed: judges, gives what is undecided more values, and judges again.

use std::ops::Range;

use crate::attention::CaseId;
use crate::judge::judgement::Judgement;
use crate::judge::{Options, judge, next_batch};
use crate::record::side::Side;

/// The last judgement of two sides. `give` puts fresh values of a case into both, those of the
/// numbers in the range, the first fresh one being 0. Without batches the first judgement is the
/// last.
pub fn decided(
    (base, head): (&mut Side, &mut Side),
    options: &Options,
    mut give: impl FnMut(&CaseId, Range<usize>, (&mut Side, &mut Side)),
) -> Judgement {
    let policy = head.header.rules.policy.clone();
    let mut fresh = 0;
    loop {
        let judgement = judge(head, Some(base), options);
        let batch = match options.batches {
            true => next_batch(&judgement, &policy, fresh, 1),
            false => None,
        };
        let Some(batch) = batch else {
            return judgement;
        };
        let more = fresh as usize..batch.fresh as usize;
        for case in batch.undecided.iter().chain(&batch.company) {
            give(case, more.clone(), (&mut *base, &mut *head));
        }
        fresh = batch.fresh;
    }
}
