//! The account of a change: where the time went, as arithmetic.
//!
//! Operations of two sides are laid side by side; what each takes more is a line
//! ([`operations`]). What the clock read beyond them is the device's way from one operation to
//! the next, and where the clock holds the host, waiting for it ([`between()`]). Recording
//! stretches gaps, so they explain no more than the clock saw beyond the operations, and no
//! more than was recorded. What is left is not explained, and said to be.

mod host;
mod operations;

pub use host::{of_first_call, of_host};

use crate::judgement::{Account, AccountLine, Item};
use regatta_core::machine::{Counters, Division, KernelChange, Sides};
use regatta_worker::units::Nanoseconds;

/// Lines that are kept one by one.
const KEPT: usize = 12;

/// Two sides, and what is known of them.
#[derive(Clone, Copy)]
pub struct AccountInputs<'a> {
    /// The times that were judged.
    pub times: Sides<Nanoseconds>,
    /// What they are divided by.
    pub divisions: Sides<&'a Division>,
    /// Whether what the device waits for the host is in them.
    pub holds_host: Sides<bool>,
    /// The host's time to make the call, where it was taken.
    pub host: Option<Sides<Nanoseconds>>,
    /// Medians of the device's clock, where it was read.
    pub mhz: Option<Sides<f64>>,
    /// What hardware counted of the kernels, where it did on both sides.
    pub counters: Option<Sides<&'a Counters>>,
    /// What changed of the kernels' launches.
    pub kernels: &'a [KernelChange],
}

/// Makes the account.
pub fn account(asked: &AccountInputs) -> Account {
    let mut lines = operations::lines(asked);
    lines.extend(between(asked));
    settled(asked.times.growth(), lines)
}

/// The largest lines first, the smallest as one, and what is left.
fn settled(change_ns: Nanoseconds, mut lines: Vec<AccountLine>) -> Account {
    lines.retain(|line| line.growth_ns.0 != 0.0);
    lines.sort_by(|a, b| b.growth_ns.0.abs().total_cmp(&a.growth_ns.0.abs()));
    let rest = lines.split_off(lines.len().min(KEPT));
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

/// Lines of what lies between operations.
fn between(asked: &AccountInputs) -> Vec<AccountLine> {
    let beyond = Sides::new(
        asked.times.base - asked.divisions.base.busy_ns(),
        asked.times.head - asked.divisions.head.busy_ns(),
    );
    let beyond = beyond.growth();
    let idle = asked.divisions.map(|of| of.idle_ns()).growth();
    let waiting = waiting(asked);
    // As far as both the clock and the recording go.
    let seen = within(beyond, idle);
    let part = match idle.0 == 0.0 {
        true => 0.0,
        false => seen.0 / idle.0,
    };
    let mut waited = waiting * part;
    let own = seen - waited;
    if asked.holds_host.head {
        // Before the first operation the device waits too, which no recording shows.
        let host = asked.host.map_or(Nanoseconds::ZERO, Sides::growth);
        waited += within(beyond - seen, host);
    }
    let count = asked.divisions.map(|of| of.parts.len() as u32);
    let item = match count.base == count.head {
        true => Item::Gaps,
        false => Item::Starts { count },
    };
    vec![
        AccountLine::new(item, own),
        AccountLine::new(Item::Waiting, waited),
    ]
}

/// What the device waits more for the host between operations, in a time that holds it.
fn waiting(asked: &AccountInputs) -> Nanoseconds {
    let side = |division: &Division, holds: bool| match holds {
        false => Some(Nanoseconds::ZERO),
        true => division.parts.iter().map(|part| part.host_ns).sum(),
    };
    let base = side(asked.divisions.base, asked.holds_host.base);
    let head = side(asked.divisions.head, asked.holds_host.head);
    match (base, head) {
        (Some(base), Some(head)) => head - base,
        _ => Nanoseconds::ZERO,
    }
}

/// As much of the first as goes the way of the second, and no further.
fn within(one: Nanoseconds, other: Nanoseconds) -> Nanoseconds {
    match one.0 * other.0 > 0.0 {
        true => Nanoseconds(one.0.signum() * one.0.abs().min(other.0.abs())),
        false => Nanoseconds::ZERO,
    }
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

    /// Operations as they are written: `name:us`, `name:us+gap`, `name:us+gap/host`.
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

    /// A clone as an H200 did it, a copy of q before the kernel; what a recording without a gate
    /// shows of waiting, which is in no time behind one; and what stands in the place of a kernel,
    /// over all layers.
    #[test]
    fn an_account_is_of_what_the_clock_saw() {
        let copy = "at::native::elementwise_kernel<128>";
        let model = |attention: &str| format!("qkv:1 {attention} mlp:2 qkv:1 {attention} mlp:2");
        let (flash, three) = (
            model("flash:80"),
            model("scores:400 softmax:300 values:300"),
        );
        let table = format!("
14.9 flash:14.5 ; 18.1 {copy}:1.4 flash:14.6+2.3 => +3.20 µs = start of a second operation +1.70, copy kernel elementwise_kernel added +1.40, flash +0.10
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
            let found = asked((base.0, head.0), &base.1, &head.1, host, mhz).to_string();
            assert!(found.starts_with(expected), "{line}\n{found}");
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
            let side = |of: &[(u8, f64, f64)]| division(
                of.iter().map(|(n, ns, gap)| part(&format!("k{n}"), *ns, *gap, Some(gap / 2.0))).collect()
            );
            let found = asked(times, &side(&base), &side(&head), host, None);
            let lines: f64 = found.lines.iter().map(|line| line.growth_ns.0).sum();
            prop_assert!((lines + found.unexplained_ns.0 - (times.1 - times.0)).abs() < 1e-6);
        }
    }
}
