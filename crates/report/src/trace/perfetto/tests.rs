use std::collections::{BTreeMap, BTreeSet};

use super::*;
use regatta_core::machine::testing::Writer;
use regatta_core::record::trace::testing::{trace, training};

/// The events of a trace, held to the rules of the format: every one has its members, arrows have
/// two ends that lie on events, and events of a row lie within each other or apart.
fn events(trace: &Trace) -> Vec<Value> {
    let mut text = Vec::new();
    perfetto(trace, &mut text).unwrap();
    let whole: Value = serde_json::from_slice(&text).unwrap();
    let events = whole["traceEvents"].as_array().unwrap().clone();
    let mut rows: BTreeMap<(u64, u64), Vec<(i64, i64)>> = BTreeMap::new();
    let mut named = BTreeSet::new();
    let mut arrows: BTreeMap<u64, [Option<i64>; 2]> = BTreeMap::new();
    let mut open: Vec<(&str, i64)> = Vec::new();
    for event in &events {
        let number = |name: &str| event[name].as_u64().unwrap();
        let at = |name: &str| (event[name].as_f64().unwrap() * 1e3).round() as i64;
        let name = event["name"].as_str().unwrap();
        let (row, start) = ((number("pid"), number("tid")), at("ts"));
        assert!(
            !name.is_empty() && row.1 <= u64::from(u32::MAX) && start >= 0,
            "{event}"
        );
        match event["ph"].as_str().unwrap() {
            "X" => rows
                .entry(row)
                .or_default()
                .push((start, start + at("dur"))),
            "M" => assert!(named.insert((name.to_owned(), row)), "{event}"),
            end @ ("s" | "f") => {
                let ends = arrows.entry(number("id")).or_default();
                let end = &mut ends[usize::from(end == "f")];
                assert_eq!(end.replace(start), None, "{event}");
            }
            "B" => open.push((name, start)),
            end => {
                assert_eq!(end, "E", "{event}");
                let (opened, from) = open.pop().unwrap();
                assert!(opened == name && from <= start, "{event}");
                rows.entry(row).or_default().push((from, start));
            }
        }
    }
    assert!(open.is_empty(), "{open:?}");
    for (row, mut on_it) in rows {
        assert!(named.contains(&("thread_name".to_owned(), row)), "{row:?}");
        assert!(named.contains(&("process_name".to_owned(), (row.0, 0))));
        on_it.sort_by_key(|(start, end)| (*start, -end));
        let mut open: Vec<i64> = Vec::new();
        for (start, end) in on_it {
            open.retain(|last| *last > start);
            assert!(
                open.iter().all(|last| end <= *last),
                "{row:?}: {start} to {end}"
            );
            open.push(end);
        }
    }
    let whole = |ends: &[Option<i64>; 2]| matches!(ends, [Some(from), Some(to)] if from <= to);
    assert!(arrows.values().all(whole), "{arrows:?}");
    events
}

fn of<'a>(events: &'a [Value], ph: &str, cat: &str) -> Vec<&'a Value> {
    let matching = events.iter().filter(|e| e["ph"] == ph && e["cat"] == cat);
    matching.collect()
}

#[test]
fn every_operation_stands_on_its_stream_with_an_arrow_from_its_launch() {
    let events = events(&training(157));
    let kernels = of(&events, "X", "kernel");
    assert_eq!(kernels.len(), 31);
    for (ph, cat, count) in [("X", "copy", 2), ("X", "launch", 33), ("f", "launch", 33)] {
        assert_eq!(of(&events, ph, cat).len(), count, "{ph} {cat}");
    }
    let first = kernels[0];
    assert_eq!(
        (&first["args"]["grid"], &first["tid"]),
        (&"40000x1x1".into(), &7.into())
    );
    // From the first launch, in microseconds: 1,000,000 - 900,000 + 300,000 ns.
    assert_eq!(
        (first["ts"].as_f64(), first["dur"].as_f64()),
        (Some(400.0), Some(5.0))
    );
    let named = events.iter().filter(|event| event["ph"] == "M");
    let names: Vec<&str> = named
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    for name in ["GPU 0: NVIDIA H200 (41)", "stream 7", "launches"] {
        assert!(names.contains(&name), "{names:?}");
    }
}

#[test]
fn what_overlaps_on_a_stream_has_rows_of_its_own() {
    let mut trace = training(157);
    for operation in &mut trace.recording.operations {
        operation.end_ns += 3_000_000;
    }
    let events = events(&trace);
    let kernels = of(&events, "X", "kernel").into_iter();
    let rows: BTreeSet<Option<u64>> = kernels.map(|event| event["tid"].as_u64()).collect();
    assert!(rows.len() > 1, "{rows:?}");
}

#[test]
fn ranges_nest_and_end_with_their_last_launch() {
    let mut writer = Writer::new();
    let operators = [
        "step/forward/aten::mm",
        "step/forward/aten::add",
        "step",
        "other",
    ];
    for (at, operator) in operators.into_iter().enumerate() {
        writer.kernel("k", 1, 1_000);
        let operation = writer.recording.operations.last_mut().unwrap();
        operation.operator = Some(operator.into());
        operation.launched_ns = Some(900_000 + 5_000 * at as i64);
    }
    let events = events(&trace(writer.recording));
    let ranges = events.iter().filter(|e| e["ph"] == "B" || e["ph"] == "E");
    let ranges = ranges.map(|e| {
        let text = |name: &str| e[name].as_str().unwrap();
        format!("{} {} {}", e["ts"], text("ph"), text("name"))
    });
    let expected = [
        "0.0 B step",
        "0.0 B forward",
        "0.0 B aten::mm",
        "3.0 E aten::mm",
        "5.0 B aten::add",
        "8.0 E aten::add",
        "8.0 E forward",
        "13.0 E step",
        "15.0 B other",
        "18.0 E other",
    ];
    assert_eq!(ranges.collect::<Vec<_>>(), expected);
}

#[test]
fn what_is_not_known_is_not_drawn() {
    let mut trace = training(1);
    let operations = &mut trace.recording.operations;
    operations[0].launched_ns = None;
    operations[1].launch_ns = None;
    operations[2].stream = None;
    operations[3].launched_ns = Some(operations[3].end_ns as i64);
    operations[4].process = 9;
    trace.recording.names[0] = "\u{1b}<script>\"\n".to_owned();
    let drawn = events(&trace);
    assert_eq!(of(&drawn, "f", "launch").len(), 30);
    assert_eq!(of(&drawn, "X", "launch").len(), 31);
    trace.recording = Default::default();
    assert!(events(&trace).is_empty());
}
