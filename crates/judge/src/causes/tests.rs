mod activity;

use super::*;
use crate::complete::median_ns;
use crate::judgement::Difference;
use crate::testing::around;
use regatta_core::machine::{Launch, Structure};
use regatta_core::record::conditions::Conditions;
use regatta_core::record::side::CaseRecord;
use regatta_worker::attention::ParamValue;
use regatta_worker::units::{Bytes, Nanoseconds, Ratio, Share};

fn launch(name: &str, blocks: u32) -> Launch {
    Launch {
        name: name.to_owned(),
        grid: [blocks, 1, 1],
        block: [128, 1, 1],
        registers: Some(128),
        ..Launch::default()
    }
}

fn launched(launches: &[(&str, u32)]) -> CaseRecord {
    let launches = launches.iter().map(|(name, blocks)| launch(name, *blocks));
    with(Structure {
        launches: launches.collect(),
        ..Structure::default()
    })
}

fn counted(counts: &[(&str, u64)]) -> CaseRecord {
    let counts = counts.iter().map(|(name, n)| ((*name).to_owned(), *n));
    with(Structure {
        counts: counts.collect(),
        ..Structure::default()
    })
}

fn with(structure: Structure) -> CaseRecord {
    CaseRecord {
        structure: Some(structure.into()),
        ..around(100.0)
    }
}

fn effective(name: &str, value: i64) -> CaseRecord {
    let mut record = around(100.0);
    record
        .effective
        .insert(name.to_owned(), ParamValue::Int(value));
    record
}

fn pair<'a>(base: &'a CaseRecord, head: &'a CaseRecord, ratio: f64) -> Pair<'a> {
    Pair {
        base,
        head,
        base_ns: median_ns(&base.device_ns),
        head_ns: median_ns(&head.device_ns),
        base_clock: Clock::Events,
        clock: Clock::Events,
        ratio: Ratio(ratio),
        floor: Share(0.05),
        versions: Vec::new(),
        sms: None,
    }
}

fn found(base: &CaseRecord, head: &CaseRecord, ratio: f64) -> Vec<Finding> {
    explained(&pair(base, head, ratio)).0
}

/// The same of times that were taken behind a gate.
fn gated(base: &CaseRecord, head: &CaseRecord, ratio: f64) -> Vec<Finding> {
    let pair = Pair {
        base_clock: Clock::Gated,
        clock: Clock::Gated,
        ..pair(base, head, ratio)
    };
    explained(&pair).0
}

/// The only finding: its cause and evidence.
fn only(base: &CaseRecord, head: &CaseRecord, ratio: f64) -> (String, String) {
    let mut all = found(base, head, ratio);
    assert_eq!(all.len(), 1, "{all:?}");
    let finding = all.remove(0);
    (finding.cause.to_string(), finding.evidence())
}

fn pair_of(text: (String, String)) -> String {
    format!("{}: {}", text.0, text.1)
}

#[test]
fn equal_records_have_no_cause() {
    let record = launched(&[("flash", 157)]);
    assert!(found(&record, &record, 1.0).is_empty());
    assert!(found(&record, &record, 2.0).is_empty());
    assert!(found(&around(1.0), &around(2.0), 2.0).is_empty());
}

#[test]
fn one_block_where_there_were_157_is_less_parallel() {
    let name = "void ns::flash_bwd<ns::Tile<64>>(Params)";
    let text = only(&launched(&[(name, 157)]), &launched(&[(name, 1)]), 40.0);
    assert_eq!(
        pair_of(text),
        "less-parallel: grid 157x1x1 → 1x1x1 of flash_bwd<ns::Tile<64>>"
    );
    // A second launch of one block makes up for none of the 156.
    let two = launched(&[(name, 1), (name, 1)]);
    let told = &found(&launched(&[(name, 157)]), &two, 40.0)[0];
    assert_eq!(
        (told.cause.as_str(), told.evidence().as_str()),
        (
            "less-parallel",
            "grid 157x1x1 → 1x1x1 of flash_bwd<ns::Tile<64>>"
        )
    );
    // The other way round nothing was lost.
    assert!(found(&launched(&[(name, 1)]), &launched(&[(name, 157)]), 0.1).is_empty());
}

#[test]
fn fewer_threads_and_splits_are_told_together() {
    let mut base = counted(&[("threads", 2), ("tasks", 4)]);
    let mut head = counted(&[("threads", 1), ("tasks", 1)]);
    base.effective
        .insert("num_splits_key".to_owned(), ParamValue::Int(4));
    head.effective
        .insert("num_splits_key".to_owned(), ParamValue::Int(1));
    let all = found(&base, &head, 2.0);
    assert_eq!(all.len(), 1);
    assert_eq!(
        all[0].evidence(),
        "threads 2 → 1, tasks 4 → 1, num_splits_key became 1 (was 4)"
    );
}

#[test]
fn a_parameter_alone_tells_without_structure() {
    let text = only(
        &effective("num_splits_key", 157),
        &effective("num_splits_key", 1),
        30.0,
    );
    assert_eq!(
        pair_of(text),
        "less-parallel: num_splits_key became 1 (was 157)"
    );
    let text = only(
        &effective("num_splits_key", 1),
        &effective("num_splits_key", 4),
        1.5,
    );
    assert_eq!(
        pair_of(text),
        "parameter-changed: num_splits_key became 4 (was 1)"
    );
    let text = only(&effective("tile", 64), &effective("tile", 32), 1.5);
    assert_eq!(pair_of(text), "parameter-changed: tile became 32 (was 64)");
}

#[test]
fn another_kernel_is_named() {
    let text = only(
        &launched(&[("flash_v3", 9)]),
        &launched(&[("flash_v2", 9)]),
        1.5,
    );
    assert_eq!(pair_of(text), "kernel-replaced: flash_v3 → flash_v2");
}

#[test]
fn added_copies_are_not_added_launches_too() {
    let text = only(
        &launched(&[("flash", 9)]),
        &launched(&[("at::native::elementwise_kernel<128>", 9), ("flash", 9)]),
        1.3,
    );
    assert_eq!(
        pair_of(text),
        "copies-added: 1 copy kernel added (elementwise_kernel)"
    );
    let text = only(&counted(&[("copies", 0)]), &counted(&[("copies", 3)]), 1.3);
    assert_eq!(pair_of(text), "copies-added: copies 0 → 3");
    let text = only(
        &launched(&[("flash", 9)]),
        &launched(&[("flash", 9), ("reduce", 9)]),
        1.3,
    );
    assert_eq!(pair_of(text), "launches-added: launches 1 → 2");
    // The same work in two pieces is done by as much of the device.
    let pieces = launched(&[("flash", 79), ("flash", 78)]);
    let text = only(&launched(&[("flash", 157)]), &pieces, 1.3);
    assert_eq!(pair_of(text), "launches-added: launches 1 → 2");
}

#[test]
fn more_registers_mean_another_compilation() {
    let mut head = launched(&[("flash", 9)]);
    head.structure.as_mut().unwrap().launches[0].registers = Some(255);
    let text = only(&launched(&[("flash", 9)]), &head, 1.3);
    assert_eq!(pair_of(text), "recompiled: registers 128 → 255 of flash");
}

#[test]
fn a_clock_that_explains_the_time_is_the_machine() {
    let clocked = |mhz: f64| CaseRecord {
        clock_mhz: vec![mhz; 5],
        ..around(100.0)
    };
    let (cause, evidence) = only(&clocked(1980.0), &clocked(1410.0), 1.404);
    assert_eq!(cause, "lower-clock");
    assert!(evidence.starts_with("clock 1980 → 1410 MHz"));
    assert_eq!(
        only(&clocked(1000.0), &clocked(1200.0), 0.85).0,
        "higher-clock"
    );
    // A tenth of the clock does not make it three times as long, nor does a
    // lower clock make anything faster.
    assert!(found(&clocked(1980.0), &clocked(1780.0), 3.0).is_empty());
    assert!(found(&clocked(1980.0), &clocked(1780.0), 0.8).is_empty());
    assert!(found(&clocked(1980.0), &clocked(1780.0), 1.0).is_empty());
}

#[test]
fn throttling_and_other_processes_are_the_machine() {
    let conditions = |throttled, shared| CaseRecord {
        conditions: Conditions {
            known: 5,
            throttled,
            throttle_reasons: (throttled > 0)
                .then(|| "software power cap".to_owned())
                .into_iter()
                .collect(),
            shared,
            other_processes: 2 * shared.min(1),
            ..Conditions::default()
        },
        ..around(100.0)
    };
    let quiet = conditions(0, 0);
    assert_eq!(
        pair_of(only(&quiet, &conditions(3, 0), 1.2)),
        "throttled: the device held its clocks back in 3 of 5 invocations (software power cap), \
         before in 0 of 5: the machine, not the code"
    );
    assert_eq!(
        pair_of(only(&quiet, &conditions(0, 2), 1.2)),
        "shared-device: other processes computed on the device in 2 of 5 invocations (up to 2), \
         before in 0 of 5: the machine, not the code"
    );
    // It became faster because the base was disturbed.
    assert_eq!(only(&conditions(5, 0), &quiet, 0.8).0, "throttled");
    // No more disturbed than before, not slower, or nothing known of the other side.
    assert!(found(&conditions(3, 3), &conditions(3, 3), 1.2).is_empty());
    assert!(found(&quiet, &conditions(3, 3), 1.0).is_empty());
    assert!(found(&quiet, &conditions(3, 3), 0.8).is_empty());
    assert!(found(&around(100.0), &conditions(3, 3), 1.2).is_empty());
}

#[test]
fn a_slow_host_in_front_of_a_fast_device_is_told() {
    let issued = |ns: f64| CaseRecord {
        host_ns: vec![Nanoseconds(ns); 5],
        ..around(100.0)
    };
    let text = only(&issued(50.0), &issued(300.0), 1.0);
    assert_eq!(
        pair_of(text),
        "host-bound: host 50.0 → 300.0 ns a call, device time 100.0 ns"
    );
    assert!(found(&issued(50.0), &issued(90.0), 1.0).is_empty());
    assert!(found(&issued(300.0), &issued(300.0), 1.0).is_empty());
}

#[test]
fn versions_are_told_where_time_moved() {
    let record = launched(&[("flash", 9)]);
    let change = Difference {
        field: "torch.versions.cudnn".to_owned(),
        base: "9.1".to_owned(),
        head: "9.2".to_owned(),
    };
    let told = |ratio| {
        let pair = Pair {
            versions: vec![&change],
            ..pair(&record, &record, ratio)
        };
        explained(&pair).0
    };
    assert_eq!(
        told(1.2)[0].evidence(),
        "torch.versions.cudnn 9.1 → 9.2; structure unchanged"
    );
    assert!(told(1.01).is_empty());
}

#[test]
fn a_larger_workspace_is_told() {
    let base = counted(&[("workspace_bytes", 10), ("allocations", 1)]);
    let head = counted(&[("workspace_bytes", 90), ("allocations", 1)]);
    let text = only(&base, &head, 1.2);
    assert_eq!(pair_of(text), "workspace: workspace 10 B → 90 B");
    let peak = |bytes| CaseRecord {
        peak_bytes: Some(Bytes(bytes)),
        ..around(1.0)
    };
    assert_eq!(only(&peak(10 << 20), &peak(20 << 20), 1.0).0, "workspace");
    assert!(found(&peak(100 << 20), &peak(101 << 20), 1.0).is_empty());
}

#[test]
fn retuning_is_told_against_the_lengths_seen() {
    let base = counted(&[("calls.triton_autotune", 0)]);
    let head = |lengths, count, ns| {
        let mut head = counted(&[("calls.triton_autotune", count), ("ns.triton_autotune", ns)]);
        let lengths = ParamValue::Int(lengths);
        head.effective.insert("lengths".to_owned(), lengths);
        head
    };
    assert_eq!(
        pair_of(only(&base, &head(24, 24, 52_163_708), 12.4)),
        "retuned: retuned 24 times in 24 lengths, was 0, 52.2 ms of the host a call in it"
    );
    let text = only(&base, &head(1, 1, 2_000), 2.0).1;
    assert!(
        text.starts_with("retuned once in a call of one length, was 0, 2.00 µs"),
        "{text}"
    );
    assert!(found(&head(24, 24, 5), &head(24, 24, 90), 1.0).is_empty());
    assert!(found(&head(24, 24, 5), &base, 0.1).is_empty());
    // A side that was not counted is not one that never tuned.
    assert!(found(&counted(&[]), &head(24, 24, 5), 12.0).is_empty());
}

#[test]
fn functions_that_run_more_often_are_told_with_their_time() {
    let base = counted(&[("calls.backend_selections", 0), ("calls.torch_compile", 1)]);
    let head = counted(&[
        ("calls.backend_selections", 8),
        ("ns.backend_selections", 812_400),
        ("calls.torch_compile", 1),
    ]);
    assert_eq!(
        pair_of(only(&base, &head, 1.3)),
        "events-added: backend re-selected 8 times a call, was 0, \
         812.4 µs of the host a call in it"
    );
    let head = counted(&[("calls.backend_selections", 1), ("calls.torch_compile", 3)]);
    assert_eq!(
        pair_of(only(&base, &head, 1.3)),
        "events-added: backend re-selected once a call, was 0; torch_compile 1 → 3 a call"
    );
    assert!(found(&head, &base, 0.8).is_empty());
    assert!(found(&counted(&[("copies", 0)]), &head, 1.3).is_empty());
}

#[test]
fn time_inside_counted_functions_is_no_change_of_structure() {
    let record = |mhz, ns| CaseRecord {
        clock_mhz: vec![mhz; 5],
        ..counted(&[("ns.backend_selections", ns)])
    };
    let order =
        |ns| super::found(&pair(&record(1980.0, 1), &record(1410.0, ns), 1.404).facts())[0].order;
    assert_eq!(order(1).to_bits(), order(2).to_bits());
}

#[test]
fn the_most_telling_cause_comes_first() {
    let mut base = launched(&[("flash", 157)]);
    let mut head = launched(&[("flash", 1), ("copy_kernel", 9)]);
    (base.peak_bytes, head.peak_bytes) = (Some(Bytes(0)), Some(Bytes(1 << 30)));
    let causes: Vec<String> = found(&base, &head, 9.0)
        .into_iter()
        .map(|f| f.cause.to_string())
        .collect();
    assert_eq!(causes, ["less-parallel", "copies-added", "workspace"]);
}

/// A count that one side lacks was not made there: no change from 0, nor to it.
#[test]
fn what_was_not_counted_is_no_cause() {
    let none = counted(&[("threads", 2)]);
    let all = [
        ("threads", 2),
        ("tasks", 1),
        ("copies", 3),
        ("module_loads", 3),
        ("workspace_bytes", 1 << 30),
        ("allocations", 9),
        ("synchronisations", 1),
        ("driver_allocations", 2),
    ];
    assert!(found(&none, &counted(&all), 2.0).is_empty());
    assert!(found(&counted(&all), &none, 2.0).is_empty());
}
