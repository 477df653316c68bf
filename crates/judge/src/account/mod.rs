//! The account of a change: an exact sum that says where the time went.
//!
//! The operations of two sides are aligned. The growth of each is a line ([`operations`]). The rest
//! of the measured time is the device's own time between operations and, if the clock includes the
//! host, the device's waits for the host ([`between()`]). Recording lengthens gaps, so gaps are
//! charged with no more than the clock measured beyond the operations, and with no more than the
//! recording shows. The remainder is reported as not explained.
//!
//! A change of the host's time is divided among its calls to CUDA ([`of_host`]), and that of a
//! first call among compiling, loading and planning ([`of_first_call`]), as far as a worker reports
//! them. Recording lengthens each call to CUDA by about a microsecond.

mod operations;

use std::collections::BTreeSet;

use crate::judgement::{Account, AccountLine, Item};
use regatta_core::machine::{ActivitySummary, Counters, Division, KernelChange, Sides};
use regatta_core::record::Parts;
use regatta_worker::units::Nanoseconds;

/// The largest number of lines that are listed; the others are summed.
const MAX_LINES: usize = 12;

/// The inputs of an account.
#[derive(Clone, Copy)]
pub struct AccountInputs<'a> {
    /// The judged time of each side.
    pub times: Sides<Nanoseconds>,
    /// The division of each side's time into operations.
    pub divisions: Sides<&'a Division>,
    /// True if the times include the device's waits for the host.
    pub holds_host: Sides<bool>,
    /// The host's time to issue the call, where it was measured.
    pub host: Option<Sides<Nanoseconds>>,
    /// The median clock frequency of the device on each side, where it was read.
    pub mhz: Option<Sides<f64>>,
    /// The kernels' hardware counters, if both sides have them.
    pub counters: Option<Sides<&'a Counters>>,
    /// The kernels of both sides, with the differences between their launches.
    pub kernels: &'a [KernelChange],
}

/// Makes the account of a change of device time.
pub fn account(asked: &AccountInputs) -> Account {
    let mut lines = operations::lines(asked);
    lines.extend(between(asked));
    settled(asked.times.growth(), lines)
}

/// Sorts the lines by size, sums the smallest, and computes the unexplained rest.
fn settled(change_ns: Nanoseconds, mut lines: Vec<AccountLine>) -> Account {
    lines.retain(|line| line.growth_ns.0 != 0.0);
    lines.sort_by(|a, b| b.growth_ns.0.abs().total_cmp(&a.growth_ns.0.abs()));
    let rest = lines.split_off(lines.len().min(MAX_LINES));
    if !rest.is_empty() {
        let count = rest.len() as u32;
        let growth = rest.iter().map(|line| line.growth_ns).sum();
        lines.push(AccountLine::new(Item::Others { count }, growth));
    }
    let explained: Nanoseconds = lines.iter().map(|line| line.growth_ns).sum();
    Account {
        change_ns,
        lines,
        unexplained_ns: change_ns - explained,
    }
}

/// The lines for the time between operations.
fn between(asked: &AccountInputs) -> Vec<AccountLine> {
    let beyond = Sides::new(
        asked.times.base - asked.divisions.base.busy_ns(),
        asked.times.head - asked.divisions.head.busy_ns(),
    );
    let beyond = beyond.growth();
    let idle = asked.divisions.map(|division| division.idle_ns()).growth();
    let waiting = waiting(asked);
    // No more than the clock measured, and no more than was recorded.
    let seen = within(beyond, idle);
    let part = if idle.0 == 0.0 { 0.0 } else { seen.0 / idle.0 };
    let mut waited = waiting * part;
    let own = seen - waited;
    if asked.holds_host.head {
        // The device also waits before the first operation, which no recording shows.
        let host = asked.host.map_or(Nanoseconds::ZERO, Sides::growth);
        waited += within(beyond - seen, host);
    }
    let count = asked.divisions.map(|division| division.parts.len() as u32);
    let item = if count.base == count.head {
        Item::Gaps
    } else {
        Item::Starts { count }
    };
    vec![
        AccountLine::new(item, own),
        AccountLine::new(Item::Waiting, waited),
    ]
}

/// The growth of the device's waits for the host between operations; 0 if the times do not include
/// waits.
fn waiting(asked: &AccountInputs) -> Nanoseconds {
    let side = |division: &Division, holds: bool| {
        if holds {
            division.parts.iter().map(|part| part.host_ns).sum()
        } else {
            Some(Nanoseconds::ZERO)
        }
    };
    let base = side(asked.divisions.base, asked.holds_host.base);
    let head = side(asked.divisions.head, asked.holds_host.head);
    Sides::both(base, head).map_or(Nanoseconds::ZERO, Sides::growth)
}

/// `one`, limited to the size of `other`; 0 if their signs differ.
fn within(one: Nanoseconds, other: Nanoseconds) -> Nanoseconds {
    if one.0 * other.0 > 0.0 {
        Nanoseconds(one.0.signum() * one.0.abs().min(other.0.abs()))
    } else {
        Nanoseconds::ZERO
    }
}

/// Classes of calls that are counted in another class as well.
const PARTS: [&str; 3] = [
    "device_synchronisations",
    "stream_synchronisations",
    "event_synchronisations",
];

/// Makes the account of a host's time, by classes of calls to CUDA. `None` where a side reports no
/// times of them, or where they sum to more than the call: the first launch that is recorded may
/// wait for the recording to begin.
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
        // A class that was counted but has no time was never called.
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

/// Makes the account of a first call; `None` where a side reports no parts of it.
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
    // An account without lines would say nothing.
    (!lines.is_empty()).then(|| settled(times.growth(), lines))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use regatta_core::machine::{Named, Part, Work};

    fn part(name: &str, ns: f64, gap_ns: f64, host_ns: Option<f64>) -> Part {
        let name = name.to_owned();
        Part {
            work: Work::Kernel(Named { name }),
            stream: None,
            operator: None,
            ns: Nanoseconds(ns),
            gap_ns: Nanoseconds(gap_ns),
            host_ns: host_ns.map(Nanoseconds),
        }
    }

    fn division(parts: Vec<Part>) -> Division {
        Division {
            calls: 5,
            time_ns: None,
            parts,
        }
    }

    /// Operations from text: `name:us`, `name:us+gap`, `name:us+gap/host`.
    fn written(line: &str) -> Division {
        let parts = line.split_whitespace().map(|word| {
            let (name, ns) = word.rsplit_once(':').unwrap();
            let (ns, gap) = ns.split_once('+').unwrap_or((ns, "0"));
            let (gap, host) = gap
                .split_once('/')
                .map_or((gap, None), |(g, h)| (g, Some(h)));
            let us = |text: &str| 1e3 * text.parse::<f64>().unwrap();
            part(name, us(ns), us(gap), host.map(us))
        });
        division(parts.collect())
    }

    fn asked(
        times: (f64, f64),
        base: &Division,
        head: &Division,
        host: bool,
        mhz: Option<Sides<f64>>,
    ) -> Account {
        account(&AccountInputs {
            times: Sides::new(Nanoseconds(times.0), Nanoseconds(times.1)),
            divisions: Sides::new(base, head),
            holds_host: Sides::new(host, host),
            host: None,
            mhz,
            counters: None,
            kernels: &[],
        })
    }

    /// The first line is a clone on an H200: a copy of q before the kernel. Others show waits that
    /// an ungated recording has and a gated time does not, and operations that replace a kernel in
    /// every layer.
    #[test]
    fn an_account_is_of_what_the_clock_saw() {
        let copy = "at::native::elementwise_kernel<128>";
        let model = |kernel: &str| format!("qkv:1 {kernel} mlp:2 qkv:1 {kernel} mlp:2");
        let (flash, three) = (
            model("flash:80"),
            model("scores:400 softmax:300 values:300"),
        );
        let table = format!("
14.9 flash:14.5 ; 18.1 {copy}:1.4 flash:14.6+2.3 => +3.20 µs = starts of operations 1 → 2 +1.70, copy kernel elementwise_kernel added +1.40, flash +0.10
16 a:10 b:5+1 ; 19 a:13 b:5+90 => +3.00 µs = a +3.00
16 a:10 b:5+1 ; 25 a:10 b:5+1 => +9.00 µs = not explained +9.00
host 16 a:10+0/0 b:5+1/0 ; 36 a:10+0/0 b:5+21/20 => +20.0 µs = waiting for the host +20.0
166 {flash} ; 2006 {three} => +1.84 ms = flash 2x, 160.0 µs → 6 operations, 2.00 ms +1.84
2006 {three} ; 166 {flash} => -1.84 ms = 6 operations, 2.00 ms → flash 2x
mhz 100 flash:100 ; 112 flash:112 => +12.0 µs = clock 1980 → 1800 MHz +10.0, flash +2.0
");
        for line in table.lines().filter(|line| !line.is_empty()) {
            let (sides, expected) = line.split_once(" => ").unwrap();
            let host = sides.starts_with("host");
            let mhz = sides
                .starts_with("mhz")
                .then(|| Sides::new(1_980.0, 1_800.0));
            let sides = sides.trim_start_matches("host ").trim_start_matches("mhz ");
            let (base, head) = sides.split_once(" ; ").unwrap();
            let side = |text: &str| {
                let (time, parts) = text.split_once(' ').unwrap();
                (1e3 * time.parse::<f64>().unwrap(), written(parts))
            };
            let (base, head) = (side(base), side(head));
            let account = asked((base.0, head.0), &base.1, &head.1, host, mhz).to_string();
            assert!(account.starts_with(expected), "{line}\n{account}");
        }
    }

    proptest! {
        #[test]
        fn lines_and_what_is_not_explained_are_the_change(
            base in prop::collection::vec((0u8..4, 1.0f64..500.0, 0.0f64..50.0), 1..20),
            head in prop::collection::vec((0u8..5, 1.0f64..500.0, 0.0f64..50.0), 1..20),
            times in (1.0f64..9_000.0, 1.0f64..9_000.0),
            host in any::<bool>(),
        ) {
            let side = |parts: &[(u8, f64, f64)]| division(
                parts.iter().map(|(n, ns, gap)| part(&format!("k{n}"), *ns, *gap, Some(gap / 2.0))).collect()
            );
            let account = asked(times, &side(&base), &side(&head), host, None);
            let lines: f64 = account.lines.iter().map(|line| line.growth_ns.0).sum();
            prop_assert!((lines + account.unexplained_ns.0 - (times.1 - times.0)).abs() < 1e-6);
        }
    }

    fn called(launches: (u64, u64), waits: (u64, u64)) -> ActivitySummary {
        let names = ["launches", "synchronisations", "stream_synchronisations"];
        let counts = |figures: [u64; 3]| {
            let pairs = names.iter().zip(figures);
            pairs
                .map(|(name, figure)| ((*name).to_owned(), figure))
                .collect::<std::collections::BTreeMap<_, _>>()
        };
        ActivitySummary {
            calls: counts([launches.0, waits.0, waits.0]).into(),
            calls_ns: counts([launches.1, waits.1, waits.1]),
            ..ActivitySummary::default()
        }
    }

    #[test]
    fn calls_to_cuda_have_their_part_and_the_rest_is_not_explained() {
        let (base, head) = (called((1, 5_000), (0, 0)), called((1, 5_100), (1, 40_000)));
        let times = Sides::new(Nanoseconds(50_000.0), Nanoseconds(100_000.0));
        let account = of_host(times, Sides::new(&base, &head)).unwrap();
        assert_eq!(
            account.to_string(),
            "+50.0 µs = waits for the device 0 → 1 +40.0, not explained +10.0"
        );
        // Times that exceed the whole call come from the recording.
        let (stretched, head) = (called((1, 206_000), (0, 0)), called((1, 60_000), (0, 0)));
        assert_eq!(of_host(times, Sides::new(&stretched, &head)), None);
        let unknown = ActivitySummary::default();
        assert_eq!(of_host(times, Sides::new(&unknown, &head)), None);
    }

    fn taken_parts(all: &[(&str, f64, u64)]) -> Parts {
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
        let base = taken_parts(&[("compiling", 5e6, 1), ("loading", 1e6, 1)]);
        let head = taken_parts(&[("compiling", 25e6, 4), ("loading", 1e6, 1)]);
        let times = Sides::new(Nanoseconds(10e6), Nanoseconds(31e6));
        let account = of_first_call(times, Some(&base), Some(&head)).unwrap();
        assert_eq!(
            account.to_string(),
            "+21.0 ms = compiling 1 → 4 +20.0, not explained +1.0"
        );
        // A worker that watched and saw nothing differs from one that does not watch.
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
