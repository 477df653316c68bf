//! What this gate says of a sweep. It is the gate's own code: sides are filled with times,
//! and `judge` judges them.

use std::collections::{BTreeMap, BTreeSet};

use super::sweep::{Against, Design, Measured, Sweep};
use crate::attention::CaseId;
use crate::judge::judgement::Judgement;
use crate::judge::{Options, judge, next_batch};
use crate::record::header::{Turn, TurnSide};
use crate::record::side::{CaseRecord, Side, Status};
use crate::record::types::{Fingerprint, RunHeader, SuiteRecord};
use crate::record::{METHOD_VERSION, SCHEMA_VERSION};
use crate::suite::Settings;
use crate::suite::rules::{Policy, Rules};
use crate::units::{Nanoseconds, Share};

/// What was said of a sweep, and what it cost.
#[derive(Clone, Debug)]
pub struct Judged {
    /// With all batches.
    pub judgement: Judgement,
    /// Fresh invocations of cases, in all, of the head.
    pub fresh: usize,
}

/// Judges a sweep: looks, takes a batch of what is undecided, and looks again.
pub fn judged(sweep: &mut Sweep, design: Design, floor: Share, against: Against) -> Judged {
    let Sweep {
        base,
        head,
        earlier,
    } = sweep;
    let (mut before, mut after) = (side(base, design, floor), side(head, design, floor));
    if let Against::Sessions(sessions) = against {
        for (index, record) in before.cases.values_mut().enumerate() {
            let earlier = earlier.iter().take(sessions.saturating_sub(1));
            record.earlier = earlier.map(|session| session.medians(index)).collect();
        }
    }
    if against == Against::Beside {
        before.header.turn = turn(TurnSide::Base);
        after.header.turn = turn(TurnSide::Head);
    }
    let options = Options {
        strict: false,
        same_suite: true,
        wants_base: true,
        batches: against != Against::Once,
    };
    let policy = after.header.rules.policy.clone();
    let (mut fresh, mut taken) = (0, 0);
    loop {
        let judgement = judge(&after, Some(&before), &options);
        let batch = match against {
            Against::Once => None,
            _ => next_batch(&judgement, &policy, fresh, 1),
        };
        let Some(batch) = batch else {
            return Judged {
                judgement,
                fresh: taken,
            };
        };
        let more = (batch.fresh - fresh) as usize;
        let cases: BTreeSet<&CaseId> = batch.undecided.iter().chain(&batch.company).collect();
        for (index, (id, record)) in after.cases.iter_mut().enumerate() {
            if !cases.contains(id) {
                continue;
            }
            taken += more;
            record.confirm_ns.extend(head.fresh(index, more));
            if let (Against::Beside, Some(stored)) = (against, before.cases.get_mut(id)) {
                stored.confirm_ns.extend(base.fresh(index, more));
            }
        }
        fresh = batch.fresh;
    }
}

/// Both sides of a sweep are measured in turn.
fn turn(side: TurnSide) -> Option<Turn> {
    Some(Turn {
        pair: "simulated".to_owned(),
        side,
        of: Vec::new(),
        stands_in: BTreeMap::new(),
    })
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
        built: BTreeMap::new(),
        imported: None,
        turn: None,
    }
}
