//! What this gate says of a sweep. It is the gate's own code: sides are filled with times,
//! and `judge` judges them.

use std::collections::BTreeMap;
use std::ops::Range;

use super::batches::decided;
use super::sweep::{Against, Design, Measured, Sweep};
use crate::attention::CaseId;
use crate::judge::Options;
use crate::judge::judgement::Judgement;
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
    let ids: Vec<CaseId> = after.cases.keys().cloned().collect();
    let mut taken = 0;
    let give = |case: &CaseId, more: Range<usize>, (before, after): (&mut Side, &mut Side)| {
        let Ok(index) = ids.binary_search(case) else {
            return;
        };
        let more = more.len();
        taken += more;
        if let Some(record) = after.cases.get_mut(case) {
            record.confirm_ns.extend(head.fresh(index, more));
        }
        if let (Against::Beside, Some(stored)) = (against, before.cases.get_mut(case)) {
            stored.confirm_ns.extend(base.fresh(index, more));
        }
    };
    let judgement = decided((&mut before, &mut after), &options, give);
    Judged {
        judgement,
        fresh: taken,
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
            pins: Default::default(),
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
        peaks: BTreeMap::new(),
        turn: None,
        shard: None,
        merged: None,
    }
}
