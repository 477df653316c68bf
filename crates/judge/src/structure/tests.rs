//! Differences between two structures.

use std::collections::BTreeMap;

use super::*;
use crate::judgement::Uncounted;
use crate::testing::{around, written};
use regatta_core::machine::{
    ActivitySummary, CountedCall, CountedKernel, Counters, INSTRUCTIONS, METRICS, Shared, Structure,
};
use regatta_core::suite::Ignored;

fn structure(record: &mut CaseRecord) -> &mut Structure {
    record.structure.as_mut().unwrap()
}

fn under<T>(
    policy: &Policy,
    (base, head): (&CaseRecord, &CaseRecord),
    of: fn(&Structures) -> T,
) -> T {
    of(&Structures {
        base,
        head,
        sms: Some(132),
        policy,
        counterparts: None,
    })
}

/// Every change as `action direction text`.
fn summary_lines(base: &CaseRecord, head: &CaseRecord) -> Vec<String> {
    let changes = under(&Policy::default(), (base, head), changes);
    let text =
        |change: &StructuralChange| format!("{:?} {:?} {change}", change.action, change.direction);
    changes.unwrap().iter().map(text).collect()
}

/// The figures that the base reports and the head lacks.
fn gone(base: &CaseRecord, head: &CaseRecord) -> Vec<Uncounted> {
    under(&Policy::default(), (base, head), vanished)
}

fn names(base: &CaseRecord, head: &CaseRecord) -> Vec<String> {
    gone(base, head).into_iter().map(|one| one.name).collect()
}

fn why(base: &CaseRecord, head: &CaseRecord) -> String {
    Uncounted::sentence(&gone(base, head)).unwrap_or_default()
}

/// Checks each line of a table: `BASE ; HEAD => CHANGE | CHANGE`.
fn hold(table: &str) {
    for line in table.lines().filter(|line| !line.is_empty()) {
        let (sides, expected) = line.split_once("=>").unwrap();
        let (base, head) = sides.split_once(';').unwrap();
        let expected = expected.split(" | ").map(str::trim);
        let expected: Vec<&str> = expected.filter(|one| !one.is_empty()).collect();
        assert_eq!(
            summary_lines(&written(base), &written(head)),
            expected,
            "{line}"
        );
    }
}

/// As long as every multiprocessor has a block, another grid is only reported; and data is
/// moved by few blocks as well.
#[test]
fn launches_are_compared_as_a_set() {
    hold("
flash@157 ; flash@1 => Fail Worse fill 132 → 1 of 132 SMs of flash | Warn Worse grid 157x1x1 → 1x1x1 of flash
flash@400 ; flash@200 => Warn Worse grid 400x1x1 → 200x1x1 of flash
flash@1 ; flash@157 => Warn Other grid 1x1x1 → 157x1x1 of flash | Ignore Better fill 1 → 132 of 132 SMs of flash
fill_kernel@157 ; fill_kernel@1 => Warn Worse grid 157x1x1 → 1x1x1 of fill_kernel
flash_v3@157 ; flash_v2@10 => Fail Worse fill 132 → 10 of 132 SMs of flash_v2 | Warn Other kernel flash_v3 → flash_v2
flash@157 ; flash@157 combine@157 => Warn Worse launches 0 → 1 of combine
flash@157 combine@157 ; flash@157 => Ignore Better launches 1 → 0 of combine
flash@157 ; direct_copy_kernel@157 flash@157 direct_copy_kernel@157 => Fail Worse copies 0 → 2 of direct_copy_kernel
flash@157 ; flash@157 flash@157 => Warn Worse launches 1 → 2 of flash
a@9 b@5 b@7 ; b@7 b@5 a@9 =>
flash@157 copies=0 ; copies=0 =>
copies=0 ; flash@157 copies=0 =>
");
    // The spelling of a name does not count either.
    let spelt = |name: &str| {
        let mut record = written("a@9");
        structure(&mut record).launches[0].name = name.to_owned();
        record
    };
    let base = spelt("void _GLOBAL__N__1a::a<int, 2>(int *)");
    let head = spelt("(anonymous namespace)::a<int,2>(int*)");
    assert!(summary_lines(&base, &head).is_empty());
}

#[test]
fn counts_are_compared_where_both_sides_count() {
    hold("
calls.plans=0 tasks=8 threads=2 copies=0 ; calls.plans=1 tasks=4 threads=1 copies=3 => Fail Worse tasks 8 → 4 | Fail Worse copies 0 → 3 | Fail Worse plans 0 → 1 a call | Warn Worse threads 2 → 1
tasks=8 ; tasks=8 module_loads=9 =>
gap_ns=8 ; gap_ns=80 =>
workspace_bytes=1000 ; workspace_bytes=1099 =>
workspace_bytes=1000 ; workspace_bytes=1101 => Warn Worse workspace 1000 B → 1.08 KiB
a@1 .tile=64 ; a@1 .tile=32 .new=1 => Warn Other tile 64 → 32
");
}

#[test]
fn figures_of_a_kernel_are_compared_one_by_one() {
    let base = written("flash@157");
    let mut head = base.clone();
    let one = &mut structure(&mut head).launches[0];
    (one.registers, one.local_bytes) = (Some(255), Some(64));
    (one.shared_bytes, one.blocks_per_sm) = (Some(8192), Some(1));
    one.block = [64, 2, 1];
    assert_eq!(
        summary_lines(&base, &head),
        [
            "Fail Worse local memory 0 → 64 bytes a thread of flash",
            "Warn Other block 128x1x1 → 64x2x1 of flash",
            "Warn Worse registers 128 → 255 of flash",
            "Warn Worse shared memory 4096 → 8192 bytes of flash",
            "Warn Worse occupancy 2 → 1 of flash",
        ]
    );
    // A figure that one side does not report is not a difference.
    let one = &mut structure(&mut head).launches[0];
    (one.local_bytes, one.blocks_per_sm) = (None, None);
    assert_eq!(summary_lines(&base, &head).len(), 3);
}

#[test]
fn a_side_without_a_structure_is_not_compared() {
    let known = written("flash@157");
    let empty = CaseRecord {
        structure: Some(Shared::default()),
        ..around(1.0)
    };
    for unknown in [around(1.0), empty] {
        for pair in [(&known, &unknown), (&unknown, &known)] {
            assert_eq!(under(&Policy::default(), pair, changes), None);
        }
    }
}

#[test]
fn what_is_gone_is_named_with_its_reason() {
    let base = written("flash@1 b@1 copies=0 calls.plans=0");
    let unstructured = CaseRecord {
        structure: None,
        ..base.clone()
    };
    let all = "in the base and not in the head: launches (2), calls.plans (0), copies (0): ";
    assert_eq!(
        why(&base, &unstructured),
        format!("{all}its worker counts no structure")
    );
    let uncounted = |head: &CaseRecord, name: &str, reason: &str| {
        let mut head = head.clone();
        let structure = head.structure.get_or_insert_default();
        structure
            .uncounted
            .insert(name.to_owned(), reason.to_owned());
        head
    };
    let failed = uncounted(&unstructured, "census", "CUPTI is taken");
    assert_eq!(why(&base, &failed), format!("{all}CUPTI is taken"));
    let one = written("flash@1 b@1 copies=0");
    assert_eq!(
        why(&base, &uncounted(&one, "calls.plans", "no `build`")),
        "in the base and not in the head: calls.plans (0): no `build`"
    );
    // A figure that was never known, is still known, or was added does not vanish.
    for (before, now) in [(&unstructured, &base), (&base, &base), (&one, &base)] {
        assert!(gone(before, now).is_empty());
    }
    let launches = written("copies=0 calls.plans=0");
    assert_eq!(names(&base, &launches), ["launches"]);

    // Times, and counts of modules that are not loaded, may vanish, unless the head says that they
    // are unknown.
    let base = written(
        "a@1 ns.plans=812 calls_in_8.plans=3 calls.triton_autotune=0 denormal_values=3 call_peak_bytes=4096",
    );
    let head = written("a@1");
    assert!(gone(&base, &head).is_empty());
    let unknown = uncounted(&head, "calls.triton_autotune", "no `run`");
    assert_eq!(names(&base, &unknown), ["calls.triton_autotune"]);
}

#[test]
fn what_is_ignored_may_go() {
    let base = written("flash@1 allocations=2 tasks=4");
    let head = written("flash@1");
    for (kind, left) in [(Kind::Memory, "tasks"), (Kind::Tasks, "allocations")] {
        let policy = Policy {
            ignore: [Ignored::try_from(kind.to_string()).unwrap()].into(),
            ..Policy::default()
        };
        let lost = under(&policy, (&base, &head), vanished);
        assert_eq!((lost.len(), lost[0].name.as_str()), (1, left));
    }
}

#[test]
fn figures_of_a_launch_go_as_counts_do() {
    let base = written("flash@1 direct_copy_kernel@1");
    let mut head = base.clone();
    for launch in &mut structure(&mut head).launches {
        launch.local_bytes = None;
    }
    assert_eq!(
        why(&base, &head),
        "in the base and not in the head: local memory"
    );
}

/// Files from before these were counts have them in the activity.
#[test]
fn what_an_activity_tells_of_cuda_is_a_count() {
    let calls = [("synchronisations", 0), ("allocations", 0), ("launches", 1)];
    let calls = calls.map(|(name, n)| (name.to_owned(), n));
    let old = CaseRecord {
        activity: Some(ActivitySummary {
            calls: BTreeMap::from(calls).into(),
            ..ActivitySummary::default()
        }),
        ..written("flash@1")
    };
    let new = written("flash@1 synchronisations=1 driver_allocations=2 driver_frees=2");
    assert!(gone(&old, &new).is_empty());
    // The base did not report frees: that is not a change from 0.
    assert_eq!(
        summary_lines(&old, &new),
        [
            "Fail Worse waits for the device 0 → 1 a call",
            "Fail Worse cudaMalloc 0 → 2 a call",
        ]
    );
    assert_eq!(
        names(&old, &written("flash@1")),
        ["synchronisations", "driver_allocations"]
    );
}

/// Countings of a call, each a list of kernels and the instructions that they executed, in two
/// processes that count alike.
fn counted(calls: &[&[(&str, f64)]]) -> CaseRecord {
    let kernel = |&(name, executed): &(&str, f64)| CountedKernel {
        name: name.to_owned(),
        counts: BTreeMap::from([
            (METRICS[0].name.to_owned(), executed),
            (METRICS[2].name.to_owned(), executed / 100.0),
        ]),
    };
    let call = |kernels: &&[(&str, f64)]| CountedCall {
        kernels: kernels.iter().map(kernel).collect(),
    };
    let calls: Vec<CountedCall> = calls.iter().map(call).collect();
    let twice: Vec<Counters> = Counters::from_calls(&calls)
        .into_iter()
        .cycle()
        .take(2)
        .collect();
    CaseRecord {
        counters: Counters::merged(&twice).map(Box::new),
        ..written("copies=0")
    }
}

/// Counters of one kernel with a number of executed instructions.
fn flash(executed: &[f64]) -> CaseRecord {
    let calls: Vec<[(&str, f64); 1]> = executed.iter().map(|n| [("flash", *n)]).collect();
    let calls: Vec<&[(&str, f64)]> = calls.iter().map(|call| &call[..]).collect();
    counted(&calls)
}

#[test]
fn instructions_are_compared_beyond_what_countings_of_one_side_differ_by() {
    let cases: [(&[f64], &[f64], &[&str]); 6] = [
        (
            &[1000.0, 1000.0],
            &[1010.0, 1010.0],
            &["Fail Worse instructions 1000 → 1010 (+1.00 %) of flash"],
        ),
        (
            &[1010.0],
            &[1000.0],
            &["Ignore Better instructions 1010 → 1000 (-0.99 %) of flash"],
        ),
        (&[1000.0], &[1000.0], &[]),
        (&[1000.0, 1005.0], &[1008.0, 1013.0], &[]),
        (&[1000.0, 1005.0], &[1009.0], &[]),
        (
            &[1000.0, 1005.0],
            &[1090.0, 1095.0],
            &["Fail Worse instructions 1000 to 1005 → 1090 to 1095 (+8.46 %) of flash"],
        ),
    ];
    for (base, head, expected) in cases {
        assert_eq!(summary_lines(&flash(base), &flash(head)), expected);
    }
    // If other kernels run, the whole call is compared.
    let base = counted(&[&[("flash", 1000.0), ("add", 50.0)]]);
    let head = counted(&[&[("flash_v2", 1010.0), ("add", 50.0)]]);
    assert_eq!(
        summary_lines(&base, &head),
        ["Fail Worse instructions 1050 → 1060 (+0.95 %) of the whole call"]
    );
}

#[test]
fn another_compiler_may_be_let_pass_by_the_kernels_name() {
    let policy = Policy {
        ignore: [Ignored::try_from("instructions:fla*".to_owned()).unwrap()].into(),
        ..Policy::default()
    };
    let (base, head) = (flash(&[1000.0]), flash(&[1010.0]));
    let changed = under(&policy, (&base, &head), changes).unwrap();
    assert!(changed.iter().all(|change| change.action == Action::Ignore));
    let without_launches = written("copies=0");
    assert!(under(&policy, (&base, &without_launches), vanished).is_empty());
}

#[test]
fn instructions_that_are_gone_are_named_and_new_ones_are_nothing_against_it() {
    let (base, mut none) = (flash(&[1000.0]), written("copies=0"));
    let gone = why(&base, &none);
    assert!(
        gone.starts_with("in the base and not in the head: instructions (1000): ask for them"),
        "{gone}"
    );
    assert!(names(&none, &base).is_empty());
    let reason = "performance counters need root".to_owned();
    let uncounted = &mut structure(&mut none).uncounted;
    uncounted.insert(INSTRUCTIONS.to_owned(), reason.clone());
    assert!(why(&base, &none).ends_with(&reason));
    // A metric of a kernel that is gone is as unknown as all of them.
    let mut part = base.clone();
    let kernels = &mut part.counters.as_mut().unwrap().kernels;
    let flash = kernels.get_mut("flash").unwrap();
    flash.instructions.remove(METRICS[2].name);
    assert_eq!(names(&base, &part).len(), 1);
}

#[test]
fn countings_that_differ_decide_nothing_and_pass_nothing() {
    // One of several counts is unchanged, the others are twice as large.
    let (exact, mostly) = (flash(&[1000.0]), flash(&[1000.0, 2000.0]));
    assert!(summary_lines(&exact, &mostly).is_empty());
    let reason = why(&exact, &mostly);
    assert!(
        reason.starts_with("instructions of flash 1000 → 1000 to 2000, inconclusive: countings"),
        "{reason}"
    );
    // A base that was once read as 0 cannot be compared with.
    let torn = counted(&[&[("flash", 1000.0), ("add", 5.0)], &[("add", 5.0)]]);
    let twice = counted(&[&[("flash", 2000.0), ("add", 5.0)]]);
    assert!(why(&torn, &twice).contains("0 to 1000 → 2000"));
    // Within what the base itself differs by, it is the same.
    assert_eq!(
        why(&flash(&[1000.0, 1005.0]), &flash(&[1003.0, 1008.0])),
        ""
    );
}

#[test]
fn what_one_process_counted_is_exact_in_it_alone() {
    let alone = |n: f64| {
        let mut record = flash(&[n]);
        record.counters.as_mut().unwrap().processes = 1;
        record
    };
    assert!(summary_lines(&alone(1e5), &alone(100_070.0)).is_empty());
    let reason = why(&alone(1e5), &alone(100_070.0));
    assert!(reason.contains("count in several processes"), "{reason}");
    assert_eq!(summary_lines(&alone(1e5), &alone(101_000.0)).len(), 2);
    assert_eq!(summary_lines(&flash(&[1e5]), &flash(&[100_070.0])).len(), 1);
}

/// A kernel of another name is compared by what it spills.
#[test]
fn a_kernel_in_place_of_another_is_compared_by_its_spills() {
    let base = written("flash_v3@157");
    let spilling = |bytes: Option<u64>| {
        let mut head = written("flash_v2@157");
        structure(&mut head).launches[0].local_bytes = bytes;
        head
    };
    assert_eq!(
        summary_lines(&base, &spilling(Some(4096)))[0],
        "Fail Worse local memory 0 → 4096 bytes a thread of flash_v2"
    );
    assert_eq!(summary_lines(&base, &spilling(Some(0))).len(), 1);
    assert_eq!(summary_lines(&spilling(Some(4096)), &base).len(), 1);
    assert_eq!(names(&base, &spilling(None)), ["local memory"]);
}

/// A parameter is unknown where the head no longer reports it, or reports several values.
#[test]
fn an_effective_parameter_that_is_gone_or_varies_is_named() {
    let (base, head) = (written("a@1 .splits=157"), written("a@1"));
    assert_eq!(
        why(&base, &head),
        "in the base and not in the head: splits (157)"
    );
    assert!(names(&head, &base).is_empty());
    let mut varying = base.clone();
    let how = "157 in invocation 0, 1 in invocation 3".to_owned();
    varying.varying.insert("splits".to_owned(), how);
    assert_eq!(
        why(&base, &varying),
        "splits differs between invocations: 157 in invocation 0, 1 in invocation 3"
    );
    assert!(names(&varying, &varying).is_empty());
    let policy = Policy {
        ignore: [Ignored::try_from("parameters:splits".to_owned()).unwrap()].into(),
        ..Policy::default()
    };
    assert!(under(&policy, (&base, &head), vanished).is_empty());
    assert!(under(&policy, (&base, &varying), vanished).is_empty());
}

#[test]
fn the_functions_of_two_compared_variants_are_no_change() {
    let runs = |functions: &[(&str, u64)]| {
        let mut record = written("");
        let counts = functions
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count));
        record.structure.get_or_insert_default().functions = counts.collect();
        record
    };
    let base = runs(&[("bench:plain", 1), ("bench:plan", 1)]);
    let head = runs(&[("bench:fast", 1), ("bench:plan", 2), ("bench:copy", 1)]);
    let counterparts = ["mine/plain", "mine/fast"].map(|name| name.parse().unwrap());
    let [plain, fast] = counterparts;
    let counterparts = BTreeMap::from([(plain, fast)]);
    let texts = |counterparts| {
        let changes = changes(&Structures {
            base: &base,
            head: &head,
            sms: None,
            policy: &Policy::default(),
            counterparts,
        });
        let texts = changes.unwrap().into_iter();
        Vec::from_iter(texts.map(|change| change.difference.to_string()))
    };
    let both = [
        "functions 0 → 1 of bench:copy",
        "functions 1 → 2 of bench:plan",
    ];
    assert_eq!(texts(Some(&counterparts)), both);
    assert_eq!(texts(None).len(), 4);
}
