use std::collections::BTreeMap;

use super::*;
use crate::judgement::StructuralChange;
use crate::structure::{changes, vanished as all_vanished};
use crate::testing::around;
use regatta_core::machine::{CountedCall, CountedKernel};
use regatta_core::record::side::CaseRecord;
use regatta_core::suite::structural::{StructurePolicy, StructureRule};

/// Countings of a call, each a list of kernels and the instructions that they executed.
fn counted(calls: &[&[(&str, f64)]]) -> CaseRecord {
    let kernel = |&(name, executed): &(&str, f64)| CountedKernel {
        name: name.to_owned(),
        counts: BTreeMap::from([
            (METRICS[0].name.to_owned(), executed),
            (METRICS[2].name.to_owned(), executed / 100.0),
        ]),
    };
    let calls: Vec<CountedCall> = calls
        .iter()
        .map(|kernels| CountedCall {
            kernels: kernels.iter().map(kernel).collect(),
        })
        .collect();
    // In two processes, each of which counts the same calls.
    let counters = Counters::of(&calls);
    let twice: Vec<Counters> = counters.into_iter().cycle().take(2).collect();
    CaseRecord {
        counters: Counters::merged(&twice).map(Box::new),
        ..not_counted()
    }
}

fn open(base: &CaseRecord, head: &CaseRecord) -> Option<String> {
    let policy = StructurePolicy::default();
    Uncounted::told(&all_vanished(&pair(base, head, &policy)))
}

fn not_counted() -> CaseRecord {
    CaseRecord {
        structure: Some(Box::new(Structure {
            counts: [("copies".to_owned(), 0)].into(),
            ..Structure::default()
        })),
        ..around(100.0)
    }
}

fn pair<'a>(base: &'a CaseRecord, head: &'a CaseRecord, policy: &'a StructurePolicy) -> Pair<'a> {
    Pair {
        case: "torch/flash:s64,d64",
        base,
        head,
        sms: Some(132),
        policy,
    }
}

fn told(base: &CaseRecord, head: &CaseRecord) -> Vec<String> {
    let policy = StructurePolicy::default();
    let text = |change: &StructuralChange| format!("{:?} {change}", change.action);
    let found = changes(&pair(base, head, &policy)).unwrap();
    found.iter().map(text).collect()
}

#[test]
fn one_instruction_more_of_an_exact_count_fails_and_one_less_does_not() {
    let base = counted(&[&[("flash", 1000.0)], &[("flash", 1000.0)]]);
    let more = counted(&[&[("flash", 1010.0)], &[("flash", 1010.0)]]);
    assert_eq!(
        told(&base, &more),
        ["Fail instructions 1000 → 1010 (+1.00 %) of flash"]
    );
    assert_eq!(
        told(&more, &base),
        ["Ignore instructions 1010 → 1000 (-0.99 %) of flash"]
    );
    assert!(told(&base, &base).is_empty());
}

#[test]
fn what_countings_of_one_side_differ_by_is_no_change() {
    let noisy = |n: f64| counted(&[&[("flash", n)], &[("flash", n + 5.0)]]);
    assert!(told(&noisy(1000.0), &noisy(1008.0)).is_empty());
    let exact = counted(&[&[("flash", 1009.0)]]);
    assert!(told(&noisy(1000.0), &exact).is_empty());
    assert_eq!(
        told(&noisy(1000.0), &noisy(1090.0)),
        ["Fail instructions 1000 to 1005 → 1090 to 1095 (+8.46 %) of flash"]
    );
}

#[test]
fn where_other_kernels_run_the_whole_call_is_compared() {
    let base = counted(&[&[("flash", 1000.0), ("add", 50.0)]]);
    let head = counted(&[&[("flash_v2", 1010.0), ("add", 50.0)]]);
    assert_eq!(
        told(&base, &head),
        ["Fail instructions 1050 → 1060 (+0.95 %) of the whole call"]
    );
}

#[test]
fn another_compiler_may_be_let_pass_by_the_kernels_name() {
    let base = counted(&[&[("flash", 1000.0)]]);
    let head = counted(&[&[("flash", 1010.0)]]);
    let policy = StructurePolicy {
        rules: vec![StructureRule {
            name: Some("fla*".to_owned()),
            case: None,
            kind: Some(Kind::Instructions),
            action: Action::Ignore,
        }],
        ..StructurePolicy::default()
    };
    let found = changes(&pair(&base, &head, &policy)).unwrap();
    assert!(found.iter().all(|change| change.action == Action::Ignore));
    let none = not_counted();
    assert!(all_vanished(&pair(&base, &none, &policy)).is_empty());
}

#[test]
fn counts_that_are_gone_are_named_and_new_ones_are_nothing_against_it() {
    let policy = StructurePolicy::default();
    let base = counted(&[&[("flash", 1000.0)]]);
    let none = not_counted();
    let gone = Uncounted::told(&all_vanished(&pair(&base, &none, &policy))).unwrap();
    assert!(
        gone.starts_with("counted in the base and not now: instructions (1000): ask for them"),
        "{gone}"
    );
    let mut refused = not_counted();
    let mut structure = refused.structure.as_deref().unwrap().clone();
    let why = "performance counters need root";
    structure
        .uncounted
        .insert(INSTRUCTIONS.to_owned(), why.to_owned());
    refused.structure = Some(Box::new(structure));
    let gone = Uncounted::told(&all_vanished(&pair(&base, &refused, &policy))).unwrap();
    assert!(gone.ends_with(why), "{gone}");
    assert!(all_vanished(&pair(&none, &base, &policy)).is_empty());
    // A metric of a kernel that is gone is as unknown as all of them.
    let mut part = base.clone();
    let kernels = &mut part.counters.as_mut().unwrap().kernels;
    kernels
        .get_mut("flash")
        .unwrap()
        .instructions
        .remove(METRICS[2].name);
    assert_eq!(all_vanished(&pair(&base, &part, &policy)).len(), 1);
}

#[test]
fn countings_that_differ_decide_nothing_and_pass_nothing() {
    let exact = counted(&[&[("flash", 1000.0)]]);
    // One reading of several is what it was, the others are twice that.
    let mostly = counted(&[&[("flash", 1000.0)], &[("flash", 2000.0)]]);
    assert!(told(&exact, &mostly).is_empty());
    let said = open(&exact, &mostly).unwrap();
    assert!(
        said.starts_with("instructions of flash 1000 → 1000 to 2000, undecided: countings"),
        "{said}"
    );
    // A base that was read as 0 once is none to be held against.
    let torn = counted(&[&[("flash", 1000.0), ("add", 5.0)], &[("add", 5.0)]]);
    let twice = counted(&[&[("flash", 2000.0), ("add", 5.0)]]);
    assert!(open(&torn, &twice).unwrap().contains("0 to 1000 → 2000"));
    // Within what the base itself differs by, it is the same.
    let noisy = |n: f64| counted(&[&[("flash", n)], &[("flash", n + 5.0)]]);
    assert_eq!(open(&noisy(1000.0), &noisy(1003.0)), None);
    assert_eq!(open(&exact, &exact), None);
}

#[test]
fn what_one_process_counted_is_exact_in_it_alone() {
    let alone = |n: f64| {
        let mut record = counted(&[&[("flash", n)]]);
        record.counters.as_mut().unwrap().processes = 1;
        record
    };
    assert!(told(&alone(100_000.0), &alone(100_070.0)).is_empty());
    let said = open(&alone(100_000.0), &alone(100_070.0)).unwrap();
    assert!(said.contains("count in several processes"), "{said}");
    assert_eq!(told(&alone(100_000.0), &alone(101_000.0)).len(), 2);
    assert_eq!(
        told(
            &counted(&[&[("flash", 100_000.0)]]),
            &counted(&[&[("flash", 100_070.0)]])
        )
        .len(),
        1
    );
}
