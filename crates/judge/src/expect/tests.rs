use super::*;
use crate::testing::{around, disturbed, failed as crashed, side, timed, unsupported};
use regatta_core::suite::rules::Selector;
use regatta_worker::units::quantities;

const AUTO: &str = "torch/efficient:s1000,d64,bwd";
const ONE: &str = "torch/efficient:s1000,d64,bwd:num_splits_key=1";
const FOUR: &str = "torch/efficient:s1000,d64,bwd:num_splits_key=4";

fn selector(pairs: &[(&str, &[&str])]) -> Selector {
    let pairs = pairs.iter().map(|(facet, values)| {
        let values = values.iter().map(|v| (*v).to_owned()).collect();
        ((*facet).to_owned(), values)
    });
    Selector(pairs.collect())
}

fn splits() -> Expectation {
    Expectation {
        name: "automatic splits are good".to_owned(),
        case: selector(&[("num_splits_key", &["auto"])]),
        against: selector(&[("num_splits_key", &["1", "4"])]),
        within: Ratio(1.10),
        metric: Metric::Device,
    }
}

fn run(rule: Expectation, cases: Vec<(&str, CaseRecord)>) -> (Vec<ExpectationResult>, Vec<String>) {
    let mut side = side("run", cases);
    side.header.rules.expectations.push(rule);
    let found = expectations(&side);
    (found.results, found.notes)
}

fn held(auto: CaseRecord, one: CaseRecord, four: CaseRecord) -> ExpectationResult {
    let (mut results, notes) = run(splits(), vec![(AUTO, auto), (ONE, one), (FOUR, four)]);
    assert_eq!((results.len(), notes.len()), (1, 0));
    results.remove(0)
}

#[test]
fn automatic_far_behind_the_best_explicit_value_is_broken() {
    let result = held(around(1000.0), around(990.0), around(100.0));
    assert_eq!(result.held, Held::Broken);
    assert_eq!(result.against.unwrap().0, FOUR);
    assert!((result.ratio.unwrap().0 - 10.0).abs() < 0.01);
}

#[test]
fn within_the_limit_is_kept() {
    let result = held(around(105.0), around(990.0), around(100.0));
    assert_eq!(result.held, Held::Yes);
    assert!(result.low.unwrap() <= Ratio(1.05) && result.high.unwrap() >= Ratio(1.05));
}

#[test]
fn pairs_cancel_what_an_invocation_does_to_both() {
    let drift = [1.0, 1.5, 2.0, 0.7, 3.0];
    let result = held(
        timed(&drift.map(|d| 115.0 * d)),
        around(9_000.0),
        timed(&drift.map(|d| 100.0 * d)),
    );
    assert_eq!(result.held, Held::Broken);
}

#[test]
fn a_limit_inside_the_interval_decides_nothing() {
    let result = held(
        timed(&[105.0, 115.0, 112.0, 113.0, 114.0]),
        around(900.0),
        timed(&[100.0; 5]),
    );
    assert_eq!(result.held, Held::Inconclusive);
    assert!(result.looks_worse);
    assert_eq!(
        result.reason.unwrap(),
        "4 of 5 invocations above 1.10, not clearly enough; more would decide"
    );
}

#[test]
fn an_expectation_holds_only_where_that_is_shown() {
    // 0.61 in the middle, and anything around it.
    let noisy = held(
        timed(&[54.0, 61.0, 60.0, 62.0, 147.0]),
        around(900.0),
        timed(&[100.0; 5]),
    );
    assert_eq!(noisy.held, Held::Inconclusive);
    assert!(!noisy.looks_worse);
}

#[test]
fn few_invocations_decide_only_many_times_beyond_a_limit_or_below_it() {
    let best = || timed(&[100.0; 3]);
    let other = || timed(&[900.0; 3]);
    let near = held(timed(&[150.0; 3]), other(), best());
    assert_eq!(near.held, Held::Inconclusive);
    assert!(near.reason.unwrap().contains("five would decide"));
    let far = held(timed(&[230.0; 3]), other(), best());
    assert_eq!(far.held, Held::Broken);
    let two = held(timed(&[9e3; 2]), timed(&[9e2; 2]), timed(&[1e2; 2]));
    assert_eq!(two.held, Held::Broken);
    let below = held(timed(&[50.0; 2]), timed(&[9e2; 2]), timed(&[1e2; 2]));
    assert_eq!(below.held, Held::Yes);
    let within = held(timed(&[100.0; 2]), timed(&[9e2; 2]), timed(&[1e2; 2]));
    assert_eq!(
        (within.held, within.looks_worse),
        (Held::Inconclusive, false)
    );
    // One process may be anything.
    let one = held(timed(&[9e3]), timed(&[9e2]), timed(&[1e2]));
    assert_eq!((one.held, one.looks_worse), (Held::Inconclusive, true));
}

#[test]
fn a_failed_case_or_no_measured_reference_is_not_judged() {
    let result = held(crashed("x"), around(1.0), around(1.0));
    assert_eq!(result.held, Held::NotJudged);
    assert_eq!(result.reason.unwrap(), format!("not measured: {AUTO}"));
    let result = held(around(1.0), crashed("x"), crashed("y"));
    assert_eq!(result.held, Held::NotJudged);
    // One reference is enough: that the other failed is said of its own row.
    let result = held(around(1.0), crashed("x"), around(1.0));
    assert_eq!(result.held, Held::Yes);
}

#[test]
fn unsupported_and_allowed_cases_are_held_to_nothing() {
    let cases = vec![(AUTO, unsupported("x")), (ONE, around(1.0))];
    let (results, notes) = run(splits(), cases);
    assert!(results.is_empty());
    assert_eq!(
        notes,
        ["`automatic splits are good` was not held against any case"]
    );

    let mut side = side("run", vec![(AUTO, crashed("x")), (ONE, around(1.0))]);
    side.header.rules.expectations.push(splits());
    side.header.rules.policy.allow.push("*bwd".to_owned());
    assert!(expectations(&side).results.is_empty());
}

#[test]
fn a_case_without_any_reference_is_said() {
    let (results, notes) = run(splits(), vec![(AUTO, around(1.0))]);
    assert!(results.is_empty());
    assert!(notes[0].contains("selects 1 case with nothing to hold it against"));
}

#[test]
fn only_cases_alike_in_all_else_are_compared() {
    let other = "torch/efficient:s2000,d64,bwd:num_splits_key=4";
    let more = "torch/efficient:s1000,d64,bwd:access=views,num_splits_key=4";
    let (results, _) = run(
        splits(),
        vec![
            (AUTO, around(100.0)),
            (other, around(1.0)),
            (more, around(1.0)),
            (ONE, around(100.0)),
        ],
    );
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].against.as_ref().unwrap().0, ONE);
}

/// All-gather and product on two H200s: the fused operator is slower because its host is.
#[test]
fn a_broken_expectation_tells_its_cause_and_what_belongs_to_it() {
    use regatta_core::machine::{ActivitySummary, DeviceTime};
    let record = |device_ns, host_ns, activity| CaseRecord {
        host_ns: vec![Nanoseconds(host_ns); 5],
        activity: Some(activity),
        ..timed(&[device_ns; 5])
    };
    let activity = |span_ns, busy_ns, host_ns, copies| ActivitySummary {
        time: DeviceTime {
            span_ns,
            busy_ns,
            host_bound_ns: Some(host_ns),
            copying_ns: Some(14_000 * copies),
            ..DeviceTime::default()
        },
        copies,
        ..ActivitySummary::default()
    };
    let result = held(
        record(267_100.0, 277_000.0, activity(280_000, 70_000, 195_000, 2)),
        around(9e6),
        record(75_800.0, 50_300.0, activity(76_000, 73_000, 0, 0)),
    );
    assert_eq!(result.held, Held::Broken);
    let reason = result.reason.unwrap();
    assert!(
        reason.starts_with(
            "host-bound, from the best to this one: host 50.3 → 277.0 µs a call, device idle \
             between launches 3.00 → 210.0 µs of 280.0 µs"
        ),
        "{reason}"
    );
    assert!(
        reason.ends_with("; no-overlap: copies and compute at once 0 of 28.0 µs of copying a call"),
        "{reason}"
    );
}

#[test]
fn naming_variants_compares_across_workers() {
    let rule = Expectation {
        name: "fused no slower than unfused".to_owned(),
        case: selector(&[("variant", &["cpu/flash"])]),
        against: selector(&[("variant", &["torch/math"])]),
        within: Ratio(1.0),
        metric: Metric::Device,
    };
    let cases = vec![
        ("cpu/flash:s64,d64", around(9.0)),
        ("torch/math:s64,d64", around(1.0)),
    ];
    let (results, _) = run(rule, cases);
    assert_eq!(results[0].held, Held::Broken);
}

#[test]
fn host_times_are_the_devices_on_a_processor_alone() {
    let rule = |variant: &str| Expectation {
        name: "no slower on the host".to_owned(),
        case: selector(&[("variant", &[variant])]),
        against: selector(&[("variant", &["cpu/naive"])]),
        within: Ratio(1.0),
        metric: Metric::Host,
    };
    let cases = || {
        vec![
            ("cpu/flash:s64,d64", around(9.0)),
            ("cpu/naive:s64,d64", around(1.0)),
            ("torch/math:s64,d64", around(1.0)),
        ]
    };
    let (results, _) = run(rule("cpu/flash"), cases());
    assert_eq!(results[0].held, Held::Broken);
    // Where its worker says nothing of the host, nothing is known of it.
    let (results, _) = run(rule("torch/math"), cases());
    assert_eq!(results[0].held, Held::NotJudged);
    assert!(results[0].reason.as_ref().unwrap().contains("host times"));
}

#[test]
fn references_that_failed_are_nothing_to_hold_against_though_they_may_fail() {
    let cases = vec![
        (AUTO, around(1.0)),
        (ONE, crashed("x")),
        (FOUR, crashed("y")),
    ];
    let mut side = side("run", cases);
    side.header.rules.expectations.push(splits());
    side.header
        .rules
        .policy
        .allow
        .push("*num_splits_key*".to_owned());
    let found = expectations(&side);
    assert_eq!(found.results[0].held, Held::NotJudged);
}

#[test]
fn an_expectation_that_held_nothing_of_a_whole_suite_is_a_gap() {
    let mut side = side("run", vec![("cpu/flash:s64,d64", around(1.0))]);
    side.header.rules.expectations.push(Expectation {
        case: selector(&[("variant", &["torch/math"])]),
        ..splits()
    });
    assert_eq!(
        expectations(&side).gaps,
        ["`automatic splits are good` was not held against any case"]
    );
    side.header.suite.filter.push("cpu".to_owned());
    assert!(expectations(&side).gaps.is_empty());
    let unread = CaseId("cpu/flash:s64,d64:mode=1,n=2,=".to_owned());
    side.cases.insert(unread, around(1.0));
    let gap = &expectations(&side).gaps[0];
    assert!(
        gap.contains("since its id is none that regatta reads"),
        "{gap}"
    );
}

#[test]
fn naming_workers_compares_variants_of_one_name() {
    let rule = Expectation {
        name: "as good as before".to_owned(),
        case: selector(&[("worker", &["new"])]),
        against: selector(&[("worker", &["old"])]),
        within: Ratio(1.0),
        metric: Metric::Device,
    };
    let cases = vec![
        ("new/a:s64,d64", around(1.0)),
        ("old/a:s64,d64", around(5.0)),
        ("old/b:s64,d64", around(0.1)),
    ];
    let (results, _) = run(rule, cases);
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].against.as_ref().unwrap().0, "old/a:s64,d64");
}

#[test]
fn host_times_are_used_where_there_are_any_without_the_confirming_ones() {
    let rule = Expectation {
        metric: Metric::Host,
        ..splits()
    };
    let mut auto = around(1.0);
    auto.host_ns = quantities([[100.0; 5], [1.0; 5]].concat());
    let mut four = around(1.0);
    four.host_ns = vec![Nanoseconds(10.0); 10];
    let (results, _) = run(rule, vec![(AUTO, auto), (FOUR, four)]);
    assert_eq!(results[0].ratio, Some(Ratio(10.0)));
    assert_eq!(results[0].held, Held::Broken);
}

#[test]
fn values_from_an_edited_file_are_no_panic() {
    let never_both = held(
        timed(&[f64::NAN, 1.0]),
        around(2.0),
        timed(&[1.0, f64::NAN]),
    );
    assert_eq!(never_both.held, Held::NotJudged);
    for within in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
        let rule = Expectation {
            within: Ratio(within),
            ..splits()
        };
        let (results, _) = run(rule, vec![(AUTO, around(1.0)), (ONE, around(1.0))]);
        assert_eq!(results[0].held, Held::NotJudged);
    }
}

#[test]
fn times_that_the_machine_was_in_decide_no_expectation() {
    let loaded = || disturbed(timed(&[]), 5, 1000.0);
    let cases = [
        (loaded(), around(990.0), around(100.0), ""),
        (around(105.0), around(990.0), loaded(), FOUR),
    ];
    for (auto, one, four, whose) in cases {
        let result = held(auto, one, four);
        assert_eq!((result.held, result.ratio), (Held::Inconclusive, None));
        assert!(!result.looks_worse);
        let reason = result.reason.unwrap();
        assert!(
            reason.starts_with("not judged because of the machine"),
            "{reason}"
        );
        assert!(reason.ends_with(whose), "{reason}");
    }
}

#[test]
fn invocations_are_paired_by_number_where_the_machine_took_some() {
    // Invocations 2 to 5 of the one, 0 to 4 of the other: three are of both.
    let auto = disturbed(timed(&[30.0, 40.0, 50.0, 60.0]), 2, 999.0);
    let best = timed(&[1.0, 2.0, 3.0, 4.0, 5.0]);
    let result = held(auto, around(990.0), best);
    assert_eq!(result.ratio, Some(Ratio(10.0)));
    assert_eq!(result.held, Held::Broken);
}
