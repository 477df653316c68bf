//! Cases that move together, told as one thing.

use std::collections::BTreeMap;

use regatta_worker::attention::{CaseId, FACETS};
use regatta_worker::units::counted;

/// Fewer cases than these are no family.
const FEWEST: usize = 3;

/// So many of a family move, and so much of what moved is of it.
const SHARE: f64 = 0.8;

/// What the cases that moved have in common, and hardly any other case has: `all 12 cases of
/// torch/efficient, direction backward`. `None` where they are few, everything, or have
/// nothing in common.
pub fn common(moved: &[&CaseId], compared: &[&CaseId]) -> Option<String> {
    if moved.len() < FEWEST || moved.len() == compared.len() {
        return None;
    }
    // What nearly all that moved have: few things, of which the others are then counted.
    let mut hits: BTreeMap<Key, usize> = BTreeMap::new();
    for key in moved.iter().flat_map(|case| keys(&facets(case))) {
        *hits.entry(key).or_default() += 1;
    }
    hits.retain(|_, hits| *hits as f64 >= SHARE * moved.len() as f64);
    let mut counts: BTreeMap<Key, usize> = hits.keys().map(|key| (key.clone(), 0)).collect();
    for case in compared {
        let facets = facets(case);
        for (key, of) in &mut counts {
            *of += usize::from(key.iter().all(|facet| facets.contains(facet)));
        }
    }
    let counted_both = hits.into_iter().zip(counts.into_values());
    let best = counted_both
        .map(|((key, hits), of)| (key, (hits, of)))
        .filter(|(_, (hits, of))| *hits as f64 >= SHARE * *of as f64)
        // The most of them; of as many, what says it in the fewest words.
        .max_by_key(|(key, (hits, of))| (*hits, usize::MAX - of, usize::MAX - key.len()))?;
    let (key, (hits, of)) = best;
    let words: Vec<String> = key
        .iter()
        .map(|(name, value)| match *name {
            "variant" | "worker" => value.clone(),
            name => format!("{name} {value}"),
        })
        .collect();
    let many = match hits == of {
        true => format!("all {}", counted(of, "case")),
        false => format!("{hits} of the {}", counted(of, "case")),
    };
    Some(format!("{many} of {}", words.join(", ")))
}

/// A value of a facet, or a variant with one.
type Key = Vec<(&'static str, String)>;

/// Each value by itself, and each with the variant.
fn keys(facets: &[(&'static str, String)]) -> Vec<Key> {
    let variant = facets.iter().find(|(name, _)| *name == "variant");
    let single = facets.iter().map(|facet| vec![facet.clone()]);
    let others = facets.iter().filter(|(name, _)| *name != "variant");
    let paired = others.filter_map(|facet| Some(vec![variant?.clone(), facet.clone()]));
    single.chain(paired).collect()
}

fn facets(case: &CaseId) -> Vec<(&'static str, String)> {
    let Ok(case) = case.case() else {
        return Vec::new();
    };
    let named = FACETS.iter().map(|name| (*name, case.facet(name)));
    named.filter(|(_, value)| !value.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moved_together_and_alone_is_told_together() {
        let variants = ["cpu/flash", "cpu/naive"].into_iter();
        let sizes = variants.flat_map(|variant| (1..=6).map(move |n| (variant, 64 * n)));
        let ids = sizes.flat_map(|(variant, seq)| {
            ["", ",bwd"].map(|way| CaseId(format!("{variant}:s{seq},d64{way}")))
        });
        let all: Vec<CaseId> = ids.collect();
        let told = |moved: fn(&str) -> bool| {
            let all: Vec<&CaseId> = all.iter().collect();
            let moved: Vec<&CaseId> = all.iter().copied().filter(|id| moved(&id.0)).collect();
            common(&moved, &all).unwrap_or_default()
        };
        let backward = told(|id| id.starts_with("cpu/flash") && id.ends_with("bwd"));
        assert_eq!(backward, "all 6 cases of cpu/flash, direction backward");
        assert_eq!(
            told(|id| id.starts_with("cpu/naive")),
            "all 12 cases of cpu/naive"
        );
        assert!(told(|id| id.contains(":s64,")).starts_with("all 4 cases of seq"));
        // What has nothing in common is only counted.
        let any = |id: &str| {
            ["s64,d64", "s128,d64,bwd", "s384,d64"]
                .iter()
                .any(|e| id.ends_with(e))
        };
        assert_eq!(told(any), "");
        assert_eq!(told(|_| true), "");
    }
}
