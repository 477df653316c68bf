//! One row a case, from both sides.

use std::collections::{BTreeMap, BTreeSet};

use super::account::of_first_call;
use super::causes::{self, Clock, explained};
use super::complete::{Standing, allowed, median_ns, standing, standing_untimed};
use super::floor::{floor, of_metric};
use super::judgement::{Account, CommonShift, Difference, Finding, MetricRow, Row, Tuner, Word};
use super::structure::{self, changes, multiprocessors, vanished};
use super::time::{Compared, Taken, Together, all, compare, too_small};
use super::timing::timing;
use super::tuners::{one_time, tuner};
use regatta_core::machine;
use regatta_core::record::side::{CaseRecord, Side, Status};
use regatta_core::record::types::Fault;
use regatta_core::suite::rules::{Metric, MetricPolicy};
use regatta_core::suite::structural::Action;
use regatta_worker::attention::CaseId;
use regatta_worker::units::{Nanoseconds, Ratio, Share};

/// What rows are made from.
pub struct Sides<'a> {
    /// The base, if any.
    pub base: Option<&'a Side>,
    /// The head.
    pub head: &'a Side,
    /// Whether times may be compared.
    pub comparable: bool,
    /// Whether structures may be compared.
    pub structure: bool,
    /// Soft differences between the two.
    pub soft: &'a [Difference],
    /// How the invocations were taken.
    pub taken: Taken,
}

/// Rows, and what was found over all of them.
pub struct Rows {
    /// Sorted by id.
    pub rows: Vec<Row>,
    /// What all cases share.
    pub shift: Option<CommonShift>,
    /// What is to be known of how the values came to be.
    pub notes: Vec<String>,
    /// True when fresh invocations need the company of other cases.
    pub needs_company: bool,
}

/// Makes the rows. Where the sides cannot be compared, only the head's cases have
/// one: the base's times stand beside them, and nothing is said of them.
pub fn rows(sides: &Sides) -> Rows {
    let policy = &sides.head.header.rules.policy;
    let base = sides.base.filter(|_| sides.comparable);
    let own = sides.head.cases.keys();
    let ids: BTreeSet<&CaseId> = own
        .chain(base.iter().flat_map(|b| b.cases.keys()))
        .collect();
    let standings: Vec<(&CaseId, Standing)> = ids
        .into_iter()
        .map(|id| {
            let before = base.and_then(|base| base.cases.get(id));
            let head = sides.head.cases.get(id);
            let standing = match sides.head.header.settings.structure_only {
                true => standing_untimed(before, head, base.is_some()),
                false => one_time(standing(before, head, base.is_some()), floor(policy)),
            };
            (id, standing)
        })
        .collect();
    let both = standings.iter().filter_map(|(_, standing)| match standing {
        Standing::Both(base, head) => Some((*base, *head)),
        Standing::Said(..) => None,
    });
    let pairs: Vec<(&CaseRecord, &CaseRecord)> = both.collect();
    let Together {
        cases: compared,
        suite: shift,
        notes,
        needs_company,
    } = compare(&pairs, Metric::Device, policy, sides.taken);
    let mut beside = metrics(&pairs, sides).into_iter();
    let mut witnesses = witnesses(sides);
    let machine = shift.filter(|s| s.removed).map_or(Ratio::ONE, |s| s.ratio);
    let mut compared = compared.into_iter();
    let rows = standings.into_iter().map(|(id, standing)| {
        let Standing::Both(base, head) = standing else {
            let mut row = row(sides, id, &standing, None);
            if let Some((witness, pair)) = witnesses.remove(id) {
                row.metrics.push(witness);
                (row.findings, row.account) = causes_of(sides, &row, pair, Ratio::ONE);
            }
            return row;
        };
        let mut row = row(sides, id, &standing, compared.next().flatten());
        row.metrics = beside.next().unwrap_or_default();
        row.metrics.extend(witnesses.remove(id).map(|(row, _)| row));
        (row.findings, row.account) = causes_of(sides, &row, (base, head), machine);
        row
    });
    Rows {
        rows: rows.collect(),
        shift,
        notes,
        needs_company,
    }
}

/// Why a row is what it is: of its device time, or of the host's, where that is what fails a
/// case whose device does not. Nothing is the cause of what did not change.
fn causes_of(
    sides: &Sides,
    row: &Row,
    (base, head): (&CaseRecord, &CaseRecord),
    machine: Ratio,
) -> (Vec<Finding>, Option<Account>) {
    let policy = &sides.head.header.rules.policy;
    let pair = |ratio, floor, times: [Option<Nanoseconds>; 2], clocks: [Clock; 2]| {
        let [base_ns, head_ns] = times;
        let [base_clock, clock] = clocks;
        explained(&causes::Pair {
            base,
            head,
            base_ns,
            head_ns,
            base_clock,
            clock,
            ratio,
            floor,
            versions: versions(sides.soft, &row.case),
            sms: multiprocessors(&sides.head.header, &row.case),
        })
    };
    if let Some(of) = row.fails_by() {
        let times = [of.base_ns, of.head_ns].map(Some);
        let floor = of_metric(of.metric, policy);
        let clock = match of.metric {
            Metric::Processor => Clock::Wall,
            _ => Clock::Host,
        };
        return pair(of.change.ratio, floor, times, [clock; 2]);
    }
    let moved = matches!(row.word, Word::Regressed | Word::Improved);
    let Some(change) = row.change.as_ref().filter(|_| moved || row.restructured()) else {
        return (Vec::new(), None);
    };
    let base_header = sides.base.map_or(&sides.head.header, |base| &base.header);
    let clocks = [(base_header, base), (&sides.head.header, head)];
    let clocks = clocks.map(|(header, record)| Clock::of(header, &row.case, record));
    let times = [&row.base, &row.head].map(|time| Some(time.as_ref()?.median_ns));
    let (mut found, mut account) = pair(change.ratio * machine, floor(policy), times, clocks);
    if !moved {
        // Nothing is the account of what did not change.
        found.retain(|finding| finding.cause.is_structural());
        found.iter_mut().for_each(|finding| finding.share = None);
        account = None;
    }
    (found, account)
}

/// The other metrics of each pair, as far as both sides have them and the suite cares.
fn metrics(pairs: &[(&CaseRecord, &CaseRecord)], sides: &Sides) -> Vec<Vec<MetricRow>> {
    let policy = &sides.head.header.rules.policy;
    let mut rows = vec![Vec::new(); pairs.len()];
    for metric in Metric::BESIDE {
        let of = policy.metric(metric);
        if of.action == Action::Ignore {
            continue;
        }
        let together = compare(pairs, metric, policy, sides.taken);
        for ((row, (base, head)), compared) in rows.iter_mut().zip(pairs).zip(together.cases) {
            let times = |record| median_ns(&all(record, metric));
            let (Some(compared), Some(base_ns), Some(head_ns)) =
                (compared, times(base), times(head))
            else {
                continue;
            };
            let mut told = metric_row(metric, &of, compared, (base_ns, head_ns));
            if metric == Metric::FirstCall && told.word == Word::Regressed {
                let times = machine::Sides::of(base_ns, head_ns);
                let parts = [base, head].map(|record| record.first_call_parts.as_ref());
                told.account = of_first_call(times, parts[0], parts[1]);
            }
            row.push(told);
        }
    }
    rows
}

/// Cases whose processor time is judged, and what it shows.
type Witnesses<'a> = BTreeMap<&'a CaseId, (MetricRow, (&'a CaseRecord, &'a CaseRecord))>;

/// What the processor time shows of cases whose times the machine was in, of sides that were
/// measured in turn: whoever else was on the cores was so for both, and the time that a call
/// took of them says what it cost. It can show that a case got worse, never that it did not: a
/// thread that waits takes none. Of the others only where that is asked for.
fn witnesses<'a>(sides: &Sides<'a>) -> Witnesses<'a> {
    let policy = &sides.head.header.rules.policy;
    let of = policy.metric(Metric::Processor);
    let Some(base) = sides
        .base
        .filter(|_| sides.comparable && sides.taken.beside)
    else {
        return Witnesses::new();
    };
    if of.action == Action::Ignore || sides.head.header.settings.structure_only {
        return Witnesses::new();
    }
    let cases = sides.head.cases.keys().filter_map(|id| {
        let pair = (measured(base, id)?, measured(sides.head, id)?);
        let wanted = policy.processor || is_shaken(pair);
        let case = id.case().ok().filter(|_| wanted)?;
        let header = &sides.head.header;
        let known = header.runs_on_processor(&case.variant.worker_name());
        let both = |times: fn(&CaseRecord) -> Vec<Nanoseconds>| {
            !times(pair.0).is_empty() && !times(pair.1).is_empty()
        };
        (known && both(CaseRecord::processor_ns)).then_some((id, pair))
    });
    let (ids, pairs): (Vec<&CaseId>, Vec<_>) = cases.unzip();
    let together = compare(&pairs, Metric::Processor, policy, sides.taken);
    let found = ids.into_iter().zip(pairs).zip(together.cases);
    found
        .filter_map(|((id, pair), compared)| {
            let times = |record| median_ns(&all(record, Metric::Processor));
            let times = (times(pair.0)?, times(pair.1)?);
            let mut row = metric_row(Metric::Processor, &of, compared?, times);
            let unseen = matches!(row.word, Word::Same | Word::Improved) && is_shaken(pair);
            if unseen {
                row.reason = Some("what it takes on the wall was not seen".to_owned());
            }
            Some((id, (row, pair)))
        })
        .collect()
}

/// True where the machine was in the times of a side.
fn is_shaken((base, head): (&CaseRecord, &CaseRecord)) -> bool {
    base.is_disturbed() || head.is_disturbed()
}

/// A change that is too small to count by its size alone is none.
fn metric_row(
    metric: Metric,
    policy: &MetricPolicy,
    compared: Compared,
    (base_ns, head_ns): (Nanoseconds, Nanoseconds),
) -> MetricRow {
    let small = too_small(policy, base_ns, head_ns);
    let (word, reason) = match compared.word {
        Word::Regressed | Word::Inconclusive if small => (
            Word::Same,
            Some(format!("{} do not count", head_ns - base_ns)),
        ),
        word => (word, compared.reason),
    };
    MetricRow {
        metric,
        word,
        reason,
        action: policy.action,
        looks_worse: compared.looks_worse && !small,
        open: compared.open && !small && policy.action == Action::Fail,
        base_ns,
        head_ns,
        change: compared.change,
        account: None,
    }
}

fn row(sides: &Sides, id: &CaseId, standing: &Standing, compared: Option<Compared>) -> Row {
    let stage = compared.as_ref().map(|compared| compared.change.stage);
    let time = |side: Option<&Side>| {
        let record = side.and_then(|side| side.cases.get(id))?;
        timing(id, record, stage)
    };
    let structure = structures(sides, id);
    let mut row = Row {
        case: id.clone(),
        word: Word::Inconclusive,
        reason: None,
        allowed: allowed(id, &sides.head.header.rules.policy.allow),
        fault: Fault::Unknown,
        unconfirmed: None,
        looks_worse: false,
        head: time(Some(sides.head)),
        base: time(sides.base),
        change: None,
        metrics: Vec::new(),
        open: false,
        findings: Vec::new(),
        account: None,
        structure: structure.as_ref().and_then(changes),
        uncounted: structure.as_ref().map(vanished).unwrap_or_default(),
        tuner: tuned(sides, id).map(Box::new),
        severity: None,
    };
    let record = sides.head.cases.get(id);
    if let Some(lost) = record.and_then(|record| record.unconfirmed.as_ref()) {
        row.unconfirmed = Some(lost.reason.clone());
        row.fault = lost.fault;
    }
    if let Some(compared) = compared {
        row.word = compared.word;
        row.looks_worse = compared.looks_worse;
        row.open = compared.open;
        row.reason = compared.reason;
        let share = sides
            .head
            .header
            .rules
            .policy
            .step_share
            .unwrap_or(Share(1.0));
        row.severity = Some(share * compared.change.ratio.growth());
        row.change = Some(compared.change);
    } else if let Standing::Said(word, reason, fault) = standing {
        row.word = *word;
        if row.fault.is_unknown() {
            row.fault = *fault;
        }
        row.reason.clone_from(reason);
    }
    row
}

/// What the tuner of a case chose, where that was not one and the same.
fn tuned(sides: &Sides, id: &CaseId) -> Option<Tuner> {
    let base = sides.base.filter(|_| sides.comparable);
    let base = base.and_then(|base| measured(base, id));
    let policy = &sides.head.header.rules.policy;
    tuner(base, measured(sides.head, id)?, floor(policy))
}

/// What there is to compare of structure, where both sides were measured on devices that
/// are alike.
fn structures<'a>(sides: &'a Sides, id: &'a CaseId) -> Option<structure::Pair<'a>> {
    let base = sides.base.filter(|_| sides.structure)?;
    Some(structure::Pair {
        case: &id.0,
        base: measured(base, id)?,
        head: measured(sides.head, id)?,
        sms: multiprocessors(&sides.head.header, id),
        policy: &sides.head.header.rules.policy.structure,
    })
}

fn measured<'a>(side: &'a Side, id: &CaseId) -> Option<&'a CaseRecord> {
    let record = side.cases.get(id)?;
    (record.status == Status::Measured).then_some(record)
}

/// Versions in which the worker of a case differs.
fn versions<'a>(soft: &'a [Difference], id: &CaseId) -> Vec<&'a Difference> {
    let Ok(case) = id.case() else {
        return Vec::new();
    };
    let worker = match &case.variant.environment {
        Some(environment) => format!("{}@{environment}", case.variant.worker),
        None => case.variant.worker,
    };
    let prefix = format!("{worker}.versions.");
    let soft = soft.iter();
    soft.filter(|change| change.field.starts_with(&prefix))
        .collect()
}
