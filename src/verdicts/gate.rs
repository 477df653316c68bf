//! What this gate says of a sweep. It is the gate's own code: sides are filled with times,
//! and `judge` judges them.

use std::collections::BTreeMap;

use super::sweep::{Design, Measured};
use crate::attention::CaseId;
use crate::judge::judgement::Judgement;
use crate::judge::{Options, fresh_needed, judge, suspects};
use crate::record::side::{CaseRecord, Side, Status};
use crate::record::types::{Fingerprint, RunHeader, SuiteRecord};
use crate::record::{METHOD_VERSION, SCHEMA_VERSION};
use crate::suite::Settings;
use crate::suite::rules::{Policy, Rules};
use crate::units::{Nanoseconds, Share};

/// Where fresh values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fresh {
    /// From both sides in turn.
    Both,
    /// From the head; the stored base serves again, as in `regatta gate`.
    Head,
    /// From nowhere: two stored runs are compared, as in `regatta diff`.
    Nowhere,
}

/// What the screen said, and what was said in the end.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Without fresh invocations.
    pub screened: Judgement,
    /// With them, where there was a suspect; the screen's where there was none.
    pub judgement: Judgement,
}

/// Judges a sweep: screens, measures suspects on fresh invocations, judges again.
pub fn judged(
    base: &mut Measured,
    head: &mut Measured,
    design: Design,
    floor: Share,
    fresh: Fresh,
) -> Judged {
    let (mut before, mut after) = (side(base, design, floor), side(head, design, floor));
    let options = Options {
        strict: false,
        same_suite: true,
        wants_base: true,
    };
    let screened = judge(&after, Some(&before), &options);
    let suspects = suspects(&screened, &after.header.rules.policy);
    if fresh == Fresh::Nowhere || suspects.is_empty() {
        return Judged {
            judgement: screened.clone(),
            screened,
        };
    }
    let invocations = fresh_needed(suspects.len(), design.invocations, design.fresh) as usize;
    for (index, (id, record)) in after.cases.iter_mut().enumerate() {
        if !suspects.contains(id) {
            continue;
        }
        record.confirm_ns = head.fresh(index, invocations);
        if let (Fresh::Both, Some(stored)) = (fresh, before.cases.get_mut(id)) {
            stored.confirm_ns = base.fresh(index, invocations);
        }
    }
    Judged {
        judgement: judge(&after, Some(&before), &options),
        screened,
    }
}

/// A side whose cases, in their order, have these times.
fn side(measured: &Measured, design: Design, floor: Share) -> Side {
    // Ids sort as their numbers do, so that rows stand in the order of the sweep.
    let id = |index: usize| CaseId(format!("cpu/flash:s{},d64", 100_000 + index));
    let cases: BTreeMap<CaseId, CaseRecord> = (0..design.cases)
        .map(|index| (id(index), timed(measured.medians(index))))
        .collect();
    let policy = Policy {
        floor,
        confirm: design.fresh,
        ..Policy::default()
    };
    Side {
        label: "simulated".to_owned(),
        header: header(&cases, design, policy),
        cases,
        damage: Vec::new(),
    }
}

fn timed(device_ns: Vec<Nanoseconds>) -> CaseRecord {
    CaseRecord {
        device_ns,
        ..CaseRecord::empty(Status::Measured)
    }
}

fn header(cases: &BTreeMap<CaseId, CaseRecord>, design: Design, policy: Policy) -> RunHeader {
    RunHeader {
        schema: SCHEMA_VERSION,
        method: METHOD_VERSION,
        tool: String::new(),
        argv: Vec::new(),
        started: jiff::Timestamp::UNIX_EPOCH,
        git: None,
        suite: SuiteRecord {
            counts: Vec::new(),
            name: "simulated".to_owned(),
            description: String::new(),
            arguments: Vec::new(),
            filter: Vec::new(),
            overrides: Vec::new(),
        },
        rules: Rules {
            policy,
            ..Rules::default()
        },
        settings: Settings {
            invocations: design.invocations as u32,
            samples: design.samples as u32,
            ..Settings::default()
        },
        machine: Fingerprint::default(),
        workers: Vec::new(),
        plan: cases.keys().cloned().collect(),
        identity: None,
        imported: None,
    }
}
