use super::super::noise::{MODELS, QUIET};
use super::*;
use crate::record::side::median;

const PLANNED: usize = 5;

fn place(sweep: u64) -> Place {
    Place {
        seed: 7,
        experiment: 0,
        sweep,
    }
}

fn model(name: &str) -> World {
    let found = MODELS.into_iter().find(|noise| noise.name == name);
    World::Made(found.unwrap())
}

/// Logarithms of the medians of `invocations` invocations of `cases` cases, on both sides.
fn sessions(world: &World, cases: usize, invocations: usize, sweep: u64) -> [Vec<Vec<f64>>; 2] {
    [Role::Base, Role::Head].map(|role| {
        let session = Session::begin(world, place(sweep), role, PLANNED);
        let case = |index| {
            let mut replay = session.case(index, Ratio::ONE);
            let one = |_| median(&replay.invocation(20)).unwrap().0.ln();
            (0..invocations).map(one).collect()
        };
        (0..cases).map(case).collect()
    })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn deviation(values: &[f64]) -> f64 {
    let centre = mean(values);
    let squares: Vec<f64> = values.iter().map(|v| (v - centre).powi(2)).collect();
    mean(&squares).sqrt()
}

/// Values less the mean of their case.
fn residuals(side: &[Vec<f64>]) -> Vec<f64> {
    let cases = side.iter();
    let own = cases.flat_map(|all| {
        let centre = mean(all);
        all.iter().map(move |value| value - centre)
    });
    own.collect()
}

fn near(found: f64, expected: f64, share: f64) {
    assert!(
        (found / expected - 1.0).abs() < share,
        "{found} is not near {expected}"
    );
}

#[test]
fn invocations_lie_as_far_apart_as_they_should() {
    for (name, between) in [("quiet", 0.002), ("typical", 0.01), ("hosted", 0.0266)] {
        let [base, head] = sessions(&model(name), 200, 30, 0);
        for side in [base, head] {
            // Medians of twenty samples add a little of their own.
            near(deviation(&residuals(&side)), between, 0.15);
        }
    }
}

#[test]
fn samples_are_never_faster_than_their_level_and_spread_as_they_should() {
    let world = World::Made(QUIET);
    let session = Session::begin(&world, place(0), Role::Base, PLANNED);
    let samples: Vec<f64> = session
        .case(0, Ratio::ONE)
        .invocation(20_000)
        .iter()
        .map(|time| time.0)
        .collect();
    let fastest = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let above: Vec<f64> = samples.iter().map(|ns| ns / fastest - 1.0).collect();
    // The mean of half a normal distribution is 0.798 of its deviation.
    near(mean(&above), 0.798 * QUIET.within.0, 0.05);
}

#[test]
fn a_case_takes_as_long_on_both_sides_but_for_its_change() {
    let world = World::Made(QUIET);
    let of = |role, factor| {
        let session = Session::begin(&world, place(3), role, PLANNED);
        let mut replay = session.case(11, Ratio(factor));
        let medians: Vec<f64> = (0..40)
            .map(|_| median(&replay.invocation(20)).unwrap().0)
            .collect();
        mean(&medians)
    };
    let ratio = of(Role::Head, 1.5) / of(Role::Base, 1.0);
    near(ratio, 1.5, 0.005);
}

#[test]
fn tails_are_heavy_and_slow_only() {
    let [base, _] = sessions(&model("tails"), 400, 20, 0);
    let own: Vec<f64> = base
        .iter()
        .flat_map(|all| {
            let fastest = all.iter().copied().fold(f64::INFINITY, f64::min);
            all.iter().map(move |value| value - fastest)
        })
        .collect();
    let beyond = |limit: f64| own.iter().filter(|v| **v > limit).count() as f64 / 8000.0;
    // A half-Cauchy of 0.5 % exceeds 5 % in 2 / pi * atan(1 / 10) of draws.
    near(beyond(0.05), 0.0635, 0.25);
    assert!(own.iter().all(|v| *v < 3.1_f64.ln()));
}

#[test]
fn modes_are_as_frequent_and_as_slow_as_they_should() {
    for (name, often, slower) in [
        ("slow-tenth", 0.1, 0.03),
        ("slow-third", 0.3, 0.03),
        ("bistable", 0.1, 0.10),
    ] {
        let [base, _] = sessions(&model(name), 400, 20, 0);
        let side = base.iter();
        let away = side.flat_map(|all| {
            let mut sorted = all.clone();
            sorted.sort_by(f64::total_cmp);
            let usual = sorted[sorted.len() / 4];
            all.iter().map(move |value| value - usual)
        });
        let slow: Vec<f64> = away.filter(|v| *v > 0.6 * slower).collect();
        near(slow.len() as f64 / 8000.0, often, 0.15);
        near(mean(&slow), f64::ln_1p(slower), 0.15);
    }
}

#[test]
fn a_process_is_slow_in_all_of_its_cases() {
    let world = model("processes");
    let mut slow = 0;
    for sweep in 0..200 {
        let [base, _] = sessions(&world, 10, 5, sweep);
        for at in 0..5 {
            let usual = |all: &Vec<f64>| all.iter().copied().fold(f64::INFINITY, f64::min);
            let away = base.iter().map(|all| all[at] - usual(all));
            slow += usize::from(mean(&away.collect::<Vec<_>>()) > 0.02);
        }
    }
    near(f64::from(slow as u32) / 1000.0, 0.2, 0.2);
}

#[test]
fn a_session_drifts_to_its_end_and_no_further() {
    let [base, _] = sessions(&model("drift"), 400, 10, 0);
    let at = |invocation: usize| {
        let values: Vec<f64> = base.iter().map(|all| all[invocation] - all[9]).collect();
        mean(&values)
    };
    // Half an invocation's share below the end of the first: 3 % of 0.1, less 3 %.
    near(at(0), 0.003 - 0.03, 0.05);
    assert!(at(5).abs() < 0.001 && at(8).abs() < 0.001);
}

#[test]
fn what_an_invocation_shares_is_in_all_cases() {
    let world = model("shared");
    let shifts: Vec<f64> = (0..200)
        .map(|sweep| {
            let [base, _] = sessions(&world, 50, 2, sweep);
            let between: Vec<f64> = base.iter().map(|all| all[1] - all[0]).collect();
            mean(&between)
        })
        .collect();
    // The difference of two shifts of 1 %.
    near(deviation(&shifts), 0.01 * 2.0_f64.sqrt(), 0.2);
}

#[test]
fn invocations_remember_the_one_before() {
    let [base, _] = sessions(&model("memory"), 400, 40, 0);
    let session: Vec<f64> = base.iter().map(|all| all[7] - all[39]).collect();
    near(deviation(&session), 0.01 * 2.0_f64.sqrt(), 0.15);
    let steps = base.iter().map(|all| all[8] - all[7]);
    // Neighbours differ by the root of 2 (1 - 0.8) deviations.
    near(
        deviation(&steps.collect::<Vec<_>>()),
        0.01 * 0.4_f64.sqrt(),
        0.15,
    );
}

#[test]
fn sessions_differ_as_they_should() {
    let between = |name: &str| {
        let [base, head] = sessions(&model(name), 400, 20, 0);
        let pairs = base.iter().zip(&head);
        let shifts: Vec<f64> = pairs.map(|(base, head)| mean(head) - mean(base)).collect();
        shifts
    };
    for (name, slower) in [("day-0.5", 0.005), ("day-1", 0.01), ("day-2", 0.02)] {
        near(mean(&between(name)), slower, 0.1);
        assert!(deviation(&between(name)) < 0.002);
    }
    near(deviation(&between("layout")), 0.01, 0.15);
    let families = between("families");
    for family in 0..5 {
        let own: Vec<f64> = families.iter().skip(family).step_by(5).copied().collect();
        assert!(deviation(&own) < 0.002);
    }
    assert!(deviation(&families) > 0.003);
    assert!(mean(&between("quiet")).abs() < 0.001);
}

#[test]
fn a_coarse_clock_reads_whole_steps() {
    let world = model("clock");
    let session = Session::begin(&world, place(0), Role::Base, PLANNED);
    for case in 0..20 {
        let samples = session.case(case, Ratio::ONE).invocation(50);
        assert!(samples.iter().all(|time| time.0 % 32.0 == 0.0));
        assert!((4e3..7e3).contains(&median(&samples).unwrap().0));
    }
}

#[test]
fn what_is_drawn_follows_from_its_place() {
    for noise in MODELS {
        let world = World::Made(noise);
        let once = sessions(&world, 3, 7, 5);
        assert_eq!(once, sessions(&world, 3, 7, 5));
        assert_ne!(once, sessions(&world, 3, 7, 6));
        assert_ne!(once[0], once[1]);
    }
}

#[test]
fn recorded_noise_is_drawn_from_one_invocation_at_a_time() {
    let invocation = |ns: f64| vec![Nanoseconds(ns), Nanoseconds(ns + 1.0)];
    let recorded = Recorded {
        cases: vec![vec![invocation(100.0), invocation(200.0)]],
    };
    assert_eq!(recorded.sizes(), (1, 2));
    let world = World::Recorded(recorded);
    let session = Session::begin(&world, place(0), Role::Head, PLANNED);
    let mut replay = session.case(4, Ratio(2.0));
    let (mut fast, mut slow) = (0, 0);
    for _ in 0..100 {
        let samples = replay.invocation(10);
        let all = |ns: f64| samples.iter().all(|time| (ns..ns + 3.0).contains(&time.0));
        fast += usize::from(all(200.0));
        slow += usize::from(all(400.0));
    }
    assert_eq!(fast + slow, 100);
    assert!(fast > 30 && slow > 30);
}

#[test]
fn nothing_is_drawn_from_runs_without_replicates() {
    assert_eq!(Recorded::of(&[]), None);
}
