//! The time of a call by the harness's clock, and the samples that are possible with it.

use regatta_core::record::median;
use regatta_worker::protocol::Measured;

/// A timed request takes at least this long, unless that needs more than [`MAX_CALLS`] calls.
pub(super) const MIN_SPAN_NS: f64 = 4e6;

pub(super) const MAX_CALLS: u32 = 16_384;

/// The largest part of a request that may be overhead (a request without calls), and of a call that
/// may be the change of its inputs. Both are subtracted, and code under test could make either slow
/// to hide the time of its calls.
const MAX_PART: f64 = 0.1;

/// The factor between the calls of a long request and of a short one.
const LONGER: u32 = 8;

/// The harness's time of a call may exceed the samples by this factor: cores of one machine differ
/// by a fifth, and the calls of samples find other data in the caches.
const MARGIN: f64 = 1.2;

/// [`MARGIN`] if other programs disturb the machine: they share caches and cores during some of the
/// calls.
const MARGIN_DISTURBED: f64 = 1.6;

/// [`MARGIN`] for calls on several threads, which wait for each other. `MARGIN_BUSIEST` bounds the
/// CPU time of the thread that computed longest, which may spin until another thread has a core;
/// `MARGIN_WAITS` bounds the wall time. Waits for other programs may excuse more.
const MARGIN_BUSIEST: f64 = 2.0;
const MARGIN_WAITS: f64 = 6.0;

/// A call computes on other threads if they have at least this part of the busiest thread's CPU
/// time.
const PART_OF_OTHERS: f64 = 0.1;

/// The loop around the calls may take this long for each call.
const LOOP_NS: f64 = 1_000.0;

/// Repeated requests, each of `calls` calls.
pub(super) struct Requests {
    pub(super) calls: u32,
    /// The shortest time of such a request.
    pub(super) of_calls: CallTime,
    /// The times of requests that change the inputs `calls` times and call nothing.
    pub(super) of_changes: Vec<CallTime>,
    /// The shortest time of `calls` calls whose inputs do not change.
    pub(super) unchanged: CallTime,
}

impl Requests {
    /// Short requests of `calls` calls, whose shortest time is known, and long ones.
    pub(super) fn short_and_long(calls: u32, of_calls: CallTime) -> [Requests; 2] {
        let long = calls.saturating_mul(LONGER);
        [(calls, of_calls), (long, CallTime::MAX)].map(|(calls, of_calls)| Requests {
            calls,
            of_calls,
            of_changes: Vec::new(),
            unchanged: CallTime::MAX,
        })
    }

    /// True if the requests should have more calls, and may: they took less than [`MIN_SPAN_NS`],
    /// or `overhead` is a large part of them.
    pub(super) fn are_too_few(&self, overhead: CallTime) -> bool {
        let least = MIN_SPAN_NS.max(overhead.wall_ns / MAX_PART);
        self.of_calls.wall_ns < least && self.calls < MAX_CALLS
    }
}

/// The time of a call as the samples claim it.
pub(super) struct Claim {
    /// The median of the samples.
    pub(super) device_ns: f64,
    /// The first decile: a tenth of the samples are shorter.
    pub(super) fast_ns: f64,
    pub(super) one_thread: bool,
    pub(super) is_cpu: bool,
}

impl Claim {
    /// The claim of these samples; `None` without any.
    pub(super) fn by(samples: &Measured, is_cpu: bool) -> Option<Claim> {
        let mut times: Vec<f64> = samples.device_ns.iter().map(|time| time.0).collect();
        times.sort_by(f64::total_cmp);
        Some(Claim {
            device_ns: median(&times)?,
            fast_ns: *times.get(times.len() / 10)?,
            one_thread: samples.threads.iter().all(|threads| *threads == 1),
            is_cpu,
        })
    }

    /// True if calls that took `span` by the harness's clock can have given these samples.
    pub(super) fn is_possible(&self, span: CallTime, disturbed: bool) -> bool {
        let longest = |margin: f64| margin * self.device_ns + LOOP_NS;
        if span.wall_ns <= longest(MARGIN) || !disturbed {
            return span.wall_ns <= longest(MARGIN);
        }
        let on_others = self.is_cpu && span.on_others_ns >= PART_OF_OTHERS * span.busiest_ns;
        if self.one_thread && !on_others {
            // The shortest requests ran beside little else, and so did the fast samples.
            return span.wall_ns <= MARGIN_DISTURBED * self.fast_ns + LOOP_NS;
        }
        let is_near =
            span.busiest_ns <= longest(MARGIN_BUSIEST) && span.wall_ns <= longest(MARGIN_WAITS);
        // Threads spin while another one waits for a core, so CPU time has no bound beside programs
        // that need all cores.
        is_near || span.no_waits_ns <= longest(MARGIN_DISTURBED)
    }
}

/// The time of a request, or of each of its calls.
#[derive(Clone, Copy)]
pub(super) struct CallTime {
    /// Wall time by the harness's clock, less the time in which the worker's main thread or one of
    /// the harness's threads was ready and had no core.
    pub(super) wall_ns: f64,
    /// CPU time of the thread or child process that computed longest. It is a lower bound of the
    /// call's time, and other programs add nothing to it.
    pub(super) busiest_ns: f64,
    /// CPU time of all threads except the main one, and of child processes.
    pub(super) on_others_ns: f64,
    /// Wall time less all time in which any thread or child process was ready and had no core. It
    /// is a lower bound of the call's time, whichever thread waited for which.
    pub(super) no_waits_ns: f64,
}

impl CallTime {
    pub(super) const MAX: CallTime = CallTime {
        wall_ns: f64::MAX,
        busiest_ns: f64::MAX,
        on_others_ns: 0.0,
        no_waits_ns: f64::MAX,
    };

    /// The shorter of both wall and busiest times, the larger time on other threads, and
    /// `no_waits_ns` of `other`.
    pub(super) fn shorter(self, other: CallTime) -> CallTime {
        CallTime {
            wall_ns: self.wall_ns.min(other.wall_ns),
            busiest_ns: self.busiest_ns.min(other.busiest_ns),
            on_others_ns: self.on_others_ns.max(other.on_others_ns),
            no_waits_ns: other.no_waits_ns,
        }
    }

    /// The median of each field.
    pub(super) fn median(times: &[CallTime]) -> CallTime {
        let middle = |time: fn(&CallTime) -> f64| {
            let times: Vec<f64> = times.iter().map(time).collect();
            median(&times).unwrap_or_default()
        };
        CallTime {
            wall_ns: middle(|time| time.wall_ns),
            busiest_ns: middle(|time| time.busiest_ns),
            on_others_ns: middle(|time| time.on_others_ns),
            no_waits_ns: middle(|time| time.no_waits_ns),
        }
    }

    /// Subtracts `other` from each field; no field becomes negative.
    pub(super) fn less(self, other: CallTime) -> CallTime {
        self.with(other, |time, other| (time - other).max(0.0))
    }

    /// The longer of both times, field by field.
    pub(super) fn longer(self, other: CallTime) -> CallTime {
        self.with(other, f64::max)
    }

    fn with(self, other: CallTime, each: fn(f64, f64) -> f64) -> CallTime {
        CallTime {
            wall_ns: each(self.wall_ns, other.wall_ns),
            busiest_ns: each(self.busiest_ns, other.busiest_ns),
            on_others_ns: each(self.on_others_ns, other.on_others_ns),
            no_waits_ns: each(self.no_waits_ns, other.no_waits_ns),
        }
    }

    /// True if the wall time is more than [`MAX_PART`] of the wall time of `time`.
    pub(super) fn is_large_part_of(self, time: CallTime) -> bool {
        self.wall_ns > MAX_PART * time.wall_ns
    }

    /// Caps each time at `most_ns`, then multiplies it by `factor`.
    pub(super) fn at_most(self, most_ns: f64, factor: f64) -> CallTime {
        CallTime {
            wall_ns: self.wall_ns.min(most_ns) * factor,
            busiest_ns: self.busiest_ns.min(most_ns) * factor,
            no_waits_ns: self.no_waits_ns.min(most_ns) * factor,
            ..self
        }
    }

    /// Divides each time by the number of calls.
    pub(super) fn per_call(self, calls: u32) -> CallTime {
        let calls = f64::from(calls);
        CallTime {
            wall_ns: self.wall_ns / calls,
            busiest_ns: self.busiest_ns / calls,
            on_others_ns: self.on_others_ns / calls,
            no_waits_ns: self.no_waits_ns / calls,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Torch on two threads beside other programs: one thread spun while the other waited for a core.
    #[test]
    fn waits_for_other_threads_refuse_no_samples() {
        let claim = Claim {
            device_ns: 0.67e6,
            fast_ns: 0.6e6,
            one_thread: true,
            is_cpu: true,
        };
        let span = CallTime {
            wall_ns: 42.4e6,
            busiest_ns: 37.3e6,
            on_others_ns: 38.2e6,
            no_waits_ns: 0.7e6,
        };
        assert!(claim.is_possible(span, true));
        assert!(!claim.is_possible(span, false));
        let longer = CallTime {
            no_waits_ns: 1.3e6,
            ..span
        };
        assert!(!claim.is_possible(longer, true));
        let alone = CallTime {
            on_others_ns: 0.0,
            ..span
        };
        assert!(!claim.is_possible(alone, true));
    }

    /// If other programs run, an undisturbed call may take only half the median of the samples.
    #[test]
    fn beside_other_programs_the_fast_samples_bound_a_call() {
        let claim = |fast_ns: f64| Claim {
            device_ns: 0.45e6,
            fast_ns,
            one_thread: true,
            is_cpu: true,
        };
        let span = CallTime {
            wall_ns: 0.6e6,
            busiest_ns: 0.6e6,
            on_others_ns: 0.0,
            no_waits_ns: 0.6e6,
        };
        assert!(claim(0.4e6).is_possible(span, true));
        assert!(!claim(0.3e6).is_possible(span, true));
        assert!(!claim(0.4e6).is_possible(span, false));
    }
}
