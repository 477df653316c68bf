use std::collections::BTreeMap;

use super::*;
use crate::terminal::COLUMNS;
use crate::text::width;
use regatta_core::record::history::{About, Came, Figures, Kept};
use regatta_judge::history::{series, trends};
use regatta_worker::attention::CaseId;
use regatta_worker::units::Nanoseconds;

/// A number within ±1 that looks like chance, the same in each test.
fn noise(case: usize, run: usize) -> f64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for part in [case as u64, run as u64, 7] {
        state = (state ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state ^= state >> 31;
        state = state.wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 29;
    }
    (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// A history of 60 days: one family is slower from day 45 on, one case creeps, one is gone.
fn history() -> History {
    let ids: Vec<CaseId> = (1..=12)
        .flat_map(|n| ["flash", "naive"].map(|name| CaseId(format!("cpu/{name}:s{},d64", 64 * n))))
        .collect();
    let runs = (0..60).map(|run| {
        let results = ids.iter().enumerate().map(|(case, id)| {
            let step = if run >= 45 && id.0.contains("flash") {
                1.25
            } else {
                1.0
            };
            let creep = if case == 1 {
                1.0 + 0.12 * f64::from(run) / 59.0
            } else {
                1.0
            };
            let noise = 0.01 * noise(case, run as usize);
            let time = Came::Timed(Figures {
                device_ns: Nanoseconds(2e5 * step * creep * (1.0 + noise)),
                spread: None,
                host_ns: None,
                cpu_ns: None,
            });
            let gone = case == 5 && run > 57;
            let came = if gone {
                Came::Failed("</script> \u{1b}[31mdied".to_owned())
            } else {
                time
            };
            (case as u32, came)
        });
        Kept {
            about: About {
                id: run.to_string(),
                at: Timestamp::from_second(1_700_000_000 + 86_400 * i64::from(run)).unwrap(),
                started: None,
                label: format!("reports/{run}/run.jsonl"),
                git: None,
                tool: if run < 45 { "0.1.0" } else { "0.2.0" }.to_owned(),
                verdict: None,
                versions: BTreeMap::new(),
                facts: BTreeMap::new(),
            },
            results: results.collect(),
        }
    });
    History {
        suite: "quick".to_owned(),
        machine: "xeon-2c".to_owned(),
        runs: runs.collect(),
        cases: ids,
        damage: Vec::new(),
    }
}

fn with<T>(patterns: &[&str], since: usize, see: impl Fn(&Shown) -> T) -> T {
    let history = history();
    let options = Options::default();
    let (all, found) = (series(&history, options.clock), trends(&history, &options));
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
    for line in text.lines() {
        assert!(width(line) <= COLUMNS, "{line}");
        assert!(!line.contains('\u{1b}'), "{line}");
    }
    for part in [
        "quick on xeon-2c: 60 runs of 24 cases, 2023-11-14 to 2024-01-12",
        "1 change since 2023-12-14: 1 slower; 1 case creeps; 1 case without a time now.",
        "Slower (1)\n  all 12 cases of cpu/flash\n",
        "▁▁▁▁▁▁▁▁▁",
        "2023-12-29",
        "regatta 0.1.0 → 0.2.0",
        "Creeping (1)\n  cpu/naive:s64,d64\n",
        "Without a time now (1)\n  cpu/naive:s192,d64\n",
        "since 2024-01-11: </script> died",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(!text.contains("Faster"), "{text}");
}

#[test]
fn a_window_and_a_pattern_leave_out_what_is_not_asked_for() {
    let text = with(&[], 50, |shown| text(shown, false, false));
    assert!(text.contains("No change since 2024-01-03"), "{text}");
    assert!(
        text.contains("1 earlier change: --since 2023-11-14"),
        "{text}"
    );
    let text = with(&["naive:s128"], 30, |shown| {
        super::text(shown, false, false)
    });
    assert!(text.contains("No change since"), "{text}");
    assert!(
        !text.contains("creeps") && !text.contains("Without"),
        "{text}"
    );
    assert!(
        text.contains("Cases, now and since the reference (1)\n  cpu/naive:s128"),
        "{text}"
    );
}

#[test]
fn json_names_cases_and_runs() {
    let text = with(&["flash"], 30, |shown| json(shown).unwrap());
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(told["cases"].as_array().unwrap().len(), 12);
    let event = &told["events"][0];
    assert_eq!(event["who"], "family");
    assert_eq!(event["told"]["who"], "all 12 cases of cpu/flash");
    assert_eq!(event["run"]["label"], "reports/45/run.jsonl");
    assert_eq!(event["before"]["label"], "reports/44/run.jsonl");
    assert_eq!(event["cases"].as_array().unwrap().len(), 12);
    assert_eq!(
        told["cases"][0]["steps"][0]["run"]["at"],
        event["run"]["at"]
    );
}

#[test]
fn the_page_holds_every_case_and_nothing_in_it_is_markup() {
    let text = with(&[], 30, |shown| page(shown).unwrap());
    for part in [
        "1 change since 2023-12-14: 1 slower",
        "all 12 cases of cpu&#x2f;flash",
        "<a href=\"45.html\">2023-12-29</a>",
        "&lt;&#x2f;script&gt; died",
    ] {
        assert!(text.contains(part), "{part}");
    }
    let (_, data) = text.split_once("id=\"data\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let cases = data["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 24);
    let mut before = String::new();
    for (case, id) in cases.iter().zip(&history().cases) {
        let same = case["i"][0].as_u64().unwrap() as usize;
        before = before[..same].to_owned() + case["i"][1].as_str().unwrap();
        assert_eq!(before, id.0);
        assert!(case["v"].as_str().unwrap().split(' ').count() <= 60);
    }
    assert!(
        !text.contains("http://") || text.matches("http://").count() == 1,
        "only a name space"
    );
    let none = with(&["no such case"], 30, |shown| page(shown).unwrap());
    assert!(none.contains("No change since"));
}
