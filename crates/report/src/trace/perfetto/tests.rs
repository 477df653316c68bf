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
    for event in &events {
        let ph = event["ph"].as_str().unwrap();
        assert!("XMsfCi".contains(ph), "{event}");
        assert!(!event["name"].as_str().unwrap().is_empty(), "{event}");
        assert!(
            event["tid"].as_u64().unwrap() <= u64::from(u32::MAX),
            "{event}"
        );
        let row = (
            event["pid"].as_u64().unwrap(),
            event["tid"].as_u64().unwrap(),
        );
        let at = |name: &str| (event[name].as_f64().unwrap() * 1e3).round() as i64;
        let start = at("ts");
        assert!(start >= 0, "{event}");
        match ph {
            "X" => rows
                .entry(row)
                .or_default()
                .push((start, start + at("dur"))),
            "M" => assert!(named.insert((event["name"].to_string(), row)), "{event}"),
            "s" | "f" => {
                let ends = arrows.entry(event["id"].as_u64().unwrap()).or_default();
                let end = &mut ends[usize::from(ph == "f")];
                assert_eq!(end.replace(start), None, "{event}");
            }
            _ => {}
        }
    }
    for (row, mut on_it) in rows {
        assert!(
            named.contains(&("\"thread_name\"".to_owned(), row)),
            "{row:?}"
        );
        assert!(named.contains(&("\"process_name\"".to_owned(), (row.0, 0))));
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
    for (id, ends) in arrows {
        let [Some(from), Some(to)] = ends else {
            panic!("arrow {id} has one end");
        };
        assert!(from <= to, "arrow {id}");
    }
    events
}

fn of<'a>(events: &'a [Value], ph: &str, cat: &str) -> Vec<&'a Value> {
    let found = events.iter().filter(|e| e["ph"] == ph && e["cat"] == cat);
    found.collect()
}

#[test]
fn every_operation_stands_on_its_stream_with_an_arrow_from_its_launch() {
    let trace = training(157);
    let events = events(&trace);
    let kernels = of(&events, "X", "kernel");
    assert_eq!(kernels.len(), 31);
    assert_eq!(of(&events, "X", "copy").len(), 2);
    assert_eq!(of(&events, "X", "launch").len(), 33);
    assert_eq!(of(&events, "f", "launch").len(), 33);
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
    let names: Vec<&str> = events
        .iter()
        .filter(|event| event["ph"] == "M")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"GPU 0: NVIDIA H200 (41)"), "{names:?}");
    assert!(
        names.contains(&"stream 7") && names.contains(&"launches"),
        "{names:?}"
    );
    assert_eq!(events.iter().filter(|event| event["ph"] == "C").count(), 10);
}

#[test]
fn what_overlaps_on_a_stream_has_rows_of_its_own() {
    let mut trace = training(157);
    for operation in &mut trace.recording.operations {
        operation.end_ns += 3_000_000;
    }
    let events = events(&trace);
    let rows: BTreeSet<u64> = of(&events, "X", "kernel")
        .iter()
        .map(|event| event["tid"].as_u64().unwrap())
        .collect();
    assert!(rows.len() > 1, "{rows:?}");
}

#[test]
fn ranges_nest_and_end_with_their_last_launch() {
    let mut writer = Writer::new();
    for (at, operator) in [
        "step/forward/aten::mm",
        "step/forward/aten::add",
        "step",
        "other",
    ]
    .into_iter()
    .enumerate()
    {
        writer.kernel("k", 1, 1_000);
        let operation = writer.recording.operations.last_mut().unwrap();
        operation.operator = Some(operator.into());
        operation.launched_ns = Some(900_000 + 5_000 * at as i64);
    }
    let events = events(&trace(writer.recording));
    let ranges: Vec<(&str, f64, f64)> = of(&events, "X", "range")
        .into_iter()
        .map(|e| {
            let number = |name: &str| e[name].as_f64().unwrap();
            (e["name"].as_str().unwrap(), number("ts"), number("dur"))
        })
        .collect();
    let expected = [
        ("aten::mm", 0.0, 3.0),
        ("aten::add", 5.0, 3.0),
        ("forward", 0.0, 8.0),
        ("step", 0.0, 13.0),
        ("other", 15.0, 3.0),
    ];
    assert_eq!(ranges, expected);
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
    let events = events(&trace);
    assert_eq!(of(&events, "f", "launch").len(), 30);
    assert_eq!(
        of(&events, "i", "launch").len(),
        1,
        "a launch without a length"
    );
    trace.recording = Default::default();
    assert!(super::tests::events(&trace).is_empty());
}
