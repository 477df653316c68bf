//! Causes of a call on a CPU: its threads and their waits, memory that it keeps, and numbers that
//! are slow to compute with.

use std::collections::BTreeMap;

use super::facts::{Facts, Found, Pair, TimeSource};
use crate::judgement::{Cause, Difference, Fact};
use regatta_core::machine::{
    DENORMAL_VALUES, FUNCTION_PPM, GARBAGE_COLLECTIONS, GARBAGE_NS, Sides, WIDER_RESULTS,
};
use regatta_core::record::{CaseRecord, Invocation};
use regatta_core::suite::Metric;
use regatta_worker::units::{Digits, Nanoseconds, Ratio, counted};

/// The place in which to set the number of threads, as part of a sentence.
pub const THREADS_KEY: &str = "(polars: POLARS_MAX_THREADS) before the command, or in `env` of the \
                               suite's environment";

/// The cost of denormal numbers, and the remedy.
pub const FLUSH: &str = "such an operation may take 100 times as long; flush denormals to zero, \
                         or scale the values";

/// The remedy for temporaries in a wider type.
pub const NARROW: &str = "make constants and temporaries of the type of the inputs";

/// The remedy for memory that grows.
pub const FREE: &str = "free what a call allocates, or bound the cache that keeps it";

/// The remedy for page faults.
const KEEP: &str = "the allocator gives memory back after a call: keep the arrays of a call, or \
                        set MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_";

/// The least time of a page fault, in nanoseconds.
const FAULT_NS: f64 = 250.0;

/// The share of a slowdown from which page faults, garbage collections or memory explain it.
const MIN_PART: f64 = 0.1;

/// The remedy for collections of garbage.
const FEWER_OBJECTS: &str = "create fewer objects, or keep them; gc.set_threshold() makes \
                             collections rarer, gc.freeze() leaves old objects out";

/// The longest time for allocating and writing a byte, in nanoseconds.
const BYTE_NS: f64 = 1.0;

/// The ratio of a call's time to its CPU time from which the call is said to wait.
const MANY: f64 = 3.0;

/// The ratio of head to base from which a figure that varies is said to have grown.
const MORE: f64 = 1.5;

/// The ratio of head to base from which a function takes longer; shares of a call vary from profile
/// to profile.
const LONGER: f64 = 1.25;

/// The summed waits of a call's threads for cores, over the time of the call, from which they are
/// reported.
const WAITING: f64 = 0.5;

/// The threads that computed in a call: the median over invocations.
pub fn threads(record: &CaseRecord) -> Option<f64> {
    record.median_of(|one| one.threads.map(f64::from))
}

/// The time of a call over its CPU time.
fn times_cpu(record: &CaseRecord) -> Option<f64> {
    record.median_of(|one| Some(one.values.get(Metric::Device)? / one.values.get(Metric::CpuTime)?))
}

/// The summed waits of a call's threads for cores, over the time of the call. 0 for a single
/// thread, whose waits are not in its time.
fn waits(record: &CaseRecord) -> Option<f64> {
    let part = |one: &Invocation| Some(one.waited_ns?.0 / one.values.get(Metric::Device)?);
    let several = threads(record)? > 1.0;
    if several {
        record.median_of(part)
    } else {
        Some(0.0)
    }
}

/// The waits for cores of a call on several threads, if they are at least [`WAITING`]. Threads that
/// spin for each other use CPU time meanwhile, so such a call need not take many times its CPU
/// time.
pub fn much_waiting(record: &CaseRecord) -> Option<f64> {
    waits(record).filter(|part| *part >= WAITING)
}

/// The waits of a call for cores as a sentence, with the remedy.
pub fn waiting_words(record: &CaseRecord, part: f64) -> String {
    let many = times_cpu(record).filter(|times| *times >= MANY).map(Digits);
    let part = Digits(part);
    let figure = match many {
        Some(times) => format!("a call takes {times} times its CPU time: threads wait for cores"),
        None => format!("threads wait for cores {part} times as long as a call takes"),
    };
    format!("{figure}; OMP_NUM_THREADS=1 {THREADS_KEY}, measures the code")
}

/// The growth of resident memory in bytes per call, if half of the invocations show one. In a
/// single invocation, an allocator may just have taken more from the system.
pub fn growth(record: &CaseRecord) -> Option<f64> {
    let usual = record.median_of(|one| Some(one.growth_bytes_per_call.unwrap_or(0.0)));
    usual.filter(|bytes| *bytes > 0.0)
}

impl Pair<'_> {
    /// The threads that computed in a call, if both sides know their number.
    pub fn threads(&self) -> Option<Sides<f64>> {
        Sides::both(threads(self.base), threads(self.head))
    }
}

/// The number of threads, if it exceeds the cores by more than one. One more is often the thread
/// that distributes the work: in a call of 12 µs it computes as long as the others.
pub fn too_many_threads(record: &CaseRecord, cores: Option<u32>) -> Option<f64> {
    threads(record).filter(|threads| cores.is_some_and(|cores| *threads > f64::from(cores + 1)))
}

/// Finds more threads than before, and more than the machine has cores.
pub fn oversubscribed(facts: &Facts) -> Option<Found> {
    let pair = facts.call()?;
    let cores = pair.cores?;
    too_many_threads(pair.head, pair.cores)?;
    let threads = pair.threads().filter(|threads| threads.growth() > 0.0)?;
    let setting = format!(
        "the machine has {}: set OMP_NUM_THREADS={cores} {THREADS_KEY}",
        counted(cores as usize, "core")
    );
    let evidence = vec![facts.counted("threads", threads), Fact::Words(setting)];
    Some(Found::new(Cause::Oversubscribed, evidence, 0.9))
}

/// Finds threads that wait for cores longer than before.
pub fn waiting_for_cores(facts: &Facts) -> Option<Found> {
    let pair = facts.call().filter(|_| facts.moved())?;
    let part = much_waiting(pair.head)?;
    if part < MORE * waits(pair.base)? {
        return None;
    }
    let words = Fact::Figure(waiting_words(pair.head, part));
    Some(Found::new(Cause::WaitingForCores, vec![words], 0.9))
}

/// Finds a call that takes many times its CPU time, and did not before, although no thread waits
/// for a core.
pub fn blocked(facts: &Facts) -> Option<Found> {
    let pair = facts.call().filter(|_| facts.moved())?;
    let (before, now) = (times_cpu(pair.base)?, times_cpu(pair.head)?);
    if now < MANY || now < MORE * before || waits(pair.head)? >= WAITING {
        return None;
    }
    let words = format!(
        "a call takes {} times its CPU time, before {} times: it sleeps, or waits for a lock, a \
         file or another process",
        Digits(now),
        Digits(before)
    );
    Some(Found::new(Cause::Blocked, vec![Fact::Figure(words)], 0.9))
}

/// Finds a call that computes with more denormal numbers than before.
pub fn denormals(facts: &Facts) -> Option<Found> {
    let count = facts.more(DENORMAL_VALUES)?;
    let evidence = vec![facts.counted(DENORMAL_VALUES, count), Fact::words(FLUSH)];
    Some(Found::new(Cause::Denormals, evidence, 0.8))
}

/// Finds more results of operations in a wider type than the inputs.
pub fn wider_type(facts: &Facts) -> Option<Found> {
    let count = facts.more(WIDER_RESULTS)?;
    let evidence = vec![facts.counted(WIDER_RESULTS, count), Fact::words(NARROW)];
    Some(Found::new(Cause::WiderType, evidence, 0.85))
}

/// Finds a call that keeps more memory than before.
pub fn memory_growth(facts: &Facts) -> Option<Found> {
    let pair = facts.call()?;
    let now = growth(pair.head)?;
    let before = growth(pair.base).unwrap_or_default();
    let kept = Difference::memory("memory_kept_a_call", Sides::new(before, now));
    let evidence = vec![kept.into(), Fact::words(FREE)];
    (now > MORE * before).then(|| Found::new(Cause::MemoryGrowth, evidence, 0.5))
}

/// True if writing `more_bytes` can take [`MIN_PART`] of the slowdown. More memory explains no
/// gain.
pub fn explains_time(facts: &Facts, more_bytes: f64) -> bool {
    let part = |slower: Nanoseconds| more_bytes * BYTE_NS >= MIN_PART * slower.0;
    let is_faster = facts.ratio < Ratio::grown_by(facts.threshold).inverse();
    facts.slower_by().map_or(!is_faster, part)
}

/// Finds garbage collections of Python that take longer, by at least [`MIN_PART`] of the slowdown.
pub fn garbage(facts: &Facts) -> Option<Found> {
    let time = facts.more(GARBAGE_NS)?;
    let slower_ns = facts.slower_by()?.0;
    if time.head < MORE * time.base || time.growth() < MIN_PART * slower_ns {
        return None;
    }
    let count = facts.count(GARBAGE_COLLECTIONS)?;
    let evidence = vec![
        facts.counted(GARBAGE_COLLECTIONS, count),
        Difference::time("their CPU time", time.map(|ns| Nanoseconds(*ns)), " a call").into(),
        Fact::words(FEWER_OBJECTS),
    ];
    Some(Found::new(Cause::GarbageCollection, evidence, 0.87))
}

/// Finds the function that grew most, if it accounts for at least half of the slowdown. Its share
/// of a call comes from a profiler, which lengthens quick functions.
pub fn slower_function(facts: &Facts) -> Option<Found> {
    if facts.clock != TimeSource::Wall {
        return None;
    }
    let (base, head) = facts.structures()?;
    let [base_ns, head_ns] = [facts.ns.base?, facts.ns.head?];
    let part = |(count, ppm): (&String, &u64)| {
        let name = count.strip_prefix(FUNCTION_PPM)?;
        Some((name.to_owned(), *ppm as f64 / 1e6))
    };
    let before: BTreeMap<String, f64> = base.counts.iter().filter_map(part).collect();
    if before.is_empty() {
        return None;
    }
    let times = head.counts.iter().filter_map(part).map(|(name, part)| {
        let part_before = before.get(&name).copied().unwrap_or(0.0);
        (name, Sides::new(base_ns * part_before, head_ns * part))
    });
    let (name, time) = times.max_by(|a, b| a.1.growth().0.total_cmp(&b.1.growth().0))?;
    if time.head < time.base * LONGER || !facts.explained_by(time.growth()) {
        return None;
    }
    let time = Difference::time(&name, time, " a call, by a profiler");
    Some(Found::new(Cause::SlowerFunction, vec![time.into()], 0.5))
}

/// Finds more page faults, if they take at least [`MIN_PART`] of the slowdown.
pub fn page_faults(facts: &Facts) -> Option<Found> {
    let pair = facts.call()?;
    let faults = |record: &CaseRecord| record.median_of(|one| one.page_faults.map(f64::from));
    let count = Sides::both(faults(pair.base), faults(pair.head))?;
    let slower_ns = facts.slower_by()?.0;
    let more_ns = FAULT_NS * (count.head - count.base);
    if more_ns <= 0.0 || count.head < MORE * count.base || more_ns < MIN_PART * slower_ns {
        return None;
    }
    let evidence = vec![facts.counted("page_faults", count), Fact::words(KEEP)];
    Some(Found::new(Cause::PageFaults, evidence, 0.6))
}
