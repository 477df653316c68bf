//! Of the quick reader.

use super::*;
use crate::record::line;
use crate::record::spent::{Phase, Spent, Stretch};
use crate::record::types::{Again, How, Start, Tuned};
use crate::worker::protocol::Taken;

/// Every member is named, so that a new one is not forgotten here.
fn entry() -> Entry {
    let mut phases = Spent::default();
    phases.add(Phase::Measuring, Nanoseconds(5.5));
    let measurement = Measurement {
        device_ns: vec![Nanoseconds(5120.25), Nanoseconds(1e16)],
        host_ns: vec![Nanoseconds(9.0); 2],
        clock_mhz: vec![1980.0; 2],
        first_call_ns: Nanoseconds(1e6),
        several: true,
        peak_bytes: Some(Bytes(1 << 40)),
        state: Some(Box::new(DeviceState {
            power_w: Some(98.5),
            throttle_reasons: vec!["software power cap".to_owned()],
            ..DeviceState::default()
        })),
        synchronised: true,
        effective: [("access".to_owned(), ParamValue::from("views"))].into(),
        tuned: [(
            "access".to_owned(),
            Tuned {
                value: ParamValue::from("views"),
                pinnable: true,
            },
        )]
        .into(),
        errors: [("dk".to_owned(), 1e-7), ("dq".to_owned(), 0.0)].into(),
        structure: Some(Structure::default()),
        activity: Some(Box::default()),
        host: Some(Box::default()),
        division: Some(Box::default()),
        counters: Some(Box::new(Counters {
            calls: 1,
            processes: 1,
            ..Counters::default()
        })),
        input_sets: 3,
        input_sets_reason: Some("no room".to_owned()),
        errors_after: [("dk".to_owned(), 2e-5)].into(),
        cpu_ns: vec![Nanoseconds(9.5); 2],
        preempted: vec![0, 3],
        first_call_parts: Some([("compiling".to_owned(), Taken::default())].into()),
        first_call_disturbed: true,
        ground: Some(Box::default()),
        disturbed: Vec::new(),
        again: Some(Again {
            tries: 2,
            by: Vec::new(),
        }),
    };
    Entry {
        case: CaseId("cpu/flash:s64,d64".to_owned()),
        invocation: 3,
        outcome: Outcome::Measured(measurement),
        spent: Some(Stretch {
            from_ns: Nanoseconds(0.0),
            phases,
        }),
        start: Some(Start {
            how: How::Forked,
            because: None,
        }),
    }
}

fn text(entry: &Entry) -> String {
    let text = serde_json::to_string(entry).unwrap();
    text.replacen('{', "{\"kind\":\"entry\",", 1)
}

#[test]
fn what_this_version_writes_is_read_quickly_and_in_full() {
    let mut known = Known::default();
    let mut quick = Quick::new(&mut known, true);
    let full = entry();
    // What the one before had does not stay.
    let mut less = entry();
    let Outcome::Measured(plain) = &mut less.outcome else {
        panic!("it was measured");
    };
    *plain = Measurement {
        first_call_ns: Nanoseconds(1.0),
        ..Measurement::default()
    };
    for mut entry in [full.clone(), less.clone(), full] {
        let text = text(&entry);
        quick.read(text.strip_suffix('}').unwrap()).unwrap();
        assert_eq!(quick.beside, Beside::of(&entry));
        if let Outcome::Measured(measurement) = &mut entry.outcome {
            measurement.effective.clear();
            (measurement.structure, measurement.activity) = (None, None);
            (measurement.division, measurement.counters) = (None, None);
            measurement.host = None;
        }
        assert_eq!(quick.entry, entry);
    }
}

/// Changed anywhere, a line is read as the JSON library reads it, or left to it.
#[test]
fn what_is_written_otherwise_is_left_to_the_json_library() {
    let text = text(&entry());
    let mut known = Known::default();
    let mut quick = Quick::new(&mut known, false);
    let mut read = 0;
    for at in 0..text.len() - 1 {
        for put in ["", " ", "-", "0", "\"", "e", "\\", ",", "{"] {
            let changed = format!("{}{put}{}", &text[..at], &text[at + 1..]);
            let body = changed.strip_suffix('}').unwrap();
            if quick.read(body).is_none() {
                continue;
            }
            read += 1;
            let whole: Entry = serde_json::from_str(&changed).expect(&changed);
            assert_eq!(quick.entry.case, whole.case, "{changed}");
            assert_eq!(quick.entry.invocation, whole.invocation);
            assert_eq!(quick.beside, Beside::of(&whole), "{changed}");
            assert_eq!(
                quick.entry.objection().is_some(),
                whole.objection().is_some()
            );
        }
    }
    assert!(read > 100, "{read}");
    assert!(line::body(&text).is_err(), "it has no checksum");
}
