//! The harness's own clock: the time of a call, seen from outside of the worker.
//!
//! Code under test runs in the worker's process and can change each clock and each reply there. So
//! the harness has the worker make `n` and then `4 n` calls, and times both requests itself: the
//! difference over `3 n` is the time of a call, without what a request costs. Samples that lie far
//! below it are refused. Time that the kernel says the worker was ready and had no core is taken
//! out, so other programs cannot make honest samples look too short: of `4 n` calls the waits of all
//! threads, of `n` calls those of the calling thread alone, so that the difference is never too long.

use std::fs;
use std::time::{Duration, Instant};

use super::{CaseEnd, Fault, Session, failed, limit};
use crate::worker::Conversation;
use crate::worker::descendants::tree;
use regatta_core::record::side::median;
use regatta_core::record::types::Measurement;
use regatta_worker::protocol::{Device, DeviceKind, Repeat, ReplyBody, RequestBody};
use regatta_worker::units::Nanoseconds;

/// Calls are repeated in the first invocation, and in each so many after it.
const EVERY: u32 = 5;

/// The shorter request takes so long at least, where that takes no more than [`MAX_CALLS`].
const MIN_SPAN_NS: f64 = 1e6;

const MAX_CALLS: u32 = 4_096;

/// A call that takes so long is timed as it is: what a request costs is little beside it.
const LONG_CALL_NS: f64 = 5e7;

/// Calls of a CUDA graph, whose launch is then little beside them.
const IN_GRAPH: u32 = 16;

/// Samples may lie below the harness's time by this factor: cores of one machine differ by a fifth,
/// and the calls of samples find other caches.
const MARGIN: f64 = 1.15;

/// A loop around calls takes about so long for each.
const LOOP_NS: f64 = 1_000.0;

/// Times that a call is timed before its samples are refused; the shortest counts.
const ATTEMPTS: usize = 6;

/// A request, by the harness's clock.
#[derive(Clone, Copy)]
struct Span {
    /// Without the waits for a core of all threads of the worker and its children; on a GPU, where
    /// the device computes, of the calling thread alone.
    at_least_ns: f64,
    /// Without those of the calling thread.
    at_most_ns: f64,
}

/// Child processes did a part of a call's work from this share of its time on.
const SHARE_OF_CHILDREN: f64 = 0.1;

impl Session<'_> {
    /// Refuses samples that are shorter than calls can have been.
    pub(super) fn bound(
        &self,
        worker: &mut dyn Conversation,
        invocation: u32,
        device: &Device,
        measurement: &Measurement,
    ) -> Result<(), CaseEnd> {
        let samples = &measurement.samples;
        if !invocation.is_multiple_of(EVERY) || !worker.hello().repeats || samples.graph {
            return Ok(());
        }
        let Some(device_ns) = median_of(&samples.device_ns) else {
            return Ok(());
        };
        let host_ns = median_of(&samples.host_ns).unwrap_or_default();
        let is_cpu = device.known_kind() == Some(DeviceKind::Cpu);
        let graph = !is_cpu && host_ns > device_ns;
        let on_one_thread = is_cpu && samples.threads.iter().all(|threads| *threads == 1);
        let cores = self.state.cores.iter().map(|core| Some(*core));
        let others: Vec<_> = cores.filter(|_| on_one_thread).collect();
        // The cores of the samples first; then each core, as they differ.
        let mut cores = [samples.core].into_iter().chain(others.into_iter().cycle());
        let mut request = Repeat {
            calls: if graph { IN_GRAPH } else { 1 },
            core: samples.core,
            graph,
        };
        let Some(mut few_ns) = self.few_calls(worker, &mut request, is_cpu)? else {
            return Ok(());
        };
        let calls = request.calls;
        let (mut few_calls_ns, mut many_ns, mut shortest) = (few_ns, f64::MAX, few_ns);
        for _ in 0..ATTEMPTS {
            request.core = cores.next().flatten();
            // A request that other programs delay takes longer, and none takes less than its calls.
            if let Some(again) = self.span(worker, request, is_cpu)? {
                few_ns = few_ns.min(again.at_most_ns);
                few_calls_ns = few_calls_ns.min(again.at_least_ns);
            }
            if calls == 1 && few_ns >= LONG_CALL_NS {
                shortest = few_calls_ns;
            } else {
                let many = Repeat {
                    calls: 4 * calls,
                    ..request
                };
                if let Some(again) = self.span(worker, many, is_cpu)? {
                    many_ns = many_ns.min(again.at_least_ns);
                }
                shortest = (many_ns - few_ns) / f64::from(3 * calls);
            }
            if shortest <= MARGIN * device_ns.0 + LOOP_NS {
                return Ok(());
            }
        }
        let shortest = Nanoseconds(shortest);
        Err(failed(
            Fault::Other,
            format!(
                "unusable samples: they say {device_ns} a call, and by a clock outside of the \
                 worker a call takes {shortest} at least, each of {ATTEMPTS} times. The function \
                 changes a clock or what its worker replies, computes less in calls that are \
                 timed, or leaves work for later. Compute all in each call, wait for it there, and \
                 leave clocks as they are"
            ),
        )
        .into())
    }

    /// The time of as many calls as take [`MIN_SPAN_NS`], whose number is then that of the request.
    /// `None`: the worker cannot repeat these.
    fn few_calls(
        &self,
        worker: &mut dyn Conversation,
        request: &mut Repeat,
        is_cpu: bool,
    ) -> Result<Option<f64>, CaseEnd> {
        loop {
            let span = self.span(worker, *request, is_cpu)?;
            let span_ns = span.map(|span| span.at_most_ns);
            if span_ns.is_none_or(|span_ns| span_ns >= MIN_SPAN_NS) || request.calls >= MAX_CALLS {
                return Ok(span_ns);
            }
            request.calls *= 8;
        }
    }

    /// The time that a request takes. `None`: the worker cannot repeat these calls.
    fn span(
        &self,
        worker: &mut dyn Conversation,
        request: Repeat,
        is_cpu: bool,
    ) -> Result<Option<Span>, CaseEnd> {
        let process = worker.process();
        let processes = process.map(with_children);
        let waited = || {
            let all = processes.as_deref().map_or(Duration::ZERO, waits);
            let calling =
                process.map_or(Duration::ZERO, |process| waits_of_thread(process, process));
            (all, calling)
        };
        let before = waited();
        let began = Instant::now();
        let reply = worker.ask(RequestBody::Repeat(request), limit(&self.suite.settings))?;
        let wall = began.elapsed();
        match reply {
            ReplyBody::Repeated => {
                let after = waited();
                let all = wall.saturating_sub(after.0.saturating_sub(before.0));
                let calling = wall.saturating_sub(after.1.saturating_sub(before.1));
                Ok(Some(Span {
                    at_least_ns: if is_cpu { all } else { calling }.as_nanos() as f64,
                    at_most_ns: calling.as_nanos() as f64,
                }))
            }
            ReplyBody::Unsupported { .. } => Ok(None),
            other => Err(super::no_answer(other).into()),
        }
    }
}

fn median_of(times: &[Nanoseconds]) -> Option<Nanoseconds> {
    let times: Vec<f64> = times.iter().map(|time| time.0).collect();
    median(&times).map(Nanoseconds)
}

fn with_children(process: u32) -> Vec<u32> {
    let mut all = tree(process);
    all.push(process);
    all
}

/// Time that threads of these processes were ready and had no core, since they began.
fn waits(processes: &[u32]) -> Duration {
    let threads = processes.iter().flat_map(|&process| {
        let threads = fs::read_dir(format!("/proc/{process}/task"));
        let names = threads.into_iter().flatten().flatten();
        names.filter_map(move |thread| {
            let thread = thread.file_name().to_str()?.parse().ok()?;
            Some(waits_of_thread(process, thread))
        })
    });
    threads.sum()
}

/// The same of one thread: the second figure of its `schedstat`.
fn waits_of_thread(process: u32, thread: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat"));
    let waited_ns = text
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse().ok());
    Duration::from_nanos(waited_ns.unwrap_or(0))
}

/// CPU time of the processes that a worker started, those included that have ended.
pub(super) fn cpu_of_children(process: u32) -> Duration {
    let own = ticks(process, 2..4);
    let living = tree(process).into_iter().map(|child| ticks(child, 0..4));
    let all: u64 = living.sum::<u64>() + own;
    // Linux gives these in hundredths of a second, on every architecture.
    Duration::from_millis(10 * all)
}

/// The sum of some of utime, stime, cutime and cstime (fields 14 to 17 of proc_pid_stat(5)).
fn ticks(process: u32, fields: std::ops::Range<usize>) -> u64 {
    let stat = fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat).into_owned();
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return 0;
    };
    let times = rest.split_whitespace().skip(11 + fields.start);
    times
        .take(fields.len())
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum()
}

/// Puts the waits for a core back into the times of a call whose work child processes did: its
/// process waited while these computed.
pub(super) fn keep_waits_for_children(measurement: &mut Measurement, children: Duration) {
    let samples = &mut measurement.samples;
    let total: f64 = samples.device_ns.iter().map(|time| time.0).sum();
    let waits = samples.waited_ns.iter();
    let waited: f64 = waits.map(|time| time.0).sum();
    if children.as_nanos() as f64 <= SHARE_OF_CHILDREN * (total + waited) {
        return;
    }
    let on_one_thread = |place: usize| samples.threads.get(place) == Some(&1);
    for place in 0..samples.waited_ns.len() {
        if on_one_thread(place) {
            samples.device_ns[place] += samples.waited_ns[place];
        }
    }
}
