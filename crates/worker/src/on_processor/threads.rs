//! CPU time and waits of each thread of this process in a call (docs/TIMING.md, threads and waits).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use nix::libc::clockid_t;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, gettid};

use crate::units::Nanoseconds;

const TASKS: &str = "/proc/self/task";

/// The least CPU time of a thread that counts as computing in a call. A thread that wakes up, finds
/// nothing to do and sleeps again takes 2 to 4 µs.
const MIN_CPU_NS: u64 = 5_000;
/// A thread counts as computing if it has at least this part (a tenth) of the busiest thread's CPU
/// time. Threads that share a call's work have about the same time each, however many there are. A
/// timer, a garbage collector, or a thread that only distributes the work and waits (10 to 20 µs)
/// has less.
const MIN_PART: u64 = 10;

/// The CPU usage of one call. A figure is `None` if the kernel does not report it.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallUsage {
    /// CPU time of the process.
    pub cpu_ns: Option<Nanoseconds>,
    /// The number of times that it was preempted.
    pub preempted: Option<u32>,
    /// Pages of memory that it got from the system on first touch.
    pub page_faults: Option<u32>,
    /// The number of threads that computed.
    pub threads: Option<u32>,
    /// The total time in which these threads were ready and had no core.
    pub waited_ns: Option<Nanoseconds>,
    /// True if more than a tenth of the CPU time belongs to no counted thread, for example to one
    /// that began and ended within the call.
    pub missed_thread: bool,
    /// CPU time of the calling thread.
    own_cpu_ns: Nanoseconds,
}

/// Pins the calling thread to one core while its calls run on this thread alone.
///
/// Two processes that take turns then share a core, with its clock and its neighbours; cores of one
/// machine differ by a fifth and more. Existing threads are not moved. If a call uses another
/// thread, the pin is removed, because new threads would start on that core.
#[derive(Debug)]
pub struct OneCore {
    core: Option<u32>,
    before: Option<CpuSet>,
    on_one_thread: bool,
    pinned: Option<u32>,
}

impl OneCore {
    /// Pins nothing yet. `core` is the core to pin to later.
    pub fn new(core: Option<u32>) -> OneCore {
        OneCore {
            core,
            before: sched_getaffinity(CALLER).ok(),
            on_one_thread: false,
            pinned: None,
        }
    }

    /// Records the usage of a call. Removes the pin unless the call ran on one thread.
    pub fn saw(&mut self, usage: &CallUsage) {
        self.on_one_thread = usage.threads == Some(1) && !usage.missed_thread;
        if !self.on_one_thread {
            self.release();
        }
    }

    /// Pins the thread if its last call ran on it alone.
    pub fn begin(&mut self) {
        if self.on_one_thread {
            self.pin();
        }
    }

    /// Pins the thread. The caller knows that its calls run on it alone.
    pub fn pin(&mut self) {
        let may_use = |core: &u32| {
            let core = usize::try_from(*core).unwrap_or(usize::MAX);
            self.before
                .is_some_and(|cores| cores.is_set(core) == Ok(true))
        };
        let Some(core) = self.core.filter(may_use) else {
            return;
        };
        let mut one = CpuSet::new();
        let set = one
            .set(core as usize)
            .and_then(|()| sched_setaffinity(CALLER, &one));
        self.pinned = set.is_ok().then_some(core);
    }

    /// The core, while the thread is pinned.
    pub fn pinned(&self) -> Option<u32> {
        self.pinned
    }

    fn release(&mut self) {
        if let (Some(_), Some(before)) = (self.pinned.take(), &self.before) {
            // The thread could use these cores before, so this succeeds.
            let _ = sched_setaffinity(CALLER, before);
        }
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        self.release();
    }
}

/// The calling thread, not its process.
const CALLER: Pid = Pid::from_raw(0);

impl CallUsage {
    /// The time of a call with the wall time `wall_ns`. If the call ran on one thread, its waits
    /// for a core are subtracted.
    ///
    /// The result is at least the thread's CPU time. Otherwise a wait between the readings of two
    /// clocks would be subtracted from a time that does not contain it.
    pub fn device_ns(&self, wall_ns: Nanoseconds) -> Nanoseconds {
        match (self.threads, self.waited_ns) {
            (Some(1), Some(waited_ns)) if !self.missed_thread => {
                (wall_ns - waited_ns).max(self.own_cpu_ns.min(wall_ns))
            }
            _ => wall_ns,
        }
    }
}

/// A thread, with its figures at the start of a call.
#[derive(Debug)]
struct Thread {
    clock: ClockId,
    /// `None` if it cannot be opened, for example because all descriptors are in use.
    schedstat: Option<File>,
    cpu_ns: u64,
    waited_ns: Option<u64>,
}

impl Thread {
    fn open(id: i32, waits_shown: bool) -> Thread {
        let file = || File::open(format!("{TASKS}/{id}/schedstat")).ok();
        Thread {
            // The clock of a thread by its id, as Linux's `MAKE_THREAD_CPUCLOCK` computes it. It is
            // exact while the thread runs; schedstat lags by a tick of the scheduler.
            clock: ClockId::from_raw((!id << 3 | 6) as clockid_t),
            schedstat: if waits_shown { file() } else { None },
            cpu_ns: 0,
            waited_ns: Some(0),
        }
    }

    /// The CPU time; `None` if the thread has ended.
    fn cpu_now(&self) -> Option<u64> {
        nanoseconds(self.clock)
    }

    fn waited_now(&self) -> Option<u64> {
        schedstat(self.schedstat.as_ref()?, 1)
    }
}

/// A figure of `schedstat`: CPU time, time ready without a core, or number of times on a core.
fn schedstat(file: &File, place: usize) -> Option<u64> {
    let mut text = [0; 64];
    let length = file.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    text.split_ascii_whitespace().nth(place)?.parse().ok()
}

fn nanoseconds(clock: ClockId) -> Option<u64> {
    let time = clock_gettime(clock).ok()?;
    Some(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// The number of preemptions of this process, and of its minor page faults.
fn preemptions_and_faults() -> Option<(i64, i64)> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    Some((
        usage.involuntary_context_switches(),
        usage.minor_page_faults(),
    ))
}

/// The threads of this process, read before and after each call of the thread that created this.
///
/// Descriptors stay open, and threads are listed again only if their number changes. A sample takes
/// 9 µs for two threads, and 2.4 µs for each further thread.
#[derive(Debug)]
pub struct Threads {
    /// The folder with an entry for each thread; `None` if `/proc` is hidden.
    folder: Option<File>,
    /// The folder's link count when the threads were listed. It changes with their number.
    links: Option<u64>,
    /// True if the kernel reports waits.
    waits_shown: bool,
    /// The thread that created this, and makes the calls.
    own: Thread,
    /// All other threads, by id.
    others: BTreeMap<i32, Thread>,
    /// CPU time of the process; its preemptions and minor page faults.
    process: (Option<u64>, Option<(i64, i64)>),
}

impl Threads {
    /// Starts with the threads that exist now.
    pub fn new() -> Threads {
        let mut own = Thread::open(gettid().as_raw(), true);
        // Without `CONFIG_SCHED_INFO` every figure is 0, including the number of times on a core.
        let shown = |file: &File| schedstat(file, 2).is_some_and(|times| times > 0);
        own.schedstat = own.schedstat.filter(shown);
        Threads {
            folder: File::open(TASKS).ok(),
            links: None,
            waits_shown: own.schedstat.is_some(),
            own,
            others: BTreeMap::new(),
            process: (None, None),
        }
    }

    /// Lists the threads again if their number has changed. A new thread starts with no CPU time
    /// and no waits.
    fn list(&mut self) {
        let links = |folder: &File| folder.metadata().ok().map(|folder| folder.nlink());
        let links = self.folder.as_ref().and_then(links);
        if links.is_some() && links == self.links {
            return;
        }
        let mut before = std::mem::take(&mut self.others);
        let entries = fs::read_dir(TASKS).into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        for id in ids.filter(|id| *id != gettid().as_raw()) {
            let thread = before.remove(&id);
            let thread = thread.unwrap_or_else(|| Thread::open(id, self.waits_shown));
            self.others.insert(id, thread);
        }
        self.links = links;
    }

    /// Reads all figures right before a call: the process and the calling thread last.
    pub fn begin(&mut self) {
        self.list();
        self.others.retain(|_, thread| {
            thread.waited_ns = thread.waited_now();
            thread.cpu_now().inspect(|ns| thread.cpu_ns = *ns).is_some()
        });
        self.process.1 = preemptions_and_faults();
        self.own.waited_ns = self.own.waited_now();
        self.own.cpu_ns = self.own.cpu_now().unwrap_or_default();
        self.process.0 = nanoseconds(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    }

    /// Reads all figures right after the call: the process and the calling thread first.
    pub fn end(&mut self) -> CallUsage {
        let process_ns = nanoseconds(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        let own_ns = self.own.cpu_now();
        let own_waited_ns = self.own.waited_now();
        let counts = preemptions_and_faults();
        self.list();

        let since = |now: Option<u64>, before: Option<u64>| now?.checked_sub(before?);
        // If the clock did not advance, the time is unknown.
        let cpu_ns = since(process_ns, self.process.0).filter(|ns| *ns > 0);
        let counted = |count: fn((i64, i64)) -> i64| {
            u32::try_from(count(counts?) - count(self.process.1?)).ok()
        };
        let mut usage = CallUsage {
            cpu_ns: cpu_ns.map(|ns| Nanoseconds(ns as f64)),
            preempted: counted(|counts| counts.0),
            page_faults: counted(|counts| counts.1),
            ..CallUsage::default()
        };
        let own_cpu_ns = since(own_ns, Some(self.own.cpu_ns));
        let (Some(_), Some(cpu_ns), Some(own_cpu_ns)) = (&self.folder, cpu_ns, own_cpu_ns) else {
            return usage;
        };
        let own_waited_ns = since(own_waited_ns, self.own.waited_ns);
        let others = self.others.values().filter_map(|thread| {
            let thread_ns = since(thread.cpu_now(), Some(thread.cpu_ns))?;
            Some((thread_ns, since(thread.waited_now(), thread.waited_ns)))
        });
        let mut computed: Vec<(u64, Option<u64>)> = others.collect();
        computed.push((own_cpu_ns, own_waited_ns));
        let busiest_ns = computed.iter().map(|(ns, _)| *ns).max().unwrap_or_default();
        let least_ns = MIN_CPU_NS.max(busiest_ns / MIN_PART);
        computed.retain(|(ns, _)| *ns >= least_ns);
        // The calling thread gave the work to a single other thread and waited for it.
        if computed.len() < 2 && own_cpu_ns < least_ns {
            computed.push((own_cpu_ns, own_waited_ns));
        }

        let counted_ns: u64 = computed.iter().map(|(ns, _)| ns).sum();
        let waited_ns: Option<u64> = computed.iter().map(|(_, waited)| *waited).sum();
        usage.threads = Some(computed.len() as u32);
        usage.waited_ns = waited_ns.map(|ns| Nanoseconds(ns as f64));
        usage.missed_thread =
            cpu_ns.saturating_sub(counted_ns) >= MIN_CPU_NS.max(cpu_ns / MIN_PART);
        usage.own_cpu_ns = Nanoseconds(own_cpu_ns as f64);
        usage
    }
}
