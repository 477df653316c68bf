//! Compares the metrics of a case with the base's by the [rule](super::rule).
//!
//! An invocation gives one value for each metric. Values that other programs disturbed, by the
//! machine's counters, are left out if five others remain; else all are compared, and [`decide`]
//! knows that they are disturbed.

use std::cmp::Ordering;
use std::num::NonZeroU64;

use super::decide::{Decision, Observed, decide, max_pairs};
use super::judgement::{MetricRow, Uncounted, Word};
use super::rows::RowInputs;
use super::rule::{BothSides, FEWEST, IMPROVED, SlowStarts, Terms, needed_pairs};
use regatta_core::record::{CaseRecord, Invocation, RunHeader};
use regatta_core::suite::{Metric, Policy};
use regatta_worker::units::{Ratio, Share, counted};

/// The largest number of pairs that a reason asks for: more would hardly help.
const MAX_ASKED: f64 = 200.0;

/// The share of the wall-clock time below which a call's CPU time means that it waits for something
/// other than a core: a lock, a device, a timer. CPU time says nothing about such waits.
const COMPUTES: f64 = 0.8;

/// The value of a metric in one invocation.
#[derive(Clone, Copy)]
pub struct Value {
    /// The number of the invocation.
    number: u32,
    /// The natural logarithm of the value.
    log: f64,
    /// The logarithm of the ratio to the base's samples, if the two sides' samples were taken in
    /// turns.
    ratio: Option<f64>,
    /// True where other programs disturbed the value.
    disturbed: bool,
}

/// The values by which two sides are compared.
pub struct ComparedValues {
    /// The natural logarithms of the base's values.
    pub base: Vec<f64>,
    /// The natural logarithms of the head's values.
    pub head: Vec<f64>,
    /// The numbers of disturbed values of base and head; for pairs, of pairs in which either value
    /// was disturbed.
    pub disturbed: [usize; 2],
    /// The number of undisturbed values, of the side that has fewer.
    pub quiet: usize,
    /// True where each value of one side is paired with one of the other.
    pub paired: bool,
    /// True where the samples of each pair were taken in turns.
    pub in_turns: bool,
}

impl ComparedValues {
    /// Leaves disturbed values out if enough others remain. In pairs, only invocations of both
    /// sides count, and a pair is left out as a whole.
    pub fn new(mut base: Vec<Value>, mut head: Vec<Value>, paired: bool) -> ComparedValues {
        let in_turns = paired && head.iter().all(|one| one.ratio.is_some());
        if paired {
            let pairs = base.iter().filter_map(|base| {
                let head = head.iter().find(|head| head.number == base.number)?;
                let disturbed = base.disturbed || head.disturbed;
                let log = match head.ratio {
                    Some(ratio) if in_turns => base.log + ratio,
                    _ => head.log,
                };
                let head = Value {
                    disturbed,
                    log,
                    ..*head
                };
                Some((Value { disturbed, ..*base }, head))
            });
            (base, head) = pairs.unzip();
        }
        let disturbed = [&base, &head].map(|side| side.iter().filter(|one| one.disturbed).count());
        let quiet = (base.len() - disturbed[0]).min(head.len() - disturbed[1]);
        if quiet >= FEWEST {
            base.retain(|one| !one.disturbed);
            head.retain(|one| !one.disturbed);
        }
        let logs = |side: Vec<Value>| side.into_iter().map(|one| one.log).collect();
        ComparedValues {
            base: logs(base),
            head: logs(head),
            disturbed,
            quiet,
            paired,
            in_turns,
        }
    }

    /// The values of both sides.
    fn both(&self) -> BothSides<'_> {
        BothSides {
            base: &self.base,
            head: &self.head,
            paired: self.paired,
            in_turns: self.in_turns,
        }
    }

    /// The number of compared values, of the side that has fewer.
    pub fn pairs(&self) -> usize {
        self.base.len().min(self.head.len())
    }

    /// True where disturbed values are compared.
    pub fn are_disturbed(&self) -> bool {
        self.quiet < FEWEST && self.disturbed != [0, 0]
    }

    /// The number of invocations left out.
    fn left_out(&self) -> u32 {
        if self.are_disturbed() {
            0
        } else {
            self.disturbed.iter().sum::<usize>() as u32
        }
    }
}

/// Compares a metric of a case; `None` where a side has no value. `day` is the day-to-day allowance
/// between the sides.
pub fn metric_row(
    metric: Metric,
    day: Share,
    records: (&CaseRecord, &CaseRecord),
    sides: &RowInputs,
    error: f64,
) -> Option<MetricRow> {
    let (base, head) = records;
    let values = values(metric, records, sides.paired);
    let medians = (base.median(metric)?, head.median(metric)?);
    let terms = Terms {
        threshold: threshold(
            share_of(metric, head, sides.policy()),
            least_change(metric, head),
            medians.0,
        ),
        day: day.0.ln_1p(),
        error,
        error_of_improved: IMPROVED,
        last: sides.last,
    };
    let may_replace = metric.is_wall_time() && !sides.policy().ignores(Metric::CpuTime);
    let has_cpu = may_replace && has_cpu_time(base) && has_cpu_time(head);
    let cpu = (has_cpu && same_threads(base, head) && computes(base) && computes(head))
        .then(|| self::values(Metric::CpuTime, records, sides.paired));
    let decision = decide(&values.observed(records, cpu.as_ref()), &terms)?;
    let mut change = decision.comparison;
    let mut reason = values.reason(&decision, &terms, Ratio::ONE);
    // If the stored base has too few values, more values of the head do not help.
    let helps = sides.paired || values.base.len() >= FEWEST && values.head.len() < max_pairs();
    if !sides.paired && values.base.len() < FEWEST && change.word == Word::Inconclusive {
        let base = counted(values.base.len(), "invocation");
        let between = change.between();
        reason = Some(format!(
            "{between}; the base has {base}, and {FEWEST} are needed"
        ));
    }
    change.open &= helps && (metric == Metric::Device || change.may_be_worse);
    // Load only slows, so a value below the least change cannot have grown by it.
    let small = head
        .values(metric)
        .all(|value| value <= metric.least_change());
    if small && change.word != Word::Improved {
        (change.word, change.by_cpu_time, reason) = (Word::Same, false, None);
        (change.may_be_worse, change.open) = (false, false);
    }
    if metric == Metric::CpuTime {
        // CPU time only explains, unless it decides in place of another metric.
        (change.may_be_worse, change.open) = (false, false);
    }
    if metric == Metric::Device
        && change.has_moved()
        && let Some(other) = other_threads(base, head)
    {
        reason = Some(reason.map_or(other.clone(), |reason| format!("{reason}; {other}")));
    }
    Some(MetricRow {
        metric,
        base: medians.0,
        head: medians.1,
        change,
        reason,
        disturbed: values.are_disturbed(),
        left_out: values.left_out(),
        account: None,
    })
}

impl ComparedValues {
    /// The values for [`decide`], with the CPU time of both sides if it can decide in their place.
    pub fn observed<'a>(
        &'a self,
        (base, head): (&CaseRecord, &CaseRecord),
        cpu: Option<&'a ComparedValues>,
    ) -> Observed<'a> {
        let is_disturbed = self.are_disturbed();
        Observed {
            values: self.both(),
            base_disturbed: is_disturbed && self.disturbed[0] > 0,
            head_disturbed: is_disturbed && self.disturbed[1] > 0,
            waits: is_disturbed && !(takes_waits_out(base) && takes_waits_out(head)),
            some_quiet: self.quiet > 0,
            threads: if is_disturbed {
                compare_threads(base, head)
            } else {
                Ordering::Equal
            },
            cpu: cpu.map(ComparedValues::both),
        }
    }

    /// The reason for the word, and what would decide an open comparison, where the word alone does
    /// not say it. `by` scales the change in the text: the compared head values were divided by it.
    pub fn reason(&self, decision: &Decision, terms: &Terms, by: Ratio) -> Option<String> {
        let (comparison, starts) = (&decision.comparison, &decision.slow_starts);
        let shown = comparison.scaled(by);
        let beside = if self.are_disturbed() {
            ", beside other programs"
        } else {
            ""
        };
        if let Some(cpu) = decision.by_cpu() {
            return Some(format!("by CPU time {}{beside}", cpu.scaled(by)));
        }
        let limit = comparison.limit();
        let may_be_faster = comparison.low.is_some_and(|low| low < limit.inverse());
        match comparison.word {
            Word::Regressed if comparison.is_above(limit) => {
                starts.are_slower_than(shown.ratio).then(|| slow(starts))
            }
            Word::Regressed if starts.likely => {
                Some(format!("{}; {}", shown.between(), slow(starts)))
            }
            Word::Regressed => Some(format!("{}; the ranges do not overlap", shown.between())),
            Word::Same if may_be_faster || !beside.is_empty() => {
                let high = 100.0 * shown.high?.growth().0;
                Some(if high < 0.0 {
                    format!("at least {:.1} % faster{beside}", -high)
                } else {
                    format!("no more than {high:+.1} %{beside}")
                })
            }
            Word::Inconclusive => Some(self.open_reason(decision, terms, by, beside)),
            _ => None,
        }
    }

    fn open_reason(&self, decision: &Decision, terms: &Terms, by: Ratio, beside: &str) -> String {
        let (comparison, starts) = (&decision.comparison, &decision.slow_starts);
        let mut reason = comparison.scaled(by).between() + beside;
        if starts.head.0 > starts.base.0 {
            reason += &format!("; {}", slow(starts));
        }
        if let Some(cpu) = &decision.cpu {
            reason += &format!("; CPU time {}", cpu.scaled(by));
        } else if decision.diluted {
            reason += "; waits for a core are in these times";
        }
        let pairs = self.pairs();
        let more = needed_pairs(comparison, terms, pairs) - pairs as f64;
        let what = if self.paired {
            "more pair"
        } else {
            "more invocation"
        };
        if more > MAX_ASKED {
            reason + &format!("; it lies at the threshold of {}", comparison.threshold)
        } else if more >= 1.0 && (comparison.open || !decision.diluted) {
            reason + &format!("; {} would decide", counted(more as usize, what))
        } else if comparison.open {
            reason + &format!("; {what}s may decide")
        } else {
            // The present number would suffice; slow starts, waits or different threads keep it
            // open.
            reason
        }
    }
}

/// `7 of 35 starts take 3.0 times as long, 0 of 5 of the base`.
fn slow(starts: &SlowStarts) -> String {
    let (head, base) = (starts.head, starts.base);
    format!(
        "{} of {} starts take {:.1} times as long, {} of {} of the base",
        head.0, head.1, starts.times, base.0, base.1
    )
}

/// The metrics that the base has and the head lacks, or lacks in some invocations although each of
/// the base has them.
pub fn vanished(
    (base, head): (&CaseRecord, &CaseRecord),
    policy: &Policy,
) -> impl Iterator<Item = Uncounted> {
    let values = |record: &CaseRecord, metric| record.values(metric).count();
    let judged = Metric::ALL.into_iter();
    let judged = judged.filter(move |metric| !policy.ignores(*metric) && values(base, *metric) > 0);
    let lost = judged.filter(move |metric| {
        let (some, all) = (values(head, *metric), head.invocations.len());
        let in_each = values(base, *metric) == base.invocations.len();
        some == 0 || in_each && some < all
    });
    lost.map(move |metric| {
        let reason = match (values(head, metric), head.invocations.len()) {
            (0, _) => format!(
                "its worker does not report it, and `ignore = [\"{}\"]` would not judge it",
                metric.name()
            ),
            (some, all) => format!("{some} of {all} invocations have it"),
        };
        Uncounted::new(metric.text(), None, Some(reason))
    })
}

/// The smallest relative change that counts. The resident memory of a process on a CPU contains its
/// interpreter, its libraries and the buffers of each thread. So a growth by a tenth only explains,
/// and a doubling fails, unless the suite sets its own threshold.
fn share_of(metric: Metric, head: &CaseRecord, policy: &Policy) -> Share {
    let share = policy.threshold_of(metric);
    let is_resident = metric == Metric::PeakMemory && has_cpu_time(head);
    if is_resident && !policy.thresholds.contains_key(&metric) {
        Share(share.0.max(RESIDENT.0))
    } else {
        share
    }
}

/// The smallest relative change of resident memory that counts.
const RESIDENT: Share = Share(1.0);

/// The smallest change that counts, as a difference of logarithms: the larger of the relative
/// change and of the least amount over the base.
fn threshold(share: Share, least: f64, base: f64) -> f64 {
    share.0.ln_1p().max((least / base).ln_1p())
}

/// The least absolute change that counts. For device time on a GPU it is at least a step of the
/// clock: kernels of 1 µs differ by several steps from one process to the next.
fn least_change(metric: Metric, head: &CaseRecord) -> f64 {
    if metric == Metric::Device && !has_cpu_time(head) {
        metric.least_change().max(GPU_CLOCK_STEP_NS)
    } else {
        metric.least_change()
    }
}

/// True for a case on a CPU, whose worker reports CPU time; a GPU's worker does not.
fn has_cpu_time(record: &CaseRecord) -> bool {
    record.values(Metric::CpuTime).next().is_some()
}

/// The step of the device clock: times on an H100 and an H200 are multiples of it.
const GPU_CLOCK_STEP_NS: f64 = 32.0;

/// The values of a record's invocations. With `by_reference`, host time is divided by that of the
/// reference operation. `disturbed_by` is the metric whose disturbance marks a value.
pub fn values_of(
    record: &CaseRecord,
    metric: Metric,
    disturbed_by: Metric,
    by_reference: bool,
) -> Vec<Value> {
    let invocations = record.invocations.iter();
    let mut values = Vec::with_capacity(invocations.len());
    values.extend(invocations.filter_map(|one| value(one, metric, disturbed_by, by_reference)));
    values
}

fn value(
    one: &Invocation,
    metric: Metric,
    disturbed_by: Metric,
    by_reference: bool,
) -> Option<Value> {
    let value = one.values.get(metric)?;
    let value = if by_reference { one.host_ratio? } else { value };
    let log = value.ln();
    log.is_finite().then_some(Value {
        number: one.number,
        log,
        ratio: None,
        disturbed: one.is_disturbed(disturbed_by),
    })
}

/// The values of a metric on both sides.
fn values(
    metric: Metric,
    (base, head): (&CaseRecord, &CaseRecord),
    paired: bool,
) -> ComparedValues {
    let known = |record: &CaseRecord| {
        let mut timed = record.invocations.iter();
        timed.all(|one| one.values.get(metric).is_none() || one.host_ratio.is_some())
    };
    let by_reference = metric == Metric::Host && known(base) && known(head);
    // Load also raises the CPU time of a call, because caches are shared.
    let disturbed_by = match metric {
        Metric::CpuTime if !paired => Metric::Device,
        metric => metric,
    };
    let values = |record| values_of(record, metric, disturbed_by, by_reference);
    let mut of_head = values(head);
    if paired {
        let mut invocations = head.invocations.iter();
        for value in &mut of_head {
            let own = invocations.find(|one| one.number == value.number);
            let ratio = own
                .and_then(|one| one.ratios.get(&metric))
                .map(|ratio| ratio.ln());
            value.ratio = ratio.filter(|ratio| ratio.is_finite());
        }
    }
    ComparedValues::new(values(base), of_head, paired)
}

/// The number of tasks into which our own kernels divide a call, where the worker counts them.
fn tasks(record: &CaseRecord) -> Option<u64> {
    record.structure.as_ref()?.counts.get("tasks").copied()
}

/// The number of threads that used CPU time in a call: the median over invocations.
fn threads(record: &CaseRecord) -> Option<u64> {
    let threads = record.median_of(|one| one.threads.map(f64::from))?;
    Some(threads.round() as u64)
}

/// True where both sides ran the same number of tasks, or used the same number of threads. CPU time
/// compares the work of two calls, not the number of cores that share it.
fn same_threads(base: &CaseRecord, head: &CaseRecord) -> bool {
    let known = |record| tasks(record).or(threads(record)).is_some();
    known(base) && known(head) && compare_threads(base, head) == Ordering::Equal
}

/// Compares the head's number of tasks with the base's, or else of threads; equal if unknown.
fn compare_threads(base: &CaseRecord, head: &CaseRecord) -> Ordering {
    let compared = |count: fn(&CaseRecord) -> Option<u64>| Some(count(head)?.cmp(&count(base)?));
    compared(tasks)
        .or(compared(threads))
        .unwrap_or(Ordering::Equal)
}

/// `on 2 threads in place of 1`, where the sides differ.
fn other_threads(base: &CaseRecord, head: &CaseRecord) -> Option<String> {
    let (base, head) = (threads(base)?, threads(head)?);
    let plural = if head == 1 { "thread" } else { "threads" };
    (base != head).then(|| format!("on {head} {plural} in place of {base}"))
}

/// True where the worker subtracted waits for a core in every invocation.
fn takes_waits_out(record: &CaseRecord) -> bool {
    record.invocations.iter().all(|one| one.waits_taken_out)
}

/// False for a call that waits for something other than a core, as far as known: its CPU time is
/// much less than its wall-clock time without waits for cores.
pub fn computes(record: &CaseRecord) -> bool {
    let Some(cpu) = record
        .median(Metric::CpuTime)
        .filter(|_| takes_waits_out(record))
    else {
        return true;
    };
    let device = record.median(Metric::Device);
    device.is_none_or(|device| cpu >= COMPUTES * device)
}

/// The growth of a call's time at equal CPU time, as a logarithm. Tasks of equal size are whole:
/// the busiest core has `ceil(tasks / cores)` of them. `None` unless both sides have the same
/// number of threads, or tasks and cores are known.
pub fn longer_by_tasks(header: &RunHeader, base: &CaseRecord, head: &CaseRecord) -> Option<f64> {
    if same_threads(base, head) {
        return Some(0.0);
    }
    let cores = header.machine.hard.get("cpu.cores")?.parse::<NonZeroU64>();
    let cores = cores.ok()?.get();
    let busiest = |tasks: u64| tasks.div_ceil(cores) as f64 / tasks as f64;
    let longer = (busiest(tasks(head)?) / busiest(tasks(base)?)).ln();
    longer.is_finite().then_some(longer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::record::Outcome;

    #[test]
    fn a_tenth_more_of_resident_memory_explains_and_of_a_device_fails() {
        let mut record = CaseRecord::empty(Outcome::Measured(()));
        let usual = Policy::default();
        let mut own = Policy::default();
        own.thresholds.insert(Metric::PeakMemory, Share(0.2));
        let share = |record: &CaseRecord, policy| share_of(Metric::PeakMemory, record, policy).0;
        let mut invocation = Invocation::default();
        record.invocations.push(invocation.clone());
        assert_eq!(share(&record, &usual), 0.1);
        invocation.values.set(Metric::CpuTime, Some(1e6));
        record.invocations = vec![invocation];
        assert_eq!(share(&record, &usual), 1.0);
        assert_eq!(share(&record, &own), 0.2);
    }
}
