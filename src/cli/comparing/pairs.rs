//! What stands beside what: the cases of both sides, and what the two runs are called.

use std::collections::BTreeSet;

use anyhow::anyhow;
use jiff::Timestamp;

use super::super::Stop;
use super::super::versions::Version;
use regatta_worker::attention::{Case, VariantId};

/// What both runs have in common, and no other has: the moment, and what was asked for.
pub fn pair(base: &Version, head: &Version) -> String {
    let asked = [base.asked.join(" "), head.asked.join(" ")].join(" | ");
    let now = Timestamp::now().as_nanosecond();
    format!("{now:x}-{:08x}", crc32fast::hash(asked.as_bytes()))
}

/// Where variants are compared, leaves each side its own, on the same problems: those that the
/// suite has of either. Gives who stands in for whom.
///
/// # Errors
/// A side without a variant, or a suite without either: exit code 2.
pub fn variants(
    base: &mut Version,
    head: &mut Version,
) -> Result<Vec<(VariantId, VariantId)>, Stop> {
    let (was, is) = match (base.variant.clone(), head.variant.clone()) {
        (None, None) => return Ok(Vec::new()),
        (Some(was), Some(is)) => (was, is),
        (Some(one), None) | (None, Some(one)) => {
            return Err(Stop::Usage(alone(&one)));
        }
    };
    let of_either = head.suite.cases.iter().filter(|case| {
        (case.variant == was || case.variant == is) && case.params.iter().next().is_none()
    });
    let problems: BTreeSet<_> = of_either.map(|case| case.problem.clone()).collect();
    if problems.is_empty() {
        return Err(Stop::Usage(anyhow!(
            "suite {} has no case of {was} or {is}",
            head.suite.name
        )));
    }
    for (version, variant) in [(base, &was), (head, &is)] {
        let cases = problems.iter().map(|problem| Case {
            variant: variant.clone(),
            problem: problem.clone(),
            params: Default::default(),
        });
        version.suite.cases = cases.collect();
        version.suite.cases.sort();
    }
    Ok(match was == is {
        true => Vec::new(),
        false => vec![(was, is)],
    })
}

/// What to do about a side that is a variant where the other is none.
pub fn alone(variant: &VariantId) -> anyhow::Error {
    anyhow!("{variant} is a variant: name the one it is compared with on the other side too")
}

/// The cases of both sides, each beside the other: they are the same but for their variants.
pub fn beside(base: &Version, head: &Version) -> Vec<(Case, Case)> {
    let mut cases = head.suite.cases.clone();
    cases.sort();
    let pair = |of_head: Case| {
        let variant = base
            .variant
            .clone()
            .unwrap_or_else(|| of_head.variant.clone());
        let of_base = Case {
            variant,
            ..of_head.clone()
        };
        (of_base, of_head)
    };
    cases.into_iter().map(pair).collect()
}
