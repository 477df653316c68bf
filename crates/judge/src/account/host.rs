//! Where a change of the host's time went: of a call, the calls to CUDA that it makes; of a first
//! call, compiling, loading, planning, as its worker tells them. All else is not explained.
//!
//! Times of calls to CUDA are of a call that was recorded, which stretches each by about a
//! microsecond.

use std::collections::BTreeSet;

use super::settled;
use crate::judgement::{Account, AccountLine, Item};
use regatta_core::machine::{ActivitySummary, Sides};
use regatta_core::record::types::Parts;
use regatta_worker::units::Nanoseconds;

/// Classes that are parts of another one.
const PARTS: [&str; 3] = [
    "device_synchronisations",
    "stream_synchronisations",
    "event_synchronisations",
];

/// Makes the account of a host's time, by classes of calls to CUDA; `None` where a side tells no times of them, or more than its
/// call takes: the first launch that is recorded may wait for the recording to begin.
pub fn of_host(times: Sides<Nanoseconds>, calls: Sides<&ActivitySummary>) -> Option<Account> {
    let whole = |(name, _): &(&String, &u64)| !PARTS.contains(&name.as_str());
    let fits = |time: Nanoseconds, side: &ActivitySummary| {
        let all: u64 = side.calls_ns.iter().filter(whole).map(|(_, ns)| *ns).sum();
        !side.calls_ns.is_empty() && Nanoseconds::whole(all) <= time
    };
    if !fits(times.base, calls.base) || !fits(times.head, calls.head) {
        return None;
    }
    let lines = calls.base.calls.iter().filter(whole);
    let lines = lines.filter_map(|(name, &before)| {
        let count = Sides::new(before, *calls.head.calls.get(name)?);
        // A class that was counted and never called took no time.
        let took = |side: &ActivitySummary| side.calls_ns.get(name).copied().unwrap_or(0);
        let time = calls.map(|side| Nanoseconds::whole(took(side)));
        let item = Item::Part {
            name: name.clone(),
            count,
        };
        Some(AccountLine::new(item, time.growth()))
    });
    Some(settled(times.growth(), lines.collect()))
}

/// Makes the account of a first call; `None` where a side does not tell.
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
        AccountLine::new(item, part.head.ns - part.base.ns)
    });
    let lines: Vec<AccountLine> = lines.collect();
    // With no line there is nothing that an account would say.
    (!lines.is_empty()).then(|| settled(times.growth(), lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(launches: (u64, u64), waits: (u64, u64)) -> ActivitySummary {
        let names = ["launches", "synchronisations", "stream_synchronisations"];
        let of = |figures: [u64; 3]| {
            let pairs = names.iter().zip(figures);
            pairs
                .map(|(name, figure)| ((*name).to_owned(), figure))
                .collect()
        };
        ActivitySummary {
            calls: of([launches.0, waits.0, waits.0]),
            calls_ns: of([launches.1, waits.1, waits.1]),
            ..ActivitySummary::default()
        }
    }

    #[test]
    fn calls_to_cuda_have_their_part_and_the_rest_is_not_explained() {
        let (base, head) = (side((1, 5_000), (0, 0)), side((1, 5_100), (1, 40_000)));
        let times = Sides::new(Nanoseconds(50_000.0), Nanoseconds(100_000.0));
        let account = of_host(times, Sides::new(&base, &head)).unwrap();
        assert_eq!(
            account.to_string(),
            "+50.0 µs = waits for the device 0 → 1 +40.0, not explained +10.0"
        );
        // More than the whole call takes is of the recording.
        let (stretched, head) = (side((1, 206_000), (0, 0)), side((1, 60_000), (0, 0)));
        assert_eq!(of_host(times, Sides::new(&stretched, &head)), None);
        let unknown = ActivitySummary::default();
        assert_eq!(of_host(times, Sides::new(&unknown, &head)), None);
    }

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
        let times = Sides::new(Nanoseconds(10e6), Nanoseconds(31e6));
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
