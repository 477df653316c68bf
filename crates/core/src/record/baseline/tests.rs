//! Of baselines in their folder.

use super::*;
use crate::record::testing::{around, side};

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
