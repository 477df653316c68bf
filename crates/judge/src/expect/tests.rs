use super::*;
use crate::testing::{self, around, disturbed, side, timed, unsupported, with};
use regatta_core::record::Fault;
use regatta_core::suite::{Origin, Selector};

const AUTO: &str = "torch/efficient:s1000,d64,bwd";
const ONE: &str = "torch/efficient:s1000,d64,bwd:num_splits_key=1";
const FOUR: &str = "torch/efficient:s1000,d64,bwd:num_splits_key=4";

fn crashed(reason: &str) -> CaseRecord {
    testing::failed(reason, Fault::Other)
}

fn selector(pairs: &[(&str, &[&str])]) -> Selector {
    let pairs = pairs.iter().map(|(facet, values)| {
        let values = values.iter().map(|v| (*v).to_owned()).collect();
        ((*facet).to_owned(), values)
    });
    Selector(pairs.collect())
}

fn splits() -> Expectation {
    testing::expectation(
        "automatic splits are good",
        selector(&[("num_splits_key", &["auto"])]),
        selector(&[("num_splits_key", &["1", "4"])]),
        1.10,
    )
}

fn run(rule: Expectation, cases: Vec<(&str, CaseRecord)>) -> (Vec<ExpectationResult>, Vec<String>) {
    let mut side = side("run", cases);
    side.header.rules.expectations.push(rule);
    let hard = &mut side.header.machine.hard;
    hard.insert("cpu.cores".to_owned(), "2".to_owned());
    let results = expectations(&side);
    (results.results, results.notes)
}

fn result_of(auto: CaseRecord, one: CaseRecord, four: CaseRecord) -> ExpectationResult {
    let (mut results, _) = run(splits(), vec![(AUTO, auto), (ONE, one), (FOUR, four)]);
    assert_eq!(results.len(), 1);
    results.remove(0)
}

/// A record from text: five invocations around a time, several equal ones, a list of times, or a
/// failure.
fn written(word: &str) -> CaseRecord {
    match (word, word.split_once('x')) {
        ("crashed", _) => crashed("x"),
        ("loaded", _) => disturbed(around(1000.0), 5),
        (_, Some((ns, times))) => timed(&vec![ns.parse().unwrap(); times.parse().unwrap()]),
        (list, _) if list.contains(',') => {
            let all: Vec<f64> = list.split(',').map(|ns| ns.parse().unwrap()).collect();
            timed(&all)
        }
        (ns, _) => around(ns.parse().unwrap()),
    }
}

/// Each line has the automatic case and its two references, the result, and words of the reason.
#[test]
fn a_case_is_held_to_the_best_of_its_references() {
    let table = format!(
        "
1000 990 100 => regressed
105 990 100 => same
115x35 990x35 100x35 => regressed
50 990 100 => same
115,172.5,230,80.5,345 9000 100,150,200,70,300 => inconclusive? | 3 more pairs would decide
105,115,112,113,114 900 100x5 => inconclusive? | between +5.0 and +15.0 %; 10 more pairs
54,61,60,62,147 900 100x5 => inconclusive? | more
150x3 900x3 100x3 => inconclusive? | too few invocations for an interval; 3 of 3 starts take 1.5 times as long, 0 of 3 of the base; 5 more pairs would
75,75,75,150,150 900 100x5 => inconclusive? | 2 of 5 starts take 1.5 times as long, 0 of 5 of the base
9000x2 900x2 100x2 => regressed
50x2 900x2 100x2 => inconclusive? | too few invocations for an interval; 6 more pairs would decide
crashed 1 1 => missing | not measured: {AUTO}
1 crashed crashed => missing
1 crashed 1 => same
loaded 990 100 => regressed
1040 9900 loaded => inconclusive? | , beside other programs; waits for a core are in these times
900 9900 loaded => same
105 loaded 100 => same
"
    );
    for line in table.lines().filter(|line| !line.is_empty()) {
        let (sides, expected) = line.split_once(" => ").unwrap();
        let mut sides = sides.split(' ').map(written);
        let mut next = || sides.next().unwrap();
        let result = result_of(next(), next(), next());
        let (expected, reason) = expected.split_once(" | ").unwrap_or((expected, ""));
        let worse = if result.may_be_worse() { "?" } else { "" };
        let why = result.reason.clone().unwrap_or_default();
        let word = format!("{}{worse}", result.word.name());
        assert_eq!(word, expected, "{line}: {why}");
        assert!(why.contains(reason), "{line}: {why}");
    }
    let result = result_of(around(1000.0), around(990.0), around(100.0));
    assert_eq!(&*result.against.unwrap().0, FOUR);
    assert!((result.value.unwrap() - 10.0).abs() < 0.01);
}

/// An expectation without a measured case is missing, unless `optional` names all that it lacks.
#[test]
fn an_expectation_that_compares_no_case_is_missing_or_skipped() {
    for (auto, one, optional, word) in [
        (unsupported("x"), around(1.0), "", Word::Missing),
        (unsupported("x"), around(1.0), "*bwd", Word::Skipped),
        (crashed("x"), around(1.0), "*bwd", Word::Skipped),
        (around(1.0), unsupported("x"), "", Word::Missing),
        (around(1.0), unsupported("x"), "*bwd", Word::Missing),
        (around(1.0), unsupported("x"), "*key=1", Word::Skipped),
    ] {
        let mut side = side("run", vec![(AUTO, auto), (ONE, one)]);
        side.header.rules.expectations.push(splits());
        side.header.rules.policy.optional.push(optional.to_owned());
        let results = expectations(&side).results;
        assert_eq!(
            (results.len(), results[0].word),
            (1, word),
            "{optional}: {results:?}"
        );
        side.header.suite.filter.push("flash".to_owned());
        assert!(expectations(&side).results.is_empty());
    }
    let (results, _) = run(splits(), vec![(AUTO, around(1.0))]);
    let reason = results[0].reason.clone().unwrap();
    assert_eq!(
        reason,
        "the suite has no case that it could be compared with"
    );
}

/// A case that is held to slower references, since the best is gone, says so.
#[test]
fn a_reference_without_a_time_is_named() {
    for gone in [unsupported("no n=4"), crashed("wrong")] {
        let cases = vec![(AUTO, around(300.0)), (ONE, around(290.0)), (FOUR, gone)];
        let (results, notes) = run(splits(), cases);
        assert_eq!(results[0].word, Word::Same);
        let note =
            "`automatic splits are good` holds no case to 1 reference, which has no time here: ";
        assert_eq!(notes, [format!("{note}{FOUR}")]);
    }
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
    assert_eq!(&*results[0].against.as_ref().unwrap().0, ONE);
}

/// All-gather and product on two H200s: the fused operator is slower because its host is.
#[test]
fn a_broken_expectation_tells_its_cause_and_what_belongs_to_it() {
    use regatta_core::machine::{ActivitySummary, DeviceTime};
    let record = |device_ns, host_ns, activity| CaseRecord {
        activity: Some(activity),
        ..with(timed(&[device_ns; 5]), Metric::Host, &[host_ns; 5])
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
    let result = result_of(
        record(267_100.0, 277_000.0, activity(280_000, 70_000, 195_000, 2)),
        around(9e6),
        record(75_800.0, 50_300.0, activity(76_000, 73_000, 0, 0)),
    );
    assert_eq!(result.word, Word::Regressed);
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
fn host_times_are_the_devices_on_a_processor_alone() {
    let rule = |variant: &str| Expectation {
        case: selector(&[("variant", &[variant])]),
        against: Some(selector(&[("variant", &["cpu/naive"])])),
        at_most: Some(1.0),
        metric: Quantity::Metric(Metric::Host),
        ..splits()
    };
    let cases = || {
        vec![
            ("cpu/flash:s64,d64", around(9.0)),
            ("cpu/naive:s64,d64", around(1.0)),
            ("torch/math:s64,d64", around(1.0)),
        ]
    };
    let (results, _) = run(rule("cpu/flash"), cases());
    assert_eq!(results[0].word, Word::Regressed);
    // A worker that does not report the host leaves it unknown.
    let (results, _) = run(rule("torch/math"), cases());
    assert_eq!(results[0].word, Word::Missing);
    assert!(
        results[0]
            .reason
            .as_ref()
            .unwrap()
            .contains("without host time")
    );
}

#[test]
fn references_that_failed_are_nothing_to_hold_against_though_they_may_fail() {
    let cases = vec![
        (AUTO, around(1.0)),
        (ONE, crashed("x")),
        (FOUR, crashed("y")),
    ];
    let mut side = side("run", cases);
    side.header.rules.expectations.push(Expectation {
        origin: Origin("s.toml:9: expect[0]".to_owned()),
        ..splits()
    });
    let policy = &mut side.header.rules.policy;
    policy.optional.push("*num_splits_key*".to_owned());
    let result = expectations(&side).results.remove(0);
    assert_eq!(result.word, Word::Missing);
    let reason = result.reason.unwrap();
    assert!(reason.ends_with(" (s.toml:9: expect[0])"), "{reason}");
}

#[test]
fn an_expectation_that_held_nothing_of_a_whole_suite_is_a_gap() {
    let mut side = side("run", vec![("cpu/flash:s64,d64", around(1.0))]);
    side.header.rules.expectations.push(Expectation {
        case: selector(&[("variant", &["torch/math"])]),
        origin: Origin("s.toml:9: expect[0]".to_owned()),
        ..splits()
    });
    assert_eq!(
        expectations(&side).gaps,
        ["`automatic splits are good` compared no case (s.toml:9: expect[0])"]
    );
    side.header.suite.filter.push("cpu".to_owned());
    assert!(expectations(&side).gaps.is_empty());
}

#[test]
fn naming_workers_compares_variants_of_one_name() {
    let rule = Expectation {
        case: selector(&[("worker", &["new"])]),
        against: Some(selector(&[("worker", &["old"])])),
        at_most: Some(1.0),
        ..splits()
    };
    let cases = vec![
        ("new/a:s64,d64", around(1.0)),
        ("old/a:s64,d64", around(5.0)),
        ("old/b:s64,d64", around(0.1)),
    ];
    let (results, _) = run(rule, cases);
    assert_eq!(results.len(), 1);
    assert_eq!(&*results[0].against.as_ref().unwrap().0, "old/a:s64,d64");
}

#[test]
fn invocations_are_paired_by_number() {
    // Invocations 2 to 6 of the one, 0 to 4 of the other: three are of both, too few to judge.
    let mut auto = timed(&[30.0, 40.0, 50.0, 60.0, 70.0]);
    auto.invocations.iter_mut().for_each(|one| one.number += 2);
    let result = result_of(auto, around(990.0), timed(&[1.0, 2.0, 3.0, 4.0, 5.0]));
    let ratio = result.value.unwrap();
    assert!((9.9..10.1).contains(&ratio), "{ratio}");
}

/// A call that waits for a core takes longer, and takes no more CPU time.
#[test]
fn beside_other_programs_cpu_time_decides_what_the_time_that_passes_leaves_open() {
    let on_cpu = |wall: f64, cpu: f64, tasks| {
        let near = |center: f64| [0.99, 1.01, 1.0, 0.995, 1.005].map(|factor| factor * center);
        let wide = [0.7, 1.6, 1.0, 0.8, 1.3].map(|factor| factor * wall);
        let mut record = with(timed(&wide), Metric::CpuTime, &near(cpu));
        let structure = record.structure.get_or_insert_default();
        structure.counts.insert("tasks".to_owned(), tasks);
        disturbed(record, 5)
    };
    let result = |wall, cpu, tasks| {
        let mut best = on_cpu(100.0, 100.0, 2);
        best.invocations.reverse();
        for (number, one) in best.invocations.iter_mut().enumerate() {
            one.number = number as u32;
        }
        result_of(on_cpu(wall, cpu, tasks), around(990.0), best)
    };
    for (wall, cpu, tasks, wanted, reason) in [
        (100.0, 101.0, 2, Word::Same, "by CPU time +"),
        (100.0, 150.0, 2, Word::Regressed, "by CPU time +50.0 %"),
        (100.0, 115.0, 2, Word::Inconclusive, "; CPU time +15"),
        // The time that passes says otherwise.
        (9000.0, 101.0, 2, Word::Regressed, ""),
        (300.0, 101.0, 2, Word::Inconclusive, "; CPU time +1"),
        // Eight tasks share two cores as two do; of three, one core has two; one leaves one idle.
        (100.0, 101.0, 8, Word::Same, "by CPU time +"),
        (100.0, 101.0, 3, Word::Regressed, "by CPU time +34"),
        (100.0, 101.0, 1, Word::Regressed, "by CPU time 2.02x slower"),
        // Load slows a call of more threads more.
        (9000.0, 101.0, 8, Word::Inconclusive, "; CPU time +1"),
    ] {
        let result = result(wall, cpu, tasks);
        let why = result.reason.clone().unwrap_or_default();
        assert_eq!(result.word, wanted, "{wall}, {cpu}, {tasks}: {why}");
        assert!(why.contains(reason), "{wall}, {cpu}, {tasks}: {why}");
        assert_eq!(result.may_be_worse(), wanted == Word::Inconclusive);
    }
    let slower = result(23.0, 150.0, 2);
    let sentence = "takes 1.50x by CPU time, at most 1.10x is allowed";
    assert_eq!(slower.sentence(), sentence, "{slower:?}");
    let [two, eight] = [2, 8].map(|tasks| on_cpu(1.0, 1.0, tasks));
    let unknown = side("run", vec![]).header;
    assert_eq!(longer_by_tasks(&unknown, &two, &eight), None);
    assert_eq!(longer_by_tasks(&unknown, &two, &two), Some(0.0));
}
