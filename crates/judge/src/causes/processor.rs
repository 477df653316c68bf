//! A call on a processor: its threads and their waits, memory that it keeps, and numbers that are
//! slow to compute with.

use super::facts::{Facts, Found, Pair};
use crate::judgement::{Cause, Difference, Fact};
use regatta_core::machine::{DENORMAL_VALUES, Sides, WIDER_RESULTS};
use regatta_core::record::side::{CaseRecord, Invocation};
use regatta_core::suite::rules::Metric;
use regatta_worker::units::{Bytes, Digits, counted};

/// Where a suite sets the number of threads.
pub const THREADS_KEY: &str = "in `env` of the suite's environment";

/// Where numbers are denormal, and what helps.
pub const FLUSH: &str = "an operation on one may take 100 times as long: flush them to zero, or \
                         scale the values";

/// What makes temporaries of the type of the inputs.
pub const NARROW: &str = "make constants and temporaries of the type of the inputs";

/// How to stop memory from growing.
pub const FREE: &str = "free what a call allocates, or bound the cache that keeps it";

/// So many times its CPU time a call takes that waits.
pub const MANY: f64 = 3.0;

/// The threads that computed in a call: the median over invocations.
pub fn threads(record: &CaseRecord) -> Option<f64> {
    record.median_of(|one| one.threads.map(f64::from))
}

/// How many times its CPU time a call takes, and whether most of that is its threads' waits for a
/// core.
pub fn waits(record: &CaseRecord) -> Option<(f64, bool)> {
    let wall = record.median(Metric::Device)?;
    let cpu = record.median(Metric::CpuTime)?;
    let waited = |one: &Invocation| one.waited_ns.map(|time| time.0);
    let for_cores = threads(record)? > 1.0 && record.median_of(waited)? >= wall / 2.0;
    Some((wall / cpu, for_cores))
}

/// Growth of resident memory in bytes a call.
pub fn growth(record: &CaseRecord) -> Option<f64> {
    record.median_of(|one| one.growth_bytes_per_call)
}

impl Pair<'_> {
    /// The threads that computed in a call, where both sides know them.
    pub fn threads(&self) -> Option<Sides<f64>> {
        Sides::both(threads(self.base), threads(self.head))
    }
}

/// More threads compute than did, and than the machine has cores.
pub fn oversubscribed(facts: &Facts) -> Option<Found> {
    let pair = facts.call()?;
    let cores = pair.cores?;
    let threads = pair.threads()?;
    if threads.growth() <= 0.0 || threads.head <= f64::from(cores) {
        return None;
    }
    let setting = format!(
        "the machine has {}: set OMP_NUM_THREADS={cores} {THREADS_KEY}",
        counted(cores as usize, "core")
    );
    let told = vec![facts.counted("threads", threads), Fact::Words(setting)];
    Some(Found::new(Cause::Oversubscribed, told, 0.9))
}

/// A call takes many times its CPU time, and did not: its threads wait for cores, or it waits for
/// something else.
pub fn waiting(facts: &Facts) -> Option<Found> {
    let pair = facts.call().filter(|_| facts.moved())?;
    let (before, _) = waits(pair.base)?;
    let (now, for_cores) = waits(pair.head)?;
    if now < MANY || now < 1.5 * before {
        return None;
    }
    let times = format!(
        "a call takes {} times its CPU time, before {} times",
        Digits(now),
        Digits(before)
    );
    let (cause, reason) = if for_cores {
        let setting = format!(
            "its threads wait for cores; OMP_NUM_THREADS=1 {THREADS_KEY} measures the code"
        );
        (Cause::WaitingForCores, setting)
    } else {
        let reason = "it sleeps, or waits for a lock, a file or another process";
        (Cause::Blocked, reason.to_owned())
    };
    let told = vec![Fact::Figure(times), Fact::Words(reason)];
    Some(Found::new(cause, told, 0.9))
}

/// More of the numbers that a call computes with are denormal.
pub fn denormals(facts: &Facts) -> Option<Found> {
    let count = facts.more(DENORMAL_VALUES)?;
    let told = vec![
        facts.counted(DENORMAL_VALUES, count),
        Fact::Words(FLUSH.to_owned()),
    ];
    Some(Found::new(Cause::Denormals, told, 0.8))
}

/// More results of operations are in a wider type than the inputs.
pub fn wider_type(facts: &Facts) -> Option<Found> {
    let count = facts.more(WIDER_RESULTS)?;
    let told = vec![
        facts.counted(WIDER_RESULTS, count),
        Fact::Words(NARROW.to_owned()),
    ];
    Some(Found::new(Cause::WiderType, told, 0.85))
}

/// A call keeps memory, and did not, or kept less.
pub fn memory_growth(facts: &Facts) -> Option<Found> {
    let pair = facts.call()?;
    let now = growth(pair.head)?;
    let before = growth(pair.base).unwrap_or_default();
    let bytes = Sides::new(before, now).map(|bytes| Bytes(*bytes as u64));
    let told = vec![
        Difference::Memory {
            name: "memory_kept_a_call".to_owned(),
            size: bytes,
        }
        .into(),
        Fact::Words(FREE.to_owned()),
    ];
    (now > 1.5 * before).then(|| Found::new(Cause::MemoryGrowth, told, 0.5))
}
