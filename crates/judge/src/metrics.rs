//! The metrics of a case, compared with the base's by the [rule](super::rule).
//!
//! An invocation gives one value a metric. Those that other programs disturbed, as the machine's
//! counters tell, are left out where five others are there; else all count, and can show a
//! regression alone: a disturbed invocation never shows *same*.

use super::judgement::{Change, MetricRow, Word};
use super::rule::{Answer, Comparison, FEWEST, LOOKS, Series, Terms, compare, fewest_to_show};
use regatta_core::record::disturbance::{told, worst};
use regatta_core::record::side::{CaseRecord, Invocation};
use regatta_core::record::types::RunHeader;
use regatta_core::suite::rules::{Metric, Policy};
use regatta_worker::units::{Ratio, Share, counted};

/// More pairs than these are not asked for: they would hardly help.
const MOST_ASKED: f64 = 200.0;

/// How the metrics of two sides are compared.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    /// Thresholds, and what is ignored.
    pub policy: &'a Policy,
    /// Under what the head was measured.
    pub header: &'a RunHeader,
    /// True where base and head were measured in pairs.
    pub paired: bool,
    /// One comparison's share of the gate's error.
    pub error: f64,
    /// True where no more invocations follow.
    pub last: bool,
}

/// The values of a metric on two sides.
struct Values {
    /// Natural logarithms.
    base: Vec<f64>,
    head: Vec<f64>,
    /// Invocations that were disturbed and left out.
    left_out: usize,
    /// What disturbed those that count, and how many of them; `None`: nothing.
    disturbed: Option<String>,
    /// True where all of those of a side are disturbed.
    all_disturbed: bool,
}

/// Compares a metric of a case; `None` where a side has no value. `day` is what may lie between the
/// sides beside the code.
pub fn metric_row(
    metric: Metric,
    day: Share,
    (base, head): (&CaseRecord, &CaseRecord),
    how: &How<'_>,
) -> Option<MetricRow> {
    let values = values(metric, (base, head), how.paired)?;
    let medians = (base.median(metric)?, head.median(metric)?);
    let threshold = threshold(how.policy.threshold_of(metric), metric, medians.0);
    let series = Series {
        base: &values.base,
        head: &values.head,
        paired: how.paired,
    };
    let terms = Terms {
        threshold,
        day: day.0.ln_1p(),
        error: how.error,
        last: how.last,
    };
    let compared = compare(series, terms)?;
    let pairs = values.base.len().min(values.head.len());
    // Of a stored base that is too small, more of the head show nothing.
    let helps = how.paired || values.base.len() >= FEWEST && values.head.len() < most();
    let mut said = said(&compared, &terms, pairs, how.paired);
    if !how.paired && values.base.len() < FEWEST && said.word == Word::Inconclusive {
        let base = counted(values.base.len(), "invocation");
        let reason = format!(
            "{}; the base has {base}, and {FEWEST} are needed",
            between(&compared)
        );
        said.reason = Some(reason);
    }
    let disturbed = values.disturbed.is_some();
    // Load only adds: what took less than the least change in all cannot have grown by it.
    let all = head.values(metric);
    if said.word != Word::Improved && all.iter().all(|value| *value <= metric.least_change()) {
        said = Said::SAME;
    } else if let Some(by) = (values.disturbed)
        // Of pairs, load is in both sides.
        .filter(|_| said.word != Word::Regressed || !how.paired)
    {
        said = Said {
            word: Word::Inconclusive,
            reason: Some(by),
            may_be_worse: true,
            // Beside a load that stays, more invocations show no more.
            open: !values.all_disturbed && pairs < most(),
        };
    }
    let interval = compared.low.is_finite() && compared.high.is_finite();
    let end = |end: f64| interval.then(|| Ratio(end.exp()));
    let detectable = compared.detectable(threshold, pairs).exp_m1();
    Some(MetricRow {
        metric,
        word: said.word,
        reason: said.reason,
        may_be_worse: said.may_be_worse,
        open: said.open && helps && (metric == Metric::Device || said.may_be_worse),
        disturbed,
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
            left_out: values.left_out,
        },
        account: None,
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
pub struct Said {
    /// The word.
    pub word: Word,
    /// Why, and what would decide it.
    pub reason: Option<String>,
    /// True where it may be worse.
    pub may_be_worse: bool,
    /// True where more invocations could decide it.
    pub open: bool,
}

impl Said {
    const SAME: Said = Said {
        word: Word::Same,
        reason: None,
        may_be_worse: false,
        open: false,
    };
}

/// The word for what the rule says of so many pairs, or of so many invocations a side.
pub fn said(of: &Comparison, terms: &Terms, pairs: usize, paired: bool) -> Said {
    let threshold = terms.threshold;
    let (word, reason) = match of.answer {
        Answer::Same => (Word::Same, None),
        Answer::Improved => (Word::Improved, None),
        Answer::Regressed if of.low <= threshold => {
            let reason = match of.slow_starts {
                true => format!("{}; more starts are slow than of the base", between(of)),
                false => format!("{}; the sides lie far apart", between(of)),
            };
            (Word::Regressed, Some(reason))
        }
        Answer::Regressed => (Word::Regressed, None),
        Answer::Open => {
            let slow = match of.slow_starts {
                true => "; more starts are slow than of the base",
                false => "",
            };
            let needed = needed(of, terms, pairs, paired);
            let reason = format!("{}{slow}; {needed}", between(of));
            (Word::Inconclusive, Some(reason))
        }
    };
    Said {
        word,
        reason,
        may_be_worse: of.may_be_worse(threshold),
        open: of.answer == Answer::Open && pairs < most(),
    }
}

/// `between -1.0 and +2.9 %`.
fn between(of: &Comparison) -> String {
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
fn needed(of: &Comparison, terms: &Terms, pairs: usize, paired: bool) -> String {
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

/// What an invocation gives of a metric, as a logarithm: of host time the ratio to the reference
/// operation, where that is known.
fn value(one: &Invocation, metric: Metric, by_reference: bool) -> Option<f64> {
    let value = one.values.get(metric)?;
    match by_reference {
        true => Some((value / one.host_reference_ns?.0).ln()),
        false => Some(value.ln()),
    }
}

/// The values of both sides; of pairs, those of invocations that both have.
fn values(
    metric: Metric,
    (base, head): (&CaseRecord, &CaseRecord),
    paired: bool,
) -> Option<Values> {
    let known = |record: &CaseRecord| {
        let mut timed = record.invocations.iter();
        timed.all(|one| one.values.get(metric).is_none() || one.host_reference_ns.is_some())
    };
    let by_reference = metric == Metric::Host && known(base) && known(head);
    let of = |record: &'_ CaseRecord| -> Vec<(u32, f64, bool)> {
        let all = record.invocations.iter();
        let all = all.filter_map(|one| {
            let value = value(one, metric, by_reference)?;
            // Beside other programs a call takes more CPU time too: caches are shared.
            let in_it = match metric {
                Metric::CpuTime if !paired => Metric::Device,
                metric => metric,
            };
            Some((one.number, value, one.is_disturbed(in_it)))
        });
        all.filter(|(_, value, _)| value.is_finite()).collect()
    };
    let (mut before, mut after) = (of(base), of(head));
    if paired {
        let pairs = before.iter().filter_map(|one| {
            let other = after.iter().find(|other| other.0 == one.0)?;
            let disturbed = one.2 || other.2;
            Some(((one.0, one.1, disturbed), (other.0, other.1, disturbed)))
        });
        (before, after) = pairs.unzip();
    }
    let all = (before.len(), after.len());
    let lost = before.iter().chain(&after).filter(|one| one.2).count();
    let quiet = |side: &[(u32, f64, bool)]| side.iter().filter(|one| !one.2).count();
    let enough = quiet(&before).min(quiet(&after)) >= FEWEST;
    let none_quiet = quiet(&before).min(quiet(&after)) == 0;
    let left_out = match enough {
        true => lost,
        false => 0,
    };
    if enough {
        before.retain(|one| !one.2);
        after.retain(|one| !one.2);
    }
    let disturbed = (lost > 0 && !enough).then(|| {
        let by = worst(
            base.invocations
                .iter()
                .chain(&head.invocations)
                .flat_map(|one| &one.disturbed),
        );
        let advice = by.first().map_or("", |first| first.advice());
        format!(
            "other programs disturbed {lost} of {} ({}): {advice}",
            counted(all.0 + all.1, "invocation"),
            told(&by),
        )
    });
    let values = |side: Vec<(u32, f64, bool)>| side.into_iter().map(|one| one.1).collect();
    Some(Values {
        all_disturbed: none_quiet,
        base: values(before),
        head: values(after),
        left_out,
        disturbed,
    })
}

/// Clears what other programs disturbed of a case on the CPU, where both sides had as many
/// threads at work and took the same CPU time: who waits for a core is slower on the wall, and
/// takes no more CPU time.
pub fn clear_by_cpu_time(
    rows: &mut [MetricRow],
    header: &RunHeader,
    base: &CaseRecord,
    head: &CaseRecord,
) {
    let cpu = rows.iter().find(|of| of.metric == Metric::CpuTime);
    let Some(cpu) = cpu.filter(|_| as_parallel(header, base, head)).cloned() else {
        return;
    };
    let interval = cpu.change.interval();
    let interval = interval.map_or(String::new(), |of| format!(" {of}"));
    for row in rows {
        if !(row.disturbed && row.word == Word::Inconclusive && row.metric.is_wall_time()) {
            continue;
        }
        let why = row.reason.take().unwrap_or_default();
        let short = why.split(':').next().unwrap_or_default();
        (row.word, row.reason) = match cpu.word {
            Word::Same => (
                Word::Same,
                Some(format!("same by CPU time{interval}: {short}")),
            ),
            _ => (Word::Inconclusive, Some(why)),
        };
        if matches!(cpu.word, Word::Same | Word::Improved) {
            (row.may_be_worse, row.open) = (cpu.word != Word::Same, false);
        } else {
            // More pairs can show the CPU time to be the same.
            row.may_be_worse = cpu.may_be_worse;
            row.open = cpu.change.invocations.1 < most();
        }
    }
}

/// True where a worker counts how many threads had work, and these are not fewer than on the
/// other side. More tasks than cores keep no more threads at work.
pub fn as_parallel(header: &RunHeader, base: &CaseRecord, head: &CaseRecord) -> bool {
    let cores = header.machine.hard.get("cpu.cores");
    let cores = cores.and_then(|cores| cores.parse().ok());
    let at_work = |record: &CaseRecord| -> Option<u64> {
        let counts = &record.structure.as_ref()?.counts;
        let counted = counts.get("tasks").or(counts.get("threads"))?;
        Some((*counted).min(cores.unwrap_or(u64::MAX)))
    };
    let both = at_work(base).zip(at_work(head));
    both.is_some_and(|(base, head)| head >= base)
}
