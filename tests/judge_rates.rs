//! How often the judge is wrong, and how often it is right, on sweeps made up
//! from known noise: the claims of its documentation, held to by a test.
//!
//! The noise is that of published benchmarks of benchmarks: a spread between
//! invocations, a one-sided one within, and a machine that in one of ten
//! invocations runs in a mode 10 % slower. Sweeps have 200 cases; the seed is
//! fixed, so the rates are too. `cargo test --test judge_rates -- --nocapture`
//! prints them.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use regatta::attention::CaseId;
use regatta::judge::judgement::{Judgement, Row, Word};
use regatta::judge::{Options, judge, suspects};
use regatta::record::side::{CaseRecord, Side, Status, median};
use regatta::record::types::{Fingerprint, RunHeader, SuiteRecord};
use regatta::suite::rules::Rules;
use regatta::suite::{Cache, Settings};
use regatta::units::Nanoseconds;

const CASES: usize = 200;
const INVOCATIONS: usize = 5;
const CONFIRMING: usize = 10;
const SAMPLES: usize = 20;
/// Cases of a sweep that changed, where any did.
const CHANGED: usize = 5;

/// A world to measure in.
#[derive(Clone, Copy)]
struct Noise {
    name: &'static str,
    /// Relative standard deviation between invocations.
    between: f64,
    /// The same within one, one-sided: interruptions only ever add.
    within: f64,
    /// How often an invocation is 10 % slower as a whole.
    slow_mode: f64,
}

const QUIET: Noise = Noise {
    name: "quiet",
    between: 0.002,
    within: 0.005,
    slow_mode: 0.0,
};
const TYPICAL: Noise = Noise {
    name: "typical",
    between: 0.01,
    within: 0.01,
    slow_mode: 0.0,
};
const HOSTED: Noise = Noise {
    name: "hosted",
    between: 0.0266,
    within: 0.01,
    slow_mode: 0.0,
};
const BISTABLE: Noise = Noise {
    name: "bistable",
    between: 0.003,
    within: 0.005,
    slow_mode: 0.1,
};

/// Where fresh values of the base come from.
#[derive(Clone, Copy, PartialEq)]
enum Base {
    /// Measured side by side with the head's.
    Interleaved,
    /// A stored baseline has none; its screened ones serve again.
    Stored,
    /// Nowhere: two stored runs are compared, and nothing is measured again.
    Nowhere,
}

struct World {
    rng: ChaCha8Rng,
    noise: Noise,
}

impl World {
    /// A draw from the standard normal distribution (Box and Muller).
    fn normal(&mut self) -> f64 {
        let (u, v): (f64, f64) = (self.rng.random(), self.rng.random());
        (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Medians of `count` invocations of a case that takes `ns`.
    fn invocations(&mut self, count: usize, ns: f64) -> Vec<Nanoseconds> {
        let Noise {
            between,
            within,
            slow_mode,
            ..
        } = self.noise;
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            let slow = if self.rng.random::<f64>() < slow_mode {
                0.10
            } else {
                0.0
            };
            let level = ns * (1.0 + between * self.normal() + slow);
            let samples: Vec<Nanoseconds> = (0..SAMPLES)
                .map(|_| Nanoseconds(level * (1.0 + (within * self.normal()).abs())))
                .collect();
            values.extend(median(&samples));
        }
        values
    }

    /// A sweep in which the first `changed` cases take `factor` times as long.
    fn sweep(&mut self, base: &mut Side, head: &mut Side, changed: usize, factor: f64) {
        let factor = |index: usize| if index < changed { factor } else { 1.0 };
        for (index, record) in base.cases.values_mut().enumerate() {
            *record = measured(self.invocations(INVOCATIONS, 1000.0 + index as f64));
        }
        for (index, record) in head.cases.values_mut().enumerate() {
            let ns = factor(index) * (1000.0 + index as f64);
            *record = measured(self.invocations(INVOCATIONS, ns));
        }
    }

    /// What a gate does: screen, measure the suspects again, judge.
    fn gate(&mut self, from: Base, changed: usize, factor: f64) -> Judgement {
        let (mut base, mut head) = (side(), side());
        self.sweep(&mut base, &mut head, changed, factor);
        let options = Options::default();
        let screened = judge(&head, Some(&base), &options);
        if from == Base::Nowhere {
            return screened;
        }
        for case in suspects(&screened, &head.header.rules.policy) {
            let index = head.cases.keys().position(|id| *id == case).unwrap();
            let ns = 1000.0 + index as f64;
            let slower = if index < changed { factor } else { 1.0 };
            head.cases.get_mut(&case).unwrap().confirm_ns =
                self.invocations(CONFIRMING, ns * slower);
            if from == Base::Interleaved {
                base.cases.get_mut(&case).unwrap().confirm_ns = self.invocations(CONFIRMING, ns);
            }
        }
        judge(&head, Some(&base), &options)
    }
}

fn measured(device_ns: Vec<Nanoseconds>) -> CaseRecord {
    CaseRecord {
        device_ns,
        ..CaseRecord::empty(Status::Measured)
    }
}

fn side() -> Side {
    let ids = (0..CASES).map(|index| CaseId(format!("cpu/flash:s{},d64", 1000 + index)));
    let cases: BTreeMap<CaseId, CaseRecord> = ids.map(|id| (id, measured(Vec::new()))).collect();
    Side {
        label: "simulated".to_owned(),
        header: RunHeader {
            schema: 1,
            method: 1,
            tool: String::new(),
            argv: Vec::new(),
            started: "2026-01-01T00:00:00Z".parse().unwrap(),
            git: None,
            suite: SuiteRecord {
                counts: Vec::new(),
                name: "simulated".to_owned(),
                description: String::new(),
                arguments: Vec::new(),
                filter: Vec::new(),
                overrides: Vec::new(),
            },
            rules: Rules::default(),
            settings: Settings {
                invocations: INVOCATIONS as u32,
                warmup: 0,
                samples: SAMPLES as u32,
                min_samples: 1,
                budget_ms: 0,
                cache: Cache::Cold,
                seed: 0,
                graph: false,
                calls_per_sample: 1,
                input_sets: 3,
                timeout_s: 1,
                structure_only: false,
            },
            machine: Fingerprint::default(),
            workers: Vec::new(),
            plan: cases.keys().cloned().collect(),
            identity: None,
            imported: None,
        },
        cases,
        damage: Vec::new(),
    }
}

/// Per cent of sweeps with a false regression, and of changed cases found.
struct Rates {
    false_alarms: f64,
    found: f64,
}

fn regressed(rows: &[Row]) -> usize {
    let regressed = rows.iter().filter(|row| row.word == Word::Regressed);
    regressed.count()
}

fn rates(noise: Noise, from: Base, sweeps: usize, factor: f64) -> Rates {
    let changed = if factor > 1.0 { CHANGED } else { 0 };
    let mut world = World {
        rng: ChaCha8Rng::seed_from_u64(20_260_105),
        noise,
    };
    let (mut alarms, mut found) = (0, 0);
    for _ in 0..sweeps {
        let judgement = world.gate(from, changed, factor);
        found += regressed(&judgement.rows[..changed]);
        alarms += usize::from(regressed(&judgement.rows[changed..]) > 0);
    }
    let percent = |number: usize| 100.0 * number as f64 / sweeps as f64;
    let found = percent(found) / changed.max(1) as f64;
    Rates {
        false_alarms: percent(alarms),
        found,
    }
}

/// Sweeps a rate is counted over. More with REGATTA_SWEEPS, for the documentation.
fn sweeps() -> usize {
    let asked = std::env::var("REGATTA_SWEEPS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(30)
}

#[test]
fn sweeps_of_unchanged_cases_rarely_alarm() {
    for noise in [QUIET, TYPICAL, HOSTED, BISTABLE] {
        for (from, name) in [(Base::Interleaved, "interleaved"), (Base::Stored, "stored")] {
            let rates = rates(noise, from, sweeps(), 1.0);
            println!(
                "{} {name}: {:.1} % of sweeps alarm falsely",
                noise.name, rates.false_alarms
            );
            assert!(
                rates.false_alarms <= 5.0,
                "{} {name}: {}",
                noise.name,
                rates.false_alarms
            );
        }
    }
}

#[test]
fn a_tenth_slower_is_found_among_two_hundred() {
    for (noise, least) in [
        (QUIET, 99.0),
        (TYPICAL, 99.0),
        (HOSTED, 80.0),
        (BISTABLE, 80.0),
    ] {
        for (from, name) in [(Base::Interleaved, "interleaved"), (Base::Stored, "stored")] {
            let rates = rates(noise, from, sweeps(), 1.10);
            println!("{} {name}: {:.0} % of +10 % found", noise.name, rates.found);
            assert!(
                rates.found >= least,
                "{} {name}: {}",
                noise.name,
                rates.found
            );
        }
    }
}

#[test]
fn a_change_below_the_floor_is_no_regression() {
    let rates = rates(TYPICAL, Base::Interleaved, sweeps(), 1.03);
    println!("typical interleaved: {:.0} % of +3 % called", rates.found);
    assert!(rates.found <= 5.0);
}

/// Without fresh invocations a noisy machine alarms more often than in one sweep of
/// twenty; that is why the judgement says in a note that nothing was confirmed.
#[test]
fn stored_runs_of_a_calm_machine_rarely_alarm() {
    for (noise, most) in [
        (QUIET, 5.0),
        (TYPICAL, 5.0),
        (BISTABLE, 5.0),
        (HOSTED, 50.0),
    ] {
        let quiet = rates(noise, Base::Nowhere, sweeps(), 1.0);
        let slower = rates(noise, Base::Nowhere, sweeps(), 1.10);
        println!(
            "{} without confirmation: {:.1} % of sweeps alarm falsely, {:.0} % of +10 % found",
            noise.name, quiet.false_alarms, slower.found
        );
        assert!(
            quiet.false_alarms <= most,
            "{}: {}",
            noise.name,
            quiet.false_alarms
        );
    }
}
