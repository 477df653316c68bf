//! What two records of one case tell of a call.

use std::borrow::Cow;
use std::cell::OnceCell;

use super::clock::Clock;
use super::facts::{Facts, Pair, Source, Waits};
use crate::account::{Asked, account, of_host};
use crate::complete::median_ns;
use crate::judgement::Account;
use crate::structure;
use regatta_core::machine::{ActivitySummary, KernelChange, Sides, Structure, of_calls};
use regatta_core::record::side::CaseRecord;
use regatta_core::suite::structural::StructurePolicy;
use regatta_worker::units::Nanoseconds;

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
            floor: self.floor,
            host_ns: self.medians(|record| &record.host_ns),
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
            host: self.medians(|record| &record.host_ns),
            mhz: self.clock_mhz(),
            counters: Sides::both(counters(self.base), counters(self.head)),
            kernels,
        }))
    }

    /// The medians of the device's clock, where both sides read it.
    pub fn clock_mhz(&self) -> Option<Sides<f64>> {
        let [base, head] = [self.base, self.head].map(|record| median_ns(&record.clock_mhz));
        Sides::both(base, head)
    }

    /// The medians of times of both sides.
    pub fn medians(
        &self,
        times: fn(&CaseRecord) -> &Vec<Nanoseconds>,
    ) -> Option<Sides<Nanoseconds>> {
        Sides::both(median_ns(times(self.base)), median_ns(times(self.head)))
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
        let pair = structure::Pair {
            case: "",
            base: self.base,
            head: self.head,
            sms: self.sms,
            policy: &StructurePolicy::default(),
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
