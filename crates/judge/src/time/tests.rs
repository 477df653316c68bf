use super::*;
use crate::floor::floor;
use crate::testing::{around, confirmed as with_fresh, timed};
use regatta_core::record::side::Unconfirmed;
use regatta_core::record::types::Fault;

fn one(base: &CaseRecord, head: &CaseRecord) -> Compared {
    let gate = Taken {
        batches: true,
        beside: false,
    };
    let policy = Policy::default();
    let mut together = compare(&[(base, head)], Metric::Device, &policy, gate);
    together.cases.remove(0).unwrap()
}

fn word(base: &[f64], head: &[f64]) -> Word {
    one(&timed(base), &timed(head)).word
}

#[test]
fn same_needs_the_whole_interval_and_three_invocations_a_side() {
    assert_eq!(
        word(&[100.0, 101.0, 99.0], &[100.5, 99.5, 100.0]),
        Word::Same
    );
    let two = one(&timed(&[100.0, 101.0]), &timed(&[100.0, 101.0]));
    assert_eq!(two.word, Word::Inconclusive);
    assert!(two.reason.unwrap().contains("cannot decide"));
    let wide = one(
        &timed(&[90.0, 95.0, 100.0, 105.0, 110.0]),
        &timed(&[91.0, 96.0, 101.0, 106.0, 111.0]),
    );
    assert_eq!(wide.word, Word::Inconclusive);
    assert!(wide.reason.unwrap().contains("the floor is 5.0 %"));
}

#[test]
fn one_invocation_calls_nothing_and_says_what_would_do() {
    let compared = one(&timed(&[100.0]), &timed(&[10_000.0, 10_100.0]));
    assert_eq!(compared.word, Word::Inconclusive);
    assert!(compared.looks_worse && compared.open);
    let reason = compared.reason.unwrap();
    assert!(reason.contains("2 against 1 invocations cannot decide; 5 a side could"));
}

#[test]
fn fresh_invocations_that_did_not_all_come_to_a_time_decide_nothing() {
    let mut head = with_fresh(100.0, 100.0);
    head.unconfirmed = Some(Unconfirmed {
        reason: "it died".to_owned(),
        fault: Fault::Crash,
    });
    let compared = one(&around(100.0), &head);
    assert_eq!(
        (compared.word, compared.sizes),
        (Word::Inconclusive, (5, 5))
    );
    assert!(!compared.open, "it is not taken again and again");
    assert_eq!(
        compared.reason.as_deref(),
        Some("it was to be confirmed: it died")
    );
}

fn with_host(device: f64, host: f64) -> CaseRecord {
    let mut record = around(device);
    record.host_ns = around(host).device_ns;
    record.first_call_ns = around(1e3 * host).device_ns;
    record
}

#[test]
fn each_metric_is_judged_by_its_own_floor() {
    let (base, head) = (with_host(100.0, 5e4), with_host(100.0, 3.5e5));
    let policy = Policy::default();
    let of = |metric, policy: &Policy| {
        let together = compare(&[(&base, &head)], metric, policy, Taken::default());
        together.cases.into_iter().next().flatten()
    };
    assert_eq!(of(Metric::Device, &policy).unwrap().word, Word::Same);
    let host = of(Metric::Host, &policy).unwrap();
    assert_eq!(host.word, Word::Regressed);
    assert!((host.change.ratio.0 - 7.0).abs() < 0.1);
    assert_eq!(
        of(Metric::FirstCall, &policy).unwrap().word,
        Word::Regressed
    );
    let mut generous = policy.clone();
    let own = MetricPolicy {
        floor: Share(10.0),
        ..MetricPolicy::default_of(Metric::Host)
    };
    generous.metrics.insert(Metric::Host, own);
    assert_eq!(of(Metric::Host, &generous).unwrap().word, Word::Same);
    // Nobody knows a host time that a side has not.
    let bare = around(100.0);
    let together = compare(&[(&bare, &head)], Metric::Host, &policy, Taken::default());
    assert_eq!(together.cases, [None]);
}

#[test]
fn a_part_of_nearly_nothing_does_not_count() {
    let host = MetricPolicy::default_of(Metric::Host);
    let of = |base, head| too_small(&host, Nanoseconds(base), Nanoseconds(head));
    assert!(of(1_000.0, 10_900.0) && of(5e4, 4e4));
    assert!(!of(1_000.0, 11_100.0));
}

#[test]
fn metrics_that_may_fail_share_the_error_of_the_gate() {
    let mut policy = Policy::default();
    let options = Taken::default();
    assert_eq!(plan(&policy, options).part, 0.5);
    let told = MetricPolicy {
        action: Action::Warn,
        ..MetricPolicy::default_of(Metric::Host)
    };
    policy.metrics.insert(Metric::Host, told);
    assert_eq!(plan(&policy, options).part, 1.0);
}

#[test]
fn a_floor_from_an_edited_file_is_replaced_by_the_default() {
    for wild in [f64::NAN, -1.0, f64::INFINITY] {
        let policy = Policy {
            floor: Share(wild),
            ..Policy::default()
        };
        assert_eq!(floor(&policy), Share(0.05));
    }
}
