//! What is judged of two sides.

use super::judgement::{Held, Row, Stage};
use super::testing::{around, confirmed, disturbed, failed, side, timed, unsupported};
use super::*;
use regatta_core::record::header::{Turn, TurnSide};
use regatta_core::record::side::{CaseRecord, Status};
use regatta_core::suite::rules::{Expectation, Metric, Policy, Selector};
use regatta_worker::attention::CaseId;
use regatta_worker::units::{Nanoseconds, Ratio};

const A: &str = "cpu/flash:s64,d64";
const B: &str = "cpu/flash:s128,d64";

fn against(head: &Side, base: &Side) -> Judgement {
    judge(head, Some(base), &Options::default())
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

/// Five invocations around this time, wide enough that nothing is decided.
fn undecided(ns: f64) -> CaseRecord {
    timed(&[0.9, 0.95, 1.0, 1.05, 1.1].map(|share| share * ns))
}

/// Ten times slower on ground that was never quiet.
fn loaded() -> CaseRecord {
    disturbed(timed(&[]), 5, 1000.0)
}

/// The two cases of a side, each a time, `~` before one that decides nothing, `+` after one with
/// two invocations that the machine was in, or what became of it.
fn cases(written: &str) -> Side {
    let record = |word: &str| match word {
        "crashed" => failed("it died"),
        "refused" => unsupported("no d64"),
        "loaded" => loaded(),
        word => match (word.strip_prefix('~'), word.strip_suffix('+')) {
            (Some(ns), _) => undecided(ns.parse().unwrap()),
            (_, Some(ns)) => disturbed(around(ns.parse().unwrap()), 2, 1000.0),
            _ => around(word.parse().unwrap()),
        },
    };
    let both = [A, B].into_iter().zip(written.split_whitespace());
    let both = both.filter(|(_, word)| *word != "-");
    side("run", both.map(|(id, word)| (id, record(word))).collect())
}

/// As it is written in JSON.
fn kebab(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap();
    value.as_str().unwrap().to_owned()
}

/// Each line: a base, a head, the outcome and the words of the cases; then how the reasons begin.
#[test]
fn what_two_sides_are_is_what_is_said_of_them() {
    let table = format!("
100 200 ; 100 200 => passed same same
100 200 ; 120 700 => failed regressed regressed | 2 of 2 cases regressed, worst {B}: 3.50 times as long
100 200 ; crashed 200 => not-judged not-measured same | 1 of 2 cases was not measured, first {A}: failed: it died
100 200 ; crashed 400 => failed not-measured regressed | 1 of 1 case regressed | 1 of 2 cases was not
100 200 ; refused 200 => not-judged not-measured same | 1 of 2 cases was not measured, first {A}: no longer
refused 200 ; refused 200 => passed unsupported same
100 200 ; 100 - => not-judged same removed | 1 case of the base is no longer in the suite, first {B}
100 - ; 100 200 => passed same added
100 200 ; loaded loaded => not-judged inconclusive inconclusive | 2 cases are not judged because of the machine: foreign load 1.9 of 2 cores in 5 of 5 invocations; measure again when nothing else runs on these cores
100 200 ; loaded 400 => failed inconclusive regressed | 1 of 1 case regressed | 1 case is not judged because of the machine
100 200 ; loaded crashed => not-judged inconclusive not-measured | 1 case is not judged because | 1 of 2 cases was not measured
loaded 200 ; 100 200 => not-judged inconclusive same | the base's times of 1 case are the machine's
100 - ; 100+ - => passed same
100 - ; 300+ - => failed regressed | 1 of 1 case regressed
 ; 100 refused => passed measured unsupported
 ; loaded - => not-judged measured | 1 case is not judged because of the machine
 ; - - => not-judged | nothing was measured
 ; refused - => not-judged unsupported | nothing was measured: {A} is unsupported: no d64
- - ; 100 - => not-judged added | no case was measured on both sides
~100 - ; ~101 - => passed inconclusive
strict ~100 - ; ~101 - => not-judged inconclusive | 1 case is inconclusive
");
    for line in table.lines().filter(|line| !line.is_empty()) {
        let (sides, expected) = line.split_once(" => ").unwrap();
        let (base, head) = sides.split_once(';').unwrap();
        let strict = base.strip_prefix("strict");
        let options = Options {
            strict: strict.is_some(),
            ..Options::default()
        };
        let base = strict.unwrap_or(base).trim();
        let base = (!base.is_empty()).then(|| cases(base));
        let found = judge(&cases(head), base.as_ref(), &options);
        let mut said = vec![kebab(&found.verdict.outcome)];
        for id in [A, B] {
            let rows = found.rows.iter().filter(|row| row.case.0 == id);
            said.extend(rows.map(|row| kebab(&row.word)));
        }
        let mut expected = expected.split(" | ");
        assert_eq!(said.join(" "), expected.next().unwrap(), "{line}");
        let reasons: Vec<&str> = expected.collect();
        let told = &found.verdict.reasons;
        let mut both = told.iter().zip(&reasons);
        let begin = both.all(|(told, begin)| told.starts_with(begin));
        assert!(begin && told.len() == reasons.len(), "{line}\n{told:#?}");
        assert!(batch(&found).is_none(), "{line}");
    }
}

#[test]
fn times_that_the_machine_was_in_are_kept_and_decide_nothing() {
    let judgement = against(&cases("loaded loaded"), &cases("100 200"));
    assert_eq!(judgement.common_shift, None);
    let row = row(&judgement, A);
    assert!(!row.looks_worse);
    let reason = row.reason.as_deref().unwrap();
    assert!(
        reason.contains("foreign load 1.9 of 2 cores in 5 of 5"),
        "{reason}"
    );
    assert_eq!(row.head.as_ref().unwrap().median_ns, Nanoseconds(1000.0));
    let notes = judgement.notes.join("\n");
    assert!(notes.contains("10 invocations of 2 cases"), "{notes}");
}

#[test]
fn threads_that_found_no_core_are_no_change_of_structure() {
    let counted = |mut record: CaseRecord, threads| {
        let structure = record.structure.get_or_insert_default();
        let counts = [("threads", threads), ("tasks", 2 * threads)];
        let counts = counts.map(|(name, n)| (name.to_owned(), n));
        structure.counts.extend(counts);
        record
    };
    let base = side("base", vec![(A, counted(around(100.0), 2))]);
    let changes = |head| {
        let judgement = against(&side("head", vec![(A, counted(head, 1))]), &base);
        row(&judgement, A).structure.as_ref().unwrap().len()
    };
    assert_eq!(changes(around(100.0)), 2);
    assert_eq!(changes(loaded()), 1, "tasks follow from the code");
}

#[test]
fn what_one_session_cannot_tell_is_said() {
    let judgement = against(&cases("120 201"), &cases("100 200"));
    assert!(judgement.notes[0].starts_with("the base is one stored session"));
}

#[test]
fn another_suite_is_another_experiment() {
    let mut head = cases("100 -");
    head.header.suite.name = "other".to_owned();
    let judgement = against(&head, &cases("100 200"));
    assert_eq!(outcome(&judgement), VerdictOutcome::Passed);
    assert_eq!(judgement.notes.len(), 1, "{:?}", judgement.notes);
    let strictly = Options {
        same_suite: true,
        ..Options::default()
    };
    let judgement = judge(&head, Some(&cases("100 200")), &strictly);
    assert_eq!(judgement.incomparable[0].field, "suite");
}

#[test]
fn what_may_fail_is_no_gap_and_no_pass_by_itself() {
    let mut head = cases("crashed 200");
    head.header.rules.policy.allow = vec!["*s64*".to_owned()];
    let base = cases("100 200");
    assert_eq!(outcome(&against(&head, &base)), VerdictOutcome::Passed);
    let mut refused = cases("refused crashed");
    refused.header.rules.policy.allow = vec!["*".to_owned()];
    let alone = judge(&refused, None, &Options::default());
    assert_eq!(outcome(&alone), VerdictOutcome::NotJudged);
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
    let judgement = judge(
        &expecting(around(300.0), around(100.0)),
        None,
        &Options::default(),
    );
    assert_eq!(
        judgement.verdict.reasons,
        [
            "1 expectation is broken, worst `auto is good`: cpu/split:s64,d64 takes 3.00 times as \
          long as cpu/split:s64,d64:num_splits_key=4, and 1.10 is the limit"
        ]
    );
    let lacking = expecting(around(300.0), failed("x"));
    let judgement = judge(&lacking, None, &Options::default());
    assert_eq!(outcome(&judgement), VerdictOutcome::NotJudged);
    assert_eq!(judgement.expectations[0].held, Held::NotJudged);
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

/// A case that takes `wall`, and `cpu` of its processor.
fn case(wall: f64, cpu: f64) -> CaseRecord {
    CaseRecord {
        cpu_ns: around(cpu).device_ns,
        ..around(wall)
    }
}

/// The same, of which the machine was in every invocation.
fn shaken(cpu: f64) -> CaseRecord {
    let mut record = disturbed(timed(&[]), 5, 700.0);
    for (one, cpu) in record.disturbed.iter_mut().zip(around(cpu).device_ns) {
        one.cpu_ns = Some(cpu);
    }
    record
}

/// Judges two sides that were measured in turn.
fn judged(base: CaseRecord, head: CaseRecord, processor: bool) -> Judgement {
    let side = |record, of| {
        let mut side = side("a", vec![(A, record)]);
        side.header.rules.policy.processor = processor;
        side.header.turn = Some(Turn {
            pair: "one".to_owned(),
            side: of,
            of: Vec::new(),
            stands_in: Default::default(),
        });
        side
    };
    against(&side(head, TurnSide::Head), &side(base, TurnSide::Base))
}

/// The processor's time speaks unasked only where others were on the cores, and cannot let pass
/// what was not seen on the wall; where it is asked for, both clocks must hold.
#[test]
fn the_processors_time_is_a_witness() {
    use VerdictOutcome::{Failed, NotJudged, Passed};
    for (base, head, asked, expected, metrics) in [
        (case(100.0, 100.0), case(100.0, 150.0), false, Passed, 0),
        (shaken(100.0), shaken(150.0), false, Failed, 1),
        (shaken(100.0), shaken(100.0), false, NotJudged, 1),
        (shaken(100.0), shaken(70.0), false, NotJudged, 1),
        (case(100.0, 100.0), case(100.0, 150.0), true, Failed, 1),
        (case(100.0, 100.0), case(150.0, 100.0), true, Failed, 1),
        (case(100.0, 100.0), case(100.0, 100.0), true, Passed, 1),
    ] {
        let judgement = judged(base, head, asked);
        let own = &row(&judgement, A).metrics;
        assert_eq!(
            (outcome(&judgement), own.len()),
            (expected, metrics),
            "{own:?}"
        );
        assert!(own.iter().all(|own| own.metric == Metric::Processor));
    }
}
