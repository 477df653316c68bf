//! Results of a run that were held to float64, by what tells whether another is the same.
//!
//! The first invocation of a case is checked in full. A later one whose results are the same to
//! the last bit is as right, and its worker need not compute the reference again; one whose
//! results differ, and be it by rounding, is checked in full as well. What is kept is of one
//! process of the harness: a run that goes on after a stop checks each case once more.

use std::collections::{BTreeMap, BTreeSet};

use regatta_worker::attention::CaseId;
use regatta_worker::protocol::{Digests, Measured, Prepared, TensorError};

type Errors = BTreeMap<String, TensorError>;

/// Results that were right.
#[derive(Debug)]
struct Right {
    /// Of the inputs.
    seed: u64,
    digests: Digests,
    errors: Errors,
}

/// What is known of the cases of one run: its ids, parameters, seed and workers stay as they
/// are, so that a case is known by its id.
#[derive(Debug, Default)]
pub struct Known {
    before: BTreeMap<CaseId, Right>,
    after: BTreeMap<CaseId, Right>,
    detailed: BTreeSet<CaseId>,
}

impl Known {
    /// The worker told the times of the case's operations, or what hardware counts of them.
    pub fn detailed(&mut self, case: &CaseId) {
        self.detailed.insert(case.clone());
    }

    /// True where it did.
    pub fn is_detailed(&self, case: &CaseId) -> bool {
        self.detailed.contains(case)
    }

    /// Of the results of the first call.
    pub fn before(&self, case: &CaseId) -> Digests {
        digests(&self.before, case)
    }

    /// Of the results of the last timed call.
    pub fn after(&self, case: &CaseId) -> Digests {
        digests(&self.after, case)
    }

    /// Gives the results of a first call the errors that the same ones were found to have.
    pub fn complete(&self, case: &CaseId, prepared: &mut Prepared) {
        complete(
            self.before.get(case),
            0,
            &prepared.digests,
            &mut prepared.errors,
        );
    }

    /// The same of the last timed call.
    pub fn complete_after(&self, case: &CaseId, measured: &mut Measured) {
        if let Some(checked) = &mut measured.checked {
            let right = self.after.get(case);
            complete(right, checked.seed, &checked.digests, &mut checked.errors);
        }
    }

    /// The results of a first call were found to be right.
    pub fn held(&mut self, case: &CaseId, prepared: &Prepared) {
        hold(
            &mut self.before,
            case,
            0,
            &prepared.digests,
            &prepared.errors,
        );
    }

    /// Those of the last timed call were.
    pub fn held_after(&mut self, case: &CaseId, measured: &Measured) {
        if let Some(checked) = &measured.checked {
            let (digests, errors) = (&checked.digests, &checked.errors);
            hold(&mut self.after, case, checked.seed, digests, errors);
        }
    }
}

fn digests(known: &BTreeMap<CaseId, Right>, case: &CaseId) -> Digests {
    known
        .get(case)
        .map_or_else(Digests::new, |right| right.digests.clone())
}

fn complete(known: Option<&Right>, seed: u64, digests: &Digests, errors: &mut Errors) {
    let same = known.filter(|right| right.seed == seed && right.digests == *digests);
    if let Some(right) = same
        && errors.is_empty()
    {
        errors.clone_from(&right.errors);
    }
}

/// The first ones stay: they were computed in full.
fn hold(
    known: &mut BTreeMap<CaseId, Right>,
    case: &CaseId,
    seed: u64,
    digests: &Digests,
    errors: &Errors,
) {
    if !digests.is_empty() && !known.contains_key(case) {
        let right = Right {
            seed,
            digests: digests.clone(),
            errors: errors.clone(),
        };
        known.insert(case.clone(), right);
    }
}
