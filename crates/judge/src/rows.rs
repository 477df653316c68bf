//! Makes a row for each case, from both sides.

use std::cmp::Ordering;
use std::iter;

use super::account::of_first_call;
use super::causes::{self, TimeSource, explained};
use super::complete::{allowed, gpu, standing};
use super::judgement::{MetricRow, Mismatch, Row, Timing, Word};
use super::metrics::{metric_row, vanished as vanished_metrics};
use super::rule::{GATE_ERROR, LOOKS_THAT_CALL};
use super::structure::{self, changes, multiprocessors, vanished};
use super::tuners::unsteady;
use regatta_core::machine;
use regatta_core::record::{CaseRecord, Fault, Side, median};
use regatta_core::suite::{Metric, Policy};
use regatta_worker::case::{Case, CaseId};
use regatta_worker::joined::Joined;
use regatta_worker::operator::Operators;
use regatta_worker::units::{Nanoseconds, Rate, Ratio, Share};

/// The inputs of the rows.
pub struct RowInputs<'a> {
    /// The base, if any.
    pub base: Option<&'a Side>,
    /// The head.
    pub head: &'a Side,
    /// True if metrics may be compared.
    pub comparable: bool,
    /// True if structures may be compared.
    pub structure: bool,
    /// The soft differences between the sides.
    pub soft: &'a [Mismatch],
    /// True where the sides were measured in pairs.
    pub paired: bool,
    /// True where no more invocations follow.
    pub last: bool,
}

/// Makes the rows, sorted by id. If the sides cannot be compared, only the head's cases have a row,
/// with the base's times beside them and no verdict on the change.
pub fn rows(sides: &RowInputs) -> Vec<Row> {
    let base = sides.base.filter(|_| sides.comparable);
    let error = sides.share_of_error(base);
    let of_base = sides.base.into_iter().flat_map(|base| &base.cases);
    let (mut bases, mut heads) = (of_base.peekable(), sides.head.cases.iter().peekable());
    let pairs = iter::from_fn(|| {
        let order = match (bases.peek(), heads.peek()) {
            (Some((base, _)), Some((head, _))) => base.cmp(head),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        let before = bases.next_if(|_| order.is_le());
        let after = heads.next_if(|_| order.is_ge());
        let (id, _) = after.or(before)?;
        Some((id, (before.map(|case| case.1), after.map(|case| case.1))))
    });
    pairs
        .filter(|(_, (_, head))| sides.comparable || head.is_some())
        .map(|(id, pair)| row(sides, id, pair, error))
        .collect()
}

/// The records of a case in the base and in the head.
type RecordPair<'a> = (Option<&'a CaseRecord>, Option<&'a CaseRecord>);

impl RowInputs<'_> {
    /// The head's policy.
    pub fn policy(&self) -> &Policy {
        &self.head.header.rules.policy
    }

    /// One comparison's share of the gate's error, which is divided by cases, metrics and looks. It
    /// is computed from the plan, so that a later comparison of the files gives the same result.
    fn share_of_error(&self, base: Option<&Side>) -> f64 {
        let header = &self.head.header;
        let has = |side: &Side, metric: Metric| {
            let mut all = side.cases.values().flat_map(|record| &record.invocations);
            all.any(|one| one.values.get(metric).is_some())
        };
        let metrics = Metric::ALL.into_iter().filter(|&metric| {
            let both = has(self.head, metric) && base.is_some_and(|base| has(base, metric));
            // CPU time decides only in place of another metric, and needs no share.
            metric != Metric::CpuTime && !self.policy().ignores(metric) && both
        });
        let cases = header.pairing.as_ref().and_then(|pairing| pairing.cases);
        let cases = cases.map_or(header.plan.len(), |cases| cases as usize);
        GATE_ERROR / (cases.max(1) * metrics.count().max(1) * LOOKS_THAT_CALL) as f64
    }
}

fn row(sides: &RowInputs, id: &CaseId, (before, after): RecordPair, error: f64) -> Row {
    let untimed = sides.head.header.settings.structure_only;
    let compared = before.filter(|_| sides.comparable);
    let standing = standing(compared, after, &sides.head.header, id);
    let structure = structures(sides, id, (before, after));
    let case = id.case().ok();
    let operators = &sides.head.header.operators;
    let time = |record: Option<&CaseRecord>| timing(case.as_deref(), record?, operators);
    let mut row = Row {
        case: id.clone(),
        word: Word::Same,
        allowed: allowed(id, &sides.policy().optional),
        head: time(after),
        base: time(before),
        structure: structure.as_ref().and_then(changes),
        uncounted: structure.as_ref().map(vanished).unwrap_or_default(),
        tuner: after.and_then(unsteady),
        ..Row::default()
    };
    match standing {
        Ok((base, head)) => {
            if !untimed {
                row.metrics = metrics(sides, id, (base, head), error);
                row.uncounted
                    .extend(vanished_metrics((base, head), sides.policy()));
            }
            conclude(&mut row);
            explain(sides, &mut row, (base, head));
        }
        Err((word, reason, fault)) => {
            (row.word, row.reason, row.fault) = (word, reason, fault);
            // `optional` allows a case to be absent or to fail, and never a wrong result.
            let wrong = fault == Some(Fault::WrongResult);
            // A case that fails after it was measured is not excused, since that would hide its
            // times.
            let absent = after.is_none_or(|head| head.invocations.is_empty());
            let excused = row.allowed && absent && !wrong;
            if excused && matches!(word, Word::Error | Word::Missing) {
                row.word = Word::Skipped;
            }
        }
    }
    row
}

/// Sets the most severe word of the metrics and of the structure, with its reason.
fn conclude(row: &mut Row) {
    if let Some(first) = row.first_metric() {
        let reason = first.reason.as_ref().map(|reason| match first.metric {
            Metric::Device => reason.clone(),
            other => format!("{}: {reason}", other.text()),
        });
        (row.word, row.reason) = (first.change.word, reason);
    }
    if row.word == Word::Inconclusive
        && let (Some(reason), Some(tuner)) = (&mut row.reason, &row.tuner)
    {
        *reason += &format!("; {tuner}");
    }
    by_structure(row);
}

/// Raises a row's word if its structure got worse or is missing.
pub fn by_structure(row: &mut Row) {
    if row.fails_by_structure() {
        row.word = row.word.max(Word::Regressed);
    } else if !row.uncounted.is_empty() {
        row.word = row.word.max(Word::Missing);
    }
}

/// The metrics that both sides have and the suite does not ignore.
fn metrics(
    sides: &RowInputs,
    id: &CaseId,
    pair: (&CaseRecord, &CaseRecord),
    error: f64,
) -> Vec<MetricRow> {
    let judged = Metric::ALL.into_iter();
    let judged = judged.filter(|metric| !sides.policy().ignores(*metric));
    let day = if sides.paired {
        Share(0.0)
    } else {
        sides.policy().day_on(gpu(&sides.head.header, id))
    };
    let mut rows: Vec<MetricRow> = judged
        .filter_map(|metric| metric_row(metric, day, pair, sides, error))
        .collect();
    let cpu = cpu_time_beside(&rows);
    for row in &mut rows {
        match (row.metric, &mut row.reason) {
            (Metric::Device, reason) => {
                let parts = reason.take().into_iter().chain(cpu.clone());
                *reason = Some(parts.joined("; ")).filter(|parts| !parts.is_empty());
            }
            (Metric::FirstCall, _) if row.change.word == Word::Regressed => {
                let times = machine::Sides::new(Nanoseconds(row.base), Nanoseconds(row.head));
                let parts = [pair.0, pair.1].map(|record| record.first_call_parts.as_ref());
                row.account = of_first_call(times, parts[0], parts[1]).map(Box::new);
            }
            // The reference operation is the framework's own.
            (Metric::Host, Some(reason)) if !versions(sides.soft, id).is_empty() => {
                *reason +=
                    "; the two sides run other versions, whose reference operation may differ";
            }
            _ => {}
        }
    }
    rows.shrink_to_fit();
    rows
}

/// `CPU time +9.3 % [+8.1 %, +10.4 %]`, if it changed and the device time did not change likewise.
fn cpu_time_beside(rows: &[MetricRow]) -> Option<String> {
    let find = |metric| Some(rows.iter().find(|row| row.metric == metric)?.change);
    let (device, cpu) = (find(Metric::Device)?, find(Metric::CpuTime)?);
    let says_so = device.by_cpu_time || cpu.word == device.word;
    let is_beside = cpu.has_moved() && cpu.low.is_some() && !says_so;
    (is_beside && device.word != Word::Inconclusive).then(|| format!("CPU time {cpu}"))
}

/// Finds the causes of a row's change of device time or, if that did not change, of the first
/// metric that regressed. Without a change, only structural findings are kept.
fn explain(sides: &RowInputs, row: &mut Row, (base, head): (&CaseRecord, &CaseRecord)) {
    let device = row.metric(Metric::Device);
    let has_moved = device.is_some_and(|device| device.change.has_moved());
    let other = row.regressed().next().filter(|_| !has_moved);
    let header = &sides.head.header;
    let clocks = match other.map(|metric| metric.metric) {
        Some(Metric::FirstCall | Metric::PeakMemory | Metric::HostReference) => return,
        Some(Metric::Host) => [TimeSource::Host; 2],
        Some(_) => [TimeSource::Wall; 2],
        None if !has_moved && row.worth_telling().next().is_none() => return,
        None => {
            let base_header = sides.base.map_or(header, |base| &base.header);
            [(base_header, base), (header, head)]
                .map(|(header, record)| TimeSource::of_case(header, &row.case, record))
        }
    };
    let row_metric = other.or(device);
    let metric = row_metric.map(|row_metric| row_metric.metric);
    let (mut found, account) = explained(&causes::Pair {
        base,
        head,
        base_ns: row_metric.map(|row_metric| Nanoseconds(row_metric.base)),
        head_ns: row_metric.map(|row_metric| Nanoseconds(row_metric.head)),
        base_clock: clocks[0],
        clock: clocks[1],
        ratio: row_metric.map_or(Ratio::ONE, |row_metric| row_metric.change.ratio),
        threshold: row_metric.map_or(sides.policy().threshold, |row_metric| {
            row_metric.change.threshold
        }),
        versions: versions(sides.soft, &row.case),
        sms: multiprocessors(header, &row.case),
        cores: header.cores(),
        restructured: row.structure.as_ref().map(|changes| !changes.is_empty()),
    });
    if !has_moved && other.is_none() {
        // A time that did not change has no account.
        found.retain(|finding| finding.cause.is_structural());
        found.iter_mut().for_each(|finding| finding.share = None);
    } else if let Some(row_metric) = row
        .metrics
        .iter_mut()
        .find(|row_metric| Some(row_metric.metric) == metric)
    {
        row_metric.account = account.map(Box::new);
    }
    row.findings = found;
}

/// The structures to compare, if both sides were measured on comparable devices.
fn structures<'a>(
    sides: &'a RowInputs,
    id: &CaseId,
    (base, head): RecordPair<'a>,
) -> Option<structure::Structures<'a>> {
    let measured = |record: &&CaseRecord| record.status.is_measured();
    Some(structure::Structures {
        base: base.filter(measured).filter(|_| sides.structure)?,
        head: head.filter(measured)?,
        sms: multiprocessors(&sides.head.header, id),
        policy: sides.policy(),
        counterparts: sides
            .base
            .and_then(|base| base.header.counterparts_in(&sides.head.header)),
    })
}

/// The versions of a case's worker that differ.
fn versions<'a>(soft: &'a [Mismatch], id: &CaseId) -> Vec<&'a Mismatch> {
    // Parsing an id is slow, and most sides do not differ at all.
    if soft.is_empty() {
        return Vec::new();
    }
    let Ok(case) = id.case() else {
        return Vec::new();
    };
    let prefix = format!("{}.versions.", case.variant.worker_name());
    let soft = soft.iter();
    soft.filter(|change| change.field.starts_with(&prefix))
        .collect()
}

/// The times of a case, over all of its invocations; `None` when it has none.
fn timing(case: Option<&Case>, record: &CaseRecord, operators: &Operators) -> Option<Timing> {
    let invocations_ns = record.device_ns();
    let median_ns = median(&invocations_ns)?;
    let problem = case.filter(|_| !record.several).map(|case| &case.problem);
    let times = || invocations_ns.iter().copied();
    Some(Timing {
        median_ns,
        min_ns: times().fold(median_ns, Nanoseconds::min),
        max_ns: times().fold(median_ns, Nanoseconds::max),
        host_ns: record.median(Metric::Host).map(Nanoseconds),
        first_call_ns: record.median(Metric::FirstCall).map(Nanoseconds),
        invocations_ns,
        tflops: problem
            .and_then(|problem| problem.flops(operators))
            .map(|flops| Rate::of_work(flops, median_ns)),
        // A byte per nanosecond is 1e9 bytes per second.
        gbps: problem
            .and_then(|problem| problem.bytes(operators))
            .map(|bytes| bytes / median_ns.0),
        samples: record.samples,
    })
}
