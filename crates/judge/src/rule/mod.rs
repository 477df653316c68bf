//! The rule for times, and for whatever else varies: which of four words a case gets.
//!
//! Pure: logarithms of the values of invocations in, rulings out. It is read from top to
//! bottom, and simulated as it stands (`regatta verdicts`, `docs/EVIDENCE.md`).
//!
//! 1. **What an invocation shares** is taken out of it (`level`): a process or a moment
//!    that was slower for all cases is no case's own.
//! 2. **What a side shares** is judged as one thing, the suite's (`suite`). A case is then
//!    called only for what it does beyond the others, and only where its whole change, the
//!    suite's included, lies beyond its floor.
//! 3. **How much a case varies** is learned from all cases (`moderated`), and whether
//!    invocations remember each other as well (`memory`).
//! 4. **A change is called** when it is shown, by one of two ways to look:
//!    a moderated t (Smyth 2004; Welch's, since a side may be noisier), or exact ranks (Mann
//!    and Whitney), which see where tails are heavy. Two things must hold: that it is no
//!    chance at all, at an error of one in a hundred over all cases, looks and both ways
//!    (Bonferroni: nothing was screened first, so nothing was chosen by its luck); and that
//!    it lies **beyond the floor**, by the end of its interval that leaves one in twenty out.
//! 5. **Same** is shown likewise: both ends of that interval within the floor, which is
//!    equivalence by two one-sided tests (Schuirmann 1987).
//! 6. What is neither is **inconclusive**, gets more invocations while these could decide
//!    ([`Looks`]), and looks worse where it is slower beyond the floor.
//! 7. **Sides that were measured in turn** are compared pair by pair (`views`): a moment of
//!    load is then in both, and no day lies between them.
//! 8. **Earlier sessions** tell what differs from day to day: from three on, a case is held
//!    to the spread of sessions (`sessions`). With one alone nobody can tell a day from a
//!    change: then nothing is called *improved* that a day could do.
//!
//! Too few invocations call nothing but what lies many times beyond.

mod evidence;
mod level;
mod looks;
mod memory;
mod moderated;
mod ranks;
mod sessions;
mod suite;
mod terms;
mod views;

pub use looks::Looks;
pub use terms::{Because, Plan, Ruling, Rulings, Series, SuiteRuling, Trace};

use evidence::{Evidence, Values};
use level::{Levelled, level};
use memory::Memory;
use moderated::{Prior, Variance, pooled, variance};
use ranks::Tables;
use sessions::Between;
use suite::suite;
use terms::ERROR;
use views::Known;

/// Rules over all cases of a sweep. Every series has a value on both sides.
pub fn rule(series: &[Series], plan: &Plan) -> Rulings {
    let Levelled {
        cases,
        base: base_levels,
        head: head_levels,
        shared,
    } = level(series);
    let own = |case: &Series| pooled(variance(&case.base.regular), variance(&case.head.regular));
    let prior = Prior::fit(&cases.iter().map(own).collect::<Vec<Variance>>());
    let between = Between::of(&cases, &prior);
    let differences: Vec<Vec<f64>> = cases.iter().map(Series::differences).collect();
    let apart = differences.iter().map(|case| variance(case));
    let apart = Prior::fit(&apart.collect::<Vec<Variance>>());
    let memory = match differences.iter().any(|case| !case.is_empty()) {
        true => Memory::of(differences.iter().map(Vec::as_slice), &apart),
        false => remembered(&cases, &prior),
    };
    let suite = suite(&cases, between.as_ref(), (&base_levels, &head_levels), plan);
    let mut tables = Tables::default();
    let known = Known {
        prior,
        apart,
        memory,
        between: between.as_ref(),
        suite: suite.as_ref(),
        error: ERROR * plan.part / cases.len().max(1) as f64,
        plan,
    };
    let judged = cases.iter().enumerate().map(|(at, case)| {
        let values = Values {
            case,
            raw: &series[at],
            differences: &differences[at],
        };
        Evidence::of(at, &values, &known, &mut tables).ruling()
    });
    Rulings {
        cases: judged.collect(),
        suite: suite.map(|(ruling, _)| ruling),
        memory: memory.0,
        sessions: between.map_or(1, |between| between.sessions()),
        needs_company: shared > 0.3,
    }
}

/// Whether invocations remember each other, in any of the series that are there.
fn remembered(cases: &[Series], prior: &Prior) -> Memory {
    let regular = |side: fn(&Series) -> &Trace| {
        let series = cases.iter().map(move |case| side(case).regular.as_slice());
        Memory::of(series, prior).0
    };
    let long: Vec<Vec<f64>> = cases
        .iter()
        .filter(|case| case.head.fresh.len() > 4)
        .map(|case| case.head.all())
        .collect();
    let long = Memory::of(long.iter().map(Vec::as_slice), prior).0;
    let found = regular(|case| &case.base).max(regular(|case| &case.head));
    Memory(found.max(long))
}

#[cfg(test)]
mod tests;
