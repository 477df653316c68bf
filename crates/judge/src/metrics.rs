//! The metrics of a case, compared with the base's by the [rule](super::rule).
//!
//! An invocation gives one value a metric. Those that other programs disturbed, as the machine's
//! counters tell, are left out where five others are there; else all count, and can show a
//! regression alone: a disturbed invocation never shows *same*.

use std::num::NonZeroU64;

use super::judgement::{Change, MetricRow, Uncounted, Word};
use super::rows::RowInputs;
use super::rule::{FEWEST, LOOKS, RuleResult, Series, Terms, compare, fewest_to_show};
use regatta_core::record::disturbance::{describe, worst};
use regatta_core::record::side::{CaseRecord, Invocation};
use regatta_core::record::types::RunHeader;
use regatta_core::suite::rules::{Metric, Policy};
use regatta_worker::units::{Ratio, Share, counted};

/// More pairs than these are not asked for: they would hardly help.
const MOST_ASKED: f64 = 200.0;

/// What one invocation gives of a metric.
#[derive(Clone, Copy)]
pub struct Value {
    /// Which invocation.
    number: u32,
    /// The natural logarithm.
    log: f64,
    /// True where other programs disturbed it.
    disturbed: bool,
}

impl Value {
    /// The same, of a metric that load does not count in.
    pub fn undisturbed(self) -> Value {
        Value {
            disturbed: false,
            ..self
        }
    }
}

/// The values that two sides are compared by.
pub struct ComparedValues {
    /// The base's, natural logarithms.
    pub base: Vec<f64>,
    /// The head's.
    pub head: Vec<f64>,
    /// Values of both sides that were disturbed.
    pub disturbed: usize,
    /// Values that were not, of the side with fewer of them.
    pub quiet: usize,
    /// Values of both sides, those that are left out included.
    pub all: usize,
}

impl ComparedValues {
    /// Leaves out what was disturbed, where enough others are there. Of pairs those count that
    /// both sides have, and each as a whole.
    pub fn new(mut base: Vec<Value>, mut head: Vec<Value>, paired: bool) -> ComparedValues {
        if paired {
            let pairs = base.iter().filter_map(|one| {
                let other = head.iter().find(|other| other.number == one.number)?;
                let disturbed = one.disturbed || other.disturbed;
                Some((
                    Value { disturbed, ..*one },
                    Value {
                        disturbed,
                        ..*other
                    },
                ))
            });
            (base, head) = pairs.unzip();
        }
        let quiet = |side: &[Value]| side.iter().filter(|one| !one.disturbed).count();
        let all = base.len() + head.len();
        let disturbed = all - quiet(&base) - quiet(&head);
        let quiet = quiet(&base).min(quiet(&head));
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
            all,
        }
    }

    /// True where values count that were disturbed.
    pub fn are_disturbed(&self) -> bool {
        self.disturbed > 0 && self.quiet < FEWEST
    }

    /// How many were left out.
    fn left_out(&self) -> usize {
        match self.are_disturbed() {
            true => 0,
            false => self.disturbed,
        }
    }
}

/// What other programs did to so many of `counted`, as a sentence, and what to do about it.
pub fn interference(
    records: [&CaseRecord; 2],
    disturbed: usize,
    counted: &str,
) -> (String, &'static str) {
    let all = records.iter().flat_map(|record| &record.invocations);
    let by = worst(all.flat_map(|one| &one.disturbed));
    let sentence = format!(
        "other programs disturbed {disturbed} of {counted} ({})",
        describe(&by)
    );
    (sentence, by.first().map_or("", |first| first.advice()))
}

/// Compares a metric of a case; `None` where a side has no value. `day` is what may lie between the
/// sides beside the code. `cpu` is the same of CPU time, where both sides ran the same number of
/// tasks: who waits for a core is slower on the wall, and takes no more CPU time.
pub fn metric_row(
    metric: Metric,
    day: Share,
    (base, head): (&CaseRecord, &CaseRecord),
    how: &RowInputs,
    error: f64,
    cpu: Option<&MetricRow>,
) -> Option<MetricRow> {
    let values = values(metric, (base, head), how.paired);
    let medians = (base.median(metric)?, head.median(metric)?);
    let threshold = threshold(how.policy().threshold_of(metric), metric, medians.0);
    let series = Series {
        base: &values.base,
        head: &values.head,
        paired: how.paired,
    };
    let terms = Terms {
        threshold,
        day: day.0.ln_1p(),
        error,
        last: how.last,
    };
    let compared = compare(series, terms)?;
    let pairs = values.base.len().min(values.head.len());
    // Of a stored base that is too small, more of the head show nothing.
    let helps = how.paired || values.base.len() >= FEWEST && values.head.len() < most();
    let mut ruling = ruling(&compared, &terms, pairs, how.paired);
    if !how.paired && values.base.len() < FEWEST && ruling.word == Word::Inconclusive {
        let base = counted(values.base.len(), "invocation");
        let reason = format!(
            "{}; the base has {base}, and {FEWEST} are needed",
            between(&compared)
        );
        ruling.reason = Some(reason);
    }
    let mut open = ruling.open && helps && (metric == Metric::Device || ruling.may_be_worse);
    // Load only adds: what took less than the least change in all cannot have grown by it.
    let all = head.values(metric);
    if ruling.word != Word::Improved && all.iter().all(|value| *value <= metric.least_change()) {
        (ruling, open) = (Ruling::SAME, false);
    } else if values.are_disturbed() && (ruling.word != Word::Regressed || !how.paired) {
        // Of pairs, load is in both sides.
        let counted = counted(values.all, "invocation");
        let (why, advice) = interference([base, head], values.disturbed, &counted);
        let cpu = cpu.filter(|_| metric.is_wall_time());
        // Beside a load that stays, more invocations show no more, but of the CPU time.
        (ruling.may_be_worse, open) = match cpu.map(|cpu| (cpu.word, cpu)) {
            Some((Word::Same, _)) => (false, false),
            Some((Word::Improved, _)) => (true, false),
            Some((_, cpu)) => (cpu.may_be_worse, cpu.change.invocations.1 < most()),
            None => {
                let open = values.quiet > 0 && pairs < most() && helps;
                (true, open)
            }
        };
        let (word, reason) = match cpu.filter(|cpu| cpu.word == Word::Same) {
            Some(cpu) => {
                let interval = cpu.change.interval();
                let interval = interval.map_or(String::new(), |of| format!(" {of}"));
                let reason = format!("same by CPU time{interval}: {why}");
                (Word::Same, reason)
            }
            None => (Word::Inconclusive, format!("{why}: {advice}")),
        };
        (ruling.word, ruling.reason) = (word, Some(reason));
    }
    let interval = compared.low.is_finite() && compared.high.is_finite();
    let end = |end: f64| interval.then(|| Ratio(end.exp()));
    let detectable = compared.detectable(threshold, pairs).exp_m1();
    Some(MetricRow {
        metric,
        word: ruling.word,
        reason: ruling.reason,
        may_be_worse: ruling.may_be_worse,
        open,
        disturbed: values.are_disturbed(),
        base: medians.0,
        head: medians.1,
        change: Change {
            ratio: Ratio(compared.change.exp()),
            low: end(compared.low),
            high: end(compared.high),
            threshold: Share(threshold.exp_m1()),
            detectable: (how.paired && interval).then_some(Share(detectable)),
            invocations: (values.base.len(), values.head.len()),
            paired: how.paired,
            left_out: values.left_out(),
        },
        account: None,
    })
}

/// Metrics that each invocation of the base has, and not each of the head. The slow tenth is of
/// the samples that the device time is of, and absent where they are fewer than ten.
pub fn vanished(
    (base, head): (&CaseRecord, &CaseRecord),
    policy: &Policy,
) -> impl Iterator<Item = Uncounted> {
    let has = |record: &CaseRecord, metric| record.values(metric).len();
    let judged = Metric::ALL.into_iter().filter(move |metric| {
        *metric != Metric::DeviceP90 && !policy.ignores(*metric) && has(base, *metric) > 0
    });
    let lost = judged.filter(move |metric| {
        let all = head.invocations.len();
        has(base, *metric) == base.invocations.len() && has(head, *metric) < all
    });
    lost.map(move |metric| {
        let reason = match (has(head, metric), head.invocations.len()) {
            (0, _) => format!(
                "its worker does not report it, and `ignore = [\"{}\"]` would not judge it",
                metric.name()
            ),
            (some, all) => format!("{some} of {all} invocations have it"),
        };
        Uncounted::new(metric.text(), None, Some(reason))
    })
}

/// The smallest change that counts, a difference of logarithms: the relative one, or what the
/// least amount is of the base.
fn threshold(share: Share, metric: Metric, base: f64) -> f64 {
    share.0.ln_1p().max((metric.least_change() / base).ln_1p())
}

fn most() -> usize {
    LOOKS[LOOKS.len() - 1] as usize
}

/// A word with all that belongs to it.
pub struct Ruling {
    /// The word.
    pub word: Word,
    /// Why, and what would decide it.
    pub reason: Option<String>,
    /// True where it may be worse.
    pub may_be_worse: bool,
    /// True where more invocations could decide it.
    pub open: bool,
}

impl Ruling {
    /// Nothing got worse.
    pub const SAME: Ruling = Ruling {
        word: Word::Same,
        reason: None,
        may_be_worse: false,
        open: false,
    };
}

/// The word for what the rule says of so many pairs, or of so many invocations a side.
pub fn ruling(of: &RuleResult, terms: &Terms, pairs: usize, paired: bool) -> Ruling {
    let threshold = terms.threshold;
    let slow = match of.slow_starts {
        true => "; more starts are slow than of the base",
        false => "",
    };
    let reason = match of.word {
        Word::Regressed if of.low <= threshold && of.slow_starts => {
            Some(format!("{}{slow}", between(of)))
        }
        Word::Regressed if of.low <= threshold => {
            Some(format!("{}; the sides lie far apart", between(of)))
        }
        Word::Inconclusive => {
            let needed = needed(of, terms, pairs, paired);
            Some(format!("{}{slow}; {needed}", between(of)))
        }
        _ => None,
    };
    Ruling {
        word: of.word,
        reason,
        may_be_worse: of.may_be_worse(threshold),
        open: of.word == Word::Inconclusive && pairs < most(),
    }
}

/// `between -1.0 and +2.9 %`.
fn between(of: &RuleResult) -> String {
    let percent = |log: f64| 100.0 * log.exp_m1();
    match of.low.is_finite() && of.high.is_finite() {
        true => format!(
            "between {:+.1} and {:+.1} %",
            percent(of.low),
            percent(of.high)
        ),
        false => format!(
            "about {:+.1} %, by too few invocations for an interval",
            percent(of.change)
        ),
    }
}

/// What would decide it: `20 more pairs would decide`.
fn needed(of: &RuleResult, terms: &Terms, pairs: usize, paired: bool) -> String {
    let threshold = terms.threshold;
    let what = match paired {
        true => "pair",
        false => "invocation",
    };
    let half = (of.high - of.low) / 2.0;
    let room = (threshold - of.change.abs()).abs();
    let narrow = match half.is_finite() {
        true => (pairs as f64 * (half / room).powi(2)).ceil(),
        false => 0.0,
    };
    let fewest = match of.change.abs() > threshold {
        true => fewest_to_show(terms.error),
        false => FEWEST,
    };
    let all = narrow.max(fewest as f64);
    let more = (all - pairs as f64).max(1.0);
    match more <= MOST_ASKED {
        true => format!(
            "{} would decide",
            counted(more as usize, &format!("more {what}"))
        ),
        false => format!("it lies at the threshold of {}", Share(threshold.exp_m1())),
    }
}

/// What the invocations of a record give of a metric; of host time the ratio to the reference
/// operation with `by_reference`. `disturbed_by` is the metric whose load counts.
pub fn values_of(
    record: &CaseRecord,
    metric: Metric,
    disturbed_by: Metric,
    by_reference: bool,
) -> Vec<Value> {
    let value = |one: &Invocation| {
        let value = one.values.get(metric)?;
        let log = match by_reference {
            true => one.host_ratio?.ln(),
            false => value.ln(),
        };
        log.is_finite().then_some(Value {
            number: one.number,
            log,
            disturbed: one.is_disturbed(disturbed_by),
        })
    };
    record.invocations.iter().filter_map(value).collect()
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
    // Beside other programs a call takes more CPU time too: caches are shared.
    let disturbed_by = match metric {
        Metric::CpuTime if !paired => Metric::Device,
        metric => metric,
    };
    let of = |record| values_of(record, metric, disturbed_by, by_reference);
    ComparedValues::new(of(base), of(head), paired)
}

/// What a worker counts of the work that runs at once: tasks, or else the threads that had any.
fn parallelism(record: &CaseRecord) -> Option<(&'static str, u64)> {
    let counts = &record.structure.as_ref()?.counts;
    let mut names = ["tasks", "threads"].into_iter();
    names.find_map(|name| Some((name, *counts.get(name)?)))
}

/// True where both sides ran the same number of tasks. CPU time compares the work of two calls, and
/// not how many cores share it.
pub fn same_tasks(base: &CaseRecord, head: &CaseRecord) -> bool {
    parallelism(base).is_some() && parallelism(base) == parallelism(head)
}

/// By how much a call of the head takes longer than one of the base for the same CPU time, as a
/// logarithm: of tasks that are alike, the busiest of the machine's cores has a whole number.
/// `None` where tasks or cores are not known and the tasks are not as many.
pub fn longer_by_tasks(header: &RunHeader, base: &CaseRecord, head: &CaseRecord) -> Option<f64> {
    if same_tasks(base, head) {
        return Some(0.0);
    }
    let cores = header.machine.hard.get("cpu.cores")?.parse::<NonZeroU64>();
    let cores = cores.ok()?.get();
    let ((base_of, base), (head_of, head)) = parallelism(base).zip(parallelism(head))?;
    let busiest = |tasks: u64| tasks.div_ceil(cores) as f64 / tasks as f64;
    let longer = (busiest(head) / busiest(base)).ln();
    (base_of == head_of && longer.is_finite()).then_some(longer)
}
