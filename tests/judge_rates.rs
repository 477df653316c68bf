//! How often the judge is wrong, and how often it is right, on sweeps made up
//! from known noise: the claims of its documentation, held to by a test.
//!
//! The noise is `regatta::verdicts`': a spread between invocations, a one-sided one
//! within, and a machine that in one of ten invocations runs in a mode 10 % slower.
//! Sweeps have 200 cases; the seed is fixed, so the rates are too.
//! `cargo test --test judge_rates -- --nocapture` prints them; `regatta verdicts` prints
//! more noise, lower floors, and the rules of other tools beside.

use regatta::judge::judgement::{Row, Word};
use regatta::suite::rules::Policy;
use regatta::units::Ratio;
use regatta::verdicts::draw::{Place, World};
use regatta::verdicts::gate::judged;
use regatta::verdicts::noise::{BISTABLE, HOSTED, Noise, QUIET, TYPICAL};
use regatta::verdicts::sweep::{Against, Changed, Design, Sessions};

/// Cases of a sweep that changed, where any did.
const CHANGED: usize = 5;

/// Per cent of sweeps with a false regression, and of changed cases found.
struct Rates {
    false_alarms: f64,
    found: f64,
}

fn regressed(rows: &[Row]) -> usize {
    let regressed = rows.iter().filter(|row| row.word == Word::Regressed);
    regressed.count()
}

fn rates(noise: Noise, against: Against, sweeps: usize, factor: f64) -> Rates {
    let changed = Changed {
        cases: if factor > 1.0 { CHANGED } else { 0 },
        factor: Ratio(factor),
    };
    let (world, design) = (World::Made(noise), Design::DEFAULT);
    let (mut alarms, mut found) = (0, 0);
    for sweep in 0..sweeps {
        let place = Place {
            seed: 20_260_105,
            experiment: 0,
            sweep: sweep as u64,
        };
        let sessions = Sessions::begin(&world, place, design, changed);
        let floor = Policy::default().floor;
        let rows = judged(&mut sessions.measure(against), design, floor, against)
            .judgement
            .rows;
        found += regressed(&rows[..changed.cases]);
        alarms += usize::from(regressed(&rows[changed.cases..]) > 0);
    }
    let percent = |number: usize| 100.0 * number as f64 / sweeps as f64;
    let found = percent(found) / changed.cases.max(1) as f64;
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
        for (from, name) in [(Against::Beside, "beside"), (Against::Stored, "stored")] {
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
        for (from, name) in [(Against::Beside, "beside"), (Against::Stored, "stored")] {
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
    let rates = rates(TYPICAL, Against::Beside, sweeps(), 1.03);
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
        // 6 of 100, by `regatta verdicts --floor 5`; thirty sweeps may show more.
        (BISTABLE, 20.0),
        (HOSTED, 50.0),
    ] {
        let quiet = rates(noise, Against::Once, sweeps(), 1.0);
        let slower = rates(noise, Against::Once, sweeps(), 1.10);
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
