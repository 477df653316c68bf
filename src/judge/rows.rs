//! One row a case, from both sides.

use std::collections::BTreeSet;

use super::causes::{self, Clock, findings};
use super::complete::{Standing, allowed, standing, standing_untimed};
use super::floor::floor;
use super::judgement::{CommonShift, Difference, Finding, Row, Word};
use super::structure::{self, changes, multiprocessors, vanished};
use super::time::{Compared, compare};
use super::timing::timing;
use crate::attention::CaseId;
use crate::record::side::{CaseRecord, Side, Status};
use crate::record::types::Fault;
use crate::units::{Ratio, Share};

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
}

/// Rows, and what was found over all of them.
pub struct Rows {
    /// Sorted by id.
    pub rows: Vec<Row>,
    /// The machine's share.
    pub shift: Option<CommonShift>,
    /// What was done about it.
    pub note: Option<String>,
}

/// Makes the rows. Where the sides cannot be compared, only the head's cases have
/// one: the base's times stand beside them, and nothing is said of them.
pub fn rows(sides: &Sides) -> Rows {
    let base = sides.base.filter(|_| sides.comparable);
    let floor = floor(&sides.head.header.rules.policy);
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
                false => standing(before, head, base.is_some()),
            };
            (id, standing)
        })
        .collect();
    let pairs: Vec<(&CaseRecord, &CaseRecord)> = standings
        .iter()
        .filter_map(|(_, standing)| match standing {
            Standing::Both(base, head) => Some((*base, *head)),
            Standing::Said(..) => None,
        })
        .collect();
    let (shift, note, compared) = compare(&pairs, floor);
    let machine = shift.filter(|s| s.removed).map_or(Ratio::ONE, |s| s.ratio);
    let mut compared = compared.into_iter();
    let rows = standings.into_iter().map(|(id, standing)| {
        let compared = match standing {
            Standing::Both(base, head) => compared.next().map(|compared| {
                let ratio = compared.change.ratio * machine;
                let versions = versions(sides.soft, id);
                let stage = Some(compared.change.stage);
                let shown = |record| timing(id, record, stage).map(|timing| timing.median_ns);
                let base_header = sides.base.map_or(&sides.head.header, |base| &base.header);
                let pair = causes::Pair {
                    base,
                    head,
                    base_ns: shown(base),
                    head_ns: shown(head),
                    base_clock: Clock::of(base_header, id, base),
                    clock: Clock::of(&sides.head.header, id, head),
                    ratio,
                    floor,
                    versions,
                    sms: multiprocessors(&sides.head.header, id),
                };
                (compared, findings(&pair))
            }),
            Standing::Said(..) => None,
        };
        row(sides, id, &standing, compared)
    });
    Rows {
        rows: rows.collect(),
        shift,
        note,
    }
}

fn row(
    sides: &Sides,
    id: &CaseId,
    standing: &Standing,
    compared: Option<(Compared, Vec<Finding>)>,
) -> Row {
    let stage = compared.as_ref().map(|(compared, _)| compared.change.stage);
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
        findings: Vec::new(),
        structure: structure.as_ref().and_then(changes),
        uncounted: structure.as_ref().map(vanished).unwrap_or_default(),
        severity: None,
    };
    let record = sides.head.cases.get(id);
    if let Some(lost) = record.and_then(|record| record.unconfirmed.as_ref()) {
        row.unconfirmed = Some(lost.reason.clone());
        row.fault = lost.fault;
    }
    if let Some((compared, findings)) = compared {
        row.word = compared.word;
        row.looks_worse = compared.looks_worse;
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
        // Nothing is the cause of what did not change.
        let moved = matches!(row.word, Word::Regressed | Word::Improved);
        if moved || row.restructured() {
            row.findings = findings;
        }
        if !moved {
            row.findings.retain(|finding| finding.cause.is_structural());
        }
    } else if let Standing::Said(word, reason, fault) = standing {
        row.word = *word;
        if row.fault.is_unknown() {
            row.fault = *fault;
        }
        row.reason.clone_from(reason);
    }
    row
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
