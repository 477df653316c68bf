//! Idle time between the operations of a call, on both sides, as evidence.

use super::{EXPLAINS, Pair};
use crate::attention::ActivitySummary;
use crate::judge::phrase::{from_to, percent, time};

/// What the activities of both sides tell of idle time.
pub struct Idle<'a> {
    base: &'a ActivitySummary,
    head: &'a ActivitySummary,
}

impl<'a> Idle<'a> {
    /// Idle time that grew; `None` where it did not, or a side's activity is not known.
    pub fn grown(pair: &Pair<'a>) -> Option<Idle<'a>> {
        let (base, head) = pair.activities()?;
        (head.idle_ns() > base.idle_ns()).then_some(Idle { base, head })
    }

    /// True when it explains what a call takes longer.
    pub fn explains(&self, pair: &Pair) -> bool {
        let growth = (self.head.idle_ns() - self.base.idle_ns()) as f64;
        pair.slower_by()
            .is_some_and(|slower| growth >= EXPLAINS * slower)
    }

    /// True when at least half of the growth is waiting for the host; `None` where launches
    /// are not known.
    pub fn is_the_hosts(&self) -> Option<bool> {
        let (before, after) = (self.base.host_bound_ns?, self.head.host_bound_ns?);
        let growth = self.head.idle_ns() - self.base.idle_ns();
        Some(2 * after.saturating_sub(before) >= growth)
    }

    /// `device idle between launches 3.00 → 210 µs of 267 µs, 88.0 % of it waiting for the
    /// host`. The call was recorded, which stretches it.
    pub fn told(&self) -> String {
        let (before, after) = (self.base.idle_ns(), self.head.idle_ns());
        let waiting = self.head.host_bound_ns.map(|ns| {
            let share = match ns {
                0 => "none".to_owned(),
                ns => percent(ns as f64 / after.max(1) as f64),
            };
            format!(", {share} of it waiting for the host")
        });
        format!(
            "device idle between launches {} of {}{}",
            from_to(before as f64, after as f64),
            time(self.head.span_ns as f64),
            waiting.unwrap_or_default()
        )
    }
}
