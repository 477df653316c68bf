use rand::SeedableRng;

use super::*;
use crate::units::quantities;

fn process(samples: &[f64]) -> Invocations {
    vec![quantities(samples.iter().copied())]
}

fn rule(name: &str) -> &'static Rule {
    RULES.iter().find(|rule| rule.name == name).unwrap()
}

fn called(name: &str, base: &[f64], head: &[f64]) -> Called {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    (rule(name).call)(&process(base), &process(head), &mut rng)
}

/// So many values around `centre`, evenly within `spread` of it.
fn around(centre: f64, spread: f64, count: usize) -> Vec<f64> {
    let place = |i: usize| 2.0 * (i as f64 + 0.5) / count as f64 - 1.0;
    (0..count)
        .map(|i| centre * (1.0 + spread * place(i)))
        .collect()
}

fn times(values: &[f64], factor: f64) -> Vec<f64> {
    values.iter().map(|value| factor * value).collect()
}

use Called::{Faster, Neither, Slower};

#[test]
fn a_band_is_a_band() {
    let base = around(100.0, 0.3, 5);
    for (factor, expected) in [
        (1.049, Neither),
        (1.051, Slower),
        (1.0 / 1.049, Neither),
        (1.0 / 1.051, Faster),
    ] {
        assert_eq!(
            called("band of 5 %", &base, &times(&base, factor)),
            expected
        );
    }
}

#[test]
fn a_band_takes_the_median_of_processes() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let side = |levels: [f64; 3]| -> Invocations {
        let process = |level: f64| quantities([level, level, 50.0 * level]);
        levels.map(process).to_vec()
    };
    let (base, head) = (side([10.0, 10.0, 10.0]), side([10.0, 10.0, 90.0]));
    assert_eq!((rule("band of 5 %").call)(&base, &head, &mut rng), Neither);
}

#[test]
fn nvbench_takes_the_smaller_noise_for_its_limit() {
    // Deviations of 1 % and of 10 %: the limit is 1 %.
    let (calm, wild) = (around(100.0, 0.0171, 50), around(102.0, 0.171, 50));
    let noise = coefficient_of_variation(&calm);
    assert!((noise - 0.01).abs() < 0.0002);
    assert_eq!(called("nvbench legacy", &calm, &wild), Slower);
    let within = times(&calm, 1.0 + 0.9 * noise);
    assert_eq!(called("nvbench legacy", &calm, &within), Neither);
    let beyond = times(&calm, 1.0 - 1.1 * noise);
    assert_eq!(called("nvbench legacy", &calm, &beyond), Faster);
    // Without a measure of noise nothing is said.
    assert_eq!(called("nvbench legacy", &[1.0; 9], &[2.0; 9]), Neither);
    assert_eq!(called("nvbench legacy", &[1.0, 1.1], &[2.0, 2.1]), Neither);
    // Its exit code counts both directions.
    assert!((rule("nvbench legacy").red)(0, 1));
}

#[test]
fn nvbench_robust_wants_a_gap_between_intervals() {
    // 100 to 104, of which the third quartile is 103.
    let base = [100.0, 101.0, 102.0, 103.0, 104.0];
    let from = |low: f64| [low, low + 1.0, low + 2.0, low + 3.0, low + 4.0];
    assert_eq!(called("nvbench robust", &base, &from(103.4)), Neither);
    assert_eq!(called("nvbench robust", &base, &from(103.6)), Slower);
    // Its own third quartile lies three above its minimum.
    assert_eq!(called("nvbench robust", &base, &from(96.6)), Neither);
    assert_eq!(called("nvbench robust", &base, &from(96.4)), Faster);
}

#[test]
fn criterion_wants_significance_and_one_per_cent() {
    let base = around(100.0, 0.02, 100);
    let by = |percent: f64| times(&base, 1.0 + percent / 100.0);
    // Significant by far, and within the noise threshold.
    assert_eq!(called("criterion", &base, &by(0.9)), Neither);
    assert!(p_of_welch_t(&base, &by(0.9), &mut ChaCha8Rng::seed_from_u64(1)) < 0.05);
    // The interval of the change is about 0.3 points wide each way.
    assert_eq!(called("criterion", &base, &by(1.1)), Neither);
    assert_eq!(called("criterion", &base, &by(2.0)), Slower);
    assert_eq!(called("criterion", &base, &by(-2.0)), Faster);
    // Far beyond one per cent, and not significant.
    let wild = around(100.0, 0.9, 10);
    assert_eq!(called("criterion", &wild, &times(&wild, 1.1)), Neither);
}

#[test]
fn the_bootstrap_agrees_with_the_approximation_in_place_of_it() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    // Nineteen values are bootstrapped, twenty are where it matters.
    let base = around(100.0, 0.02, 19);
    let far = times(&base, 1.03);
    assert!(welch_t_of(&base, &far) > 4.0);
    assert!(p_of_welch_t(&base, &far, &mut rng) < 0.01);
    let near = times(&base, 1.003);
    assert!(welch_t_of(&base, &near) < 1.2);
    assert!(p_of_welch_t(&base, &near, &mut rng) > 0.2);
    let (low, high) = change_of_means(&base, &far, 0.01, &mut rng).unwrap();
    assert!(low > 0.01 && low < 0.03 && high > 0.03 && high < 0.05);
}

fn welch_t_of(base: &[f64], head: &[f64]) -> f64 {
    super::super::bootstrap::welch_t(base, head)
}

#[test]
fn google_benchmark_calls_whatever_ranks_tell_apart() {
    // SciPy: mannwhitneyu(range(5), range(5, 10)) has p 0.0079.
    let base = [100.0, 100.1, 100.2, 100.3, 100.4];
    assert_eq!(
        called("google-benchmark", &base, &times(&base, 1.005)),
        Slower
    );
    assert_eq!(
        called("google-benchmark", &base, &times(&base, 0.995)),
        Faster
    );
    // Three against three can get no lower than 0.1.
    assert_eq!(
        called("google-benchmark", &base[..3], &[200.0, 201.0, 202.0]),
        Neither
    );
    assert_eq!(
        called("google-benchmark", &base, &times(&base, 1.001)),
        Neither
    );
}

#[test]
fn asv_wants_a_factor_and_significance() {
    let base = around(100.0, 0.01, 10);
    for (factor, expected) in [
        (1.09, Neither),
        (1.11, Slower),
        (1.0 / 1.09, Neither),
        (1.0 / 1.11, Faster),
    ] {
        assert_eq!(called("asv", &base, &times(&base, factor)), expected);
    }
    let wild = around(100.0, 0.9, 10);
    assert_eq!(called("asv", &wild, &times(&wild, 1.2)), Neither);
    // Five against five cannot reach p 0.002, and are held to their intervals.
    let few = around(100.0, 0.01, 5);
    assert_eq!(called("asv", &few, &times(&few, 1.2)), Slower);
    // Six against six pass for enough, and their p comes down to 0.00216: never called.
    let six = around(100.0, 0.01, 6);
    assert_eq!(called("asv", &six, &times(&six, 3.0)), Neither);
}

#[test]
fn xformers_adds_a_share_and_an_amount() {
    // 5 % of 100 µs and 30 µs more.
    let base = [100e3; 3];
    assert_eq!(called("xFormers", &base, &[134e3; 3]), Neither);
    assert_eq!(called("xFormers", &base, &[136e3; 3]), Slower);
    assert_eq!(called("xFormers", &base, &[64e3; 3]), Faster);
    // Of 2 ms it is 6.5 %.
    assert_eq!(called("xFormers", &[2e6; 3], &[2.12e6; 3]), Neither);
    assert_eq!(called("xFormers", &[2e6; 3], &[2.14e6; 3]), Slower);
    // One slower case does not fail it.
    let red = rule("xFormers").red;
    assert!(!red(1, 0) && red(2, 0) && !red(0, 9));
}

#[test]
fn names_differ_and_every_rule_says_where_it_is_from() {
    for (index, rule) in RULES.iter().enumerate() {
        assert!(RULES[..index].iter().all(|other| other.name != rule.name));
        assert!(!rule.source.is_empty() && !rule.simplified.is_empty());
        assert!(rule.takes.processes > 0 && rule.takes.samples > 0);
    }
}
