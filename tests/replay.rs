//! Given times, dealt to one, four and sixteen shards: the same words as of the whole.
//!
//! The times of a case follow from its name, the invocation and the sweep alone, those of fresh
//! invocations too, so that every way to split a suite replays one and the same sweep.
//! `REGATTA_TEST_REPLAYS=100 cargo test --test replay` replays a hundred; without it a few.

use std::collections::BTreeSet;
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use regatta::attention::{Case, CaseId};
use regatta::judge::judgement::Judgement;
use regatta::judge::{self, Options, next_batch};
use regatta::record::run_file::{self, Opening, RUN_FILE, RunWriter};
use regatta::record::shard::{Asked, Portion, Shard};
use regatta::record::shards::{Part, joined_header, joined_side, kinds, owed_of};
use regatta::record::side::Side;
use regatta::record::types::{BaseId, Entry, Measurement, Outcome, Owed, RunHeader};
use regatta::suite::shard::{Costs, Place, deal};
use regatta::units::{Nanoseconds, quantities};

const INVOCATIONS: u32 = 10;

const OPTIONS: Options = Options {
    strict: false,
    same_suite: true,
    wants_base: true,
    batches: true,
};

fn cases() -> Vec<Case> {
    let ids = (0..32).map(|n| format!("cpu/a:s{},d64", 64 + 16 * n));
    ids.map(|id| id.parse().unwrap()).collect()
}

/// The header of a stored run, for these cases.
fn header() -> RunHeader {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/samples/timings/run.jsonl");
    let mut header = run_file::header_of(&sample).unwrap();
    header.plan = cases().iter().map(Case::id).collect();
    header.plan.sort();
    header.rules = Default::default();
    header.rules.policy.floor = regatta::units::Share(0.02);
    header.settings.invocations = INVOCATIONS;
    header.settings.structure_only = false;
    header.settings.ground = regatta::suite::GroundRule::Any;
    header.turn = None;
    header
}

/// The time of a case in an invocation of a sweep; every eighth case is slower in the head, by
/// more and by less, and some are noisy.
fn entry(case: &CaseId, invocation: u32, sweep: u64, head: bool) -> Entry {
    let seed = case.drawn(sweep * 2 + u64::from(head)) ^ u64::from(invocation) << 32;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let kind = case.drawn(0) % 8;
    let width = [0.004, 0.01, 0.01, 0.02, 0.02, 0.05, 0.1, 0.01][kind as usize];
    let slower = match (head, (case.drawn(1) % 8, sweep % 4)) {
        (true, (0, 1)) => 1.03,
        (true, (0, 2)) => 1.10,
        (true, (1, 3)) => 0.94,
        _ => 1.0,
    };
    // What all cases of an invocation share.
    let day = ChaCha8Rng::seed_from_u64(sweep ^ u64::from(invocation) << 20).random::<f64>();
    let tail = if rng.random::<f64>() < 0.05 { 1.2 } else { 1.0 };
    let time = 1e5 * slower * tail * (1.0 + width * rng.random::<f64>()) * (1.0 + 0.005 * day);
    let samples = (0..5).map(|_| time * (1.0 + 0.002 * rng.random::<f64>()));
    Entry {
        case: case.clone(),
        invocation,
        outcome: Outcome::Measured(Measurement {
            device_ns: quantities(samples),
            first_call_ns: Nanoseconds(1e6),
            ..Measurement::default()
        }),
        spent: None,
        start: None,
    }
}

fn base(folder: &Path, sweep: u64) -> Side {
    let header = header();
    let (mut writer, _) = RunWriter::open(folder, &header, &Opening::default()).unwrap();
    for invocation in 0..INVOCATIONS {
        for case in &header.plan {
            writer
                .append(&entry(case, invocation, sweep, false))
                .unwrap();
        }
    }
    Side::read(writer.path(), "base").unwrap().1
}

fn add(writer: &mut RunWriter, cases: &[CaseId], fresh: std::ops::Range<u32>, sweep: u64) {
    for invocation in fresh {
        for case in cases {
            if !writer.done.contains(&(invocation, case.clone())) {
                writer
                    .append(&entry(case, invocation, sweep, true))
                    .unwrap();
            }
        }
    }
}

fn batch_of(judgement: &Judgement, header: &RunHeader, fresh: u32) -> Option<(Vec<CaseId>, u32)> {
    let (policy, seed) = (&header.rules.policy, header.settings.seed);
    let batch = next_batch(judgement, policy, fresh, seed)?;
    Some(([batch.undecided, batch.company].concat(), batch.fresh))
}

fn base_id() -> BaseId {
    BaseId {
        name: "base".to_owned(),
        sum: "0".to_owned(),
    }
}

/// A sweep as one run.
fn whole(folder: &Path, base: &Side, sweep: u64) -> Judgement {
    let header = header();
    let opening = Opening {
        base: Some(base_id()),
        ..Opening::default()
    };
    let (mut writer, _) = RunWriter::open(folder, &header, &opening).unwrap();
    add(&mut writer, &header.plan, 0..INVOCATIONS, sweep);
    let mut fresh = 0;
    loop {
        let (_, side) = Side::read(writer.path(), "head").unwrap();
        let judgement = judge::judge(&side, Some(base), &OPTIONS);
        let Some((cases, more)) = batch_of(&judgement, &header, fresh) else {
            return judgement;
        };
        fresh = more;
        let owed = Owed {
            base: base_id(),
            cases: cases.clone(),
            fresh,
        };
        writer.owe(owed).unwrap();
        add(&mut writer, &cases, INVOCATIONS..INVOCATIONS + fresh, sweep);
    }
}

/// The same in so many shards, merged after every round.
fn split(folder: &Path, base: &Side, sweep: u64, of: u32) -> Judgement {
    let dealt = deal(&cases(), &[], &Costs::new(), of);
    let portions: Vec<Portion> = dealt.parts.iter().map(|part| Portion::of(part)).collect();
    let mut writers: Vec<(RunWriter, BTreeSet<CaseId>)> = Vec::new();
    for (index, part) in (1..).zip(&dealt.parts) {
        let mut header = header();
        header.plan.clone_from(part);
        header.shard = Some(Shard {
            place: Place::new(index, of).unwrap(),
            parts: portions.clone(),
            asked: Asked::Gate {
                base: Some(base_id()),
            },
        });
        let opening = Opening {
            base: Some(base_id()),
            ..Opening::default()
        };
        let at = folder.join(index.to_string());
        let (mut writer, _) = RunWriter::open(&at, &header, &opening).unwrap();
        add(&mut writer, part, 0..INVOCATIONS, sweep);
        writers.push((writer, part.iter().cloned().collect()));
    }
    loop {
        let parts = (1..=of).map(|index| folder.join(index.to_string()).join(RUN_FILE));
        let parts = parts.map(|path| Part::read(path).unwrap()).collect();
        let kinds = kinds(parts, false).unwrap();
        assert_eq!(kinds.len(), 1);
        let parts = &kinds[0].parts;
        let header = joined_header(parts, Vec::new());
        let side = joined_side(parts, &header, "head");
        let judgement = judge::judge(&side, Some(base), &OPTIONS);
        let fresh = owed_of(parts).last().map_or(0, |owed| owed.fresh);
        let Some((cases, fresh)) = batch_of(&judgement, &header, fresh) else {
            return judgement;
        };
        for (writer, own) in &mut writers {
            let cases: Vec<CaseId> = cases
                .iter()
                .filter(|case| own.contains(*case))
                .cloned()
                .collect();
            if cases.is_empty() {
                continue;
            }
            let owed = Owed {
                base: base_id(),
                cases: cases.clone(),
                fresh,
            };
            writer.owe(owed).unwrap();
            add(writer, &cases, INVOCATIONS..INVOCATIONS + fresh, sweep);
        }
    }
}

/// Everything that a reader is told of the rows.
fn said(judgement: &Judgement) -> String {
    let verdict = &judgement.verdict;
    format!(
        "{:?} {:?}\n{:#?}",
        verdict.outcome, verdict.reasons, judgement.rows
    )
}

#[test]
fn one_four_and_sixteen_shards_say_what_the_whole_says() {
    let asked = std::env::var("REGATTA_TEST_REPLAYS").ok();
    let sweeps: u64 = asked.map_or(8, |number| number.parse().unwrap());
    let (mut rounds, mut outcomes) = (0, BTreeSet::new());
    for sweep in 0..sweeps {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let base = base(&at("base"), sweep);
        let one = whole(&at("whole"), &base, sweep);
        outcomes.insert(format!("{:?}", one.verdict.outcome));
        let run = run_file::read(&at("whole").join(RUN_FILE)).unwrap();
        rounds += usize::from(!run.owed.is_empty());
        for of in [1, 4, 16] {
            let parts = split(&at(&of.to_string()), &base, sweep, of);
            assert_eq!(said(&parts), said(&one), "sweep {sweep} in {of} shards");
        }
    }
    assert!(rounds > 0, "no sweep had anything undecided");
    assert!(outcomes.len() > 1, "all sweeps came to {outcomes:?}");
    println!("{sweeps} sweeps, {rounds} with fresh invocations: {outcomes:?}");
}
