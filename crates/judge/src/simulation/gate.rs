//! What the gate says of a sweep. It is the gate's own code: sides are filled with times, and
//! `judge` judges them, batch after batch.

use std::collections::BTreeMap;

use super::draw::{Replay, Role, Session};
use super::noise::Noise;
use crate::judgement::Judgement;
use crate::{Options, judge, next_batch};
use regatta_core::record::header::{Turn, TurnSide};
use regatta_core::record::side::Side;
use regatta_core::record::testing::{side, timed};
use regatta_worker::units::{Ratio, numbers};

/// Cases of a sweep.
pub const CASES: usize = 200;

/// Invocations of a session, as suites ask for.
const EACH: usize = 5;

/// What a head is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// One stored session, of twice as many invocations, as in `regatta gate`.
    Stored,
    /// So many stored sessions.
    Sessions(u32),
    /// The base, measured anew beside the head.
    Beside,
    /// One stored session, with nothing fresh, as in `regatta diff`.
    Once,
}

/// Judges a sweep, of whose cases the first `changed` take `factor` times as long: looks, takes
/// a batch of what is undecided, and looks again. Rows stand in the order of the cases.
pub fn judged(
    noise: Noise,
    against: Against,
    sweep: u64,
    changed: usize,
    factor: Ratio,
) -> Judgement {
    let (role, invocations) = match against {
        Against::Beside => (Role::Beside, EACH),
        Against::Stored => (Role::Base, 2 * EACH),
        Against::Sessions(_) | Against::Once => (Role::Base, EACH),
    };
    let stored = Session::begin(noise, sweep, role, invocations);
    let new = Session::begin(noise, sweep, Role::Head, EACH);
    let cases = || 0..CASES;
    let of = |case| if case < changed { factor } else { Ratio::ONE };
    let mut before: Vec<Replay> = cases().map(|case| stored.case(case, Ratio::ONE)).collect();
    let mut after: Vec<Replay> = cases().map(|case| new.case(case, of(case))).collect();
    let (mut base, mut head) = (
        measured(&mut before, invocations),
        measured(&mut after, EACH),
    );
    if let Against::Sessions(sessions) = against {
        for session in 1..sessions {
            let session = Session::begin(noise, sweep, Role::Earlier(session), EACH);
            for (case, record) in base.cases.values_mut().enumerate() {
                record
                    .earlier
                    .push(session.case(case, Ratio::ONE).medians(EACH));
            }
        }
    }
    if against == Against::Beside {
        base.header.turn = Some(turn(TurnSide::Base));
        head.header.turn = Some(turn(TurnSide::Head));
    }
    let options = Options {
        same_suite: true,
        wants_base: true,
        batches: against != Against::Once,
        ..Options::default()
    };
    let policy = head.header.rules.policy.clone();
    let mut fresh = 0;
    loop {
        let judgement = judge(&head, Some(&base), &options);
        let batch = next_batch(&judgement, &policy, fresh, 1).filter(|_| options.batches);
        let Some(batch) = batch else {
            return judgement;
        };
        let more = (batch.fresh - fresh) as usize;
        fresh = batch.fresh;
        let plan = &head.header.plan;
        for case in batch.undecided.iter().chain(&batch.company) {
            let at = plan.binary_search(case).unwrap();
            let times = |replays: &mut [Replay]| replays[at].medians(more);
            let record = head.cases.get_mut(case).unwrap();
            record.confirm_ns.extend(times(&mut after));
            if against == Against::Beside {
                let record = base.cases.get_mut(case).unwrap();
                record.confirm_ns.extend(times(&mut before));
            }
        }
    }
}

/// A side whose cases have these times.
fn measured(replays: &mut [Replay], invocations: usize) -> Side {
    // Ids sort as their numbers do.
    let id = |index: usize| format!("cpu/flash:s{},d64", 100_000 + index);
    let ids: Vec<String> = (0..replays.len()).map(id).collect();
    let records = replays.iter_mut();
    let records = records.map(|replay| timed(&numbers(&replay.medians(invocations))));
    side(
        "simulated",
        ids.iter().map(String::as_str).zip(records).collect(),
    )
}

/// Both sides of a sweep are measured in turn.
fn turn(side: TurnSide) -> Turn {
    Turn {
        pair: "simulated".to_owned(),
        side,
        of: Vec::new(),
        stands_in: BTreeMap::new(),
    }
}
