//! Where a change of the host's time went: the calls to CUDA that it makes, and the functions and
//! operators that it is in.
//!
//! Times of calls to CUDA are of a call that was recorded, which stretches each by about a
//! microsecond. Functions and operators are watched in calls of their own, which stretches them by
//! more, and calls to CUDA are in them: they explain no more than the calls to CUDA leave. What a
//! framework does between them is not explained.

use std::collections::{BTreeMap, BTreeSet};

use super::settled::settled;
use crate::judgement::{Account, AccountLine, HostWork, Item};
use regatta_core::machine::{ActivitySummary, HostTimes, Sides, Structure};
use regatta_worker::units::Nanoseconds;

/// Classes that are parts of another one.
const PARTS: [&str; 3] = [
    "device_synchronisations",
    "stream_synchronisations",
    "event_synchronisations",
];

/// What is known of the host in a call of one side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host<'a> {
    /// Its calls to CUDA.
    pub activity: Option<&'a ActivitySummary>,
    /// Its functions and operators.
    pub watched: Option<&'a HostTimes>,
    /// How often it runs those.
    pub structure: Option<&'a Structure>,
}

/// Makes the account of a host's time; `None` where the sides tell nothing of the same kind.
pub fn of_host(times: Sides<Nanoseconds>, sides: Sides<Host>) -> Option<Account> {
    let calls = Sides::both(sides.base.activity, sides.head.activity);
    let calls = calls.and_then(|calls| of_calls(times, calls));
    let watched = Sides::both(sides.base.watched, sides.head.watched);
    if calls.is_none() && watched.is_none() {
        return None;
    }
    let mut lines = calls.unwrap_or_default();
    let explained: Nanoseconds = lines.iter().map(|line| line.growth_ns).sum();
    if let Some(watched) = watched {
        let structures = Sides::of(sides.base.structure, sides.head.structure);
        let found = of_watched(watched, structures);
        lines.extend(within(times.growth() - explained, found));
    }
    Some(settled(times.growth(), lines))
}

/// Lines of calls to CUDA, by class; `None` where a side tells no times of them, or more than its
/// call takes: the first launch that is recorded may wait for the recording to begin.
fn of_calls(times: Sides<Nanoseconds>, calls: Sides<&ActivitySummary>) -> Option<Vec<AccountLine>> {
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
    Some(lines.collect())
}

/// Figures by a function's or operator's name.
type Named = BTreeMap<String, u64>;

/// Lines of functions and operators. One that a side does not name was not in its call: each
/// tells all that it ran.
fn of_watched(watched: Sides<&HostTimes>, of: Sides<Option<&Structure>>) -> Vec<AccountLine> {
    type Times = fn(&HostTimes) -> &Named;
    type Counts = fn(&Structure) -> &Named;
    let kinds: [(HostWork, Times, Counts); 2] = [
        (
            HostWork::Function,
            |of| &of.functions_ns,
            |of| &of.functions,
        ),
        (
            HostWork::Operator,
            |of| &of.operators_ns,
            |of| &of.operators,
        ),
    ];
    let mut lines = Vec::new();
    for (work, times, counts) in kinds {
        let times = watched.map(|side| times(side));
        if times.base.is_empty() || times.head.is_empty() {
            continue;
        }
        let counts = of.map(|structure| structure.map(counts));
        let names: BTreeSet<&String> = times.base.keys().chain(times.head.keys()).collect();
        for name in names {
            let figure = |of: &Named| of.get(name).copied().unwrap_or(0);
            let time = times.map(|side| Nanoseconds::whole(figure(side)));
            let count = Sides::both(counts.base.map(figure), counts.head.map(figure));
            let item = Item::Host {
                work,
                name: name.clone(),
                count,
            };
            lines.push(AccountLine::of(item, time.growth()));
        }
    }
    lines
}

/// Lines that take no more together than `left`: watching makes them longer, and what was told
/// before is in them.
fn within(left: Nanoseconds, mut lines: Vec<AccountLine>) -> Vec<AccountLine> {
    let all: Nanoseconds = lines.iter().map(|line| line.growth_ns).sum();
    if all.0 * left.0 <= 0.0 {
        return Vec::new();
    }
    let part = (left.0 / all.0).min(1.0);
    for line in &mut lines {
        line.growth_ns = line.growth_ns * part;
    }
    lines
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
        let host = |activity| Host {
            activity: Some(activity),
            ..Host::default()
        };
        let account = of_host(times, Sides::of(host(&base), host(&head))).unwrap();
        assert_eq!(
            account.to_string(),
            "+50.0 µs = synchronisations 0 → 1 +40.0, not explained +10.0"
        );
        // More than the whole call takes is of the recording.
        let (stretched, head) = (side((1, 206_000), (0, 0)), side((1, 60_000), (0, 0)));
        let sides = Sides::of(host(&stretched), host(&head));
        assert_eq!(of_host(times, sides), None);
        let unknown = ActivitySummary::default();
        assert_eq!(of_host(times, Sides::of(host(&unknown), host(&head))), None);
    }

    fn watched(functions: &[(&str, u64)], operators: &[(&str, u64)]) -> HostTimes {
        let named = |of: &[(&str, u64)]| {
            let pairs = of.iter().map(|(name, ns)| ((*name).to_owned(), *ns));
            pairs.collect()
        };
        HostTimes {
            functions_ns: named(functions),
            operators_ns: named(operators),
        }
    }

    fn told(times: (f64, f64), base: (&HostTimes, u64), head: (&HostTimes, u64)) -> String {
        let structures = [base.1, head.1].map(|count| Structure {
            functions: [("lib:plan".to_owned(), count), ("lib:call".to_owned(), 1)].into(),
            operators: [("aten::view".to_owned(), 8 * count)].into(),
            ..Structure::default()
        });
        let host = |watched, structure| Host {
            activity: None,
            watched: Some(watched),
            structure: Some(structure),
        };
        let times = Sides::of(Nanoseconds(times.0), Nanoseconds(times.1));
        let sides = Sides::of(host(base.0, &structures[0]), host(head.0, &structures[1]));
        of_host(times, sides).unwrap().to_string()
    }

    #[test]
    fn functions_and_operators_have_their_own_times() {
        let base = watched(&[("lib:call", 5_000)], &[("aten::view", 8_000)]);
        let head = watched(
            &[("lib:call", 5_000), ("lib:plan", 30_000)],
            &[("aten::view", 16_000)],
        );
        assert_eq!(
            told((50_000.0, 100_000.0), (&base, 0), (&head, 1)),
            "+50.0 µs = lib:plan 0 → 1 +30.0, aten::view 0 → 8 +8.0, not explained +12.0"
        );
        // Watched, they took longer than they do.
        assert_eq!(
            told((50_000.0, 69_000.0), (&base, 0), (&head, 1)),
            "+19.0 µs = lib:plan 0 → 1 +15.0, aten::view 0 → 8 +4.0"
        );
        // A gain is none of theirs.
        assert_eq!(
            told((50_000.0, 40_000.0), (&base, 1), (&head, 1)),
            "-10.0 µs = not explained -10.0"
        );
    }

    #[test]
    fn what_a_side_does_not_watch_is_unknown() {
        let base = watched(&[("lib:call", 5_000)], &[]);
        let head = watched(&[("lib:call", 9_000)], &[("aten::view", 16_000)]);
        assert_eq!(
            told((50_000.0, 100_000.0), (&base, 0), (&head, 0)),
            "+50.0 µs = lib:call +4.0, not explained +46.0"
        );
    }
}
