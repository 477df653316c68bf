//! What a gate makes of a machine: gates drawn from invocations of unchanged code.

use std::collections::BTreeMap;
use std::ops::Range;

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use super::batches::decided;
use super::draw::Place;
use crate::attention::CaseId;
use crate::judge::Options;
use crate::judge::judgement::{Judgement, VerdictOutcome, Word};
use crate::judge::rule::variance;
use crate::record::calibration::{Calibration, Gate, Noise, Rates, SCHEMA};
use crate::record::side::{CaseRecord, Side, Status, median};
use crate::suite::rules::Metric;
use crate::units::{Nanoseconds, Ratio, Share};

/// The changes that are planted, in per cent.
const CHANGES: [u32; 4] = [1, 2, 5, 10];

/// Cases of a gate that change together.
const CHANGED: usize = 5;

/// Standard errors of the difference of two sides that a floor must be wide: then an unchanged
/// case is called the same in 95 of 100 (1.645 for the end of its interval, 1.96 for where its
/// estimate falls).
const WIDE: f64 = 1.645 + 1.96;

/// Floors are whole multiples of this, and no smaller than twice.
const STEP: f64 = 0.0025;

/// What a run of unchanged code says of a gate on its machine. `gates` are drawn: invocations
/// go to base and head without being used twice, and what fresh ones need beyond that is drawn
/// from those that the base has not.
///
/// Cases without a time in every invocation are left out. `None` where none is left, or there
/// are fewer invocations than a base and a head take.
pub fn calibration(run: &Side, gate: Gate, gates: u32) -> Option<Calibration> {
    let header = &run.header;
    let invocations = header.settings.invocations as usize;
    let measured: BTreeMap<&CaseId, &CaseRecord> = run
        .cases
        .iter()
        .filter(|(_, record)| record.status == Status::Measured)
        .filter(|(_, record)| record.device_ns.len() == invocations)
        .collect();
    if measured.is_empty() || invocations < (gate.base + gate.head) as usize {
        return None;
    }
    let noise: BTreeMap<CaseId, Noise> = measured
        .iter()
        .map(|(case, record)| ((*case).clone(), noise(record, gate)))
        .collect();
    let mut base = run.clone();
    base.cases.retain(|case, _| noise.contains_key(case));
    base.header.plan.retain(|case| noise.contains_key(case));
    if base.header.rules.policy.calibrated {
        let floors = noise
            .iter()
            .map(|(case, noise)| (case.clone(), noise.floor));
        base.header.rules.policy.floors = floors.collect();
    }
    // What is judged beside times is the same on both sides, and expectations are the run's.
    base.header.rules.expectations.clear();
    base.header.rules.limits.clear();
    base.header.settings.invocations = gate.head;
    base.header.rules.policy.confirm = gate.fresh;
    Some(Calibration {
        schema: SCHEMA,
        tool: header.tool.clone(),
        suite: header.suite.name.clone(),
        machine: header.machine.name.clone(),
        hard: header.machine.hard.clone(),
        measured: header.started,
        invocations: header.settings.invocations,
        gate,
        rates: rates(&base, gate, gates),
        shared: shared(&measured),
        cases: noise,
    })
}

fn noise(record: &CaseRecord, gate: Gate) -> Noise {
    let between = [
        (Metric::Device, &record.device_ns),
        (Metric::Host, &record.host_ns),
        (Metric::FirstCall, &record.first_call_ns),
    ];
    let known = between.into_iter().filter(|(_, values)| values.len() > 1);
    let between: BTreeMap<Metric, Share> = known
        .map(|(metric, values)| (metric, deviation(values)))
        .filter(|(_, share)| share.is_finite())
        .collect();
    let own = between.get(&Metric::Device).map_or(0.0, |share| share.0);
    let wide = WIDE * own * (1.0 / f64::from(gate.base) + 1.0 / f64::from(gate.head)).sqrt();
    let steps = (wide.exp_m1() / STEP).ceil().max(2.0);
    Noise {
        median_ns: median(&record.device_ns).unwrap_or(Nanoseconds::ZERO),
        between,
        floor: Share((steps * STEP).min(1.0)),
    }
}

/// Standard deviation of logarithms.
fn deviation(values: &[Nanoseconds]) -> Share {
    let logs: Vec<f64> = values.iter().map(|value| value.0.ln()).collect();
    Share(variance(&logs).value.sqrt())
}

/// Standard deviation of what all cases of an invocation share.
fn shared(cases: &BTreeMap<&CaseId, &CaseRecord>) -> Share {
    let invocations = cases.values().map(|record| record.device_ns.len()).min();
    let levels: Vec<Nanoseconds> = (0..invocations.unwrap_or(0))
        .filter_map(|at| {
            let ratios = cases.values().filter_map(|record| {
                let middle = median(&record.device_ns)?;
                Some(record.device_ns[at] / middle)
            });
            let level: Ratio = median(&ratios.collect::<Vec<_>>())?;
            Some(Nanoseconds(level.0))
        })
        .collect();
    deviation(&levels)
}

/// What is counted over gates.
#[derive(Clone, Debug, Default)]
struct Counted {
    red: u32,
    unsaid: u32,
    same: (usize, usize),
    seen: Vec<Share>,
    found: BTreeMap<u32, (usize, usize)>,
    twice: (usize, usize),
}

impl Counted {
    fn plus(mut self, other: Counted) -> Counted {
        self.red += other.red;
        self.unsaid += other.unsaid;
        self.same = (self.same.0 + other.same.0, self.same.1 + other.same.1);
        self.twice = (self.twice.0 + other.twice.0, self.twice.1 + other.twice.1);
        self.seen.extend(other.seen);
        for (change, (hits, of)) in other.found {
            let sum = self.found.entry(change).or_default();
            *sum = (sum.0 + hits, sum.1 + of);
        }
        self
    }
}

fn rates(run: &Side, gate: Gate, gates: u32) -> Rates {
    let counted = (0..gates)
        .into_par_iter()
        .map(|number| one(run, gate, number))
        .reduce(Counted::default, Counted::plus);
    let share = |(hits, of): (usize, usize)| Share(hits as f64 / of.max(1) as f64);
    Rates {
        gates,
        red: share((counted.red as usize, gates as usize)),
        cannot_say: share((counted.unsaid as usize, gates as usize)),
        same: share(counted.same),
        seen: median(&counted.seen).filter(|seen: &Share| seen.is_finite()),
        found: counted
            .found
            .into_iter()
            .map(|(change, of)| (change, share(of)))
            .collect(),
        twice: share(counted.twice),
    }
}

/// One unchanged gate, and one of each change.
fn one(run: &Side, gate: Gate, number: u32) -> Counted {
    let place = Place {
        seed: 1,
        experiment: 1 << 20,
        sweep: u64::from(number),
    };
    let mut rng = place.generator(0);
    let of_run = run.cases.values().next().map_or(0, |r| r.device_ns.len());
    let mut order: Vec<usize> = (0..of_run).collect();
    order.shuffle(&mut rng);
    let mut counted = Counted::default();
    let clean = judged(run, gate, &order, &|_| Ratio::ONE);
    match clean.verdict.outcome {
        VerdictOutcome::Failed => counted.red = 1,
        VerdictOutcome::NotJudged => counted.unsaid = 1,
        VerdictOutcome::Passed => {}
    }
    let same = clean.rows.iter().filter(|row| row.word == Word::Same);
    counted.same = (same.count(), clean.rows.len());
    let changes = clean.rows.iter().filter_map(|row| row.change.as_ref());
    counted.seen = changes.map(|change| change.smallest_effect).collect();
    let chosen = chosen(run, &mut rng);
    let found = |factor: &dyn Fn(&CaseId) -> Ratio| {
        let of = |case: &CaseId| match chosen.contains(case) {
            true => factor(case),
            false => Ratio::ONE,
        };
        let judgement = judged(run, gate, &order, &of);
        let called = judgement
            .rows
            .iter()
            .filter(|row| chosen.contains(&row.case) && row.word == Word::Regressed);
        (called.count(), chosen.len())
    };
    for change in CHANGES {
        let factor = Ratio(1.0 + f64::from(change) / 100.0);
        counted.found.insert(change, found(&|_| factor));
    }
    let policy = &run.header.rules.policy;
    counted.twice = found(&|case| {
        let floor = policy.floors.get(case).copied().unwrap_or(policy.floor);
        Ratio(1.0 + 2.0 * floor.0)
    });
    counted
}

/// The cases that change: of few, one.
fn chosen(run: &Side, rng: &mut ChaCha8Rng) -> Vec<CaseId> {
    let mut cases: Vec<&CaseId> = run.cases.keys().collect();
    cases.shuffle(rng);
    let many = (cases.len() / 4).clamp(1, CHANGED);
    cases.into_iter().take(many).cloned().collect()
}

/// A gate whose base and head are these invocations, in their order.
fn judged(run: &Side, gate: Gate, order: &[usize], factor: &dyn Fn(&CaseId) -> Ratio) -> Judgement {
    let (base_at, rest) = order.split_at(gate.base as usize);
    let (head_at, fresh_at) = rest.split_at(gate.head as usize);
    // What is left first, then those of the head again.
    let fresh_at: Vec<usize> = fresh_at.iter().chain(head_at).copied().collect();
    let side = |at: &[usize], factor: &dyn Fn(&CaseId) -> Ratio| {
        let mut side = run.clone();
        for (case, record) in &mut side.cases {
            let factor = factor(case);
            let taken = |values: &[Nanoseconds], factor| -> Vec<Nanoseconds> {
                let there = at.iter().filter_map(|&at| values.get(at));
                there.map(|&value| value * factor).collect()
            };
            record.device_ns = taken(&record.device_ns, factor);
            record.host_ns = taken(&record.host_ns, Ratio::ONE);
            record.first_call_ns = taken(&record.first_call_ns, Ratio::ONE);
            record.confirm_ns.clear();
        }
        side
    };
    let mut base = side(base_at, &|_| Ratio::ONE);
    let mut head = side(head_at, factor);
    let options = Options {
        same_suite: true,
        wants_base: true,
        batches: true,
        ..Options::default()
    };
    let give = |case: &CaseId, more: Range<usize>, (_, head): (&mut Side, &mut Side)| {
        let (Some(record), Some(all)) = (head.cases.get_mut(case), run.cases.get(case)) else {
            return;
        };
        let at: Vec<usize> = more.map(|n| fresh_at[n % fresh_at.len()]).collect();
        let of = |values: &[Nanoseconds]| -> Vec<Nanoseconds> {
            let there = at.iter().filter_map(|&at| values.get(at));
            there.copied().collect()
        };
        let device = of(&all.device_ns);
        let device = device.into_iter().map(|time| time * factor(case));
        record.confirm_ns.extend(device);
        record.host_ns.extend(of(&all.host_ns));
        record.first_call_ns.extend(of(&all.first_call_ns));
    };
    decided((&mut base, &mut head), &options, give)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::testing::{side, timed};

    const GATE: Gate = Gate {
        base: 5,
        head: 5,
        fresh: 10,
    };

    fn run(noise: f64, invocations: usize) -> Side {
        let ids: Vec<String> = (1..=12)
            .map(|n| format!("cpu/flash:s{},d64", 64 * n))
            .collect();
        let value = |case: usize, at: usize| {
            let step = ((case * 31 + at * 17 + at * at * 7) % 23) as f64 / 23.0 - 0.48;
            1e5 * (case + 1) as f64 * (1.0 + 3.4 * noise * step)
        };
        let cases = ids.iter().enumerate().map(|(case, id)| {
            let values: Vec<f64> = (0..invocations).map(|at| value(case, at)).collect();
            (id.as_str(), timed(&values))
        });
        let mut side = side("a", cases.collect());
        side.header.settings.invocations = invocations as u32;
        side
    }

    #[test]
    fn a_quiet_machine_sees_more_than_a_noisy_one() {
        let of = |noise| calibration(&run(noise, 20), GATE, 20).unwrap();
        let (quiet, noisy) = (of(0.001), of(0.03));
        assert_eq!(quiet.rates.red, Share(0.0));
        assert_eq!(quiet.rates.found[&10], Share(1.0));
        assert_eq!(quiet.rates.same, Share(1.0));
        assert!(quiet.rates.seen < noisy.rates.seen);
        let floor = |of: &Calibration| of.cases.values().next().unwrap().floor;
        assert_eq!(floor(&quiet), Share(0.005));
        assert!(floor(&noisy) > Share(0.04), "{:?}", floor(&noisy));
    }

    #[test]
    fn too_few_invocations_make_none() {
        assert_eq!(calibration(&run(0.01, 9), GATE, 5), None);
    }

    #[test]
    fn floors_are_the_cases_own_where_the_suite_says_so() {
        let mut calibrated = run(0.002, 20);
        calibrated.header.rules.policy.calibrated = true;
        let found = calibration(&calibrated, GATE, 20).unwrap();
        // Five per cent would have hidden two.
        assert!(found.rates.found[&2] > Share(0.9), "{:?}", found.rates);
        assert_eq!(found.rates.red, Share(0.0));
        assert!(found.rates.twice >= Share(0.95), "{:?}", found.rates);
    }
}
