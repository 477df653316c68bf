//! A second witness beside the wall's clock: what the process itself did meanwhile.
//!
//! A call that waited for a core, because somebody else had it, takes longer by the wall's
//! clock and not by the process's (`CLOCK_PROCESS_CPUTIME_ID`, clock_gettime(2): all its
//! threads together). `ru_nivcsw` of getrusage(2) counts how often it had to give one up. Both
//! are one system call each.

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};

use crate::units::Nanoseconds;

/// What a process has had of its cores so far.
#[derive(Clone, Copy, Debug)]
pub struct Witness {
    cpu_ns: Nanoseconds,
    preempted: i64,
}

impl Witness {
    /// So far; `None` where the system does not say.
    pub fn now() -> Option<Witness> {
        let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).ok()?;
        Some(Witness {
            cpu_ns: Nanoseconds(time.tv_sec() as f64 * 1e9 + time.tv_nsec() as f64),
            preempted: getrusage(UsageWho::RUSAGE_SELF)
                .ok()?
                .involuntary_context_switches(),
        })
    }

    /// Since then: processor time, and how often a core was taken away. `None` where either
    /// end is not known, or where the clock did not move, which is no time.
    pub fn since(before: Option<Witness>) -> Option<(Nanoseconds, u32)> {
        let (before, now) = (before?, Witness::now()?);
        let cpu_ns = now.cpu_ns - before.cpu_ns;
        let lost = u32::try_from(now.preempted - before.preempted).ok()?;
        (cpu_ns > Nanoseconds::ZERO).then_some((cpu_ns, lost))
    }
}
