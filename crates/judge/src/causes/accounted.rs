//! What of a change each finding accounts for: lines of the account that it speaks of.

use super::clock::Clock;
use super::facts::{Facts, Found};
use crate::judgement::{Account, Cause, Fact, Item};
use regatta_core::machine::{Sides, plain};
use regatta_worker::units::{Nanoseconds, Share};

/// Gives findings the time that the account has for them, where there is one.
pub fn accounted(facts: &Facts, found: &mut [Found]) {
    let Some(account) = &facts.account else {
        return;
    };
    for one in found {
        if let Some(time) = growth(facts, account, one) {
            one.growth = Some(time);
        }
    }
}

/// What lines take more that a finding speaks of; `None` of one that no line is of.
fn growth(facts: &Facts, account: &Account, found: &Found) -> Option<Nanoseconds> {
    let kernels = || found.finding.facts.iter().filter_map(kernel);
    Some(match found.finding.cause {
        Cause::CopiesAdded => added(account, true),
        Cause::LaunchesAdded => added(account, false),
        Cause::KernelReplaced => account.growth(|item| matches!(item, Item::InPlace { .. })),
        // Whatever a kernel is launched with follows from its configuration.
        Cause::TunerChose => account.growth(|item| match item {
            Item::Longer { changes, .. } => !changes.is_empty(),
            item => matches!(item, Item::InPlace { .. }),
        }),
        // Of the host's own time it is all, and no line of it.
        Cause::HostBound if facts.clock == Clock::Host => return None,
        Cause::HostBound => account.growth(|item| *item == Item::Waiting),
        // What a wait or the driver costs is told where the clock holds it, and then it is the
        // device's waiting.
        Cause::Synchronisation | Cause::DriverMemory => {
            let waiting = account.growth(|item| *item == Item::Waiting);
            return (waiting > Nanoseconds::ZERO).then_some(waiting);
        }
        Cause::Gaps => account.growth(|item| matches!(item, Item::Gaps | Item::Starts { .. })),
        Cause::LowerClock | Cause::HigherClock => {
            account.growth(|item| matches!(item, Item::Clock { .. }))
        }
        Cause::LessParallel | Cause::Spills | Cause::Recompiled | Cause::SameLaunch => {
            let names: Vec<String> = kernels().map(plain).collect();
            let of = |item: &Item| match item {
                Item::Longer { what, .. } => names.contains(&plain(what)),
                _ => false,
            };
            return (!names.is_empty()).then(|| account.growth(of));
        }
        Cause::MoreInstructions => by_work(account, facts.ns.base?),
        _ => return None,
    })
}

/// How much more a kernel executes than it did, where that is more.
pub fn more_work(item: &Item) -> Option<Share> {
    match item {
        // Beyond a thousandth: less explains no time.
        Item::Longer { executes, .. } => executes.filter(|more| more.0 > 0.001),
        _ => None,
    }
}

/// What kernels take longer that execute more, as far as what they execute grew: no kernel of a
/// call takes longer than the whole of it.
fn by_work(account: &Account, call: Nanoseconds) -> Nanoseconds {
    let lines = account.lines.iter().filter_map(|line| {
        let most = call * more_work(&line.item)?.0;
        Some(Nanoseconds(line.growth_ns.0.min(most.0)))
    });
    lines.sum()
}

fn kernel(fact: &Fact) -> Option<&str> {
    match fact {
        Fact::Launch { kernel, .. } => Some(kernel),
        _ => None,
    }
}

/// Operations that were added, and their part of what starting more of them takes.
fn added(account: &Account, moving: bool) -> Nanoseconds {
    let (mut time, mut of_it, mut all) = (Nanoseconds::ZERO, 0, 0);
    let mut starts = Nanoseconds::ZERO;
    for line in &account.lines {
        match &line.item {
            Item::Added { count, moves, .. } => {
                all += count;
                if *moves == moving {
                    of_it += count;
                    time += line.growth_ns;
                }
            }
            Item::InPlace { count, .. } => all += count.head.saturating_sub(count.base),
            Item::Starts {
                count: Sides { base, head },
            } if head > base => starts += line.growth_ns,
            _ => {}
        }
    }
    match all {
        0 => time,
        all => time + starts * (f64::from(of_it) / f64::from(all)),
    }
}
