mod machine;
mod witness;

use super::judgement::{Held, Row, Stage};
use super::testing::{around, confirmed, failed, side, timed, unsupported};
use super::*;
use regatta_core::record::side::{CaseRecord, Status};
use regatta_core::suite::rules::{Expectation, Metric, Policy, Selector};
use regatta_worker::attention::CaseId;
use regatta_worker::units::{Nanoseconds, Ratio};

const A: &str = "cpu/flash:s64,d64";
const B: &str = "cpu/flash:s128,d64";

fn plain() -> Options {
    Options::default()
}

fn against(head: &Side, base: &Side) -> Judgement {
    judge(head, Some(base), &plain())
}

fn row<'a>(judgement: &'a Judgement, id: &str) -> &'a Row {
    judgement.rows.iter().find(|row| row.case.0 == id).unwrap()
}

/// What a gate would measure again.
fn batch(judgement: &Judgement) -> Option<Batch> {
    next_batch(judgement, &Policy::default(), 0, 1)
}

fn outcome(judgement: &Judgement) -> VerdictOutcome {
    judgement.verdict.outcome
}

#[test]
fn an_unchanged_run_passes_without_a_word() {
    let side = side("a", vec![(A, around(100.0)), (B, around(200.0))]);
    let judgement = against(&side, &side);
    assert_eq!(outcome(&judgement), VerdictOutcome::Passed);
    assert!(judgement.verdict.reasons.is_empty() && judgement.notes.is_empty());
    assert!(judgement.rows.iter().all(|row| row.word == Word::Same));
    assert!(batch(&judgement).is_none());
    assert_eq!(judgement.head.revision.as_deref(), Some("0123456789ab+"));
}

#[test]
fn a_regression_fails_and_names_the_worst_case() {
    let base = side("a", vec![(A, around(100.0)), (B, around(200.0))]);
    let head = side(
        "b",
        vec![(A, confirmed(120.0, 120.0)), (B, confirmed(700.0, 700.0))],
    );
    let judgement = against(&head, &base);
    assert_eq!(outcome(&judgement), VerdictOutcome::Failed);
    let worst = format!("2 of 2 cases regressed, worst {B}: 3.50 times as long");
    assert_eq!(judgement.verdict.reasons, [worst]);
    assert!(batch(&judgement).is_none());
}

#[test]
fn what_one_session_cannot_tell_is_said() {
    let base = side("a", vec![(A, around(100.0)), (B, around(200.0))]);
    let head = side("b", vec![(A, around(120.0)), (B, around(201.0))]);
    let judgement = against(&head, &base);
    assert_eq!(row(&judgement, A).word, Word::Regressed);
    assert!(judgement.notes[0].starts_with("the base is one stored session"));
}

#[test]
fn a_crash_is_not_judged_unless_allowed_or_outweighed() {
    let base = side("a", vec![(A, around(100.0)), (B, around(200.0))]);
    let mut head = side("b", vec![(A, failed("it died")), (B, around(200.0))]);
    let judgement = against(&head, &base);
    assert_eq!(outcome(&judgement), VerdictOutcome::NotJudged);
    assert_eq!(row(&judgement, A).word, Word::NotMeasured);
    let reason = format!("1 of 2 cases was not measured, first {A}: failed: it died");
    assert_eq!(judgement.verdict.reasons, [reason]);

    head.header.rules.policy.allow = vec!["*s64*".to_owned()];
    assert_eq!(outcome(&against(&head, &base)), VerdictOutcome::Passed);

    head.header.rules.policy.allow.clear();
    head.cases
        .insert(CaseId(B.to_owned()), confirmed(400.0, 400.0));
    let judgement = against(&head, &base);
    assert_eq!(outcome(&judgement), VerdictOutcome::Failed);
    assert_eq!(judgement.verdict.reasons.len(), 2);
    assert!(judgement.verdict.reasons[0].contains("regressed"));
}

#[test]
fn support_that_was_lost_is_not_judged() {
    let base = side("a", vec![(A, around(100.0)), (B, around(100.0))]);
    let head = side("b", vec![(A, unsupported("no d64")), (B, around(100.0))]);
    let judgement = against(&head, &base);
    assert_eq!(outcome(&judgement), VerdictOutcome::NotJudged);
    let never = side("c", vec![(A, unsupported("no d64")), (B, around(100.0))]);
    let judgement = against(&head, &never);
    assert_eq!(outcome(&judgement), VerdictOutcome::Passed);
    assert_eq!(row(&judgement, A).word, Word::Unsupported);
}

#[test]
fn removed_cases_are_a_gap_in_one_suite_and_a_note_across_two() {
    let base = side("a", vec![(A, around(100.0)), (B, around(200.0))]);
    let mut head = side(
        "b",
        vec![(A, around(100.0)), ("cpu/new:s64,d64", around(1.0))],
    );
    let judgement = against(&head, &base);
    assert_eq!(row(&judgement, B).word, Word::Removed);
    assert_eq!(row(&judgement, "cpu/new:s64,d64").word, Word::Added);
    let reason = format!("1 case of the base is no longer in the suite, first {B}");
    assert_eq!(judgement.verdict.reasons, [reason]);
    assert_eq!(outcome(&judgement), VerdictOutcome::NotJudged);

    head.header.suite.name = "other".to_owned();
    let judgement = against(&head, &base);
    assert_eq!(outcome(&judgement), VerdictOutcome::Passed);
    assert_eq!(judgement.notes.len(), 2);
    let strictly = Options {
        same_suite: true,
        ..plain()
    };
    let judgement = judge(&head, Some(&base), &strictly);
    assert_eq!(judgement.incomparable[0].field, "suite");
}

#[test]
fn another_machine_is_refused_but_the_head_is_still_judged_by_itself() {
    let base = side("a", vec![(A, around(100.0)), (B, around(100.0))]);
    let mut head = side("b", vec![(A, around(900.0)), (B, failed("x"))]);
    head.header
        .machine
        .hard
        .insert("cores".to_owned(), "64".to_owned());
    let judgement = against(&head, &base);
    assert_eq!(outcome(&judgement), VerdictOutcome::NotJudged);
    assert_eq!(
        judgement.verdict.reasons[0],
        "the two sides cannot be compared: cores is 2 in the base and 64 in the head"
    );
    let compared = row(&judgement, A);
    assert_eq!(compared.word, Word::Measured);
    assert!(compared.change.is_none() && compared.base.is_some());
    assert_eq!(row(&judgement, B).word, Word::NotMeasured);
    assert!(batch(&judgement).is_none());
}

#[test]
fn a_hollow_run_never_passes() {
    let empty = side("a", Vec::new());
    let nothing = judge(&empty, None, &plain());
    assert_eq!(nothing.verdict.reasons, ["nothing was measured"]);
    assert_eq!(outcome(&nothing), VerdictOutcome::NotJudged);
    let alone = judge(
        &side("b", vec![(A, unsupported("needs 2 GPUs"))]),
        None,
        &plain(),
    );
    let said = format!("nothing was measured: {A} is unsupported: needs 2 GPUs");
    assert_eq!(alone.verdict.reasons, [said]);
    let mut refused = side("b", vec![(A, unsupported("x")), (B, failed("y"))]);
    refused.header.rules.policy.allow = vec!["*".to_owned()];
    assert_eq!(
        outcome(&judge(&refused, None, &plain())),
        VerdictOutcome::NotJudged
    );
    let head = side("c", vec![(A, around(1.0))]);
    let judgement = against(&head, &empty);
    assert_eq!(
        judgement.verdict.reasons,
        ["no case was measured on both sides"]
    );
    assert_eq!(outcome(&judgement), VerdictOutcome::NotJudged);
}

#[test]
fn without_a_base_measured_cases_pass() {
    let head = side("a", vec![(A, around(100.0)), (B, unsupported("x"))]);
    let judgement = judge(&head, None, &plain());
    assert_eq!(outcome(&judgement), VerdictOutcome::Passed);
    assert_eq!(row(&judgement, A).word, Word::Measured);
    assert!(judgement.common_shift.is_none());
}

#[test]
fn what_is_open_counts_only_where_strictness_is_asked_for() {
    let base = side("a", vec![(A, timed(&[90.0, 95.0, 100.0, 105.0, 110.0]))]);
    let head = side("b", vec![(A, timed(&[91.0, 96.0, 101.0, 106.0, 111.0]))]);
    assert_eq!(outcome(&against(&head, &base)), VerdictOutcome::Passed);
    let strict = Options {
        strict: true,
        ..plain()
    };
    let judgement = judge(&head, Some(&base), &strict);
    assert_eq!(outcome(&judgement), VerdictOutcome::NotJudged);
    assert!(judgement.verdict.reasons[0].starts_with("1 case is inconclusive"));
}

fn expecting(auto: CaseRecord, best: CaseRecord) -> Side {
    let split = "cpu/split:s64,d64:num_splits_key=4";
    let mut side = side("run", vec![("cpu/split:s64,d64", auto), (split, best)]);
    let selects = |value: &str| {
        let values = vec![value.to_owned()];
        Selector([("num_splits_key".to_owned(), values)].into())
    };
    side.header.rules.expectations.push(Expectation {
        name: "auto is good".to_owned(),
        case: selects("auto"),
        against: selects("4"),
        within: Ratio(1.1),
        metric: Metric::Device,
    });
    side
}

#[test]
fn a_broken_expectation_fails_without_any_baseline() {
    let judgement = judge(&expecting(around(300.0), around(100.0)), None, &plain());
    assert_eq!(outcome(&judgement), VerdictOutcome::Failed);
    assert_eq!(
        judgement.verdict.reasons,
        [
            "1 expectation is broken, worst `auto is good`: cpu/split:s64,d64 takes 3.00 times as \
          long as cpu/split:s64,d64:num_splits_key=4, and 1.10 is the limit"
        ]
    );
}

#[test]
fn an_expectation_that_lacks_a_measurement_is_not_judged() {
    let judgement = judge(&expecting(around(300.0), failed("x")), None, &plain());
    assert_eq!(outcome(&judgement), VerdictOutcome::NotJudged);
    assert_eq!(judgement.expectations[0].held, Held::NotJudged);
    assert_eq!(judgement.verdict.reasons.len(), 2);
}

#[test]
fn damaged_lines_are_a_note_and_what_they_lost_a_gap() {
    let base = side("a", vec![(A, around(100.0))]);
    let mut head = base.clone();
    head.damage = vec!["line 7: cut off".to_owned()];
    let judgement = against(&head, &base);
    assert_eq!(outcome(&judgement), VerdictOutcome::Passed);
    assert_eq!(judgement.notes, ["a is damaged: line 7: cut off"]);
    let reason = "4 of 5 invocations are in the file".to_owned();
    head.cases.get_mut(&CaseId(A.to_owned())).unwrap().status = Status::Missing { reason };
    assert_eq!(outcome(&against(&head, &base)), VerdictOutcome::NotJudged);
}

#[test]
fn causes_come_with_the_rows_and_versions_with_their_worker() {
    let mut base = side(
        "a",
        vec![(A, around(100.0)), ("torch/math:s64,d64", around(100.0))],
    );
    let mut head = side(
        "b",
        vec![(A, around(300.0)), ("torch/math:s64,d64", around(300.0))],
    );
    for (side, threads) in [(&mut base, 2), (&mut head, 1)] {
        let record = side.cases.get_mut(&CaseId(A.to_owned())).unwrap();
        let structure = record.structure.get_or_insert_default();
        structure.counts.insert("threads".to_owned(), threads);
    }
    head.header.workers[0]
        .versions
        .insert("rust".to_owned(), "2".to_owned());
    let judgement = against(&head, &base);
    let causes: Vec<&str> = row(&judgement, A)
        .findings
        .iter()
        .map(|f| f.cause.as_str())
        .collect();
    assert_eq!(causes, ["less-parallel", "toolchain"]);
    assert!(row(&judgement, "torch/math:s64,d64").findings.is_empty());
}

#[test]
fn a_structure_that_changed_without_its_time_is_noted() {
    let mut base = side("a", vec![(A, around(100.0))]);
    let mut head = base.clone();
    for (side, copies) in [(&mut base, 0), (&mut head, 1)] {
        let record = side.cases.get_mut(&CaseId(A.to_owned())).unwrap();
        let structure = record.structure.get_or_insert_default();
        structure.counts.insert("allocations".to_owned(), copies);
    }
    let judgement = against(&head, &base);
    assert_eq!(outcome(&judgement), VerdictOutcome::Passed);
    assert!(judgement.notes[0].starts_with("1 case took as long as before, although"));
}

/// Ten and five invocations around these, wide enough that nothing is decided.
fn undecided(ns: f64) -> CaseRecord {
    timed(&[0.9, 0.95, 1.0, 1.05, 1.1].map(|share| share * ns))
}

#[test]
fn what_did_not_change_has_no_cause() {
    let with = |mut record: CaseRecord, host_us: f64, copies: u64| {
        record.host_ns = vec![Nanoseconds(host_us * 1e3); 5];
        let structure = record.structure.get_or_insert_default();
        structure.counts.insert("copies".to_owned(), copies);
        record
    };
    let alike = |record: fn(f64) -> CaseRecord, copies| {
        let base = side("a", vec![(A, with(record(14_800.0), 52.3, 0))]);
        let head = side("b", vec![(A, with(record(14_810.0), 75.2, copies))]);
        against(&head, &base)
    };
    for record in [around, undecided] {
        let judgement = alike(record, 0);
        assert!(row(&judgement, A).findings.is_empty(), "{judgement:?}");
    }
    assert_eq!(row(&alike(undecided, 0), A).word, Word::Inconclusive);
    // Of a structure that changed, what changed of it, and nothing of the times.
    let judgement = alike(undecided, 1);
    let causes = row(&judgement, A).findings.iter();
    let causes: Vec<&str> = causes.map(|finding| finding.cause.as_str()).collect();
    assert_eq!(causes, ["copies-added"]);
}

#[test]
fn a_row_shows_the_times_that_were_judged() {
    let mut confirmed = confirmed(17_500.0, 18_600.0);
    confirmed.host_ns = vec![Nanoseconds(90_000.0); 15];
    let mut before = around(14_900.0);
    before.host_ns = vec![Nanoseconds(50_000.0); 5];
    let base = side("a", vec![(A, before)]);
    let head = side("b", vec![(A, confirmed)]);
    let judgement = against(&head, &base);
    let row = row(&judgement, A);
    assert_eq!(row.change.as_ref().unwrap().stage, Stage::Confirm);
    let shown = row.head.as_ref().unwrap();
    // All invocations are judged, and shown.
    assert!((shown.median_ns.0 - 18_497.7).abs() < 1.0, "{shown:?}");
    assert!(shown.min_ns.0 < 18_000.0);
    assert_eq!(shown.invocations_ns.len(), 15);
    let ratio = row.times_ratio().unwrap();
    assert!((ratio.0 - shown.median_ns.0 / 14_900.0).abs() < 1e-12);
    // Nor does a cause tell other figures than the row.
    let told = row.findings[0].evidence();
    assert!(told.contains("device time 14.9 → 18.5 µs"), "{told}");
}

#[test]
fn a_slower_whole_is_told_once() {
    let ids: Vec<String> = (0..6)
        .map(|n| format!("cpu/flash:s{},d64", 64 << n))
        .collect();
    let of = |ns: f64| {
        let cases = ids.iter().map(|id| (id.as_str(), timed(&[ns, ns * 1.001])));
        side("x", cases.collect())
    };
    let judgement = against(&of(120.0), &of(100.0));
    let about = |text: &&String| text.contains("the machine");
    let told = judgement.verdict.reasons.iter().chain(&judgement.notes);
    assert_eq!(told.filter(about).count(), 1, "{judgement:?}");
}

#[test]
fn a_structure_that_is_not_counted_any_more_is_not_judged() {
    let mut base = side("a", vec![(A, around(100.0))]);
    let record = base.cases.get_mut(&CaseId(A.to_owned())).unwrap();
    let structure = record.structure.get_or_insert_default();
    structure.counts.insert("tasks".to_owned(), 4);
    let mut head = side("b", vec![(A, around(100.0))]);
    let judgement = against(&head, &base);
    assert_eq!(outcome(&judgement), VerdictOutcome::NotJudged);
    let reason = format!(
        "the structure of 1 case could not be judged, first {A}: counted in the base and not \
         now: tasks (4): its worker counts no structure"
    );
    assert_eq!(judgement.verdict.reasons, [reason]);
    // The other way round it is new; and a case that may fail may not be counted.
    assert_eq!(outcome(&against(&base, &head)), VerdictOutcome::Passed);
    head.header.rules.policy.allow = vec!["*".to_owned()];
    assert_eq!(outcome(&against(&head, &base)), VerdictOutcome::Passed);
}

#[test]
fn a_judgement_survives_json_even_where_no_effect_was_visible() {
    let base = side("a", vec![(A, timed(&[100.0]))]);
    let head = side("b", vec![(A, timed(&[101.0]))]);
    let judgement = against(&head, &base);
    let change = row(&judgement, A).change.as_ref().unwrap();
    assert!(change.smallest_effect.0.is_infinite());
    let text = serde_json::to_string(&judgement).unwrap();
    assert!(text.contains("\"smallest_effect\":null"));
    assert_eq!(serde_json::from_str::<Judgement>(&text).unwrap(), judgement);
}
