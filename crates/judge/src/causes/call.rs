//! What two records of one case tell of a call, and what of a change each finding accounts for:
//! lines of the account that it speaks of.

use std::borrow::Cow;
use std::cell::OnceCell;

use super::facts::Clock;
use super::facts::{Facts, Found, Pair, Source, Waits};
use crate::account::{Asked, account, of_host};
use crate::judgement::{Account, Cause, Difference, Item};
use crate::structure;
use regatta_core::machine::{ActivitySummary, KernelChange, Sides, Structure, of_calls, plain};
use regatta_core::record::side::CaseRecord;
use regatta_core::suite::rules::Metric;
use regatta_core::suite::rules::Policy;
use regatta_worker::units::{Nanoseconds, Share};

impl<'a> Pair<'a> {
    /// The two records as the rules see them.
    pub fn facts(&'a self) -> Facts<'a> {
        let structures = self
            .base
            .structure
            .as_ref()
            .zip(self.head.structure.as_ref());
        let kernels = structures.map(|(base, head)| of_calls(base, head, self.sms));
        let kernels = kernels.unwrap_or_default();
        Facts {
            account: self.account(&kernels),
            source: Source::Call(self),
            clock: self.clock,
            ns: Sides::of(self.base_ns, self.head_ns),
            ratio: self.ratio,
            threshold: self.threshold,
            host_ns: self.medians(Metric::Host),
            waits: self
                .activities()
                .map(|sides| sides.map(|activity| waits(activity))),
            kernels: Cow::Owned(kernels),
            same_structure: OnceCell::new(),
        }
    }

    /// Where the change of the time that is judged went, where both sides tell.
    fn account(&self, kernels: &[KernelChange]) -> Option<Account> {
        let times = Sides::both(self.base_ns, self.head_ns)?;
        let none = |record: &CaseRecord| record.division.is_none();
        // On a processor the host does the work that is timed.
        if self.clock == Clock::Host || (self.clock == Clock::Wall && none(self.base)) {
            return of_host(times, self.activities()?);
        }
        let division = |record: &'a CaseRecord| record.division.as_deref();
        let counters = |record: &'a CaseRecord| record.counters.as_deref();
        Some(account(&Asked {
            times,
            divisions: Sides::both(division(self.base), division(self.head))?,
            holds_host: Sides::of(self.base_clock.holds_host(), self.clock.holds_host()),
            host: self.medians(Metric::Host),
            mhz: self.clock_mhz(),
            counters: Sides::both(counters(self.base), counters(self.head)),
            kernels,
        }))
    }

    /// The medians of the device's clock, where both sides read it.
    pub fn clock_mhz(&self) -> Option<Sides<f64>> {
        let [base, head] = [self.base, self.head]
            .map(|record| regatta_core::record::side::median(&record.clock_mhz));
        Sides::both(base, head)
    }

    /// The medians of a metric of both sides.
    pub fn values(&self, metric: Metric) -> Option<Sides<f64>> {
        Sides::both(self.base.median(metric), self.head.median(metric))
    }

    /// The medians of a time of both sides.
    pub fn medians(&self, metric: Metric) -> Option<Sides<Nanoseconds>> {
        let values = self.values(metric)?;
        Some(values.map(|ns| Nanoseconds(*ns)))
    }

    /// What the device did in one call of each, where both are known.
    pub fn activities(&self) -> Option<Sides<&'a ActivitySummary>> {
        Sides::both(self.base.activity.as_ref(), self.head.activity.as_ref())
    }

    /// True when no exact figure of the two structures, whose launches compare as `kernels`
    /// say, differs, or both are unknown.
    pub fn same_structure(&self, kernels: &[KernelChange]) -> bool {
        let (base, head) = (
            self.base.structure.as_deref(),
            self.head.structure.as_deref(),
        );
        let launches = |side: Option<&Structure>| side.map(|s| s.launches.is_empty());
        if launches(base) != launches(head) {
            return false;
        }
        let pair = structure::Structures {
            case: "",
            base: self.base,
            head: self.head,
            sms: self.sms,
            policy: &Policy::default(),
        };
        match structure::changes_of(&pair, kernels) {
            Some(changes) => changes.is_empty(),
            None => base.is_none() && head.is_none(),
        }
    }
}

fn waits(activity: &ActivitySummary) -> Waits {
    Waits {
        idle_ns: Nanoseconds::whole(activity.time.idle_ns()),
        host_bound_ns: activity.time.host_bound_ns.map(Nanoseconds::whole),
        span_ns: Nanoseconds::whole(activity.time.span_ns),
    }
}

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
            let kernels = found.finding.differences().filter_map(Difference::kernel);
            let names: Vec<String> = kernels.map(plain).collect();
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
