//! Two records of a case, and the causes that are told of them.

use super::*;
use crate::complete::median_ns;
use crate::judgement::Difference;
use crate::testing::around;
use regatta_core::machine::{ActivitySummary, DeviceTime, Launch, Structure};
use regatta_core::record::conditions::Conditions;
use regatta_core::record::side::CaseRecord;
use regatta_worker::attention::ParamValue;
use regatta_worker::units::{Bytes, Share};

const COPY: &str = "void at::native::elementwise_kernel<128, 4, at::native::Copy>(int)";

fn with(structure: Structure) -> CaseRecord {
    CaseRecord {
        structure: Some(structure.into()),
        ..around(100.0)
    }
}

fn launched(launches: &[(&str, u32)]) -> CaseRecord {
    let launches = launches.iter().map(|(name, blocks)| Launch {
        name: (*name).to_owned(),
        grid: [*blocks, 1, 1],
        block: [128, 1, 1],
        registers: Some(128),
        ..Launch::default()
    });
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

fn effective(record: CaseRecord, name: &str, value: i64) -> CaseRecord {
    let value = (name.to_owned(), ParamValue::Int(value));
    CaseRecord {
        effective: [value]
            .into_iter()
            .collect::<std::collections::BTreeMap<_, _>>()
            .into(),
        ..record
    }
}

/// A case of so many microseconds on the device and the host.
fn timed(device_us: f64, host_us: f64, activity: ActivitySummary) -> CaseRecord {
    CaseRecord {
        host_ns: vec![Nanoseconds(host_us * 1e3); 5],
        activity: Some(activity),
        ..around(device_us * 1e3)
    }
}

/// An activity in microseconds; without fills, kernels that move data, or overlap.
fn active(span_us: u64, busy_us: u64, host_bound_us: Option<u64>) -> ActivitySummary {
    ActivitySummary {
        time: DeviceTime {
            span_ns: span_us * 1000,
            busy_ns: busy_us * 1000,
            host_bound_ns: host_bound_us.map(|us| us * 1000),
            copying_ns: Some(0),
            ..DeviceTime::default()
        },
        moving_ns: Some(0),
        ..ActivitySummary::default()
    }
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

fn texts(pair: &Pair) -> Vec<String> {
    let found = explained(pair).0.into_iter();
    found.map(|finding| finding.to_string()).collect()
}

fn told(base: &CaseRecord, head: &CaseRecord, ratio: f64) -> Vec<String> {
    texts(&pair(base, head, ratio))
}

/// The same of times that were taken behind a gate.
fn gated(base: &CaseRecord, head: &CaseRecord, ratio: f64) -> Vec<String> {
    texts(&Pair {
        base_clock: Clock::Gated,
        clock: Clock::Gated,
        ..pair(base, head, ratio)
    })
}

/// Holds what is told to what is expected: the beginning of each.
#[track_caller]
fn are(told: &[String], expected: &[&str]) {
    let begin = told
        .iter()
        .zip(expected)
        .all(|(told, begin)| told.starts_with(begin));
    assert!(
        begin && told.len() == expected.len(),
        "{told:#?}\n{expected:#?}"
    );
}

#[test]
fn what_differs_of_a_structure_is_told_as_its_cause() {
    let flash = "void ns::flash_bwd<ns::Tile<64>>(Params)";
    let one = launched(&[("flash", 157)]);
    let mut registers = one.clone();
    registers.structure.as_mut().unwrap().launches[0].registers = Some(255);
    let plain = || around(100.0);
    let peak = |bytes| CaseRecord {
        peak_bytes: Some(Bytes(bytes)),
        ..around(1.0)
    };
    let uncounted = counted(&[("threads", 2)]);
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
    let all = counted(&all);
    let few = effective(
        counted(&[("threads", 1), ("tasks", 1)]),
        "num_splits_key",
        1,
    );
    let many = effective(
        counted(&[("threads", 2), ("tasks", 4)]),
        "num_splits_key",
        4,
    );
    let both = CaseRecord {
        peak_bytes: Some(Bytes(1 << 30)),
        ..launched(&[("flash", 1), ("copy_kernel", 9)])
    };
    let small = CaseRecord {
        peak_bytes: Some(Bytes(0)),
        ..one.clone()
    };
    let less = "less-parallel: grid 157x1x1 → 1x1x1 of flash_bwd<ns::Tile<64>>";
    let rows: &[(&CaseRecord, &CaseRecord, f64, &[&str])] = &[
        (&one, &one, 2.0, &[]),
        (&around(1.0), &around(2.0), 2.0, &[]),
        (
            &launched(&[(flash, 157)]),
            &launched(&[(flash, 1)]),
            40.0,
            &[less],
        ),
        // A second launch of one block makes up for none of the 156.
        (
            &launched(&[(flash, 157)]),
            &launched(&[(flash, 1), (flash, 1)]),
            40.0,
            &[less, "launches-added: "],
        ),
        (
            &launched(&[(flash, 1)]),
            &launched(&[(flash, 157)]),
            0.1,
            &[],
        ),
        (
            &many,
            &few,
            2.0,
            &["less-parallel: threads 2 → 1, tasks 4 → 1, num_splits_key became 1 (was 4)"],
        ),
        (
            &effective(plain(), "num_splits_key", 157),
            &effective(plain(), "num_splits_key", 1),
            30.0,
            &["less-parallel: num_splits_key became 1 (was 157)"],
        ),
        (
            &effective(plain(), "num_splits_key", 1),
            &effective(plain(), "num_splits_key", 4),
            1.5,
            &["parameter-changed: num_splits_key became 4 (was 1)"],
        ),
        (
            &effective(plain(), "tile", 64),
            &effective(plain(), "tile", 32),
            1.5,
            &["parameter-changed: tile became 32 (was 64)"],
        ),
        (
            &launched(&[("flash_v3", 9)]),
            &launched(&[("flash_v2", 9)]),
            1.5,
            &["kernel-replaced: flash_v3 → flash_v2"],
        ),
        // Added copies are not added launches too.
        (
            &one,
            &launched(&[(COPY, 9), ("flash", 157)]),
            1.3,
            &["copies-added: 1 copy kernel added (elementwise_kernel)"],
        ),
        (
            &counted(&[("copies", 0)]),
            &counted(&[("copies", 3)]),
            1.3,
            &["copies-added: copies 0 → 3"],
        ),
        (
            &one,
            &launched(&[("flash", 157), ("reduce", 9)]),
            1.3,
            &["launches-added: launches 1 → 2"],
        ),
        // The same work in two pieces is done by as much of the device.
        (
            &one,
            &launched(&[("flash", 79), ("flash", 78)]),
            1.3,
            &["launches-added: launches 1 → 2"],
        ),
        (
            &one,
            &registers,
            1.3,
            &["recompiled: registers 128 → 255 of flash"],
        ),
        (
            &counted(&[("workspace_bytes", 10)]),
            &counted(&[("workspace_bytes", 90)]),
            1.2,
            &["workspace: workspace 10 B → 90 B"],
        ),
        (&peak(10 << 20), &peak(20 << 20), 1.0, &["workspace: "]),
        (&peak(100 << 20), &peak(101 << 20), 1.0, &[]),
        // The most telling cause comes first.
        (
            &small,
            &both,
            9.0,
            &["less-parallel: ", "copies-added: ", "workspace: "],
        ),
        // A count that one side lacks was not made there: no change from 0, nor to it.
        (&uncounted, &all, 2.0, &[]),
        (&all, &uncounted, 2.0, &[]),
    ];
    for (base, head, ratio, expected) in rows {
        are(&told(base, head, *ratio), expected);
    }
}

#[test]
fn functions_that_run_more_often_are_told_with_their_time() {
    let tuned = |lengths, count, ns| {
        let counts = [("calls.triton_autotune", count), ("ns.triton_autotune", ns)];
        effective(counted(&counts), "lengths", lengths)
    };
    let none = counted(&[("calls.triton_autotune", 0)]);
    let [before, after, both] = [(0, 1), (8, 1), (1, 3)].map(|(selections, compiled)| {
        let mut record = counted(&[
            ("calls.backend_selections", selections),
            ("calls.torch_compile", compiled),
        ]);
        if selections == 8 {
            let counts = &mut record.structure.as_mut().unwrap().counts;
            counts.insert("ns.backend_selections".to_owned(), 812_400);
        }
        record
    });
    let rows: &[(&CaseRecord, &CaseRecord, &[&str])] = &[
        (
            &none,
            &tuned(24, 24, 52_163_708),
            &["retuned: retuned 24 times in 24 lengths, was 0, 52.2 ms of the host a call in it"],
        ),
        (
            &none,
            &tuned(1, 1, 2_000),
            &["retuned: retuned once in a call of one length, was 0, 2.00 µs"],
        ),
        (&tuned(24, 24, 5), &tuned(24, 24, 90), &[]),
        (&tuned(24, 24, 5), &none, &[]),
        // A side that was not counted is not one that never tuned.
        (&counted(&[]), &tuned(24, 24, 5), &[]),
        (
            &before,
            &after,
            &[
                "events-added: backend re-selected 8 times a call, was 0, 812.4 µs of the host a \
               call in it",
            ],
        ),
        (
            &before,
            &both,
            &["events-added: backend re-selected once a call, was 0; torch_compile 1 → 3 a call"],
        ),
        (&both, &before, &[]),
        (&counted(&[("copies", 0)]), &both, &[]),
    ];
    for (base, head, expected) in rows {
        are(&told(base, head, 1.3), expected);
    }
}

#[test]
fn the_machine_is_told_where_it_explains_the_time() {
    let clocked = |mhz: f64| CaseRecord {
        clock_mhz: vec![mhz; 5],
        ..around(100.0)
    };
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
    let throttled = "throttled: the device held its clocks back in 3 of 5 invocations (software \
                     power cap), before in 0 of 5: the machine, not the code";
    let shared = "shared-device: other processes computed on the device in 2 of 5 invocations (up \
                  to 2), before in 0 of 5: the machine, not the code";
    let rows: &[(&CaseRecord, &CaseRecord, f64, &[&str])] = &[
        (
            &clocked(1980.0),
            &clocked(1410.0),
            1.404,
            &["lower-clock: clock 1980 → 1410 MHz"],
        ),
        (
            &clocked(1000.0),
            &clocked(1200.0),
            0.85,
            &["higher-clock: "],
        ),
        // A tenth of the clock does not make it three times as long, nor does a
        // lower clock make anything faster.
        (&clocked(1980.0), &clocked(1780.0), 3.0, &[]),
        (&clocked(1980.0), &clocked(1780.0), 0.8, &[]),
        (&clocked(1980.0), &clocked(1780.0), 1.0, &[]),
        (&quiet, &conditions(3, 0), 1.2, &[throttled]),
        (&quiet, &conditions(0, 2), 1.2, &[shared]),
        // It became faster because the base was disturbed.
        (&conditions(5, 0), &quiet, 0.8, &["throttled: "]),
        // No more disturbed than before, not slower, or nothing known of the other side.
        (&conditions(3, 3), &conditions(3, 3), 1.2, &[]),
        (&quiet, &conditions(3, 3), 1.0, &[]),
        (&quiet, &conditions(3, 3), 0.8, &[]),
        (&around(100.0), &conditions(3, 3), 1.2, &[]),
    ];
    for (base, head, ratio, expected) in rows {
        are(&told(base, head, *ratio), expected);
    }
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
        texts(&Pair {
            versions: vec![&change],
            ..pair(&record, &record, ratio)
        })
    };
    are(
        &told(1.2),
        &["toolchain: torch.versions.cudnn 9.1 → 9.2; structure unchanged"],
    );
    are(&told(1.01), &[]);
}

/// All-gather and product on two H200s, 1024 x 4096 x 4096, as measured: one operator that
/// does both is slower than the two, because the host cannot feed it.
#[test]
fn a_fused_operator_that_the_host_cannot_feed_is_host_bound() {
    let unfused = timed(75.8, 50.3, active(76, 73, Some(0)));
    let fused = |copying_us: u64| {
        let mut record = timed(267.1, 277.0, active(280, 70, Some(195)));
        let activity = record.activity.as_mut().unwrap();
        activity.copies = u64::from(copying_us > 0);
        activity.time.copying_ns = Some(copying_us * 1000);
        record
    };
    let expected = [
        "host-bound: host 50.3 → 277.0 µs a call, device idle between launches 3.00 → 210.0 µs of \
         280.0 µs, 92.9 % of it waiting for the host, device time 75.8 → 267.1 µs",
        "no-overlap: copies and compute at once 0 of 28.0 µs of copying a call",
    ];
    are(&told(&unfused, &fused(28), 3.52), &expected);
    are(&told(&unfused, &fused(0), 3.52), &expected[..1]);
    // The other way round nothing waits more.
    are(&told(&fused(28), &unfused, 0.28), &[]);
}

#[test]
fn a_device_that_waits_for_anything_else_has_gaps() {
    let base = timed(100.0, 20.0, active(100, 98, Some(0)));
    let waits = |host_us, host_bound_us| timed(200.0, host_us, active(210, 108, host_bound_us));
    let issued = |ns: f64| CaseRecord {
        host_ns: vec![Nanoseconds(ns); 5],
        ..around(100.0)
    };
    let slow_host = "host-bound: host 50.0 → 300.0 ns a call, device time 100.0 ns";
    let rows: &[(&CaseRecord, &CaseRecord, f64, &[&str])] = &[
        // The host launched in time; or it is late as it always was.
        (&base, &waits(20.0, Some(3)), 2.0, &["gaps: "]),
        (&base, &waits(20.0, Some(90)), 2.0, &["gaps: "]),
        // It waits with the device, for something else.
        (&base, &waits(205.0, Some(3)), 2.0, &["gaps: "]),
        // Launches are not known: a host that needs less than the device is not waited for.
        (&base, &waits(190.0, None), 2.0, &["gaps: "]),
        (&base, &waits(205.0, None), 2.0, &["host-bound: "]),
        (&base, &waits(120.0, Some(90)), 2.0, &["host-bound: "]),
        // Idle time that does not account for what is slower is no cause.
        (
            &base,
            &timed(200.0, 20.0, active(205, 190, Some(10))),
            2.0,
            &[],
        ),
        (&base, &waits(20.0, Some(3)), 1.0, &[]),
        (&issued(50.0), &issued(300.0), 1.0, &[slow_host]),
        (&issued(50.0), &issued(90.0), 1.0, &[]),
        (&issued(300.0), &issued(300.0), 1.0, &[]),
    ];
    for (base, head, ratio, expected) in rows {
        are(&told(base, head, *ratio), expected);
    }
    // Behind a gate the host's gaps in the recorded call are in no time that was judged.
    are(&gated(&base, &waits(20.0, Some(3)), 2.0), &[]);
}

/// `flash-layout` on an H200, [64, 256, 12, 64] in float16: views against needless copies.
#[test]
fn copies_are_told_with_their_part_of_the_call() {
    let record = |copies: usize, device_us, host_us, activity| {
        let mut launches = vec![(COPY, 9); copies];
        launches.push(("flash_fwd", 9));
        CaseRecord {
            structure: launched(&launches).structure,
            ..timed(device_us, host_us, activity)
        }
    };
    let moving = |ns, activity| ActivitySummary {
        moving_ns: ns,
        ..activity
    };
    let views = record(0, 65.7, 33.6, active(64, 64, Some(0)));
    let copies = |ns| record(4, 216.0, 95.1, moving(ns, active(267, 214, Some(30))));
    let added = "copies-added: 4 copy kernels added (elementwise_kernel)";
    let with_time = format!("{added}, 150.0 of 216.0 µs");
    assert_eq!(told(&views, &copies(Some(149_982)), 3.29), [with_time]);
    // A baseline of an older version does not tell their time.
    assert_eq!(told(&views, &copies(None), 3.29), [added]);
    // Copies that cost next to nothing are not what made it slower.
    let aside = found(&pair(&views, &copies(Some(9_000)), 3.29).facts());
    assert!(aside[0].order < 0.6);

    // A clone of q before the call, [2, 16, 512, 64] on an H200, behind a gate.
    let plain = record(0, 14.9, 50.0, active(15, 15, Some(0)));
    let cloned = record(
        1,
        18.1,
        75.2,
        moving(Some(2_900), active(151, 15, Some(134))),
    );
    are(&gated(&plain, &cloned, 1.215), &["copies-added: "]);
    // Under plain events the waits are in the time, and told.
    let all = told(&plain, &cloned, 1.215);
    assert!(
        all.iter().any(|text| text.starts_with("host-bound")),
        "{all:?}"
    );
}

#[test]
fn what_no_longer_runs_at_once_is_told() {
    let streams = |device_us: f64, at_once: Option<u64>| {
        let mut activity = active(300, 290, None);
        activity.time.streams_at_once_ns = at_once.map(|us| us * 1000);
        CaseRecord {
            activity: Some(activity),
            ..around(device_us * 1e3)
        }
    };
    let copies = |device_us: f64, copying_us: u64, overlap_us: u64| {
        let mut activity = active(300, 290, None);
        activity.copies = 2;
        activity.time.copying_ns = Some(copying_us * 1000);
        activity.time.overlap_ns = overlap_us * 1000;
        CaseRecord {
            activity: Some(activity),
            ..around(device_us * 1e3)
        }
    };
    let rows: &[(CaseRecord, CaseRecord, &[&str])] = &[
        (
            streams(100.0, Some(70)),
            streams(180.0, Some(0)),
            &["lost-overlap: kernels of two streams at once 70.0 µs → 0 a call"],
        ),
        // Not half of what it takes longer, as much as before, or not known.
        (streams(100.0, Some(30)), streams(180.0, Some(0)), &[]),
        (streams(100.0, Some(70)), streams(180.0, Some(70)), &[]),
        (streams(100.0, None), streams(180.0, Some(0)), &[]),
        (
            copies(100.0, 80, 80),
            copies(180.0, 80, 0),
            &["lost-overlap: copies and compute at once 80.0 µs → 0 a call"],
        ),
        (
            copies(100.0, 0, 0),
            copies(180.0, 80, 1),
            &["no-overlap: copies and compute at once 1.00 of 80.0 µs of copying a call"],
        ),
        // Half of it is hidden; or no more is exposed than was.
        (copies(100.0, 80, 80), copies(180.0, 160, 80), &[]),
        (copies(100.0, 80, 0), copies(180.0, 80, 0), &[]),
    ];
    for (base, head, expected) in rows {
        are(&told(base, head, 1.8), expected);
    }
}

#[test]
fn where_the_hosts_time_is_judged_it_is_told_whatever_the_clock() {
    let before = timed(14.9, 48.5, active(15, 15, Some(0)));
    let after = timed(14.9, 355.0, active(330, 15, Some(300)));
    let told = texts(&Pair {
        base_ns: Some(Nanoseconds(48.5e3)),
        head_ns: Some(Nanoseconds(355e3)),
        clock: Clock::Host,
        base_clock: Clock::Host,
        ..pair(&before, &after, 7.3)
    });
    are(&told, &["host-bound: host 48.5 → 355.0 µs a call"]);
}

#[test]
fn waits_and_memory_of_the_driver_come_before_the_host_they_hold_up() {
    let with = |waits, memory, device_us, activity| CaseRecord {
        structure: counted(&[
            ("synchronisations", waits),
            ("driver_allocations", memory),
            ("driver_frees", memory),
        ])
        .structure,
        ..timed(device_us, device_us, activity)
    };
    let quiet = with(0, 0, 15.0, active(15, 15, Some(0)));
    let of = |waits, memory| {
        let head = with(waits, memory, 60.0, active(65, 15, Some(48)));
        told(&quiet, &head, 4.0)
    };
    let waits = "synchronisation: waits for the device in each call: 0 → 1";
    are(&of(1, 0), &[waits, "host-bound: "]);
    let memory = "driver-memory: cudaMalloc a call 0 → 2, cudaFree a call 0 → 2";
    are(&of(1, 2), &[memory, waits, "host-bound: "]);

    // Where nobody counted, the clock knows that its gate had to be opened.
    let quiet = timed(15.0, 20.0, active(15, 15, Some(0)));
    let mut opened = timed(60.0, 60.0, active(65, 15, Some(48)));
    opened.conditions.synchronised = 5;
    let gate = texts(&Pair {
        base_clock: Clock::Gated,
        ..pair(&quiet, &opened, 4.0)
    });
    assert!(gate[0].starts_with("synchronisation: "), "{gate:?}");
    let events = told(&quiet, &opened, 4.0);
    assert!(!events[0].starts_with("synchronisation: "), "{events:?}");
}
