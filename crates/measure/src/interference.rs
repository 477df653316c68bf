//! Interference: the effect of other programs on the machine around the samples of a case, from the
//! machine's own counters.
//!
//! The counters are files in `/proc` (proc_stat(5), proc_pid_stat(5);
//! `Documentation/scheduler/sched-stats.rst` of Linux). Each file may be missing because of the
//! kernel's configuration or a container's. Its figures are then unknown, never 0.

use std::collections::{BTreeMap, VecDeque};
use std::env;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::{SysconfVar, sysconf};

use crate::worker::descendants;
use regatta_core::record::Measurement;
use regatta_core::record::disturbance::{self, Disturbance, MachineLoad};
use regatta_worker::protocol::{Device, DeviceKind};
use regatta_worker::units::Nanoseconds;

/// Reads the machine's counters, and waits.
pub trait Watch {
    /// Reads the counters now.
    fn look(&mut self) -> MachineCounters;

    /// Waits for `time`.
    fn rest(&mut self, time: Duration);
}

/// Returns a watch of this machine, unless watching is turned off.
pub fn watch() -> Option<Box<dyn Watch>> {
    is_watched().then(|| Box::new(MachineWatch::here()) as Box<dyn Watch>)
}

/// False with `REGATTA_WATCH=no`: for tests, and for a machine whose counters describe more than
/// its own programs, such as a container that sees its host's.
pub(crate) fn is_watched() -> bool {
    env::var_os("REGATTA_WATCH").is_none_or(|watch| watch != "no")
}

/// The machine's counters at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineCounters {
    /// The time of reading, by a monotonic clock.
    pub at_ns: Nanoseconds,
    /// Cores that this process may run on.
    pub cores: u32,
    /// The times of these cores.
    pub stat: Option<CoreTimes>,
    /// CPU time of this process and everything it started.
    pub own_ns: Option<Nanoseconds>,
    /// For each thread of child processes, by id: nanoseconds in which it was ready and had no
    /// core.
    pub waited_ns: Option<BTreeMap<u32, f64>>,
}

/// The summed times of some cores in `/proc/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreTimes {
    /// The time in which they were busy.
    pub busy_ns: Nanoseconds,
    /// The time in which a hypervisor gave them to others.
    pub steal_ns: Nanoseconds,
}

/// The CPU time of this process and everything it started, between two readings. `None` if it
/// decreased: a process ended whose parent did not wait for it, and its time was lost.
fn own_between(before: &MachineCounters, now: &MachineCounters) -> Option<Nanoseconds> {
    Some(now.own_ns? - before.own_ns?).filter(|own| *own >= Nanoseconds::ZERO)
}

/// The load between the readings `before` and `now`. Waits of the worker count from `began` only,
/// the reading at which it started to measure.
fn load_between(
    before: &MachineCounters,
    began: &MachineCounters,
    now: &MachineCounters,
) -> MachineLoad {
    let window = now.at_ns - before.at_ns;
    let share = |time: Nanoseconds, window: Nanoseconds| (time / window).0.max(0.0);
    let both = |read: fn(&MachineCounters) -> Option<Nanoseconds>| Some(read(now)? - read(before)?);
    let busy = both(|look| Some(look.stat?.busy_ns));
    let own = own_between(before, now);
    let waited = began.waited_ns.as_ref().zip(now.waited_ns.as_ref());
    let waited = waited.map(|(then, now)| {
        let more = |(thread, wait): (&u32, &f64)| wait - then.get(thread).unwrap_or(&0.0);
        Nanoseconds(
            now.iter()
                .map(more)
                .fold(0.0, |sum, more| sum + more.max(0.0)),
        )
    });
    let measured = now.at_ns - began.at_ns;
    if window <= Nanoseconds::ZERO || measured <= Nanoseconds::ZERO {
        return MachineLoad::default();
    }
    MachineLoad {
        window_ns: window,
        cores: now.cores,
        foreign: busy.zip(own).map(|(busy, own)| share(busy - own, window)),
        steal: both(|look| Some(look.stat?.steal_ns)).map(|steal| share(steal, window)),
        waited: waited.map(|waited| share(waited, measured)),
    }
}

/// Watches this machine.
struct MachineWatch {
    began: Instant,
    tick_ns: f64,
    cores: Vec<u32>,
}

impl MachineWatch {
    /// Starts to watch.
    fn here() -> MachineWatch {
        MachineWatch {
            began: Instant::now(),
            tick_ns: tick_ns(),
            cores: allowed_cores(),
        }
    }
}

impl Watch for MachineWatch {
    fn look(&mut self) -> MachineCounters {
        let (tree, own) = tree_with_ticks(std::process::id());
        MachineCounters {
            at_ns: self.began.elapsed().into(),
            cores: self.cores.len() as u32,
            stat: read("/proc/stat").and_then(|text| stat(&text, &self.cores, self.tick_ns)),
            own_ns: own.map(|ticks| Nanoseconds(ticks as f64 * self.tick_ns)),
            waited_ns: waits(&tree),
        }
    }

    fn rest(&mut self, time: Duration) {
        thread::sleep(time);
    }
}

/// Attempts to read all processes, since some may end while they are read.
const LOOKS: usize = 4;

/// Returns all processes that `root` started, and the CPU time of these and `root` in ticks. The
/// time is `None` if Linux does not report it, or if processes ended during each attempt.
///
/// A parent is read before its children. A child that can still be read afterwards was not waited
/// for, so its time is not in its parent's. The time of a child that cannot be read may be missing.
fn tree_with_ticks(root: u32) -> (Vec<u32>, Option<u64>) {
    let mut tree = Vec::new();
    for _ in 0..LOOKS {
        tree = descendants::tree(root);
        let processes = std::iter::once(&root).chain(&tree);
        let texts = processes.map(|process| read(&format!("/proc/{process}/stat")));
        if let Some(texts) = texts.collect::<Option<Vec<String>>>() {
            return (tree, texts.iter().map(|text| process_ticks(text)).sum());
        }
    }
    (tree, None)
}

/// The unit of CPU times in `/proc`, in nanoseconds.
pub(super) fn tick_ns() -> f64 {
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    1e9 / ticks.max(1) as f64
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The run delay of each thread of these processes; `None` if the kernel does not report it.
fn waits(processes: &[u32]) -> Option<BTreeMap<u32, f64>> {
    let mut waits = BTreeMap::new();
    for process in processes {
        let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
            continue;
        };
        for thread in threads.flatten() {
            let number = thread
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let text = fs::read_to_string(thread.path().join("schedstat"));
            if let (Some(number), Ok(text)) = (number, text) {
                waits.insert(number, run_delay(&text)?);
            }
        }
    }
    (!waits.is_empty()).then_some(waits)
}

/// The second figure of a `schedstat`: nanoseconds on a run queue.
fn run_delay(text: &str) -> Option<f64> {
    text.split_whitespace().nth(1)?.parse().ok()
}

/// The sum of `utime`, `stime` and those of children that were waited for, in ticks: fields 14 to
/// 17 of a process's `stat`. They are counted from behind the name, which may contain anything.
pub(super) fn process_ticks(text: &str) -> Option<u64> {
    let fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let times: Vec<u64> = fields
        .take(4)
        .filter_map(|field| field.parse().ok())
        .collect();
    (times.len() == 4).then(|| times.iter().sum())
}

/// The times of `cores` in `/proc/stat`. Idle time is `idle` and `iowait`. The time of guests is
/// already part of `user` and `nice`.
fn stat(text: &str, cores: &[u32], tick_ns: f64) -> Option<CoreTimes> {
    let mut count = 0;
    let mut sum = CoreTimes::default();
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        let core = fields.next().and_then(|name| name.strip_prefix("cpu"));
        let Some(core) = core.and_then(|core| core.parse::<u32>().ok()) else {
            continue;
        };
        if !cores.contains(&core) {
            continue;
        }
        let times: Vec<f64> = fields.filter_map(|field| field.parse().ok()).collect();
        let &[user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = times.as_slice()
        else {
            return None;
        };
        sum.busy_ns += Nanoseconds((user + nice + system + irq + softirq) * tick_ns);
        sum.steal_ns += Nanoseconds(steal * tick_ns);
        count += 1;
    }
    (count > 0 && count == cores.len()).then_some(sum)
}

/// Cores that this process may use; empty if that is unknown.
pub(super) fn allowed_cores() -> Vec<u32> {
    let status = read("/proc/self/status").unwrap_or_default();
    allowed(&status).unwrap_or_default()
}

/// Parses `Cpus_allowed_list` of a process's `status`, such as `0-1,4`.
fn allowed(status: &str) -> Option<Vec<u32>> {
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut cores = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        cores.extend(first..=last);
    }
    Some(cores)
}

/// The shortest window over which load is measured. The machine counts in ticks of 10 ms, which say
/// little about less. If samples took less time, the window begins before them.
const MIN_LOOK: Duration = Duration::from_millis(500);

/// The share of all cores' time from which on no core is free for long. Below it, a thread that
/// waits for a busy core is soon moved to another.
const FULL: f64 = 0.75;

/// Other programs delay a call by at most this factor times the cores that they use: during the
/// call they may use more than on average over half a second.
const DELAY: f64 = 2.0;

/// Recent readings of the machine's counters; empty if the machine is not watched.
#[derive(Default)]
pub(crate) struct LoadLog {
    watch: Option<Box<dyn Watch>>,
    looks: VecDeque<MachineCounters>,
}

impl LoadLog {
    pub(crate) fn new(watch: Option<Box<dyn Watch>>) -> LoadLog {
        LoadLog {
            watch,
            looks: VecDeque::new(),
        }
    }

    /// Reads the counters, and drops older readings that will not be needed.
    pub(crate) fn look(&mut self) -> Option<MachineCounters> {
        let now = self.watch.as_mut()?.look();
        let old = |look: &MachineCounters| now.at_ns - look.at_ns >= MIN_LOOK.into();
        while self.looks.get(1).is_some_and(old) {
            self.looks.pop_front();
        }
        self.looks.push_back(now.clone());
        Some(now)
    }

    /// Reads the counters before a worker on this device begins. Returns `None` for a GPU, where
    /// counters are not needed and a worker has many threads, which take milliseconds to read.
    pub(crate) fn look_for(&mut self, device: &Device) -> Option<MachineCounters> {
        if on_processor(device) {
            self.look()
        } else {
            None
        }
    }

    /// Reads the counters now, and computes the processor's load since `began`, or since an earlier
    /// reading if that is too recent. `None` if the worker does not run on the processor or has no
    /// reading; the load is `None` if no reading is old enough.
    fn known_since(
        &mut self,
        began: Option<&MachineCounters>,
        device: &Device,
    ) -> Option<(MachineCounters, Option<MachineLoad>)> {
        let began = began.filter(|_| on_processor(device))?;
        let now = self.look()?;
        let before = self.measurable_before(&now);
        let load = before.map(|before| load_between(before, began, &now));
        Some((now, load))
    }

    /// The last reading that is old enough to measure a load.
    fn measurable_before(&self, now: &MachineCounters) -> Option<&MachineCounters> {
        let long = |look: &&MachineCounters| now.at_ns - look.at_ns >= MIN_LOOK.into();
        self.looks.iter().rev().find(long)
    }

    /// The processor's load since `began`, if the worker runs on the processor. Waits if too little
    /// time has passed.
    pub(crate) fn since(
        &mut self,
        began: Option<&MachineCounters>,
        device: &Device,
    ) -> Option<MachineLoad> {
        let (now, found) = self.known_since(began, device)?;
        if found.is_some() {
            return found;
        }
        // This is the first case of all, so the time after it has to serve in place of the time
        // before.
        let first = self.looks.front()?.clone();
        let short = now.at_ns - first.at_ns;
        let rest = (MIN_LOOK.as_nanos() as f64 - short.0).max(0.0) as u64;
        self.watch.as_mut()?.rest(Duration::from_nanos(rest));
        let waited = load_between(&first, began?, &now).waited;
        let later = self.look()?;
        Some(MachineLoad {
            waited,
            ..load_between(&first, &first, &later)
        })
    }

    /// The largest share of the time since `began` (or of the last half second, if longer) by which
    /// other programs can have delayed a call. A call waits only while they use the last free core.
    /// `None` if unknown.
    pub(crate) fn delay_since(
        &mut self,
        began: Option<&MachineCounters>,
        device: &Device,
    ) -> Option<f64> {
        began.filter(|_| on_processor(device))?;
        let now = self.look()?;
        let before = self.measurable_before(&now)?;
        let busy = |look: &MachineCounters| Some(look.stat?.busy_ns + look.stat?.steal_ns);
        let window = now.at_ns - before.at_ns;
        let busy = ((busy(&now)? - busy(before)?) / window).0;
        let own = (own_between(before, &now)? / window).0;
        let is_full = busy >= FULL * f64::from(now.cores);
        Some(if is_full {
            (DELAY * (busy - own)).clamp(0.0, 1.0)
        } else {
            0.0
        })
    }

    /// True if other programs disturbed the machine since `began`.
    pub(crate) fn disturbed_since(
        &mut self,
        began: Option<&MachineCounters>,
        device: &Device,
    ) -> bool {
        let load = self.known_since(began, device).and_then(|(_, load)| load);
        load.is_some_and(|load| !disturbance::of_processor(&load).is_empty())
    }
}

/// True for a worker on the processor, whose calls the processor's counters describe.
pub(crate) fn on_processor(device: &Device) -> bool {
    device.known_kind() == Some(DeviceKind::Cpu)
}

/// The disturbances of these samples by other programs.
pub(crate) fn disturbed(device: &Device, found: &Measurement) -> Vec<Disturbance> {
    if on_processor(device) {
        let load = found.load.as_deref();
        load.map(disturbance::of_processor).unwrap_or_default()
    } else {
        let state = found.samples.state.as_ref();
        state.map(disturbance::of_gpu).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
