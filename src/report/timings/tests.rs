//! Runs of known times.

use super::*;
use crate::attention::CaseId;
use crate::record::spent::Part;
use crate::record::testing::header;
use crate::record::types::{How, Measurement, RunEnd, Start};
use crate::report::terminal::COLUMNS;
use crate::report::text::width;

const SECOND: f64 = 1e9;

fn stretch(from: f64, phases: &[(Phase, f64)]) -> Stretch {
    let mut spent = Spent::default();
    for (phase, seconds) in phases {
        spent.add(*phase, Nanoseconds(seconds * SECOND));
    }
    Stretch {
        from_ns: Nanoseconds(from * SECOND),
        phases: spent,
    }
}

fn entry(case: &str, invocation: u32, spent: Option<Stretch>, samples: &[f64]) -> Entry {
    Entry {
        start: None,
        case: CaseId(case.to_owned()),
        invocation,
        outcome: Outcome::Measured(Measurement {
            device_ns: samples.iter().map(|s| Nanoseconds(s * SECOND)).collect(),
            first_call_ns: Nanoseconds(0.5 * SECOND),
            ..Measurement::default()
        }),
        spent,
    }
}

fn part(from: f64) -> Part {
    Part {
        host: None,
        started: "2026-11-22T10:00:00Z".parse().unwrap(),
        spent: stretch(from, &[(Phase::SettingUp, 1.0), (Phase::Preflight, 14.0)]),
    }
}

/// Two invocations of two workers, one of them fresh.
fn run() -> Run {
    let mut header = header();
    header.settings.invocations = 1;
    let first = stretch(
        15.0,
        &[
            (Phase::Starting, 38.0),
            (Phase::Preparing, 30.0),
            (Phase::Checking, 5.0),
            (Phase::Measuring, 3.0),
            (Phase::CheckingAfter, 1.0),
        ],
    );
    let second = stretch(
        93.0,
        &[
            (Phase::Starting, 14.0),
            (Phase::Preparing, 12.0),
            (Phase::Measuring, 4.0),
            (Phase::Ending, 0.5),
        ],
    );
    let judged = stretch(125.0, &[(Phase::Judging, 0.5), (Phase::Reporting, 1.5)]);
    Run {
        parts: vec![part(0.0)],
        entries: vec![
            entry("torch/a@old:s64,d64", 0, Some(first), &[0.2, 0.3]),
            entry("cpu/b:s64,d64", 1, Some(second), &[0.8]),
        ],
        end: Some(RunEnd {
            finished: "2026-11-22T10:03:00Z".parse().unwrap(),
            judged: None,
            spent: vec![judged],
        }),
        ..Run::begun(header)
    }
}

fn told(run: &Run) -> Option<Timings> {
    Timings::of(run, Entries::Held(run)).unwrap()
}

#[test]
fn a_run_tells_where_its_time_went() {
    let timings = told(&run()).unwrap();
    assert_eq!(timings.took_ns, Nanoseconds(127.0 * SECOND));
    assert_eq!(timings.timed_ns, Nanoseconds(1.3 * SECOND));
    assert_eq!(timings.confirming_ns, Nanoseconds(30.5 * SECOND));
    assert_eq!(timings.between_ns, Nanoseconds(2.5 * SECOND));
    let of_cases: Vec<_> = timings
        .cases
        .iter()
        .map(|case| case.took_ns.seconds())
        .collect();
    assert_eq!(of_cases, [39.0, 16.0], "without their workers");
    insta::assert_snapshot!(timings.said());
}

#[test]
fn other_runs_are_told_in_their_own_words() {
    let mut run = run();
    run.parts.push(part(93.0));
    let timings = told(&run).unwrap();
    assert!(
        timings
            .said()
            .starts_with("took 2 min 7 s in 2 parts, of which")
    );
    for entry in &mut run.entries {
        if let Outcome::Measured(measurement) = &mut entry.outcome {
            measurement.device_ns.clear();
        }
    }
    let said = told(&run).unwrap().said();
    assert!(
        said.contains("parts, and timed nothing;\n  starting"),
        "{said}"
    );
    run.entries[0].spent = None;
    let timings = told(&run).unwrap();
    assert_eq!(timings.untold, 1);
    assert!(
        timings
            .page()
            .unwrap()
            .contains("1 of 2 entries do not say")
    );
    (run.parts, run.end, run.entries[1].spent) = (Vec::new(), None, None);
    assert_eq!(told(&run), None, "an old run says nothing");
}

#[test]
fn invocations_say_how_they_began() {
    let mut run = run();
    let start = |how, because: Option<&str>| {
        let because = because.map(str::to_owned);
        Some(Start { how, because })
    };
    run.entries[0].start = start(How::Forked, None);
    run.entries[1].case = run.entries[0].case.clone();
    run.entries[1].start = start(How::Exec, Some("it ended"));
    let timings = Timings::of(&run, Entries::Held(&run)).unwrap().unwrap();
    let starts: Vec<_> = timings.invocations.iter().map(|of| of.start).collect();
    assert_eq!(starts, [Some(How::Forked), Some(How::Exec)]);
    let said = timings.said();
    let last = "torch@old was forked at first, and from invocation 1 on started: it ended";
    assert!(said.ends_with(last), "{said}");
    assert!(timings.page().unwrap().contains("0 torch@old, forked"));
    // Where none was forked the reason is the run's, and nothing to be told each time.
    run.entries[0].start = start(How::Exec, Some("no GPU is seen"));
    assert!(
        !Timings::of(&run, Entries::Held(&run))
            .unwrap()
            .unwrap()
            .said()
            .contains("started:")
    );
}

#[test]
fn the_page_is_one_file_and_what_comes_from_outside_is_text() {
    let mut run = run();
    run.header.suite.name = "<script>alert(1)</script>".to_owned();
    run.entries[0].case = CaseId("torch/<b>\u{202e}".to_owned());
    let page = told(&run).unwrap().page().unwrap();
    assert!(!page.contains("<script>") && !page.contains("<b>") && !page.contains('\u{202e}'));
    assert!(page.contains("&lt;script&gt;"));
    assert_eq!(page.matches("<svg").count(), 1);
    for outside in ["http://", "https://", "src=", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn any_number_makes_a_page() {
    for number in [0.0, 5e-324, 1e22, f64::MAX, f64::NAN, f64::INFINITY, -1.0] {
        let mut run = run();
        run.entries[0].spent = Some(stretch(number, &[(Phase::Preparing, number)]));
        let timings = told(&run).unwrap();
        for line in timings.said().lines() {
            assert!(width(line) <= COLUMNS, "{line}");
        }
        timings.page().unwrap();
        serde_json::to_string(&timings).unwrap();
    }
}
