//! CPU time, waits and page faults of a worker's threads and children, as the kernel counts them.

use std::collections::BTreeMap;
use std::fs;
use std::iter;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;

use crate::worker::descendants::tree;

/// Times of a thread, since it began.
#[derive(Clone, Copy, Default)]
pub(super) struct ThreadTimes {
    pub(super) computed: Duration,
    /// It was ready and had no core.
    pub(super) waited: Duration,
    /// It is ready or has a core.
    pub(super) runs: bool,
}

/// The times of the thread of this folder, or of the main thread of a process.
pub(super) fn times(folder: &str) -> ThreadTimes {
    let text = fs::read_to_string(format!("{folder}/schedstat")).unwrap_or_default();
    let mut figures = text.split_whitespace().map(|figure| figure.parse().ok());
    let mut figure = || Duration::from_nanos(figures.next().flatten().unwrap_or(0));
    ThreadTimes {
        computed: figure(),
        waited: figure(),
        runs: false,
    }
}

/// The time that a worker that has replied may take until it waits for the next request.
const SETTLING: Duration = Duration::from_millis(100);

/// The id of all threads and processes that have ended, of which CPU time alone is known.
pub(super) const ENDED: u32 = 0;

/// Times of the threads of a worker and of its children, by their ids. Waits for a while until the
/// worker's main thread sleeps, or all do.
pub(super) fn times_of_tasks(process: u32, all: bool) -> BTreeMap<u32, ThreadTimes> {
    // The kernel counts a thread's time up to the last tick while it runs, and exactly once it waits.
    let began = Instant::now();
    let runs = |task: u32| !is_asleep(task);
    while (runs(process) || all && threads(process).into_iter().any(runs))
        && began.elapsed() < SETTLING
    {
        thread::sleep(Duration::from_micros(50));
    }
    let mut tasks = BTreeMap::new();
    for task in threads(process) {
        let runs = runs(task);
        tasks.insert(
            task,
            ThreadTimes {
                runs,
                ..times(&format!("/proc/{task}"))
            },
        );
    }
    let living: Duration = tasks.values().map(|times| times.computed).sum();
    let processes = iter::once(process).chain(tree(process)).map(cpu_of);
    let of_all = processes.sum::<Duration>() + Duration::from_millis(10 * ticks(process, 2..4));
    let ended = ThreadTimes {
        computed: of_all.saturating_sub(living),
        ..ThreadTimes::default()
    };
    tasks.insert(ENDED, ended);
    tasks
}

/// The threads of a worker and of its children.
fn threads(process: u32) -> Vec<u32> {
    let processes = iter::once(process).chain(tree(process));
    let folders =
        processes.filter_map(|process| fs::read_dir(format!("/proc/{process}/task")).ok());
    let threads = folders.flatten().flatten();
    let ids = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    ids.collect()
}

/// Time that this thread and the reader of a worker's replies were ready and had no core.
pub(super) fn waits_of_harness(reader: Option<u32>) -> Duration {
    let of_reader = reader.map(|thread| times(&format!("/proc/self/task/{thread}")).waited);
    of_reader.unwrap_or_default() + times("/proc/thread-self").waited
}

fn is_asleep(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !stat
        .rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('R'))
}

/// CPU time of a process, with that of threads that have ended.
fn cpu_of(process: u32) -> Duration {
    // As `MAKE_PROCESS_CPUCLOCK` of Linux has it.
    let clock = (!process.cast_signed() << 3) | 2;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes the time that it is given; of a process that is gone, nothing.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

/// CPU time of the processes that a worker started, those included that have ended.
pub(super) fn cpu_of_children(process: u32) -> Duration {
    let own = ticks(process, 2..4);
    let living = tree(process).into_iter().map(|child| ticks(child, 0..4));
    let all: u64 = living.sum::<u64>() + own;
    // Linux gives these in hundredths of a second, on every architecture.
    Duration::from_millis(10 * all)
}

/// The sum of some of utime, stime, cutime and cstime.
fn ticks(process: u32, fields: Range<usize>) -> u64 {
    counters(process, 11 + fields.start..11 + fields.end)
}

/// Page faults for which nothing was read from a disk.
pub(super) fn page_faults(process: u32) -> u64 {
    counters(process, 7..8)
}

/// The sum of fields after the name in /proc/pid/stat: the tenth field of proc_pid_stat(5) is 7.
fn counters(process: u32, fields: Range<usize>) -> u64 {
    let stat = fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat).into_owned();
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return 0;
    };
    let counters = rest.split_whitespace().skip(fields.start);
    counters
        .take(fields.len())
        .filter_map(|counter| counter.parse::<u64>().ok())
        .sum()
}
