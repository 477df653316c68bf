//! Bisection of rows whose times are known.

use super::*;
use crate::versions::{Pin, Spec};
use serde_json::json;

fn version(name: &str) -> Version {
    let (package, version) = ("a".to_owned(), name.to_owned());
    Version {
        spec: Spec::Release(vec![Pin { package, version }]),
        name: name.to_owned(),
    }
}

fn judged(case: &str, ratio: f64) -> CaseReading {
    let word = match ratio {
        _ if ratio > 1.02 => Word::Regressed,
        _ if ratio < 0.98 => Word::Improved,
        _ => Word::Same,
    };
    CaseReading {
        case: CaseId(case.into()),
        metric: Some(device_time(ratio, 1.001, word)),
        cpu_time: None,
        cause: None,
        reason: None,
    }
}

/// A search among versions with these times. A version of time 0 does not install. Also returns the
/// versions that were tried.
fn searched(times: &[(&str, f64)]) -> (Vec<Tried>, Ending, Vec<String>) {
    let row: Vec<Version> = times.iter().map(|(name, _)| version(name)).collect();
    let mut compare = |low: usize, high: usize| -> Result<Tried, ()> {
        let (before, after) = (times[low].1, times[high].1);
        let unusable = |side, at: usize| Some((side, format!("{} does not install", times[at].0)));
        let cases = || {
            [
                ("calm", 1.0),
                ("case", after / before),
                ("half", (after / before).sqrt()),
            ]
            .map(|(case, ratio)| judged(case, ratio))
        };
        Ok(Tried {
            low,
            high,
            cases: match before * after {
                0.0 => Vec::new(),
                _ => cases().into(),
            },
            moved: Vec::new(),
            unusable: match (before, after) {
                (0.0, _) => unusable(PairSide::Base, low),
                (_, 0.0) => unusable(PairSide::Head, high),
                _ => None,
            },
        })
    };
    let lines = std::cell::RefCell::new(Vec::new());
    let tell = |tried: &Tried, case: Option<&CaseId>, more: usize, _| {
        let case = case.map_or("", |case| &case.0);
        let name = times[tried.high].0;
        lines
            .borrow_mut()
            .push(format!("{name}, {more} more: {case}"));
    };
    let metric = Metric::Device;
    let searched = search(&row, Towards::Bad, metric, &mut compare, &tell).unwrap();
    (searched.tried, searched.ending, lines.into_inner())
}

#[test]
fn the_case_with_the_largest_change_is_followed_to_its_step() {
    let times = [("1", 1.0), ("2", 1.0), ("3", 0.0), ("4", 1.5), ("5", 1.5)];
    let (tried, Ending::Found(found), reported) = searched(&times) else {
        panic!("no step is found")
    };
    assert_eq!((&found.before.name[..], &found.after.name[..]), ("2", "4"));
    let suspects: Vec<&str> = found.suspects.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(suspects, ["3", "4"]);
    assert_eq!(*found.case.case.0, *"case");
    assert_eq!(found.others.len(), 1, "`half` moved there too");
    let skipped = skipped(&tried, Some(&found.case.case));
    assert_eq!(skipped, [(2, "3 does not install".to_owned())]);
    let all = [
        "5, 4 more: ",
        "3, 3 more: case",
        "4, 3 more: case",
        "2, 2 more: case",
        "4, 0 more: case",
    ];
    assert_eq!(reported, all);
}

#[test]
fn an_end_that_does_not_install_is_named() {
    for (times, end) in [
        ([("1", 0.0), ("2", 1.0)], "1"),
        ([("1", 1.0), ("2", 0.0)], "2"),
    ] {
        let (_, ending, _) = searched(&times);
        let reason = format!("{end} does not install");
        let end = version(end);
        assert_eq!(ending, Ending::NoEnd { end, reason });
    }
}

/// A reading whose interval extends by the factor `width` on both sides.
fn device_time(ratio: f64, width: f64, word: Word) -> MetricRow {
    let row = json!({
        "metric": "device", "word": word, "base": 1e3, "head": 1e3 * ratio,
        "ratio": ratio, "low": ratio / width, "high": ratio * width, "threshold": 0.01,
        "invocations": [5, 5], "paired": true,
    });
    serde_json::from_value(row).unwrap()
}

/// A search beside load, which inflates the wall time and leaves it inconclusive.
fn beside_load(cpu: impl Fn(f64) -> MetricRow) -> Searched {
    let times = [1.0, 1.0, 2.4, 2.4];
    let row: Vec<Version> = ["1", "2", "3", "4"].map(version).into();
    let mut compare = |low: usize, high: usize| -> Result<Tried, ()> {
        let ratio = times[high] / times[low];
        let case = CaseReading {
            metric: Some(device_time(5.0 * ratio, 8.0, Word::Inconclusive)),
            cpu_time: Some(Box::new(cpu(ratio))),
            ..judged("case", ratio)
        };
        Ok(Tried {
            low,
            high,
            cases: vec![case],
            ..Tried::default()
        })
    };
    let tell = |_: &Tried, _: Option<&CaseId>, _, _| ();
    search(&row, Towards::Bad, Metric::Device, &mut compare, &tell).unwrap()
}

#[test]
fn cpu_time_decides_where_load_hides_the_wall_time() {
    let cpu = |ratio| judged("case", ratio).metric.unwrap();
    let searched = beside_load(cpu);
    assert_eq!(searched.metric, Metric::CpuTime);
    let Ending::Found(found) = &searched.ending else {
        panic!("{:?}", searched.ending)
    };
    assert_eq!((&found.before.name[..], &found.after.name[..]), ("2", "3"));
    // A wait takes no CPU time, so CPU time does not show it.
    let searched = beside_load(|_| judged("case", 1.0).metric.unwrap());
    assert_eq!(searched.metric, Metric::Device);
    assert!(matches!(searched.ending, Ending::NoDifference { .. }));
}
