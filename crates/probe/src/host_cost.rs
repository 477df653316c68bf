//! What a sample costs the host, step by step: how long a sweep takes is decided by it
//! as soon as the kernels are short.

use crate::Result;
use crate::clock::{Clock, Device, Mark};
use crate::gate::Word;
use crate::sample::Cache;
use std::sync::Arc;

/// The steps of a sample that the host spends time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Queueing the flush.
    Flush,
    /// Waiting for the device: for the flush, and for what was behind the gate.
    Synchronise,
    /// Queueing the wait that closes the gate.
    Gate,
    /// Launching kernels that do nothing: the run-up.
    NullKernels,
    /// Recording both events.
    Record,
    /// Reading the events.
    Elapsed,
    /// Reading the clock of the SMs.
    SmClock,
}

impl Step {
    /// All of them, in the order of a sample.
    pub const ALL: [Self; 7] = [
        Self::Flush,
        Self::Synchronise,
        Self::Gate,
        Self::NullKernels,
        Self::Record,
        Self::Elapsed,
        Self::SmClock,
    ];

    /// Its name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Synchronise => "synchronise",
            Self::Gate => "gate",
            Self::NullKernels => "kernels",
            Self::Record => "events",
            Self::Elapsed => "elapsed",
            Self::SmClock => "sm clock",
        }
    }
}

/// Host time of one sample of a call that does nothing, in nanoseconds; medians.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostCost {
    /// The whole sample.
    pub total_ns: f64,
    /// All but flushing, and waiting for the flush and for the sample's own work, which
    /// any harness needs: `total_ns` less `bare_ns` and the last wait of a sample.
    pub beside_ns: f64,
    /// Flushing and waiting for it, and nothing else.
    pub bare_ns: f64,
    /// Each step, in the order of [`Step::ALL`].
    pub steps_ns: [f64; Step::ALL.len()],
}

/// A device that notes how long the host is in each of its functions.
pub struct Metered<D> {
    device: D,
    spent_ns: [u64; Step::ALL.len()],
    last_wait_ns: u64,
}

impl<D: Device> Metered<D> {
    /// Around a device.
    pub fn new(device: D) -> Self {
        Self {
            device,
            spent_ns: [0; Step::ALL.len()],
            last_wait_ns: 0,
        }
    }

    fn noting<T>(&mut self, step: Step, work: impl FnOnce(&mut D) -> T) -> T {
        let begin = self.device.host_ns();
        let result = work(&mut self.device);
        self.spent_ns[step as usize] += self.device.host_ns() - begin;
        result
    }
}

impl<D: Device> Device for Metered<D> {
    fn word(&self) -> Arc<dyn Word> {
        self.device.word()
    }

    fn flush(&mut self) -> Result<()> {
        self.noting(Step::Flush, D::flush)
    }

    fn synchronise(&mut self) -> Result<()> {
        let before = self.spent_ns[Step::Synchronise as usize];
        let waited = self.noting(Step::Synchronise, D::synchronise);
        self.last_wait_ns = self.spent_ns[Step::Synchronise as usize] - before;
        waited
    }

    fn wait(&mut self, ticket: u32) -> Result<()> {
        self.noting(Step::Gate, |device| device.wait(ticket))
    }

    fn record(&mut self, mark: Mark) -> Result<()> {
        self.noting(Step::Record, |device| device.record(mark))
    }

    fn reach(&mut self, mark: Mark) -> Result<()> {
        self.noting(Step::Synchronise, |device| device.reach(mark))
    }

    fn elapsed_ns(&mut self) -> Result<f64> {
        self.noting(Step::Elapsed, D::elapsed_ns)
    }

    fn host_ns(&mut self) -> u64 {
        self.device.host_ns()
    }

    fn clock_mhz(&mut self) -> Option<f64> {
        self.noting(Step::SmClock, D::clock_mhz)
    }

    fn null_kernel(&mut self) -> Result<bool> {
        self.noting(Step::NullKernels, D::null_kernel)
    }
}

/// Takes samples of a call that does nothing and says what each cost the host. Those of
/// one in which the SM clock is not read count like the others.
///
/// # Errors
/// The device's.
pub fn host_cost<D: Device>(
    clock: &mut Clock<Metered<D>>,
    cache: Cache,
    samples: usize,
) -> Result<HostCost> {
    let bare_ns = bare(clock.device(), cache, samples)?;
    let mut totals = Vec::with_capacity(samples);
    let mut besides = Vec::with_capacity(samples);
    let mut steps = [(); Step::ALL.len()].map(|()| Vec::with_capacity(samples));
    for _ in 0..samples.max(1) {
        let before = clock.device().spent_ns;
        let begin = clock.device().host_ns();
        clock.sample(cache, |_| Ok(()))?;
        let total = (clock.device().host_ns() - begin) as f64;
        let after = clock.device().spent_ns;
        for (step, all) in steps.iter_mut().enumerate() {
            all.push((after[step] - before[step]) as f64);
        }
        totals.push(total);
        besides.push(total - bare_ns - clock.device().last_wait_ns as f64);
    }
    Ok(HostCost {
        total_ns: median(totals),
        beside_ns: median(besides),
        bare_ns,
        steps_ns: steps.map(median),
    })
}

/// Median time of flushing (cold) and waiting for it.
fn bare<D: Device>(device: &mut D, cache: Cache, samples: usize) -> Result<f64> {
    let mut times = Vec::with_capacity(samples);
    for _ in 0..samples.max(1) {
        let begin = device.host_ns();
        if cache == Cache::Cold {
            device.flush()?;
        }
        device.synchronise()?;
        times.push((device.host_ns() - begin) as f64);
    }
    Ok(median(times))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{ISSUE_NS, Mock};
    use crate::sample::Settings;

    fn cost(ahead: bool) -> HostCost {
        let settings = Settings {
            run_up: 3,
            ahead,
            ..Settings::default()
        };
        let mut clock = Clock::new(Metered::new(Mock::new()), settings).unwrap();
        host_cost(&mut clock, Cache::Cold, 5).unwrap()
    }

    #[test]
    fn each_step_is_what_it_cost_and_waiting_is_no_cost() {
        let found = cost(false);
        let issue = ISSUE_NS as f64;
        let of = |step: Step| found.steps_ns[step as usize];
        assert_eq!(of(Step::Flush), issue);
        assert_eq!(of(Step::Gate), issue);
        assert_eq!(of(Step::NullKernels), 3.0 * issue);
        assert_eq!(of(Step::Record), 2.0 * issue);
        assert_eq!(of(Step::Elapsed), 0.0);
        assert!(of(Step::Synchronise) > 0.0);
        // The gate, three kernels and two events.
        assert_eq!(found.beside_ns, 6.0 * issue);
    }

    #[test]
    fn what_is_done_while_the_flush_runs_costs_nothing() {
        let found = cost(true);
        // The stop event alone: all else was queued in the time of the flush, the end of
        // which its own event marks.
        assert!(found.beside_ns < 2.0 * ISSUE_NS as f64, "{found:?}");
        assert!(found.total_ns < cost(false).total_ns);
    }
}
