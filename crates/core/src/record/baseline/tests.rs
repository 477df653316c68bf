//! Of baselines in their folder, and of sessions that are added to one.

use super::*;
use crate::record::choices::Tuned;
use crate::record::testing::{around, side};
use regatta_worker::attention::ParamValue;

#[test]
fn a_machines_name_stays_in_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path().join("baselines"));
    let mut run = side("run", vec![("cpu/flash:s64,d64", around(1.0))]);
    let long = "x".repeat(400);
    for name in ["", "/tmp/elsewhere", "../elsewhere", ".hidden", "-f", &long] {
        run.header.machine.name = name.to_owned();
        let error = store.save("s", &run, Timestamp::now(), false).unwrap_err();
        assert!(matches!(error, RecordError::Machine(_)), "{error}");
    }
    assert!(
        !folder.path().join("baselines").exists(),
        "nothing was written"
    );
    run.header.machine.name = "h200-132sm+xeon-2c".to_owned();
    let path = store.save("s", &run, Timestamp::now(), false).unwrap();
    assert_eq!(read(&path).unwrap().cases, run.cases);
}

#[test]
fn sessions_keep_what_a_tuner_chose_in_them() {
    let chose = |block: i64| {
        let tuned = Tuned {
            value: ParamValue::Int(block),
            pinnable: true,
        };
        let mut record = around(100.0);
        for invocation in 0..5 {
            let tuned = [("BLOCK_M".to_owned(), tuned.clone())].into();
            choices::add(&mut record.choices, invocation, &tuned);
        }
        side("run", vec![("mine/a:s64,d64", record)])
    };
    let of = |side: &Side| side.cases.values().next().unwrap().clone();
    // A session that was saved before choices were kept is one of which nothing is known.
    let mut old = chose(32);
    let unknown = old.cases.values_mut().next().unwrap();
    unknown.earlier = vec![unknown.device_ns.clone()];
    let mut joined = joined(&chose(64), &old);
    let record = of(&joined);
    assert_eq!(record.earlier_choices[0], []);
    assert_eq!(record.earlier_choices[1], of(&old).choices);
    for block in 0..10 {
        joined = super::joined(&chose(block), &joined);
    }
    let record = of(&joined);
    assert_eq!(record.earlier_choices.len(), SESSIONS - 1);
    assert_eq!(record.earlier_choices[6], of(&chose(8)).choices);
    // Where no tuner is known of, nothing is written.
    let plain = side("run", vec![("mine/a:s64,d64", around(1.0))]);
    let record = of(&super::joined(&plain, &plain));
    assert_eq!((record.earlier.len(), record.earlier_choices.len()), (1, 0));
}

#[test]
fn two_lines_of_one_case_are_neither() {
    let folder = tempfile::tempdir().unwrap();
    let run = side("run", vec![("cpu/flash:s64,d64", around(1.0))]);
    let store = Store::new(folder.path());
    let path = store.save("s", &run, Timestamp::now(), false).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let line = text.lines().last().unwrap();
    fs::write(&path, format!("{text}{line}\n")).unwrap();
    let read = read(&path).unwrap();
    assert_eq!(
        read.damage,
        ["line 3: cpu/flash:s64,d64 stands there twice"]
    );
    let record = read.cases.values().next().unwrap();
    assert!(matches!(record.status, Status::Missing { .. }));
}
