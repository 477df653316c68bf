//! The facts about a change, from two records of a case or from two traces.

use std::borrow::Cow;

use crate::account::{AccountInputs, account, of_host};
use crate::judgement::{Account, Cause, Difference, Fact, Finding, Item, Mismatch};
use crate::structure;
use regatta_core::machine::{
    ActivitySummary, KernelChange, Scope, SideFigures, Sides, Structure, of_calls, plain,
};
use regatta_core::record::{CaseRecord, RunHeader, WorkerRecord, median};
use regatta_core::suite::Metric;
use regatta_worker::case::{Case, CaseId};
use regatta_worker::units::{Nanoseconds, Ratio, Share};

/// The share of a slowdown that a cause must account for to explain it.
pub const EXPLAINS: f64 = 0.5;

/// The largest number of kernels that a finding of a trace names; one of a call names all.
pub const MAX_NAMED: usize = 3;

/// Two records of one case, and the facts around them that rules use.
pub struct Pair<'a> {
    /// The base's record.
    pub base: &'a CaseRecord,
    /// The head's record.
    pub head: &'a CaseRecord,
    /// The judged time of the base.
    pub base_ns: Option<Nanoseconds>,
    /// The judged time of the head.
    pub head_ns: Option<Nanoseconds>,
    /// The clock that took the base's times.
    pub base_clock: TimeSource,
    /// The clock that took the head's times.
    pub clock: TimeSource,
    /// Head over base, including any effect of the machine.
    pub ratio: Ratio,
    /// The smallest change that counts.
    pub threshold: Share,
    /// The versions of the case's worker that differ.
    pub versions: Vec<&'a Mismatch>,
    /// The number of multiprocessors of the device, where it is a GPU that reports it.
    pub sms: Option<u32>,
    /// The number of cores that the head's workers could use.
    pub cores: Option<u32>,
    /// True if an exact figure of the structures differs; `None` if they were not compared.
    pub restructured: Option<bool>,
}

/// The source of facts, for those that only one kind of source knows.
#[derive(Clone, Copy)]
pub enum FactSource<'a> {
    /// Counts of a single call; its times come from many calls.
    Call(&'a Pair<'a>),
    /// Two programs under a profiler, which recorded when each launch ran and for how long.
    Trace(&'a Sides<SideFigures>, Scope),
}

/// A change, in the form that the rules read.
pub struct Facts<'a> {
    /// The source of these facts.
    pub source: FactSource<'a>,
    /// The clock that took the judged times.
    pub clock: TimeSource,
    /// The judged times; for a trace, the elapsed time.
    pub ns: Sides<Option<Nanoseconds>>,
    /// Head over base, including any effect of the machine.
    pub ratio: Ratio,
    /// The smallest change that counts.
    pub threshold: Share,
    /// The host's time to issue a call, where it was measured.
    pub host_ns: Option<Sides<Nanoseconds>>,
    /// Idle time of the device, where it is known.
    pub waits: Option<Sides<Waits>>,
    /// The kernels of both sides. Those of a call have no times, and none of them is `Replaced`.
    pub kernels: Cow<'a, [KernelChange]>,
    /// The breakdown of the change in time, if it is known.
    pub account: Option<Account>,
}

/// The time in which a device was idle between its operations.
#[derive(Clone, Copy)]
pub struct Waits {
    /// The whole idle time.
    pub idle_ns: Nanoseconds,
    /// The part in which it waited for the host, where launches are known.
    pub host_bound_ns: Option<Nanoseconds>,
    /// The elapsed time that contains the idle time.
    pub span_ns: Nanoseconds,
}

impl<'a> Facts<'a> {
    /// The facts of two traces.
    pub fn of_traces(
        sides: &'a Sides<SideFigures>,
        scope: Scope,
        kernels: &'a [KernelChange],
        account: Option<Account>,
        threshold: Share,
    ) -> Facts<'a> {
        let waits = |side: &SideFigures| Waits {
            idle_ns: side.idle_ns,
            host_bound_ns: side.host_bound_ns,
            span_ns: side.elapsed_ns,
        };
        Facts {
            source: FactSource::Trace(sides, scope),
            clock: TimeSource::Wall,
            ns: sides.map(|side| Some(side.elapsed_ns)),
            ratio: sides.ratio(|side| side.elapsed_ns),
            threshold,
            host_ns: None,
            waits: Some(sides.map(waits)),
            kernels: Cow::Borrowed(kernels),
            account,
        }
    }

    /// The two records, if calls are compared.
    pub fn call(&self) -> Option<&'a Pair<'a>> {
        match self.source {
            FactSource::Call(pair) => Some(pair),
            FactSource::Trace(..) => None,
        }
    }

    /// The two structures, if calls are compared and both were counted.
    pub fn structures(&self) -> Option<(&'a Structure, &'a Structure)> {
        let pair = self.call()?;
        pair.base
            .structure
            .as_deref()
            .zip(pair.head.structure.as_deref())
    }

    /// True for two calls if no exact figure of their structures differs, or both structures are
    /// unknown.
    pub fn same_structure(&self) -> bool {
        let Some(pair) = self.call() else {
            return false;
        };
        let [base, head] = [pair.base, pair.head].map(|side| side.structure.as_deref());
        let none_launched =
            |side: Option<&Structure>| side.map(|structure| structure.launches.is_empty());
        let unknown = base.is_none() && head.is_none();
        none_launched(base) == none_launched(head)
            && pair.restructured.map_or(unknown, |differs| !differs)
    }

    /// The figures of both traces, if traces are compared.
    pub fn traces(&self) -> Option<&'a Sides<SideFigures>> {
        match self.source {
            FactSource::Call(_) => None,
            FactSource::Trace(sides, _) => Some(sides),
        }
    }

    /// The unit of counts and times, as text.
    pub fn each(&self) -> &'static str {
        match self.source {
            FactSource::Call(_) => "a call",
            FactSource::Trace(_, Scope::Repetition) => "a repetition",
            FactSource::Trace(_, Scope::Whole) => "in all",
        }
    }

    /// A count of both sides; `None` where one of them does not report it.
    pub fn count(&self, name: &str) -> Option<Sides<f64>> {
        match self.source {
            FactSource::Call(pair) => {
                let count = |record| Some(structure::count(record, name)? as f64);
                Sides::both(count(pair.base), count(pair.head))
            }
            FactSource::Trace(sides, _) => {
                let count = |side: &SideFigures| side.calls.get(name).copied();
                Sides::both(count(&sides.base), count(&sides.head))
            }
        }
    }

    /// The difference of a count, as a fact.
    pub fn counted(&self, name: &str, count: Sides<f64>) -> Fact {
        Difference::count(name, count, self.each()).into()
    }

    /// A count of both sides, if the head's is larger by 0.5 or more. Means over a program whose
    /// repetitions differ may grow by less without a cause.
    pub fn more(&self, name: &str) -> Option<Sides<f64>> {
        self.count(name).filter(|count| count.growth() >= 0.5)
    }

    /// True if the time changed beyond the threshold, so that conditions of the machine are worth
    /// reporting.
    pub fn moved(&self) -> bool {
        let limit = Ratio::grown_by(self.threshold);
        self.ratio > limit || self.ratio < limit.inverse()
    }

    /// True if the judged time is the device's, not the host's.
    pub fn of_device(&self) -> bool {
        self.clock != TimeSource::Host
    }

    /// The growth of the judged time, if the head is slower beyond the threshold.
    pub fn slower_by(&self) -> Option<Nanoseconds> {
        let more = self.ns.head? - self.ns.base?;
        (self.moved() && more > Nanoseconds::ZERO).then_some(more)
    }

    /// True if `time` accounts for at least half of the slowdown.
    pub fn explained_by(&self, time: Nanoseconds) -> bool {
        let slower = self.slower_by();
        slower.is_some_and(|slower| time >= slower * EXPLAINS)
    }

    /// The order of a cause that costs host time: `inside` if the judged time includes the host,
    /// else `behind_a_gate`.
    pub fn if_host(&self, inside: f64, behind_a_gate: f64) -> f64 {
        if self.clock.holds_host() {
            inside
        } else {
            behind_a_gate
        }
    }
}

/// A finding, with the values that decide its place in the list.
pub struct Found {
    /// The finding that is reported.
    pub finding: Finding,
    /// The nearness to the root cause, in 0..=1. Of two findings that account for the same time,
    /// the nearer one comes first. Not reported.
    pub order: f64,
    /// The part of the growth that the finding accounts for, negative for a gain; `None` if
    /// unknown.
    pub growth: Option<Nanoseconds>,
    /// True if the finding is a loss regardless of the times.
    pub worse: bool,
}

impl Found {
    /// A finding whose time is not known.
    pub fn new(cause: Cause, facts: Vec<Fact>, order: f64) -> Found {
        Found {
            finding: Finding::new(cause, facts),
            order,
            growth: None,
            worse: false,
        }
    }

    /// A finding whose time is not known; `None` without facts.
    pub fn resting_on(cause: Cause, facts: Vec<Fact>, order: f64) -> Option<Found> {
        (!facts.is_empty()).then(|| Found::new(cause, facts, order))
    }

    /// Sets the part of the growth that it accounts for.
    pub fn growing(mut self, time: Nanoseconds) -> Found {
        self.growth = Some(time);
        self
    }

    /// Sets whether the finding is a loss regardless of the times.
    pub fn worse(mut self, worse: bool) -> Found {
        self.worse = worse;
        self
    }
}

/// The clock that took the judged times. A cause must be visible to that clock: waits of the device
/// for the host in a recorded call do not explain a time that never includes such waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSource {
    /// Device events around work that was queued behind a gate, so that the time includes neither
    /// the host nor the device's waits for it.
    Gated,
    /// Device events while the host issues the call: the time includes the device's waits for a
    /// late host.
    Events,
    /// A host clock around the whole call.
    Wall,
    /// The host's time to issue the call, where that is the judged metric.
    Host,
}

impl TimeSource {
    /// The clock of a case of a run. A call that itself waits for the device makes the worker open
    /// the gate, and is then timed by plain events.
    pub fn of_case(header: &RunHeader, id: &CaseId, record: &CaseRecord) -> TimeSource {
        let Ok(case) = id.case() else {
            return TimeSource::Events;
        };
        let worker = header.worker_of(&case);
        match worker.map_or(TimeSource::Events, |worker| TimeSource::read(worker, &case)) {
            TimeSource::Gated if record.conditions.synchronised > 0 => TimeSource::Events,
            clock => clock,
        }
    }

    /// Parses the worker's description of its clock: `probe 0.2` is the gated clock of the probe,
    /// `wall` a clock of the host, anything else plain events. A part such as `queued: probe 0.2`
    /// after a semicolon applies to the cases that have the word `queued` as the value of a
    /// parameter.
    fn read(worker: &WorkerRecord, case: &Case) -> TimeSource {
        let Some(text) = worker.versions.get("clock") else {
            return if worker.runs_on_processor() {
                TimeSource::Wall
            } else {
                TimeSource::Events
            };
        };
        let mut parts = text.split(';').map(str::trim);
        let usual = parts.next().unwrap_or_default();
        let named = parts
            .filter_map(|part| part.split_once(':'))
            .find(|(word, _)| {
                let mut params = case.params.iter();
                params.any(|(_, value)| value.to_string() == word.trim())
            });
        let clock = named.map_or(usual, |(_, clock)| clock.trim());
        match clock.split_whitespace().next() {
            Some("probe") => TimeSource::Gated,
            Some("wall") => TimeSource::Wall,
            _ => TimeSource::Events,
        }
    }

    /// True if the times include the host, or the device's waits for it.
    pub fn holds_host(self) -> bool {
        self != TimeSource::Gated
    }
}

impl<'a> Pair<'a> {
    /// Collects the facts that the rules read.
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
            source: FactSource::Call(self),
            clock: self.clock,
            ns: Sides::new(self.base_ns, self.head_ns),
            ratio: self.ratio,
            threshold: self.threshold,
            host_ns: self.medians(Metric::Host),
            waits: self
                .activities()
                .map(|sides| sides.map(|activity| waits(activity))),
            kernels: Cow::Owned(kernels),
        }
    }

    /// The breakdown of the change in the judged time, if both sides have one.
    fn account(&self, kernels: &[KernelChange]) -> Option<Account> {
        let times = Sides::both(self.base_ns, self.head_ns)?;
        let undivided = |record: &CaseRecord| record.division.is_none();
        // On a CPU the host does the timed work.
        if self.clock == TimeSource::Host
            || (self.clock == TimeSource::Wall && undivided(self.base))
        {
            return of_host(times, self.activities()?);
        }
        let division = |record: &'a CaseRecord| record.division.as_deref();
        let counters = |record: &'a CaseRecord| record.counters.as_deref();
        Some(account(&AccountInputs {
            times,
            divisions: Sides::both(division(self.base), division(self.head))?,
            holds_host: Sides::new(self.base_clock.holds_host(), self.clock.holds_host()),
            host: self.medians(Metric::Host),
            mhz: self.clock_mhz(),
            counters: Sides::both(counters(self.base), counters(self.head)),
            kernels,
        }))
    }

    /// The median clock frequency of the device on each side, where both sides read it.
    pub fn clock_mhz(&self) -> Option<Sides<f64>> {
        let [base, head] = [self.base, self.head].map(|record| median(&record.clock_mhz));
        Sides::both(base, head)
    }

    /// The medians of a metric on both sides.
    pub fn values(&self, metric: Metric) -> Option<Sides<f64>> {
        Sides::both(self.base.median(metric), self.head.median(metric))
    }

    /// The medians of a metric that is a time, on both sides.
    pub fn medians(&self, metric: Metric) -> Option<Sides<Nanoseconds>> {
        let values = self.values(metric)?;
        Some(values.map(|ns| Nanoseconds(*ns)))
    }

    /// The activity of one call on each side, if both are known.
    pub fn activities(&self) -> Option<Sides<&'a ActivitySummary>> {
        Sides::both(self.base.activity.as_ref(), self.head.activity.as_ref())
    }
}

fn waits(activity: &ActivitySummary) -> Waits {
    Waits {
        idle_ns: Nanoseconds::whole(activity.time.idle_ns()),
        host_bound_ns: activity.time.host_bound_ns.map(Nanoseconds::whole),
        span_ns: Nanoseconds::whole(activity.time.span_ns),
    }
}

/// Sets the time of each finding from the account, if there is one.
pub fn accounted(facts: &Facts, candidates: &mut [Found]) {
    let Some(account) = &facts.account else {
        return;
    };
    for one in candidates {
        if let Some(time) = growth(facts, account, one) {
            one.growth = Some(time);
        }
    }
}

/// The growth of the lines that a finding is about; `None` without such lines.
fn growth(facts: &Facts, account: &Account, candidate: &Found) -> Option<Nanoseconds> {
    Some(match candidate.finding.cause {
        Cause::CopiesAdded => added(account, true),
        Cause::LaunchesAdded => added(account, false),
        Cause::KernelReplaced => account.growth(|item| matches!(item, Item::InPlace { .. })),
        // All launch figures of a kernel follow from its tuned configuration.
        Cause::TunerChose => account.growth(|item| match item {
            Item::Longer { changes, .. } => !changes.is_empty(),
            item => matches!(item, Item::InPlace { .. }),
        }),
        // It explains a host time as a whole, and has no line of its own.
        Cause::HostBound if facts.clock == TimeSource::Host => return None,
        Cause::HostBound => account.growth(|item| *item == Item::Waiting),
        // Waits and driver calls count only if the clock includes them, and then as the
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
            let kernels = candidate.finding.differences.iter();
            let kernels = kernels.filter_map(Difference::kernel);
            let names: Vec<String> = kernels.map(plain).collect();
            let concerns = |item: &Item| match item {
                Item::Longer { what, .. } => names.contains(&plain(what)),
                _ => false,
            };
            return (!names.is_empty()).then(|| account.growth(concerns));
        }
        Cause::MoreInstructions => by_work(account, facts.ns.base?),
        _ => return None,
    })
}

/// The growth of the executed instructions of a line's kernel, if it executes more than before.
pub fn more_work(item: &Item) -> Option<Share> {
    match item {
        // A thousandth more instructions, or less, explains no time.
        Item::Longer { executes, .. } => executes.filter(|more| more.0 > 0.001),
        _ => None,
    }
}

/// The time of executing more instructions: the growth of the kernels that do, each limited to the
/// call's time times the growth of its instructions, since no kernel takes longer than the whole
/// call.
fn by_work(account: &Account, call: Nanoseconds) -> Nanoseconds {
    let lines = account.lines.iter().filter_map(|line| {
        let most = call * more_work(&line.item)?.0;
        Some(Nanoseconds(line.growth_ns.0.min(most.0)))
    });
    lines.sum()
}

/// The time of added operations that move data, or of those that do not, with their part of the
/// time for starting more operations.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{around, header};

    fn clock(kind: &str, text: Option<&str>, case: &str, synchronised: u32) -> TimeSource {
        let mut header = header();
        header.workers[0].device_kind = kind.to_owned();
        if let Some(text) = text {
            let versions = &mut header.workers[0].versions;
            versions.insert("clock".to_owned(), text.to_owned());
        }
        let mut record = around(1.0);
        record.conditions.synchronised = synchronised;
        TimeSource::of_case(&header, &CaseId(case.into()), &record)
    }

    #[test]
    fn the_workers_record_says_what_took_its_times() {
        let plain = "cpu/flash:s64,d64";
        assert_eq!(
            clock("cuda", Some("probe 0.2"), plain, 0),
            TimeSource::Gated
        );
        assert_eq!(
            clock("cuda", Some("probe 0.2"), plain, 2),
            TimeSource::Events
        );
        assert_eq!(clock("cuda", Some("events"), plain, 0), TimeSource::Events);
        assert_eq!(clock("cuda", Some("wall"), plain, 0), TimeSource::Wall);
        assert_eq!(clock("cuda", Some("sundial"), plain, 0), TimeSource::Events);
        assert_eq!(clock("cuda", None, plain, 0), TimeSource::Events);
        assert_eq!(clock("cpu", None, plain, 0), TimeSource::Wall);
        assert_eq!(
            clock("cuda", Some("probe 0.2"), "xla/a:s64,d64", 0),
            TimeSource::Events
        );
    }

    #[test]
    fn a_parameter_may_choose_the_clock() {
        let text = Some("events once all ranks are idle; queued: probe 0.2");
        let case = |start: &str| format!("cpu/fused:s64,d64:{start}");
        assert_eq!(
            clock("cuda", text, "cpu/fused:s64,d64", 0),
            TimeSource::Events
        );
        assert_eq!(
            clock("cuda", text, &case("start=idle"), 0),
            TimeSource::Events
        );
        assert_eq!(
            clock("cuda", text, &case("start=queued"), 0),
            TimeSource::Gated
        );
    }
}
