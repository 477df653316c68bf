use std::collections::BTreeMap;

use super::*;
use crate::structure::changes;
use crate::testing::around;
use regatta_core::machine::ActivitySummary;
use regatta_core::suite::structural::StructurePolicy;
use regatta_worker::units::Bytes;

fn counted(launches: &[&str], counts: &[(&str, u64)]) -> CaseRecord {
    let launches = launches.iter().map(|name| Launch {
        name: (*name).to_owned(),
        grid: [157, 1, 1],
        block: [128, 1, 1],
        registers: Some(128),
        local_bytes: Some(0),
        ..Launch::default()
    });
    let counts = counts.iter().map(|(name, n)| ((*name).to_owned(), *n));
    CaseRecord {
        structure: Some(Box::new(Structure {
            launches: launches.collect(),
            counts: counts.collect(),
            ..Structure::default()
        })),
        ..around(100.0)
    }
}

fn under(policy: &StructurePolicy, base: &CaseRecord, head: &CaseRecord) -> Vec<Uncounted> {
    vanished(&Pair {
        case: "fake/gpu:s64,d64",
        base,
        head,
        sms: Some(132),
        policy,
    })
}

fn names(base: &CaseRecord, head: &CaseRecord) -> Vec<String> {
    let found = under(&StructurePolicy::default(), base, head);
    found.into_iter().map(|one| one.name).collect()
}

fn told(base: &CaseRecord, head: &CaseRecord) -> String {
    let found = under(&StructurePolicy::default(), base, head);
    Uncounted::told(&found).unwrap_or_default()
}

#[test]
fn a_structure_that_is_gone_is_named_and_so_is_its_reason() {
    let base = counted(&["flash", "combine"], &[("copies", 0), ("module_loads", 0)]);
    let none = CaseRecord {
        structure: None,
        ..base.clone()
    };
    assert_eq!(
        told(&base, &none),
        "counted in the base and not now: launches (2), copies (0), module_loads (0): \
         its worker counts no structure"
    );
    let mut failed = none.clone();
    let reason = BTreeMap::from([("census".to_owned(), "CUPTI is taken".to_owned())]);
    failed.structure = Some(Box::new(Structure {
        uncounted: reason,
        ..Structure::default()
    }));
    assert!(told(&base, &failed).ends_with("module_loads (0): CUPTI is taken"));
    // Nothing was known, or it still is, or there is more of it.
    assert!(names(&none, &base).is_empty());
    assert!(names(&base, &base).is_empty());
    assert!(names(&counted(&[], &[("copies", 0)]), &base).is_empty());
}

#[test]
fn launches_that_are_gone_as_a_whole_are_no_change_to_none() {
    let base = counted(&["flash"], &[("copies", 0)]);
    let head = counted(&[], &[("copies", 0)]);
    assert_eq!(names(&base, &head), ["launches"]);
    let policy = StructurePolicy::default();
    let differences = |base, head| {
        changes(&Pair {
            case: "",
            base,
            head,
            sms: None,
            policy: &policy,
        })
    };
    assert_eq!(differences(&base, &head), Some(Vec::new()));
    // Nor is what the base did not count new in the head.
    assert_eq!(differences(&head, &base), Some(Vec::new()));
}

#[test]
fn a_single_count_has_its_own_reason() {
    let base = counted(&["flash"], &[("calls.plans", 0), ("copies", 0)]);
    let mut head = counted(&["flash"], &[("copies", 0)]);
    let structure = head.structure.as_mut().unwrap();
    let reason = "library.plans has no `build`".to_owned();
    structure.uncounted.insert("calls.plans".to_owned(), reason);
    assert_eq!(
        told(&base, &head),
        "counted in the base and not now: calls.plans (0): library.plans has no `build`"
    );
}

#[test]
fn what_is_no_structure_or_follows_from_what_is_loaded_may_go() {
    let base = counted(
        &["flash"],
        &[
            ("ns.plans", 812),
            ("calls_in_8.plans", 3),
            ("calls.triton_autotune", 0),
        ],
    );
    let mut head = counted(&["flash"], &[]);
    assert!(names(&base, &head).is_empty());
    // It is loaded, and could not be counted.
    let structure = head.structure.as_mut().unwrap();
    let uncounted = &mut structure.uncounted;
    uncounted.insert("calls.triton_autotune".to_owned(), "no `run`".to_owned());
    assert_eq!(names(&base, &head), ["calls.triton_autotune"]);
}

#[test]
fn what_is_ignored_may_go() {
    let base = counted(&["flash"], &[("allocations", 2), ("tasks", 4)]);
    let head = counted(&["flash"], &[]);
    let ignore = |kind| StructurePolicy {
        actions: [(kind, Action::Ignore)].into(),
        ..StructurePolicy::default()
    };
    let left = |kind| {
        let found = under(&ignore(kind), &base, &head);
        found.into_iter().map(|one| one.name).collect::<Vec<_>>()
    };
    assert_eq!(left(Kind::Memory), ["tasks"]);
    assert_eq!(left(Kind::Tasks), ["allocations"]);
}

#[test]
fn figures_of_a_launch_and_memory_go_as_counts_do() {
    let base = counted(&["flash", "direct_copy_kernel"], &[]);
    let mut head = base.clone();
    for launch in &mut head.structure.as_mut().unwrap().launches {
        launch.local_bytes = None;
    }
    assert_eq!(
        told(&base, &head),
        "counted in the base and not now: local memory"
    );
    let with_peak = CaseRecord {
        peak_bytes: Some(Bytes(1 << 30)),
        ..base.clone()
    };
    assert_eq!(names(&with_peak, &base), ["peak_bytes"]);
    // Structure alone was counted: nobody looked at memory.
    let untimed = CaseRecord {
        device_ns: Vec::new(),
        ..base
    };
    assert!(names(&with_peak, &untimed).is_empty());
}

/// Files from before these were counts have them in the activity.
#[test]
fn what_an_activity_tells_of_cuda_is_a_count() {
    let record = |counts: &[(&str, u64)], calls: &[(&str, u64)]| {
        let calls = calls.iter().map(|(name, n)| ((*name).to_owned(), *n));
        CaseRecord {
            activity: Some(ActivitySummary {
                calls: calls.collect(),
                ..ActivitySummary::default()
            }),
            ..counted(&["flash"], counts)
        }
    };
    let old = record(
        &[],
        &[("synchronisations", 0), ("allocations", 0), ("launches", 1)],
    );
    let new = record(
        &[
            ("synchronisations", 1),
            ("driver_allocations", 2),
            ("driver_frees", 2),
        ],
        &[],
    );
    assert!(names(&old, &new).is_empty());
    let policy = StructurePolicy::default();
    let found = changes(&Pair {
        case: "",
        base: &old,
        head: &new,
        sms: None,
        policy: &policy,
    });
    let found: Vec<String> = found.unwrap().iter().map(ToString::to_string).collect();
    // Frees were not told of the base: no change from 0.
    let expected = [
        "waits for the device in each call: 0 → 1",
        "cudaMalloc a call 0 → 2",
    ];
    assert_eq!(found, expected);
    assert_eq!(
        names(&old, &counted(&["flash"], &[])),
        ["synchronisations", "driver_allocations"]
    );
}
