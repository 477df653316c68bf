//! Where a change of the host's time went: the calls to CUDA that it makes.
//!
//! Their times are of a call that was recorded, which stretches each by about a microsecond. What
//! a framework does between them is not explained.

use super::settled::settled;
use crate::judge::judgement::{Account, AccountLine, Item};
use crate::machine::{ActivitySummary, Sides};
use crate::units::Nanoseconds;

/// Classes that are parts of another one.
const PARTS: [&str; 3] = [
    "device_synchronisations",
    "stream_synchronisations",
    "event_synchronisations",
];

/// Makes the account of a host's time; `None` where a side tells no times of calls.
pub fn of_host(times: Sides<Nanoseconds>, calls: Sides<&ActivitySummary>) -> Option<Account> {
    if calls.base.calls_ns.is_empty() || calls.head.calls_ns.is_empty() {
        return None;
    }
    let whole = |(name, _): &(&String, &u64)| !PARTS.contains(&name.as_str());
    let lines = calls.base.calls.iter().filter(whole);
    let lines = lines.filter_map(|(name, &before)| {
        let count = Sides::of(before, *calls.head.calls.get(name)?);
        // A class that was counted and never called took no time.
        let took = |side: &ActivitySummary| side.calls_ns.get(name).copied().unwrap_or(0);
        let time = calls.map(|side| Nanoseconds::whole(took(side)));
        let item = Item::Calls {
            name: name.clone(),
            count,
        };
        Some(AccountLine::of(item, time.growth()))
    });
    Some(settled(times.growth(), lines.collect()))
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
        let times = Sides::of(Nanoseconds(50_000.0), Nanoseconds(100_000.0));
        let account = of_host(times, Sides::of(&base, &head)).unwrap();
        assert_eq!(
            account.to_string(),
            "+50.0 µs = synchronisations 0 → 1 +40.0, not explained +10.0"
        );
        let unknown = ActivitySummary::default();
        assert_eq!(of_host(times, Sides::of(&unknown, &head)), None);
    }
}
