//! Which cases a page shows in full, and how long its lists are.

use std::collections::{BTreeSet, HashMap};

use crate::attention::CaseId;
use crate::judge::judgement::{Judgement, Row};
use crate::report::summary::Summary;

/// Up to so many cases a page shows all of them in full.
pub(super) const MANY: usize = 1_000;

/// Of more it shows so many in full.
const IN_FULL: usize = 300;

/// Entries of any one list of a page.
pub(super) const LONGEST: usize = 100;

/// Which rows of a judgement a page shows in full, those to act upon first. Of few, all.
pub(super) fn in_full(judgement: &Judgement, summary: &Summary) -> Vec<usize> {
    let rows = &judgement.rows;
    if rows.len() <= MANY {
        return (0..rows.len()).collect();
    }
    let places = rows.iter().enumerate();
    let places: HashMap<&CaseId, usize> = places.map(|(place, row)| (&row.case, place)).collect();
    let of_rows = |lists: &[&Vec<&'_ Row>]| -> Vec<usize> {
        let rows = lists.iter().copied().flatten();
        rows.filter_map(|row| places.get(&row.case).copied())
            .collect()
    };
    let worse = of_rows(&[
        &summary.regressed,
        &summary.structure,
        &summary.not_measured,
        &summary.uncounted,
    ]);
    let doubtful = (0..rows.len()).filter(|&place| rows[place].looks_worse);
    let broken = summary.broken.iter().map(|broken| &broken.case);
    let broken = broken.chain(
        summary
            .limits
            .iter()
            .filter_map(|limit| limit.case.as_ref()),
    );
    let broken = broken.filter_map(|case| places.get(case).copied());
    let restructured: Vec<&Vec<&Row>> = summary.restructured.iter().map(|(_, rows)| rows).collect();
    let other = [of_rows(&restructured), of_rows(&[&summary.improved])].concat();
    let all = worse.into_iter().chain(doubtful).chain(broken).chain(other);
    let mut seen = BTreeSet::new();
    all.filter(|place| seen.insert(*place))
        .take(IN_FULL)
        .collect()
}
