//! Bisection of a row whose times are known.

use std::collections::BTreeMap;

use super::*;
use crate::testing::case_reading;

fn version(name: &str) -> Version {
    Version {
        spec: format!("pypi:a=={name}"),
        name: name.to_owned(),
    }
}

fn judged(case: &str, ratio: f64) -> CaseReading {
    let word = match ratio {
        _ if ratio > 1.02 => Word::Regressed,
        _ if ratio < 0.98 => Word::Improved,
        _ => Word::Same,
    };
    case_reading(case, Some((ratio, 1.001, word)))
}

/// Versions with their times; one of time 0 does not install.
struct Planted {
    row: Vec<Version>,
    times: BTreeMap<String, f64>,
}

impl Planted {
    fn new(times: &[(&str, f64)]) -> Planted {
        Planted {
            row: times.iter().map(|(name, _)| version(name)).collect(),
            times: times
                .iter()
                .map(|&(name, time)| (version(name).spec, time))
                .collect(),
        }
    }

    fn compare(&self, base: &Version, head: &Version) -> TriedOutcome {
        let unusable = |side, version: &Version| TriedOutcome::Unusable {
            side,
            reason: format!("{} does not install", version.name),
        };
        match (self.times[&base.spec], self.times[&head.spec]) {
            (0.0, _) => unusable(TurnSide::Base, base),
            (_, 0.0) => unusable(TurnSide::Head, head),
            (before, after) => TriedOutcome::Measured {
                cases: vec![
                    judged("calm", 1.0),
                    judged("case", after / before),
                    judged("half", (after / before).sqrt()),
                ],
            },
        }
    }

    /// Searches on from what was tried; what it tries is added, and told.
    fn search(&self, tried: &mut Vec<Tried>) -> (Ending, Vec<String>) {
        let mut told = Vec::new();
        loop {
            let step = match next(&self.row, Towards::Bad, tried) {
                BisectNext::Compare(step) => step,
                BisectNext::Ended(ending) => return (ending, told),
            };
            let (base, head) = (&self.row[step.low], &self.row[step.high]);
            let outcome = self.compare(base, head);
            if let Some(ending) = unusable_end(&self.row, &step, &outcome) {
                return (ending, told);
            }
            let case = step.case.map_or_else(String::new, |case| case.0);
            told.push(format!("{}, {} left: {case}", head.name, step.left));
            tried.push(Tried {
                base: base.spec.clone(),
                head: head.spec.clone(),
                outcome,
            });
        }
    }
}

#[test]
fn the_case_with_the_largest_change_is_followed_to_its_step() {
    let planted = Planted::new(&[("1", 1.0), ("2", 1.0), ("3", 0.0), ("4", 1.5), ("5", 1.5)]);
    let mut tried = Vec::new();
    let (Ending::Found(found), told) = planted.search(&mut tried) else {
        panic!("{tried:?}")
    };
    assert_eq!((&found.before.name[..], &found.after.name[..]), ("2", "4"));
    let suspects: Vec<&str> = found.suspects.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(suspects, ["3", "4"]);
    assert_eq!(found.case.case.0, "case");
    assert_eq!(found.others.len(), 1, "`half` moved there too");
    let skipped = skipped(&planted.row, &tried, Some(&found.case.case));
    assert_eq!(skipped.len(), 1);
    assert_eq!(skipped[0].1, "3 does not install");
    let all = [
        "5, 5 left: ",
        "3, 4 left: case",
        "4, 4 left: case",
        "2, 3 left: case",
        "4, 1 left: case",
    ];
    assert_eq!(told, all);
}

#[test]
fn what_was_tried_is_not_tried_again() {
    let planted = Planted::new(&[("1", 1.0), ("2", 1.0), ("3", 1.5), ("4", 1.5), ("5", 1.5)]);
    let mut all = Vec::new();
    let (ending, told) = planted.search(&mut all);
    for known in 0..=all.len() {
        let mut tried = all[..known].to_vec();
        let (again, rest) = planted.search(&mut tried);
        assert_eq!((again, tried), (ending.clone(), all.clone()));
        assert_eq!(rest, told[known..]);
    }
}

#[test]
fn an_end_that_does_not_install_is_named() {
    for (times, end) in [
        ([("1", 0.0), ("2", 1.0)], "1"),
        ([("1", 1.0), ("2", 0.0)], "2"),
    ] {
        let (ending, _) = Planted::new(&times).search(&mut Vec::new());
        let reason = format!("{end} does not install");
        let end = version(end);
        assert_eq!(ending, Ending::NoEnd { end, reason });
    }
}
