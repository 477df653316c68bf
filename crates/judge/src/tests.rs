//! Judgements of pairs of sides.

use super::judgement::{Row, Word};
use super::testing::{around, disturbed, expectation, failed, side, timed, unsupported, with};
use super::*;
use crate::judgement::VerdictOutcome;
use regatta_core::record::{CaseRecord, Fault, Outcome, PairSide, Pairing, RunHeader};
use regatta_core::suite::{Metric, Selector};
use regatta_worker::case::CaseId;

const A: &str = "cpu/flash:s64,d64";
const B: &str = "cpu/flash:s128,d64";
const DIFFERENT: Options = Options::COMPARISON;

fn against(head: &Side, base: &Side) -> Judgement {
    judge(head, Some(base), &DIFFERENT)
}

fn row<'a>(judgement: &'a Judgement, id: &str) -> &'a Row {
    judgement
        .rows
        .iter()
        .find(|row| *row.case.0 == *id)
        .unwrap()
}

fn is(outcome: VerdictOutcome, judgement: &Judgement) -> bool {
    judgement.verdict.outcome == outcome
}

/// The outcome of a case, or its time in µs (`~`: five invocations a tenth apart, `*n`: n
/// of it, `+n`: the first n disturbed), then other metrics, `#counts` and `@functions`: `100,host=20`.
fn record(written: &str) -> CaseRecord {
    let mut words = written.split(',');
    let first = words.next().unwrap();
    let time = |text: &str| 1e3 * text.parse::<f64>().unwrap();
    let first = match (first, first.split_once('+'), first.split_once('*')) {
        ("crashed", ..) => failed("it died", Fault::Other),
        ("refused", ..) => unsupported("no d64"),
        ("failed", ..) => failed("no memory", Fault::Failed),
        (_, Some((ns, number)), _) => disturbed(around(time(ns)), number.parse().unwrap()),
        (_, _, Some((ns, number))) => timed(&vec![time(ns); number.parse().unwrap()]),
        _ => match first.strip_prefix('~') {
            Some(ns) => timed(&[0.9, 0.95, 1.0, 1.05, 1.1].map(|share| share * time(ns))),
            None => around(time(first)),
        },
    };
    words.fold(first, |record, word| {
        let (metric, value) = word.split_once('=').unwrap();
        if let Some((kind @ ("#" | "@"), name)) = metric.split_at_checked(1) {
            let mut record = record;
            let structure = record.structure.get_or_insert_default();
            let counts = if kind == "#" {
                &mut structure.counts
            } else {
                &mut structure.functions
            };
            counts.insert(name.to_owned(), value.parse().unwrap());
            return record;
        }
        let values = Vec::from_iter(around(time(value)).values(Metric::Device));
        with(record, metric.parse().unwrap(), &values)
    })
}

/// The two cases of a side; `-` if it has none.
fn cases(written: &str) -> Side {
    let both = [A, B].into_iter().zip(written.split_whitespace());
    let both = both.filter(|(_, word)| *word != "-");
    let mut side = side("run", both.map(|(id, word)| (id, record(word))).collect());
    side.header.rules.policy.threshold = Share(0.02);
    side
}

/// The same two sides, measured in turn.
fn in_pairs(mut base: Side, mut head: Side) -> [Side; 2] {
    for (of, side) in [(&mut base, PairSide::Base), (&mut head, PairSide::Head)] {
        of.header.pairing = Some(Pairing {
            pair: "1".to_owned(),
            side,
            ..Pairing::default()
        });
    }
    [base, head]
}

/// Each line has a base, a head, the outcome and the words of the cases, `?` if one may be worse;
/// then the beginnings of the reasons, with `$` at their end. Unless it says `stored`, both are
/// measured in pairs.
#[test]
fn what_two_sides_are_is_what_is_said_of_them() {
    let table = format!(
        "
100 200 ; 100 200 => passed same same
100 200 ; 120 700 => failed regressed regressed | worst regression {B}: 200.0 → 700.0 µs, 3.50x slower
100 200 ; 80 200 => passed improved same
100 200 ; crashed 200 => inconclusive missing same | first missing case {A}: failed: it died
100 200 ; crashed 400 => failed missing regressed | worst regression | first missing case
100 200 ; refused 200 => inconclusive missing same | first missing case {A}: no longer supp
refused 200 ; refused 200 => passed skipped same
100 200 ; failed 200 => failed error same | first error {A}
failed 200 ; failed 200 => failed error same | first error {A}: failed: no memory
100,host=40 - ; 100 - => inconclusive missing | first missing case {A}: in the base and not in the head: host time
100,host=40 - ; 900 - => failed regressed | worst regression | first missing case
100 - ; 100,host=40 - => passed same
100,peak_memory=9000 - ; 100 - => inconclusive missing | first missing case {A}: in the base and not in the head: peak memory
crashed 200 ; 100 200 => inconclusive missing same | first missing case {A}: the base has no
100 200 ; 100 - => inconclusive same missing | first missing case {B}: only the base has it
100 - ; 100 200 => passed same new
 ; 100 refused => inconclusive new skipped | there is no baseline
- - ; 100 - => passed new
100 - ; 100*3 - => inconclusive inconclusive? | worst inconclusive case
stored ~100 - ; ~101 - => inconclusive inconclusive? | worst inconclusive case
100 - ; 100.5+5 - => inconclusive inconclusive? | worst inconclusive case {A}: between
100 - ; 99+5 - => passed same
100 - ; 50+5 - => passed improved
100 - ; 300+5 - => failed regressed | worst regression
stored 100 - ; 300+5 - => inconclusive inconclusive? | worst inconclusive case
100,cpu_time=100 - ; 300+5,cpu_time=300 - => failed regressed | worst regression
100,cpu_time=100,#tasks=2 - ; 115+5,cpu_time=100,#tasks=2 - => failed regressed | worst regression
100,cpu_time=100,#tasks=2 - ; 100+5,cpu_time=100,#tasks=2 - => passed same
100,cpu_time=100,#tasks=2 - ; 330+5,cpu_time=100,#tasks=2 - => failed regressed | worst regression
100,device_p90=110,#tasks=2 - ; 50+5,device_p90=60,#tasks=2 - => passed improved
100,cpu_time=100,#tasks=4 - ; 100+5,cpu_time=100,#tasks=1 - => failed regressed | first worse structure
100,cpu_time=100 - ; 101+5,cpu_time=100 - => inconclusive inconclusive? | worst inconclusive case
100,cpu_time=100,#tasks=2 - ; 100+5,cpu_time=130,#tasks=2 - => failed regressed | worst regression
100,host=40 - ; 100,host=60 - => failed regressed | worst regression {A}: host time 40.0 → 60.0 µs, 50.0 % slower
100,host=40 - ; 100,host=45 - => passed same
100,host=4 - ; 100,host=9 - => passed same
1 - ; 1.03 - => passed same
1 - ; 1.3 - => failed regressed | worst regression
1,cpu_time=1 - ; 1.03,cpu_time=1 - => inconclusive inconclusive? | worst inconclusive case
100,host_reference=10 - ; 100,host_reference=100 - => failed regressed | worst regression {A}: reference operation 10.0 → 100.0 µs
100,host_reference=10 - ; 100,host_reference=17 - => passed same
100,cpu_time=100 - ; 60,cpu_time=110 - => passed improved
100,cpu_time=100 - ; 100,cpu_time=130 - => passed same
100,device_p90=110 - ; 100,device_p90=140 - => failed regressed | worst regression
100,first_call=9000 - ; 100,first_call=40000 - => passed same
100,first_call=90000 - ; 100,first_call=300000 - => failed regressed | worst regression
100,peak_memory=100000 - ; 100,peak_memory=150000 - => failed regressed | worst regression
100,peak_memory=10000 - ; 100,peak_memory=20000 - => passed same
100,@lib:f=1 - ; 300,@lib:f=1,@re:compile=30,@lib:g=1 - => failed regressed | worst regression {A}: 100.0 → 300.0 µs, 3.00x slower [3.00x, 3.00x]; functions 0 → 30 of re:compile
100,@lib:f=1 - ; 300,@m:a=9,@m:b=9,@m:c=9,@m:d=9,@m:e=9,@m:f=9,@m:g=9,@m:h=9,@m:i=9 - => failed regressed | worst regression {A}: 100.0 → 300.0 µs, 3.00x slower [3.00x, 3.00x]$
100,@lib:f=9 - ; 300,@lib:f=1 - => failed regressed | worst regression {A}: 100.0 → 300.0 µs, 3.00x slower [3.00x, 3.00x]$
"
    );
    for line in table.lines().filter(|line| !line.is_empty()) {
        let (sides, expected) = line.split_once(" => ").unwrap();
        let (base, head) = sides.split_once(';').unwrap();
        let stored = base.strip_prefix("stored ");
        let (base, head) = (stored.unwrap_or(base).trim(), cases(head));
        let judgement = match (base, stored) {
            ("", _) => judge(&head, None, &DIFFERENT),
            (base, Some(_)) => against(&head, &cases(base)),
            (base, None) => {
                let [base, head] = in_pairs(cases(base), head);
                against(&head, &base)
            }
        };
        let mut words = vec![judgement.verdict.outcome.text().to_lowercase()];
        for id in [A, B] {
            let rows = judgement.rows.iter().filter(|row| *row.case.0 == *id);
            words.extend(rows.map(|row| {
                if row.may_be_worse() {
                    format!("{}?", row.word.name())
                } else {
                    row.word.name().to_owned()
                }
            }));
        }
        let mut expected = expected.split(" | ");
        let given = &judgement.verdict.reasons;
        assert_eq!(
            words.join(" "),
            expected.next().unwrap(),
            "{line}\n{given:#?}"
        );
        let reasons: Vec<&str> = expected.collect();
        let mut both = reasons.iter().zip(given);
        let begin = both.all(|(begin, given)| format!("{given}$").starts_with(begin));
        assert!(begin && given.len() >= reasons.len(), "{line}\n{given:#?}");
    }
}

#[test]
fn a_row_says_what_would_decide_it_and_what_is_measured_again() {
    let [base, head] = in_pairs(cases("~100 200"), cases("~103 200"));
    let options = Options {
        last: false,
        ..DIFFERENT
    };
    let judgement = judge(&head, Some(&base), &options);
    let open = next(&judgement, 5, &[]).unwrap();
    assert_eq!((open.cases, open.invocations), (vec![CaseId(A.into())], 10));
    assert_eq!(next(&judgement, 35, &[]), None);
    let reason = row(&judgement, A).reason.clone().unwrap();
    assert!(reason.starts_with("between "), "{reason}");
    assert!(reason.ends_with(" more pairs would decide"), "{reason}");

    // A case that regressed by another metric is not open, unless this one is asked for.
    let mut judgement = judgement;
    let regressed = |row: &mut Row| row.word = row.word.max(Word::Regressed);
    judgement.rows.iter_mut().for_each(regressed);
    assert_eq!(next(&judgement, 5, &[]), None);
    let times = [Metric::Device, Metric::CpuTime];
    let open = next(&judgement, 5, &times).unwrap();
    assert_eq!(open.cases, [CaseId(A.into())]);
    // A comparison beside load ends no earlier, unless CPU time shows a change.
    for (word, ends) in [(Word::Same, false), (Word::Regressed, true)] {
        let mut judgement = judgement.clone();
        for Row { metrics, .. } in &mut judgement.rows {
            let mut wall = metrics[0].clone();
            wall.change.open = false;
            let mut cpu = wall.clone();
            (cpu.metric, cpu.change.word) = (Metric::CpuTime, word);
            *metrics = vec![wall, cpu];
        }
        assert_eq!(next(&judgement, 5, &times).is_none(), ends);
    }

    // No number of pairs is promised where none is measured.
    let [base, head] = in_pairs(cases("100 -"), cases("100.5+5 -"));
    let judgement = judge(&head, Some(&base), &options);
    assert_eq!(next(&judgement, 5, &[]), None);
    let reason = row(&judgement, A).reason.clone().unwrap();
    let waits = "; waits for a core are in these times";
    assert!(reason.ends_with(waits), "{reason}");

    // An improvement that the next look may show is waited for with load too, and no more.
    let [base, head] = in_pairs(cases("100+5 -"), cases("~90 -"));
    let judgement = judge(&head, Some(&base), &options);
    assert!(!row(&judgement, A).may_be_worse());
    assert_eq!(next(&judgement, 5, &[]).unwrap().invocations, 10);
    let judgement = judge(&head, Some(&base), &DIFFERENT);
    assert_eq!(row(&judgement, A).word, Word::Same);
    let reason = row(&judgement, A).reason.clone().unwrap();
    assert_eq!(reason, "at least 2.0 % faster, beside other programs");

    // A base that is too small stays so.
    let stored = judge(&cases("~103 -"), Some(&cases("100*3 -")), &options);
    assert_eq!(next(&stored, 5, &[]), None);
    let reason = row(&stored, A).reason.clone().unwrap();
    assert!(reason.ends_with("the base has 3 invocations, and 5 are needed"));
}

/// A stored run keeps its spread, so more of the head would not show that it is not slower.
#[test]
fn a_case_that_only_more_of_the_base_would_decide_is_not_measured_again() {
    let with = |times: &[f64]| {
        let mut side = side("run", vec![(A, timed(times))]);
        side.header.rules.policy.threshold = Share(0.02);
        side
    };
    let base = with(&[97e3, 98.5e3, 100e3, 101.5e3, 103e3]);
    let narrow = with(&[99e3, 99.5e3, 100e3, 100.5e3, 101e3]);
    let five = [100e3, 100.9e3, 101.2e3, 101.6e3, 102e3];
    let options = Options {
        last: false,
        ..DIFFERENT
    };
    for (base, wanted) in [(&base, None), (&narrow, Some(10))] {
        let judgement = judge(&with(&five), Some(base), &options);
        let row = row(&judgement, A);
        assert_eq!((row.word, row.may_be_worse()), (Word::Inconclusive, false));
        let more = next(&judgement, 5, &[]);
        assert_eq!(more.map(|open| open.invocations), wanted);
    }
    let [base, head] = in_pairs(base, with(&five));
    assert!(next(&judge(&head, Some(&base), &options), 5, &[]).is_some());
}

/// In four of the base's five invocations, and in none of the head's.
#[test]
fn a_metric_that_the_base_had_in_part_is_missed() {
    let mut base = record("100,host=40");
    base.invocations[2].values.set(Metric::Host, None);
    let sides = in_pairs(
        side("a", vec![(A, base)]),
        side("b", vec![(A, record("100"))]),
    );
    assert_eq!(row(&against(&sides[1], &sides[0]), A).word, Word::Missing);
}

/// Measured cases keep their metrics, and a wrong result counts even if the case is optional.
#[test]
fn an_optional_case_that_is_measured_is_judged() {
    let mut head = cases("100 200");
    head.header.rules.policy.optional = vec!["*".to_owned()];
    let base = cases("100,peak_memory=100000 200");
    assert_eq!(row(&against(&head, &base), A).word, Word::Missing);
    let wrong = failed("wrong result", Fault::WrongResult);
    head.cases.insert(CaseId(A.into()), wrong);
    assert_eq!(row(&against(&head, &base), A).word, Word::Error);
}

#[test]
fn a_day_is_added_to_a_stored_run_alone() {
    let mut head = cases("115 -");
    head.header.rules.policy.day = Some(Share(0.10));
    let base = cases("100 -");
    assert_eq!(row(&against(&head, &base), A).word, Word::Inconclusive);
    let [base, head] = in_pairs(base, head);
    assert_eq!(row(&against(&head, &base), A).word, Word::Regressed);
}

#[test]
fn disturbed_invocations_are_left_out_where_five_are_there() {
    let slow = disturbed(timed(&[900.0, 900.0]), 2);
    let mut quiet = around(100.0);
    for one in &mut quiet.invocations {
        one.number += 2;
    }
    let mut mixed = slow;
    mixed.invocations.extend(quiet.invocations);
    let [base, head] = in_pairs(
        side("a", vec![(A, timed(&[100.0; 7]))]),
        side("b", vec![(A, mixed)]),
    );
    let judgement = against(&head, &base);
    let device = row(&judgement, A).metric(Metric::Device).unwrap();
    assert_eq!(row(&judgement, A).word, Word::Same);
    assert_eq!((device.change.invocations, device.left_out), ((5, 5), 4));
}

#[test]
fn host_time_is_compared_by_its_ratio_to_the_reference() {
    let sided = |host: f64, reference: Option<f64>| {
        let mut record = record(&format!("100,host={host}"));
        for one in &mut record.invocations {
            one.host_ratio = reference.map(|us| host / us);
        }
        side("run", vec![(A, record)])
    };
    for (base, head, wanted) in [
        // The machine was twice as slow, and the call as the reference.
        (sided(40.0, Some(10.0)), sided(80.0, Some(20.0)), Word::Same),
        (
            sided(40.0, Some(10.0)),
            sided(80.0, Some(10.0)),
            Word::Regressed,
        ),
        // One side has none.
        (sided(40.0, Some(10.0)), sided(80.0, None), Word::Regressed),
    ] {
        let [base, head] = in_pairs(base, head);
        let judgement = against(&head, &base);
        let host = row(&judgement, A).metric(Metric::Host).unwrap();
        assert_eq!(host.change.word, wanted);
        assert_eq!((host.base, host.head), (40_000.0, 80_000.0));
    }
}

#[test]
fn a_part_in_pairs_takes_the_place_of_its_rows_and_keeps_the_counts() {
    let stored = against(
        &cases("100,#allocations=2 200"),
        &cases("~100,#allocations=1 200"),
    );
    let [base, head] = in_pairs(cases("100 -"), cases("130 -"));
    let judgement = with_pairs(stored, against(&head, &base), &Options::GATE);
    let first = row(&judgement, A);
    assert_eq!(first.word, Word::Regressed);
    assert!(first.change().unwrap().paired && !first.structure.as_ref().unwrap().is_empty());
    assert!(!row(&judgement, B).change().unwrap().paired);
    assert!(is(VerdictOutcome::Failed, &judgement));
    let shown = &judgement.verdict.shown;
    assert!(
        shown.ends_with("; 1 by pairs, 1 against a stored run"),
        "{shown}"
    );
}

/// A part in pairs counts no structure that the first run did not count.
#[test]
fn a_part_in_pairs_hides_no_structure_that_is_gone() {
    let stored = against(&cases("~100 200"), &cases("100,#allocations=2 200"));
    assert_eq!(row(&stored, A).word, Word::Missing);
    let [base, head] = in_pairs(cases("100 -"), cases("100 -"));
    let judgement = with_pairs(stored, against(&head, &base), &Options::GATE);
    assert_eq!(row(&judgement, A).word, Word::Missing);
    assert!(is(VerdictOutcome::Inconclusive, &judgement));
}

#[test]
fn another_suite_is_another_experiment() {
    let mut head = cases("100 -");
    head.header.suite.name = "other".to_owned();
    let base = cases("100 200");
    assert!(is(VerdictOutcome::Passed, &against(&head, &base)));
    let judgement = judge(&head, Some(&base), &Options::GATE);
    assert_eq!(judgement.incomparable[0].field, "suite");
}

#[test]
fn what_may_fail_is_no_gap_and_no_pass_by_itself() {
    let mut head = cases("crashed 200");
    head.header.rules.policy.optional = vec!["*s64*".to_owned()];
    let judgement = against(&head, &cases("100 200"));
    assert_eq!(row(&judgement, A).word, Word::Skipped);
    assert!(is(VerdictOutcome::Passed, &judgement));
    let mut refused = cases("refused crashed");
    refused.header.rules.policy.optional = vec!["*".to_owned()];
    let alone = judge(&refused, None, &Options::ALONE);
    assert!(is(VerdictOutcome::Inconclusive, &alone));
}

#[test]
fn a_filter_is_told_with_what_it_left_out_where_that_is_known() {
    let mut head = cases("100 200");
    head.header.suite.filter = vec!["flash".to_owned()];
    for (left_out, shown) in [
        (None, "--filter flash"),
        (Some(2), "--filter flash left out 2 cases"),
    ] {
        head.header.suite.filtered_out = left_out;
        let judgement = judge(&head, None, &Options::ALONE);
        assert_eq!(judgement.head.filter.as_deref(), Some(shown));
        assert!(judgement.verdict.shown.ends_with(shown), "{judgement:#?}");
    }
}

#[test]
fn another_machine_is_refused_but_the_head_is_still_judged_by_itself() {
    let mut head = cases("900 crashed");
    let hard = &mut head.header.machine.hard;
    hard.insert("cores".to_owned(), "64".to_owned());
    let judgement = against(&head, &cases("100 100"));
    assert!(is(VerdictOutcome::Inconclusive, &judgement));
    assert_eq!(judgement.verdict.reasons[0], "not comparable: cores 2 → 64");
    let compared = row(&judgement, A);
    assert!(compared.change().is_none() && compared.base.is_some());
    assert_eq!(row(&judgement, B).word, Word::Missing);
    assert_eq!(judgement.verdict.shown, "1 measured, 1 missing");
}

#[test]
fn a_violated_expectation_fails_without_any_baseline() {
    let expecting = |best: &str| {
        let split = "cpu/split:s64,d64:num_splits_key=4";
        let cases = vec![("cpu/split:s64,d64", record("300")), (split, record(best))];
        let mut side = side("run", cases);
        let selects = |value: &str| {
            let values = vec![value.to_owned()];
            Selector([("num_splits_key".to_owned(), values)].into())
        };
        let expectation = expectation("auto is good", selects("auto"), selects("4"), 1.1);
        side.header.rules.expectations.push(expectation);
        judge(&side, None, &Options::ALONE)
    };
    let violated = expecting("100");
    assert!(is(VerdictOutcome::Failed, &violated));
    let reason = &violated.verdict.reasons[0];
    assert!(
        reason.starts_with("worst violated expectation `auto is good`"),
        "{reason}"
    );
    let lacking = expecting("crashed");
    assert!(is(VerdictOutcome::Inconclusive, &lacking));
    assert_eq!(lacking.expectations[0].word, Word::Missing);
}

#[test]
fn damaged_lines_are_a_note_and_what_they_lost_a_gap() {
    let base = cases("100 -");
    let mut head = base.clone();
    head.damage = vec!["line 7: cut off".to_owned()];
    let judgement = against(&head, &base);
    assert!(is(VerdictOutcome::Passed, &judgement));
    assert_eq!(judgement.notes, ["run is damaged: line 7: cut off"]);
    let reason = "4 of 5 invocations are in the file".to_owned();
    head.cases.get_mut(&CaseId(A.into())).unwrap().status = Outcome::Missing { reason };
    assert!(is(VerdictOutcome::Inconclusive, &against(&head, &base)));
}

#[test]
fn causes_come_with_the_rows_and_versions_with_their_worker() {
    let other = "torch/math:s64,d64";
    let sided = |ns: &str, threads: &str| {
        let counted = record(&format!("{ns},#threads={threads}"));
        side("run", vec![(A, counted), (other, record(ns))])
    };
    let [base, mut head] = in_pairs(sided("100", "2"), sided("300", "1"));
    let versions = &mut head.header.workers[0].versions;
    versions.insert("rust".to_owned(), "2".to_owned());
    let judgement = against(&head, &base);
    let findings = row(&judgement, A).findings.iter();
    let causes: Vec<&str> = findings.map(|finding| finding.cause.name()).collect();
    assert_eq!(causes, ["less-parallel", "toolchain"]);
    assert!(row(&judgement, other).findings.is_empty());
}

#[test]
fn what_did_not_change_has_no_cause_and_a_new_structure_is_noted() {
    let [base, head] = in_pairs(
        cases("100,#allocations=0 200"),
        cases("100,#allocations=1 200"),
    );
    let judgement = against(&head, &base);
    let shown = &judgement.verdict.shown;
    assert!(
        shown
            .ends_with("; structure changed in 1 case, first cpu/flash:s64,d64: allocations 0 → 1"),
        "{shown}"
    );
    assert!(
        row(&judgement, A)
            .findings
            .iter()
            .all(|finding| finding.share.is_none())
    );
    assert!(row(&judgement, B).findings.is_empty());
}

/// A metric that some invocations of the head lack, and a library that is not there.
#[test]
fn what_is_measured_in_part_is_missing_unless_the_policy_allows_it() {
    let base = cases("100,host=40 200");
    let mut head = base.clone();
    let record = head.cases.get_mut(&CaseId(A.into())).unwrap();
    for one in &mut record.invocations[..2] {
        one.values.set(Metric::Host, None);
    }
    let judgement = against(&head, &base);
    assert_eq!(row(&judgement, A).word, Word::Missing);
    let reason = &judgement.verdict.reasons[0];
    assert!(
        reason.ends_with("host time: 3 of 5 invocations have it"),
        "{reason}"
    );
    head.header.rules.policy.ignore = ["host".to_owned().try_into().unwrap()].into();
    assert!(is(VerdictOutcome::Passed, &against(&head, &base)));

    let mut absent = cases("100 200");
    let torch = CaseId("torch/math:s64,d64".into());
    let reason = unsupported("No module named 'torch'");
    absent.cases.insert(torch.clone(), reason);
    let judgement = judge(&absent, None, &Options::ALONE);
    assert!(is(VerdictOutcome::Inconclusive, &judgement));
    let reason = row(&judgement, &torch.0).reason.clone().unwrap();
    assert!(
        reason.ends_with("name its cases in the suite: [policy] optional = [\"torch/*\"]"),
        "{reason}"
    );
    absent.header.rules.policy.optional = vec!["torch/*".to_owned()];
    let judgement = judge(&absent, None, &Options::ALONE);
    assert!(is(VerdictOutcome::Passed, &judgement));
    assert_eq!(judgement.verdict.shown, "2 measured, 1 skipped");
}

/// Pairs in which an allowed case gives no value do not take back what the stored run shows.
#[test]
fn pairs_without_a_value_take_nothing_back() {
    let mut head = cases("~110 200");
    head.header.rules.policy.optional = vec!["*s64*".to_owned()];
    let stored = against(&head, &cases("~100 200"));
    let before = row(&stored, A).word;
    assert_eq!(before, Word::Inconclusive);
    for (in_pairs_of_head, machine) in [("crashed -", "2"), ("~100 -", "64")] {
        let [base, mut head] = in_pairs(cases("100 -"), cases(in_pairs_of_head));
        head.header.rules.policy.optional = vec!["*s64*".to_owned()];
        let hard = &mut head.header.machine.hard;
        hard.insert("cores".to_owned(), machine.to_owned());
        let judgement = with_pairs(stored.clone(), against(&head, &base), &Options::GATE);
        assert_eq!(row(&judgement, A).word, Word::Inconclusive);
        assert!(is(VerdictOutcome::Inconclusive, &judgement));
    }
}

/// The header with another value of the member at a path, as a file has it.
fn changed(header: &RunHeader, path: &str, value: &str) -> RunHeader {
    let mut file = serde_json::to_value(header).unwrap();
    let mut member = &mut file;
    for key in path.split('.') {
        member = match key.parse::<usize>() {
            Ok(place) => &mut member[place],
            Err(_) => &mut member[key],
        };
    }
    *member = serde_json::from_str(value).unwrap();
    serde_json::from_value(file).unwrap()
}

/// A head's suite that demands less judges by that, and the verdict's first line says so; results
/// that were checked after timing in the base alone do not pass.
#[test]
fn a_weaker_suite_is_named_and_a_weaker_check_does_not_pass() {
    let expectation = |case: &str, within: f64| {
        let case = Selector([("variant".to_owned(), vec![case.to_owned()])].into());
        expectation("auto is good", case, Selector::default(), within)
    };
    let mut base = cases("100 200");
    base.header.rules.expectations = vec![expectation("cpu/a", 1.1)];
    base.header.settings.samples = 20;
    // A member of the head's header, its value, and the words.
    let changes = "
rules.policy.threshold 0.9 => policy.threshold 2.0 % → 90.0 %
rules.policy.thresholds {\"host\":9.0} => policy.threshold.host
rules.policy.allow [\"cpu/*\"] => policy.optional none → cpu/*
rules.policy.ignore [\"launches\"] => policy.ignore none → launches
rules.policy.day 0.2 => policy.day by device → 20.0 %
rules.expectations [] => expect `auto is good` at most 1.1 → absent
rules.expectations.0.at_most 2.0 => expect `auto is good` at most 1.1 → at most 2
rules.expectations.0.case {\"variant\":[\"cpu/b\"]} => expect `auto is good` device time of variant cpu/a against
settings.samples 3 => measure.samples 20 → 3
settings.budget_ms 1 => measure.budget_ms
plan [\"cpu/flash:s64,d64\"] => cases
suite.overrides [{\"variant\":\"cpu/flash\",\"parameter\":\"n\",\"to\":4}] => set none → cpu/flash: n any → 4";
    for line in changes.lines().skip(1) {
        let (change, words) = line.split_once(" => ").unwrap();
        let (path, value) = change.split_once(' ').unwrap();
        let mut head = base.clone();
        head.header.plan = vec![CaseId(A.into()), CaseId(B.into())];
        let mut base = base.clone();
        base.header.plan.clone_from(&head.header.plan);
        let same = against(&head, &base);
        assert_eq!(same.weaker, None);
        // In the other direction more is demanded, except for demands without an order.
        head.header = changed(&head.header, path, value);
        let judgement = against(&head, &base);
        let shown = &judgement.verdict.shown;
        let says = format!("; the suite demands less than the base's: {words}");
        assert!(shown.contains(&says), "{words}: {shown}");
        let mut ordered = "threshold optional ignore absent samples".split(' ');
        if ordered.any(|word| words.contains(word)) || words.ends_with("at most 2") {
            let judgement = against(&base, &head);
            assert_eq!(judgement.weaker, None, "{words}");
        }
    }
    let mut head = base.clone();
    let argv = "regatta gate s --set=cpu/a.n=4 --threshold 0.9";
    head.header.argv = argv.split(' ').map(str::to_owned).collect();
    let shown = against(&head, &base).verdict.shown;
    let end = "; --set cpu/a.n=4 --threshold 0.9";
    assert!(shown.ends_with(end), "{shown}");

    // A case that the suite of the base's revision has and the head's has not.
    let gone = CaseId("cpu/flash:s9,d8".into());
    let [mut base, mut head] = in_pairs(base.clone(), base.clone());
    base.header.pairing.as_mut().unwrap().left_out = vec![gone.clone()];
    let judgement = against(&head, &base);
    assert_eq!(row(&judgement, &gone.0).word, Word::Missing);
    assert!(is(VerdictOutcome::Inconclusive, &judgement));
    head.header.rules.policy.optional = vec![gone.to_string()];
    let judgement = against(&head, &base);
    assert_eq!(row(&judgement, &gone.0).word, Word::Skipped);
    let (shown, words) = (&judgement.verdict.shown, format!("cases {gone} → left out"));
    assert!(shown.contains(&words), "{shown}");

    let base = cases("100 200");
    let mut before = base.clone();
    before.header.settings.input_sets = 2;
    let unchecked = before.clone();
    for record in before.cases.values_mut() {
        record.errors.raise("out", 0.0);
    }
    let mut head = before.clone();
    head.header.settings.input_sets = 1;
    for head in [head, unchecked] {
        let judgement = against(&head, &before);
        assert!(is(VerdictOutcome::Inconclusive, &judgement));
        assert!(judgement.gaps[0].starts_with("the results of 2 cases were checked after timing"));
    }
}

/// The causes of a structure are the same where nothing was timed.
#[test]
fn structure_alone_has_its_causes() {
    let untimed = |head: &str| {
        let mut side = side("run", vec![(A, testing::written(head))]);
        side.header.settings.structure_only = true;
        let sms = ("cpu.sms".to_owned(), "132".to_owned());
        side.header.machine.hard.extend([sms]);
        let record = side.cases.get_mut(&CaseId(A.into())).unwrap();
        record.invocations.clear();
        side
    };
    let causes = |head: &str| {
        let judgement = against(&untimed(head), &untimed("flash@157"));
        let findings = row(&judgement, A).findings.iter();
        let causes: Vec<&str> = findings.map(|one| one.cause.name()).collect();
        (judgement.verdict.outcome, causes.join(" "))
    };
    use VerdictOutcome::{Failed, Passed};
    assert_eq!(causes("flash@1"), (Failed, "less-parallel".to_owned()));
    assert_eq!(
        causes("flash@157 flash@157"),
        (Passed, "launches-added".to_owned())
    );
    assert_eq!(causes("other@157"), (Passed, "kernel-replaced".to_owned()));
    assert_eq!(causes("flash@157"), (Passed, String::new()));
}
