use super::*;
use crate::fixture::{fits, noise, stands_alone};
use regatta_core::record::history::{About, CaseTimes, HistoryRun};
use regatta_core::record::{Fault, Outcome};
use regatta_judge::history::{series, trends};
use regatta_worker::case::CaseId;
use regatta_worker::units::Nanoseconds;

/// The outcome of a case in one of 60 daily runs: one family is slower from day 45 on, one case
/// drifts, one is gone.
fn outcome(case: usize, id: &CaseId, run: usize) -> Outcome<CaseTimes> {
    if case == 5 && run > 57 {
        return Outcome::Failed {
            reason: "</script> \u{1b}[31mdied".to_owned(),
            fault: Fault::Crash,
            log: String::new(),
        };
    }
    let step = if run >= 45 && id.0.contains("flash") {
        1.25
    } else {
        1.0
    };
    let creep = if case == 1 {
        0.12 * run as f64 / 59.0
    } else {
        0.0
    };
    let noise = 0.01 * noise(7919 * case + 131 * run);
    let device_ns = Nanoseconds(2e5 * step * (1.0 + creep) * (1.0 + noise));
    let apart = [-0.002, 0.001, 0.0, 0.002, -0.001];
    Outcome::Measured(CaseTimes {
        device_ns,
        invocations_ns: apart.map(|offset| device_ns * (1.0 + offset)).into(),
        host_ns: None,
        cpu_ns: None,
        disturbed: false,
    })
}

fn history() -> History {
    let pair = |n: usize| ["flash", "naive"].map(|name| format!("cpu/{name}:s{},d64", 64 * n));
    let cases: Vec<CaseId> = (1..=12)
        .flat_map(pair)
        .map(|id| CaseId(id.into()))
        .collect();
    let results = |run| {
        let cases = cases.iter().enumerate();
        cases
            .map(|(case, id)| (case as u32, outcome(case, id, run)))
            .collect()
    };
    let runs = (0..60).map(|run| HistoryRun {
        about: About {
            id: run.to_string(),
            at: Timestamp::from_second(1_700_000_000 + 86_400 * run as i64).unwrap(),
            label: format!("reports/{run}/run.jsonl"),
            tool: if run < 45 { "0.1.0" } else { "0.2.0" }.to_owned(),
            ..About::default()
        },
        results: results(run),
    });
    History {
        suite: "quick".to_owned(),
        machine: "xeon-2c".to_owned(),
        runs: runs.collect(),
        cases,
        ..History::default()
    }
}

fn with<T>(patterns: &[&str], since: usize, see: impl Fn(&Shown) -> T) -> T {
    let history = history();
    let options = Options::default();
    let (all, found) = (series(&history, options.metric), trends(&history, &options));
    let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
    let links: Vec<Option<String>> = (0..60).map(|run| Some(format!("{run}.html"))).collect();
    see(&Shown {
        history: &history,
        series: &all,
        trends: &found,
        options: &options,
        since: history.runs[since].about.at,
        patterns: &patterns,
        links: &links,
    })
}

#[test]
fn a_terminal_is_told_what_changed_and_with_what() {
    let text = with(&[], 30, |shown| text(shown, false, false));
    fits(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn a_window_and_a_pattern_leave_out_what_is_not_asked_for() {
    let late = with(&[], 50, |shown| text(shown, false, false));
    assert!(late.contains("No change since 2024-01-03"), "{late}");
    assert!(
        late.contains("1 earlier change: --since 2023-11-14"),
        "{late}"
    );
    insta::assert_snapshot!(with(&["naive:s128"], 30, |shown| text(shown, false, false)));
}

#[test]
fn json_names_cases_and_runs() {
    let text = with(&["flash"], 30, |shown| json(shown).unwrap());
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["cases"].as_array().unwrap().len(), 12);
    let event = &value["events"][0];
    assert_eq!(event["who"], "family");
    assert_eq!(event["text"]["who"], "all 12 cases of cpu/flash");
    assert_eq!(event["run"]["label"], "reports/45/run.jsonl");
    assert_eq!(event["before"]["label"], "reports/44/run.jsonl");
    assert_eq!(event["cases"].as_array().unwrap().len(), 12);
    assert_eq!(
        value["cases"][0]["steps"][0]["run"]["at"],
        event["run"]["at"]
    );
}

#[test]
fn the_page_draws_what_changed_and_nothing_in_it_is_markup() {
    let text = with(&[], 30, |shown| page(shown).unwrap());
    stands_alone(&text);
    for part in [
        "1 change since 2023-12-14: 1 slower",
        "<a href=\"45.html\">all 12 cases of cpu",
        "Times of cpu/flash:",
        "&lt;&#x2f;script&gt; died",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert_eq!(text.matches("<svg").count(), 4, "two widths of each figure");
    let page = with(&["no such case"], 30, |shown| page(shown).unwrap());
    assert!(page.contains("No change since"));
}
