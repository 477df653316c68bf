//! The suite's own row: what all cases share between base and head.

use super::moderated::variance;
use super::sessions::Between;
use super::terms::{BETWEEN_SESSIONS, END, ERROR, FEWEST_CASES, Plan, Series, SuiteRuling};
use super::terms::{enough, gap};
use crate::judgement::Word;
use crate::statistics::{one_sample_centre, t_upper, t_upper_quantile};
use regatta_core::record::side::median;

/// So many of the cases must take part before a change is called shared.
const SHARE: f64 = 2.0 / 3.0;

/// A case takes part when its own change is at least the suite's over this, and at most the
/// suite's times this.
const SPREAD: f64 = 2.0;

/// Beyond this a suite is not slower because of the day: a stored session of one day is
/// enough to say that it regressed. Logarithm.
const NO_DAY: f64 = 0.02;

/// One in so many sees a shared change where there is none; a case is then judged by its
/// whole change as well as by its own.
const SIGNIFICANT: f64 = 0.025;

/// What cases are judged against.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shared {
    /// Taken out of each case to see what is its own.
    pub out: f64,
    /// True when it is no chance: a case must then lie beyond its floor with it, too.
    pub real: bool,
}

/// Judges what the cases share. `levels` are those of the invocations of both sides; the
/// suite's floor is the smallest of its cases'.
pub fn suite(
    cases: &[Series],
    between: Option<&Between>,
    levels: (&[f64], &[f64]),
    plan: &Plan,
) -> Option<(SuiteRuling, Shared)> {
    if cases.len() < FEWEST_CASES {
        return None;
    }
    let changes: Vec<f64> = cases
        .iter()
        .enumerate()
        .map(|(at, case)| {
            let held = between.and_then(|between| between.held(at));
            let base =
                held.map_or_else(|| one_sample_centre(&case.base.regular), |held| held.centre);
            one_sample_centre(&case.head.regular) - base
        })
        .collect();
    let change = median(&changes)?;
    let apart: Vec<f64> = changes.iter().map(|own| (own - change).abs()).collect();
    let spread = 1.4826 * median(&apart)?;
    // The error of a median of so many, where nothing is shared at all.
    let chance = 1.2533 * spread / (cases.len() as f64).sqrt();
    let (error, degrees) = match plan.beside && levels.0.len() == levels.1.len() {
        true => paired_error(levels, chance),
        false => error(between, levels, chance),
    };
    let p = t_upper(change.abs() / error, degrees);
    let near = |own: &&f64| {
        own.signum() == change.signum()
            && (change.abs() / SPREAD..=change.abs() * SPREAD).contains(&own.abs())
    };
    let sharing = changes.iter().filter(near).count();
    let shared = sharing as f64 >= SHARE * cases.len() as f64;
    let real = p < SIGNIFICANT && change.abs() > 3.0 * chance;
    // Half of the cases moved, and half did not: nothing is common to them.
    let split = real && !shared && change.abs() > 2.0 * spread;
    let floors = cases.iter().map(|case| case.floor);
    let floor = floors.fold(f64::INFINITY, f64::min).ln_1p();
    let end = change.abs() - t_upper_quantile(END, degrees) * error;
    let wide = t_upper_quantile(END / 2.0, degrees) * error;
    let apart_by = lying_apart(levels.0, levels.1, change);
    let enough = enough(levels.0.len(), levels.1.len(), apart_by);
    let shown = enough && real && shared && end > floor && p < ERROR * plan.part / 2.0;
    let known = plan.beside || between.is_some();
    let word = match change > 0.0 {
        true if shown && (known || end > floor + NO_DAY) => Word::Regressed,
        false if shown && (known || end > floor + BETWEEN_SESSIONS) => Word::Improved,
        _ if change.abs() + wide <= floor => Word::Same,
        _ => Word::Inconclusive,
    };
    // What no day does is the code of each case, and each is told with its causes.
    let each = shown && end > floor + NO_DAY;
    let out = match split || each || change.abs() < 3.0 * chance {
        true => 0.0,
        false => change,
    };
    let shared_by_many = real && shared && !each;
    let ruling = SuiteRuling {
        word,
        removed: out != 0.0 && !shared_by_many,
        change,
        interval: (change - wide, change + wide),
        p: (2.0 * p).min(1.0),
        seen: (floor + 2.0 * t_upper_quantile(END, degrees) * error).exp_m1(),
        sharing,
        of: cases.len(),
        looks_worse: word == Word::Inconclusive && real && shared && change > floor,
    };
    let shared = Shared {
        out,
        real: shared_by_many,
    };
    Some((ruling, shared))
}

/// By how much the levels of the head's invocations lie apart from the base's, which stand
/// for changes around each side's own centre.
fn lying_apart(base: &[f64], head: &[f64], change: f64) -> f64 {
    let moved: Vec<f64> = head.iter().map(|level| level + change).collect();
    gap(base, &moved)
}

/// The same of sides that were measured in turn: what both invocations of a pair share is in
/// no difference.
fn paired_error((base, head): (&[f64], &[f64]), chance: f64) -> (f64, f64) {
    let apart: Vec<f64> = base.iter().zip(head).map(|(b, h)| h - b).collect();
    let own = variance(&apart);
    let error = (own.value / apart.len().max(1) as f64).sqrt();
    (error.max(chance).max(1e-5), own.degrees.max(1.0))
}

/// The standard error of the change, and how well it is known: what the levels of invocations
/// say of it, and where sessions are known, what theirs do, if that is more.
fn error(between: Option<&Between>, (base, head): (&[f64], &[f64]), chance: f64) -> (f64, f64) {
    let part = |levels: &[f64]| {
        let own = variance(levels);
        (own.value / levels.len().max(1) as f64, own.degrees)
    };
    let ((base, n), (head, m)) = (part(base), part(head));
    let both = base + head;
    let degrees = match both > 0.0 && n > 0.0 && m > 0.0 {
        true => both * both / (base * base / n + head * head / m),
        false => 4.0,
    };
    let invocations = (both.sqrt().max(chance).max(1e-5), degrees.max(1.0));
    let Some(between) = between else {
        return invocations;
    };
    let sessions = between.sessions() as f64;
    let spread = variance(between.levels()).value;
    let error = (spread * (1.0 + 1.0 / sessions)).sqrt();
    match error > invocations.0 {
        true => (error, sessions - 1.0),
        false => invocations,
    }
}
