//! Bisection with a comparer that measures nothing.

use std::collections::BTreeMap;

use super::*;
use crate::testing::case_reading;

/// Times by version; one without does not build. What merges brought, by merge.
#[derive(Default)]
struct Fake {
    times: BTreeMap<String, f64>,
    brought: BTreeMap<String, Vec<Version>>,
    told: Vec<String>,
    kept: Vec<Tried>,
}

fn version(name: &str) -> Version {
    Version {
        spec: format!("git:{name}"),
        name: name.to_owned(),
        subject: None,
        author: None,
        date: None,
        parents: Vec::new(),
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

impl Comparer for Fake {
    type Stop = String;

    fn compare(&mut self, base: &Version, head: &Version) -> Result<TriedOutcome, String> {
        if head.name == "full" {
            return Err("no space left".to_owned());
        }
        let unusable = |side, version: &Version| TriedOutcome::Unusable {
            side,
            reason: format!("{} does not build", version.name),
        };
        let time = |version: &Version| self.times.get(&version.name).copied();
        Ok(match (time(base), time(head)) {
            (None, _) => unusable(TurnSide::Base, base),
            (_, None) => unusable(TurnSide::Head, head),
            (Some(before), Some(after)) => TriedOutcome::Measured {
                cases: vec![
                    judged("calm", 1.0),
                    judged("case", after / before),
                    judged("half", (after / before).sqrt()),
                ],
            },
        })
    }

    fn brought(&mut self, _: &Version, merge: &Version) -> Result<Vec<Vec<Version>>, String> {
        Ok(self.brought.get(&merge.name).cloned().into_iter().collect())
    }

    fn keep(&mut self, tried: &Tried, step: &BisectStep) -> Result<(), String> {
        self.kept.push(tried.clone());
        let case = step.case.map_or("", |case| &case.0);
        let (number, about, head) = (step.number, step.about, &step.head.name);
        self.told
            .push(format!("{number} of {about}: {head} {case}"));
        Ok(())
    }
}

fn fake(times: &[(&str, f64)]) -> (Vec<Version>, Fake) {
    let row = times.iter().map(|(name, _)| version(name)).collect();
    let runs = times.iter().filter(|(_, time)| *time > 0.0);
    let times = runs
        .map(|(name, time)| ((*name).to_owned(), *time))
        .collect();
    let fake = Fake {
        times,
        ..Fake::default()
    };
    (row, fake)
}

fn ended(row: &[Version], edge: &mut Fake) -> Ending {
    bisect(row, Towards::Bad, &mut Vec::new(), edge).unwrap()
}

fn found(ending: Ending) -> FoundStep {
    match ending {
        Ending::Found(found) => *found,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_case_with_the_largest_change_is_followed_to_its_step() {
    let (row, mut edge) = fake(&[("a", 1.0), ("b", 1.0), ("c", 0.0), ("d", 1.5), ("e", 1.5)]);
    let mut tried = Vec::new();
    let found = found(bisect(&row, Towards::Bad, &mut tried, &mut edge).unwrap());
    assert_eq!((&found.before.name[..], &found.after.name[..]), ("b", "d"));
    let suspects: Vec<&str> = found.suspects.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(suspects, ["c", "d"]);
    assert_eq!(found.case.case.0, "case");
    assert_eq!(found.others.len(), 1, "`half` moved there too");
    let skipped = skipped(&row, &tried, Some(&found.case.case));
    assert_eq!(skipped.len(), 1);
    assert_eq!(skipped[0].1, "c does not build");
    let told = "1 of 5: e case, 2 of 5: c case, 3 of 6: d case, 4 of 6: b case, 5 of 5: d case";
    assert_eq!(edge.told.join(", "), told);
}

#[test]
fn what_was_tried_is_not_tried_again() {
    let (row, mut edge) = fake(&[("a", 1.0), ("b", 1.0), ("c", 1.5), ("d", 1.5), ("e", 1.5)]);
    let first = ended(&row, &mut edge);
    let kept = std::mem::take(&mut edge.kept);
    for known in 0..=kept.len() {
        let mut tried = kept[..known].to_vec();
        let again = bisect(&row, Towards::Bad, &mut tried, &mut edge).unwrap();
        assert_eq!(again, first);
        assert_eq!(tried, kept);
        assert_eq!(std::mem::take(&mut edge.kept), kept[known..]);
    }
}

#[test]
fn an_end_that_does_not_run_is_named_and_a_stop_stops() {
    for (times, end) in [
        ([("a", 0.0), ("b", 1.0)], "a"),
        ([("a", 1.0), ("b", 0.0)], "b"),
    ] {
        let (row, mut edge) = fake(&times);
        let Ending::NoEnd { end: which, reason } = ended(&row, &mut edge) else {
            panic!("{times:?}");
        };
        assert_eq!(
            (&*which.name, reason),
            (end, format!("{end} does not build"))
        );
    }
    let (row, mut edge) = fake(&[("a", 1.0), ("full", 1.0)]);
    let stopped = bisect(&row, Towards::Bad, &mut Vec::new(), &mut edge);
    assert_eq!(stopped.unwrap_err(), "no space left");
}

#[test]
fn a_merge_is_searched_from_where_its_branch_began() {
    let (mut row, mut edge) = fake(&[("a", 1.0), ("b", 1.0), ("m", 1.3), ("n", 1.3)]);
    row[2].parents = vec!["b".to_owned(), "y".to_owned()];
    for (name, time) in [("x", 1.0), ("y", 1.3)] {
        edge.times.insert(name.to_owned(), time);
    }
    let branch = vec![version("a"), version("x"), version("y")];
    edge.brought.insert("m".to_owned(), branch);
    let inner = found(ended(&row, &mut edge));
    assert_eq!((&inner.before.name[..], &inner.after.name[..]), ("x", "y"));
    assert_eq!(inner.merged_by.unwrap().name, "m");

    // What came with it is as fast as it was: it is merging that made it slow.
    edge.times.insert("y".to_owned(), 1.0);
    let outer = found(ended(&row, &mut edge));
    assert_eq!(outer.after.name, "m");
    assert!(outer.by_merging && outer.merged_by.is_none());

    edge.brought.clear();
    let outer = found(ended(&row, &mut edge));
    assert!(!outer.by_merging, "it was not looked into");
}
