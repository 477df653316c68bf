//! How often the judge is wrong, and how often it is right, on sweeps made up from known noise:
//! the claims of its documentation, held to by tests.
//!
//! Sweeps have 200 cases; the seed is fixed, so the rates are too.
//! `REGATTA_SWEEPS=200 cargo test --release --lib judge::simulation -- --nocapture` prints them.

mod draw;
mod gate;
mod noise;

use rayon::prelude::*;

use self::draw::{Role, Session};
use self::gate::{Against, CASES, judged};
use self::noise::{BISTABLE, HOSTED, MODELS, Noise, QUIET, TYPICAL};
use crate::judgement::{Row, Word};
use regatta_worker::units::Ratio;

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

/// Counts over some sweeps, or as many as REGATTA_SWEEPS says, for the documentation.
fn rates(noise: Noise, against: Against, sweeps: u64, factor: f64) -> Rates {
    let asked = std::env::var("REGATTA_SWEEPS").ok();
    let sweeps = asked.and_then(|text| text.parse().ok()).unwrap_or(sweeps);
    let changed = if factor > 1.0 { CHANGED } else { 0 };
    let counted = (0..sweeps).into_par_iter().map(|sweep| {
        let rows = judged(noise, against, sweep, changed, Ratio(factor)).rows;
        assert_eq!(rows.len(), CASES);
        let alarms = usize::from(regressed(&rows[changed..]) > 0);
        (alarms, regressed(&rows[..changed]))
    });
    let (alarms, found) = counted.reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    let percent = |number: usize| 100.0 * number as f64 / sweeps as f64;
    let rates = Rates {
        false_alarms: percent(alarms),
        found: percent(found) / changed.max(1) as f64,
    };
    println!(
        "{} {against:?}, x{factor}: {:.1} % of sweeps alarm falsely, {:.0} % found",
        noise.name, rates.false_alarms, rates.found
    );
    rates
}

#[test]
fn sweeps_of_unchanged_cases_rarely_alarm() {
    for noise in MODELS {
        for against in [Against::Beside, Against::Stored] {
            let alarms = rates(noise, against, 1, 1.0).false_alarms;
            assert!(alarms <= 5.0, "{} {against:?}: {alarms}", noise.name);
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
        for against in [Against::Beside, Against::Sessions(8)] {
            let found = rates(noise, against, 3, 1.10).found;
            assert!(found >= least, "{} {against:?}: {found}", noise.name);
        }
    }
}

#[test]
fn a_change_below_the_floor_is_no_regression() {
    assert!(rates(TYPICAL, Against::Beside, 3, 1.03).found <= 5.0);
}

/// Without fresh invocations a noisy machine alarms more often than in one sweep of
/// twenty; that is why the judgement says in a note that nothing was confirmed.
#[test]
fn stored_runs_of_a_calm_machine_rarely_alarm() {
    for (noise, most) in [(QUIET, 5.0), (TYPICAL, 5.0), (BISTABLE, 20.0)] {
        let alarms = rates(noise, Against::Once, 5, 1.0).false_alarms;
        assert!(alarms <= most, "{}: {alarms}", noise.name);
    }
}

#[test]
fn the_noise_is_what_it_is_called_and_follows_from_the_sweep() {
    for (noise, between) in [(QUIET, 0.002), (TYPICAL, 0.01), (HOSTED, 0.0266)] {
        let drawn = |sweep| -> Vec<f64> {
            let session = Session::begin(noise, sweep, Role::Head, 5);
            let cases = (0..100).flat_map(|case| {
                let medians = session.case(case, Ratio::ONE).medians(30);
                let logs: Vec<f64> = medians.iter().map(|time| time.0.ln()).collect();
                let mean = logs.iter().sum::<f64>() / logs.len() as f64;
                logs.into_iter().map(move |log| log - mean)
            });
            cases.collect()
        };
        let found = drawn(1);
        assert_eq!(found, drawn(1));
        assert_ne!(found, drawn(2));
        let squares: f64 = found.iter().map(|log| log * log).sum();
        // Medians of twenty samples add a little of their own.
        let deviation = (squares / found.len() as f64).sqrt();
        assert!((deviation / between - 1.0).abs() < 0.15, "{deviation}");
    }
}
