//! Where a change of the first call went: compiling, loading, planning, as its worker tells them.
//!
//! Everything else that a first call does is not explained.

use std::collections::BTreeSet;

use super::settled::settled;
use crate::judgement::{Account, AccountLine, Item};
use regatta_core::machine::Sides;
use regatta_core::record::types::Parts;
use regatta_worker::units::Nanoseconds;

/// Makes the account; `None` where a side does not tell.
pub fn of_first_call(
    times: Sides<Nanoseconds>,
    base: Option<&Parts>,
    head: Option<&Parts>,
) -> Option<Account> {
    let parts = Sides::both(base, head)?;
    let names: BTreeSet<&String> = parts.base.keys().chain(parts.head.keys()).collect();
    let lines = names.into_iter().map(|name| {
        let part = parts.map(|side| side.get(name).copied().unwrap_or_default());
        let item = Item::Part {
            name: name.clone(),
            count: part.map(|part| part.count),
        };
        AccountLine::of(item, part.head.ns - part.base.ns)
    });
    let lines: Vec<AccountLine> = lines.collect();
    // With no line there is nothing that an account would say.
    (!lines.is_empty()).then(|| settled(times.growth(), lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(all: &[(&str, f64, u64)]) -> Parts {
        let taken = |ns: &f64, count: &u64| regatta_worker::protocol::Taken {
            ns: Nanoseconds(*ns),
            count: *count,
        };
        let all = all.iter();
        all.map(|(name, ns, count)| ((*name).to_owned(), taken(ns, count)))
            .collect()
    }

    #[test]
    fn parts_have_their_lines_and_the_rest_is_not_explained() {
        let base = parts(&[("compiling", 5e6, 1), ("loading", 1e6, 1)]);
        let head = parts(&[("compiling", 25e6, 4), ("loading", 1e6, 1)]);
        let times = Sides::of(Nanoseconds(10e6), Nanoseconds(31e6));
        let account = of_first_call(times, Some(&base), Some(&head)).unwrap();
        assert_eq!(
            account.to_string(),
            "+21.0 ms = compiling 1 → 4 +20.0, not explained +1.0"
        );
        // A worker that watches and saw nothing tells more than one that does not watch.
        let account = of_first_call(times, Some(&Parts::new()), Some(&head)).unwrap();
        assert!(
            account
                .to_string()
                .starts_with("+21.0 ms = compiling 0 → 4 +25.0")
        );
        assert_eq!(of_first_call(times, None, Some(&head)), None);
        assert_eq!(
            of_first_call(times, Some(&Parts::new()), Some(&Parts::new())),
            None
        );
    }
}
