use serde_json::Value;

use crate::report::{Format, fixture, render};
use crate::units::Nanoseconds;

const ALL: [Format; 4] = [
    Format::Bencher,
    Format::BenchmarkAction,
    Format::GoogleBenchmark,
    Format::OpenMetrics,
];

fn text(format: Format, scene: &fixture::Scene) -> String {
    render(format, &scene.report()).unwrap().remove(0).text
}

#[test]
fn a_failed_gate_in_each() {
    let shown = ALL.map(|format| {
        let text = text(format, &fixture::failed());
        let lines: Vec<&str> = text.lines().take(28).collect();
        format!("== {format:?}\n{}", lines.join("\n"))
    });
    insta::assert_snapshot!(shown.join("\n\n"));
}

#[test]
fn a_case_without_a_time_is_in_none() {
    let mut scene = fixture::failed();
    let whole = text(Format::Bencher, &scene);
    let whole: Value = serde_json::from_str(&whole).unwrap();
    let row = scene
        .judgement
        .rows
        .iter_mut()
        .find(|row| row.head.is_some())
        .unwrap();
    row.head.as_mut().unwrap().median_ns = Nanoseconds(f64::NAN);
    let case = row.case.0.clone();
    assert!(whole.get(&case).is_some());
    for format in ALL {
        let text = text(format, &scene);
        assert!(!text.contains(&format!("\"{case}\"")), "{format:?}");
        assert!(
            !text.contains("null") && !text.contains("NaN"),
            "{format:?}"
        );
    }
}
