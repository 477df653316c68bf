use super::*;

fn spent(busy: &[f64]) -> Vec<Spent> {
    let spent = |ns: &f64| Spent {
        elapsed_ns: Nanoseconds(ns * 1.05),
        busy_ns: Nanoseconds(*ns),
    };
    busy.iter().map(spent).collect()
}

fn judged(base: &[f64], head: &[f64]) -> Runs {
    judge(&Sides::of(spent(base), spent(head)), None).unwrap()
}

fn outcome(base: &[f64], head: &[f64]) -> VerdictOutcome {
    judged(base, head).busy.outcome()
}

/// So many values that lie this far around a centre, as a share of it.
fn around(centre: f64, apart: f64, count: usize) -> Vec<f64> {
    let last = (count - 1) as f64;
    let at = |number| centre * (1.0 + apart * (number as f64 / last - 0.5));
    (0..count).map(at).collect()
}

#[test]
fn one_run_a_side_is_held_to_ten_per_cent() {
    assert_eq!(outcome(&[1e6], &[1.09e6]), VerdictOutcome::Passed);
    assert_eq!(outcome(&[1e6], &[1.11e6]), VerdictOutcome::Failed);
    let judged = judged(&[1e6], &[1.15e6]);
    assert_eq!(
        judged.elapsed.outcome(),
        VerdictOutcome::Passed,
        "twice that"
    );
    assert!(!judged.are_several());
    assert_eq!(judged.busy.told(), "15.0 % slower");
}

#[test]
fn a_few_runs_can_only_take_back_what_one_would_have_called() {
    let (near, far) = (around(1.05e6, 0.002, 3), around(1.2e6, 0.002, 3));
    let base = around(1e6, 0.002, 3);
    assert_eq!(outcome(&base, &near), VerdictOutcome::Passed);
    assert_eq!(outcome(&base, &far), VerdictOutcome::Failed);
    // A run of the base that took as long as those of the head.
    assert_eq!(
        outcome(&[1e6, 1e6, 1.25e6], &far),
        VerdictOutcome::NotJudged
    );
    assert_eq!(outcome(&[1e6, 1.25e6], &[1.2e6]), VerdictOutcome::Passed);
}

#[test]
fn four_quiet_runs_a_side_show_five_per_cent() {
    let base = around(1e6, 0.004, 4);
    assert_eq!(
        outcome(&base, &around(1.05e6, 0.004, 4)),
        VerdictOutcome::Failed
    );
    // What is shown to be there and lies within what counts at all.
    assert_eq!(
        outcome(&base, &around(1.01e6, 0.004, 4)),
        VerdictOutcome::Passed
    );
    assert_eq!(
        outcome(&base, &around(0.9e6, 0.004, 4)),
        VerdictOutcome::Passed
    );
    assert_eq!(outcome(&base, &base), VerdictOutcome::Passed);
}

#[test]
fn what_runs_of_one_program_differ_by_is_not_slower() {
    let base = around(1e6, 0.08, 4);
    assert_eq!(
        outcome(&base, &around(1.05e6, 0.08, 4)),
        VerdictOutcome::NotJudged,
        "slower, and as far as runs lie apart"
    );
    assert_eq!(
        outcome(&around(1e6, 0.6, 4), &around(1e6, 0.6, 4)),
        VerdictOutcome::NotJudged,
        "such runs could hide anything"
    );
    assert_eq!(
        outcome(&base, &around(1.6e6, 0.08, 4)),
        VerdictOutcome::Failed
    );
}

#[test]
fn a_floor_that_is_asked_for_is_kept() {
    let sides = Sides::of(
        spent(&around(1e6, 0.002, 5)),
        spent(&around(1.05e6, 0.002, 5)),
    );
    let outcome = |asked| judge(&sides, Some(Share(asked))).unwrap().busy.outcome();
    assert_eq!(outcome(0.1), VerdictOutcome::Passed);
    assert_eq!(outcome(0.03), VerdictOutcome::Failed);
    assert!(judge(&Sides::of(Vec::new(), spent(&[1.0])), None).is_none());
}
