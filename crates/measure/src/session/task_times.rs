//! CPU time, waits and page faults of a worker's threads and children, as the kernel counts them.

use std::collections::BTreeMap;
use std::fs;
use std::iter;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;

use crate::worker::descendants::tree;

/// Times of a thread since it started.
#[derive(Clone, Copy, Default)]
pub(super) struct ThreadTimes {
    pub(super) computed: Duration,
    /// The time in which it was ready and had no core.
    pub(super) waited: Duration,
    /// True if it is ready or has a core.
    pub(super) runs: bool,
}

/// The times of the thread or process whose /proc folder this is. For a process, those of its main
/// thread.
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

/// The time that a worker may take after its reply until it waits for the next request.
const SETTLING: Duration = Duration::from_millis(100);

/// Stands for all threads and processes that have ended. Only their CPU time is known.
pub(super) const ENDED: u32 = 0;

/// Times of the threads of a worker and of its children, by id. First waits, for at most
/// [`SETTLING`], until the worker's main thread sleeps; until all threads do if `all`.
pub(super) fn times_of_tasks(process: u32, all: bool) -> BTreeMap<u32, ThreadTimes> {
    // The kernel's count of a running thread's time ends at the last tick. It is exact once the
    // thread sleeps.
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

/// The time in which this thread and the reader of a worker's replies were ready and had no core.
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

/// CPU time of a process, with that of its ended threads.
fn cpu_of(process: u32) -> Duration {
    // The clock's id, as Linux's `MAKE_PROCESS_CPUCLOCK` computes it.
    let clock = (!process.cast_signed() << 3) | 2;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes only `time`, and nothing if the process has ended.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

/// CPU time of the processes that a worker started, including ended ones.
pub(super) fn cpu_of_children(process: u32) -> Duration {
    let own = ticks(process, 2..4);
    let living = tree(process).into_iter().map(|child| ticks(child, 0..4));
    let all: u64 = living.sum::<u64>() + own;
    // These are in hundredths of a second on every architecture.
    Duration::from_millis(10 * all)
}

/// The sum of a range of utime, stime, cutime and cstime.
fn ticks(process: u32, fields: Range<usize>) -> u64 {
    counters(process, 11 + fields.start..11 + fields.end)
}

/// Minor page faults: those that read nothing from a disk.
pub(super) fn page_faults(process: u32) -> u64 {
    counters(process, 7..8)
}

/// The sum of a range of fields after the name in /proc/pid/stat. Field 7 here is the tenth of
/// proc_pid_stat(5).
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
