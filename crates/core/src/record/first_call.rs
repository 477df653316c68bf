//! What a first call is made of.

use std::collections::{BTreeMap, BTreeSet};

use super::side::median;
use super::types::Parts;
use regatta_worker::protocol::Taken;
use regatta_worker::units::Nanoseconds;

/// The medians of each part over invocations that tell; `None` where none does.
pub fn medians(all: &[Parts]) -> Option<Parts> {
    if all.is_empty() {
        return None;
    }
    let names: BTreeSet<&String> = all.iter().flat_map(BTreeMap::keys).collect();
    let part = |name: &String| {
        let of = |parts: &Parts| parts.get(name).copied().unwrap_or_default();
        let times = all.iter().map(|parts| of(parts).ns);
        // A worker may tell anything; nothing takes less than no time.
        let times: Vec<Nanoseconds> = times.filter(|ns| ns.0 >= 0.0 && ns.0.is_finite()).collect();
        let mut counts: Vec<u64> = all.iter().map(|parts| of(parts).count).collect();
        counts.sort_unstable();
        Taken {
            ns: median(&times).unwrap_or_default(),
            count: counts[counts.len() / 2],
        }
    };
    Some(
        names
            .into_iter()
            .map(|name| (name.clone(), part(name)))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_median_and_what_is_not_named_took_nothing() {
        let parts = |name: &str, ns, count| {
            let ns = Nanoseconds(ns);
            Parts::from([(name.to_owned(), Taken { ns, count })])
        };
        let all = [
            parts("compiling", 5.0, 2),
            parts("compiling", 9.0, 4),
            parts("compiling", 7.0, 3),
            parts("loading", 4.0, 1),
            Parts::new(),
        ];
        let found = medians(&all).unwrap();
        let compiling = found["compiling"];
        assert_eq!((compiling.ns, compiling.count), (Nanoseconds(5.0), 2));
        assert_eq!(found["loading"].ns, Nanoseconds(0.0));
        let told = [parts("compiling", -5.0, 1), parts("compiling", f64::NAN, 1)];
        assert_eq!(medians(&told).unwrap()["compiling"].ns, Nanoseconds(0.0));
        assert_eq!(medians(&[]), None);
        assert_eq!(medians(&[Parts::new()]), Some(Parts::new()));
    }
}
