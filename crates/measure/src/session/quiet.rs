//! Quiet ground: what the machine did around a case's samples, and taking them again where it
//! was in them.

use std::collections::VecDeque;
use std::time::Duration;

use crate::counters::{Counters, Watch, ground};
use regatta_core::record::disturbance::Ground;
use regatta_core::record::disturbance::{self, Disturbance, FOREIGN};
use regatta_core::record::types::{Again, Measurement};
use regatta_core::suite::Settings;
use regatta_worker::protocol::{Device, DeviceKind};
use regatta_worker::units::Nanoseconds;

/// The machine counts in ticks of 10 ms: over less than this, they tell little. Where samples
/// took less, the time before them is looked at too.
const LEAST: Duration = Duration::from_millis(500);

/// What is waited for quiet ground before one more try, at the most.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Who looks at the machine, and what was seen lately.
pub(super) struct Quiet {
    watch: Box<dyn Watch>,
    looks: VecDeque<Counters>,
    /// What was spent on taking samples again.
    spent: Nanoseconds,
}

/// Samples of one case in one invocation that were taken, and thrown away.
#[derive(Default)]
pub(super) struct Tries {
    before: Option<Again>,
    /// When the last ones were there.
    since: Nanoseconds,
}

impl Quiet {
    pub(super) fn new(watch: Box<dyn Watch>) -> Quiet {
        Quiet {
            watch,
            looks: VecDeque::new(),
            spent: Nanoseconds::ZERO,
        }
    }

    /// Looks, and forgets what lies further back than will be asked for.
    pub(super) fn look(&mut self) -> Option<Counters> {
        let now = self.watch.look()?;
        let old = |look: &Counters| now.at_ns - look.at_ns >= LEAST.into();
        while self.looks.get(1).is_some_and(old) {
            self.looks.pop_front();
        }
        self.looks.push_back(now.clone());
        Some(now)
    }

    /// What the processor did since a look, and for so long before as it takes to tell, where
    /// the worker runs on it.
    pub(super) fn since(&mut self, began: Option<&Counters>, device: &Device) -> Option<Ground> {
        let began = began.filter(|_| on_processor(device))?;
        let now = self.look()?;
        let long = |look: &&Counters| now.at_ns - look.at_ns >= LEAST.into();
        if let Some(before) = self.looks.iter().rev().find(long) {
            return Some(ground(before, began, &now));
        }
        // The first case of all: what comes after is as good as what came before.
        let first = self.looks.front()?.clone();
        let short = now.at_ns - first.at_ns;
        self.watch.rest(Duration::from_nanos(
            (LEAST.as_nanos() as f64 - short.0).max(0.0) as u64,
        ));
        let waited = ground(&first, began, &now).waited;
        let later = self.look()?;
        Some(Ground {
            waited,
            ..ground(&first, &first, &later)
        })
    }

    /// True when the machine was in what has passed since a look.
    pub(super) fn disturbed_since(&mut self, began: Option<&Counters>, device: &Device) -> bool {
        let ground = began.filter(|_| on_processor(device)).and_then(|began| {
            let now = self.look()?;
            let long = |look: &&Counters| now.at_ns - look.at_ns >= LEAST.into();
            let before = self.looks.iter().rev().find(long)?;
            Some(ground(before, began, &now))
        });
        ground.is_some_and(|ground| !disturbance::of_processor(&ground).is_empty())
    }

    /// Says of these samples what of the machine was in them, and whether they are to be taken
    /// again: so often and for so long as the suite says. It has waited for quiet ground then.
    /// Where that does not help, the last samples are kept, and say so.
    pub(super) fn again(
        &mut self,
        found: &mut Measurement,
        device: &Device,
        settings: &Settings,
        tries: &mut Tries,
        now: Nanoseconds,
    ) -> bool {
        if tries.before.is_some() {
            self.spent += now - tries.since;
        }
        tries.since = now;
        found.disturbed = disturbed(device, found.ground.as_deref(), found);
        found.again.clone_from(&tries.before);
        let taken = tries.before.as_ref().map_or(0, |again| again.tries);
        let most = Nanoseconds(f64::from(settings.remeasure_s) * 1e9);
        let may = settings.wants_quiet() && taken < settings.remeasure && self.spent < most;
        if found.disturbed.is_empty() || !may {
            return false;
        }
        let seen = tries.before.iter().flat_map(|again| &again.by);
        tries.before = Some(Again {
            tries: taken + 1,
            by: disturbance::worst(seen.chain(&found.disturbed)),
        });
        self.wait(device);
        true
    }

    /// Waits until nobody else has the cores, or for so long that it makes no difference.
    fn wait(&mut self, device: &Device) {
        if !on_processor(device) {
            self.watch.rest(2 * LEAST);
            return;
        }
        for _ in 0..LONGEST_WAIT.as_millis() / LEAST.as_millis() {
            let Some(before) = self.look() else {
                return;
            };
            self.watch.rest(LEAST);
            let Some(now) = self.look() else {
                return;
            };
            let foreign = ground(&before, &before, &now).foreign;
            if foreign.is_none_or(|cores| cores < FOREIGN) {
                return;
            }
        }
    }
}

fn on_processor(device: &Device) -> bool {
    device.known_kind() == Some(DeviceKind::Cpu)
}

/// What of the machine was in these samples.
pub(super) fn disturbed(
    device: &Device,
    ground: Option<&Ground>,
    found: &Measurement,
) -> Vec<Disturbance> {
    match on_processor(device) {
        true => ground.map(disturbance::of_processor).unwrap_or_default(),
        false => {
            let state = found.state.as_deref();
            state.map(disturbance::of_gpu).unwrap_or_default()
        }
    }
}
