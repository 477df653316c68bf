//! Data that is moved: more of it, or no longer beside kernels.

use super::facts::{EXPLAINS, Facts, Found, Source};
use crate::judgement::{Cause, Fact};
use regatta_core::machine::{ActivitySummary, Became, KernelChange, SideFigures, Sides};
use regatta_core::machine::{moves_data, normalised, plain};
use regatta_worker::units::Nanoseconds;

/// More kernels that move data, or more copies, with the time that they take where it is
/// known.
pub fn added(facts: &Facts) -> Option<Found> {
    let moving = || facts.kernels.iter().filter(|k| moves_data(k.called()));
    let more = moving().filter(|kernel| kernel.count.growth() > 0.0);
    let more: Vec<&KernelChange> = more.collect();
    let kernels: f64 = match facts.source {
        // Which of them is for which is unknown.
        Source::Call(_) => moving().map(|kernel| kernel.count.growth()).sum(),
        Source::Trace(..) => more.iter().map(|kernel| kernel.count.growth()).sum(),
    };
    let mut told = Vec::new();
    if kernels >= 0.5 {
        let example = example(facts, &more);
        told.push(Fact::Added {
            number: kernels.round() as usize,
            what: "copy kernel".to_owned(),
            example: example.map_or_else(String::new, |kernel| plain(kernel.called())),
        });
    }
    match facts.source {
        Source::Call(_) => {
            // A worker may count kernels that copy as well: they are told already.
            let counts = facts.count("copies");
            let counts = counts.filter(|count| count.growth() > kernels.max(0.0));
            told.extend(counts.map(|count| Fact::count("copies", count, "")));
            if told.is_empty() {
                return None;
            }
            let time = moved_more(facts);
            let part = time.zip(call_time(facts));
            told.extend(part.map(|(time, whole)| Fact::part("", time, whole, "")));
            // Copies that take a small part of what a call takes longer came with its cause.
            let both = time.zip(facts.slower_by());
            let aside = both.is_some_and(|(time, slower)| time < slower * EXPLAINS);
            let order = if aside { 0.55 } else { 0.9 };
            Found::of(Cause::CopiesAdded, told, order)
        }
        Source::Trace(sides, _) => {
            let growths = more.iter().map(|kernel| kernel.growth_ns());
            let time = growths.sum::<Nanoseconds>() + driver_copies(sides, &mut told);
            if told.is_empty() {
                return None;
            }
            let part = time.max(Nanoseconds::ZERO);
            told.push(Fact::part("", part, sides.head.busy_ns, ""));
            let found = Found::of(Cause::CopiesAdded, told, 0.9)?;
            Some(found.growing(time).worse(true))
        }
    }
}

/// One of the kernels that are launched more often: of a call, one that is new to it, the
/// first that it launches.
fn example<'a>(facts: &Facts, more: &[&'a KernelChange]) -> Option<&'a KernelChange> {
    let Some((_, head)) = facts.structures() else {
        return more.first().copied();
    };
    let names: Vec<String> = head.launches.iter().map(|l| normalised(&l.name)).collect();
    more.iter().copied().min_by_key(|kernel| {
        let place = names.iter().position(|name| *name == kernel.name.head);
        (kernel.became != Became::Added, place)
    })
}

/// Tells copies by the driver that were added, by direction; the time that they take more.
fn driver_copies(sides: &Sides<SideFigures>, told: &mut Vec<Fact>) -> Nanoseconds {
    let mut time = Nanoseconds::ZERO;
    for (direction, &(after, time_after)) in &sides.head.copies {
        let before = sides.base.copies.get(direction).copied();
        let (before, time_before) = before.unwrap_or_default();
        // Of a whole program, or one whose repetitions differ, a part of one is none.
        if after >= before + 0.5 {
            time += time_after - time_before;
            told.push(Fact::count(direction, Sides::of(before, after), ""));
        }
    }
    time
}

/// The time of a call in which more data is moved than was, by kernels or the driver, where
/// both activities tell it.
fn moved_more(facts: &Facts) -> Option<Nanoseconds> {
    let moved = |activity: &ActivitySummary| {
        let moved = activity.moving_ns?.checked_add(activity.time.copying_ns?)?;
        Some(Nanoseconds::whole(moved))
    };
    let sides = facts.call()?.activities()?;
    let moved = Sides::both(moved(sides.base), moved(sides.head))?;
    Some(moved.growth().max(Nanoseconds::ZERO))
}

/// The head's call on the device: as timed, or else in which it was busy.
fn call_time(facts: &Facts) -> Option<Nanoseconds> {
    let activity = || facts.call()?.head.activity.as_ref();
    let busy = || Some(Nanoseconds::whole(activity()?.time.busy_ns));
    facts.ns.head.filter(|_| facts.of_device()).or_else(busy)
}
