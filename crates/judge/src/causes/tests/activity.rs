//! Causes that an activity tells: waiting for the host, gaps, copies and what hides them.

use super::{counted, found, gated, launched, only, pair, pair_of};
use crate::causes::{Clock, Pair, explained};
use crate::testing::around;
use regatta_core::machine::{ActivitySummary, DeviceTime};
use regatta_core::record::side::CaseRecord;
use regatta_worker::units::Nanoseconds;

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
    let told: Vec<String> = found(&unfused, &fused(28), 3.52)
        .into_iter()
        .map(|finding| finding.to_string())
        .collect();
    let expected = [
        "host-bound: host 50.3 → 277.0 µs a call, device idle between launches 3.00 → 210.0 µs of \
         280.0 µs, 92.9 % of it waiting for the host, device time 75.8 → 267.1 µs",
        "no-overlap: copies and compute at once 0 of 28.0 µs of copying a call",
    ];
    assert_eq!(told, expected);
    assert_eq!(only(&unfused, &fused(0), 3.52).0, "host-bound");
    // The other way round nothing waits more.
    assert!(found(&fused(28), &unfused, 0.28).is_empty());
}

#[test]
fn a_device_that_waits_for_anything_else_has_gaps() {
    let base = timed(100.0, 20.0, active(100, 98, Some(0)));
    let waits = |host_us, host_bound_us| timed(200.0, host_us, active(210, 108, host_bound_us));
    let told = |head: &CaseRecord| only(&base, head, 2.0).0;
    // The host launched in time; or it is late as it always was.
    assert_eq!(told(&waits(20.0, Some(3))), "gaps");
    assert_eq!(told(&waits(20.0, Some(90))), "gaps");
    // It waits with the device, for something else.
    assert_eq!(told(&waits(205.0, Some(3))), "gaps");
    // Launches are not known: a host that needs less than the device is not waited for.
    assert_eq!(told(&waits(190.0, None)), "gaps");
    assert_eq!(told(&waits(205.0, None)), "host-bound");
    assert_eq!(told(&waits(120.0, Some(90))), "host-bound");
    // Idle time that does not account for what is slower is no cause.
    let hardly = timed(200.0, 20.0, active(205, 190, Some(10)));
    assert!(found(&base, &hardly, 2.0).is_empty());
    assert!(found(&base, &waits(20.0, Some(3)), 1.0).is_empty());
}

/// `flash-layout` on an H200, [64, 256, 12, 64] in float16: views against needless copies.
#[test]
fn copies_are_told_with_their_part_of_the_call() {
    let kernel = "void at::native::elementwise_kernel<128, 4, at::native::Copy>(int)";
    let record = |copies: usize, device_us, host_us, activity| {
        let mut launches = vec![(kernel, 9); copies];
        launches.push(("flash_fwd", 9));
        CaseRecord {
            structure: launched(&launches).structure,
            ..timed(device_us, host_us, activity)
        }
    };
    let views = record(0, 65.7, 33.6, active(64, 64, Some(0)));
    let moving = |ns| ActivitySummary {
        moving_ns: ns,
        ..active(267, 214, Some(30))
    };
    let copies = |ns| record(4, 216.0, 95.1, moving(ns));
    let told = |head: &CaseRecord| pair_of(only(&views, head, 3.29));
    assert_eq!(
        told(&copies(Some(149_982))),
        "copies-added: 4 copy kernels added (elementwise_kernel), 150.0 of 216.0 µs"
    );
    // A baseline of an older version does not tell their time.
    assert_eq!(
        told(&copies(None)),
        "copies-added: 4 copy kernels added (elementwise_kernel)"
    );
    // Copies that cost next to nothing are not what made it slower.
    let aside = crate::causes::found(&pair(&views, &copies(Some(9_000)), 3.29).facts());
    assert!(aside[0].order < 0.6);
}

#[test]
fn streams_that_run_behind_each_other_are_told() {
    let at = |device_us: f64, at_once: Option<u64>| {
        let mut activity = active(300, 290, None);
        activity.time.streams_at_once_ns = at_once.map(|us| us * 1000);
        CaseRecord {
            activity: Some(activity),
            ..around(device_us * 1e3)
        }
    };
    let text = only(&at(100.0, Some(70)), &at(180.0, Some(0)), 1.8);
    assert_eq!(
        pair_of(text),
        "lost-overlap: kernels of two streams at once 70.0 µs → 0 a call"
    );
    // Not half of what it takes longer, as much as before, or not known.
    for (before, after) in [(Some(30), Some(0)), (Some(70), Some(70)), (None, Some(0))] {
        assert!(found(&at(100.0, before), &at(180.0, after), 1.8).is_empty());
    }
}

#[test]
fn copies_that_nothing_hides_are_told() {
    let copying = |copying_us: u64, overlap_us: u64| {
        let mut activity = active(300, 290, None);
        activity.copies = 2;
        activity.time.copying_ns = Some(copying_us * 1000);
        activity.time.overlap_ns = overlap_us * 1000;
        activity
    };
    let at = |device_us: f64, activity| CaseRecord {
        activity: Some(activity),
        ..around(device_us * 1e3)
    };
    let base = at(100.0, copying(80, 80));
    let text = only(&base, &at(180.0, copying(80, 0)), 1.8);
    assert_eq!(
        pair_of(text),
        "lost-overlap: copies and compute at once 80.0 µs → 0 a call"
    );
    let text = only(&at(100.0, copying(0, 0)), &at(180.0, copying(80, 1)), 1.8);
    assert_eq!(
        pair_of(text),
        "no-overlap: copies and compute at once 1.00 of 80.0 µs of copying a call"
    );
    // Half of it is hidden; or no more is exposed than was.
    assert!(found(&base, &at(180.0, copying(160, 80)), 1.8).is_empty());
    assert!(found(&at(100.0, copying(80, 0)), &at(180.0, copying(80, 0)), 1.8).is_empty());
}

/// A clone of q before the call, [2, 16, 512, 64] on an H200: behind a gate the host's
/// gaps in the recorded call are in no time that was judged.
#[test]
fn behind_a_gate_the_host_is_no_cause() {
    let kernel = "void at::native::elementwise_kernel<128, 4, at::native::Copy>(int)";
    let record = |launches: &[(&str, u32)], device_us, host_us, activity| CaseRecord {
        structure: launched(launches).structure,
        ..timed(device_us, host_us, activity)
    };
    let plain = record(&[("flash", 9)], 14.9, 50.0, active(15, 15, Some(0)));
    let moving = ActivitySummary {
        moving_ns: Some(2_900),
        ..active(151, 15, Some(134))
    };
    let cloned = record(&[(kernel, 9), ("flash", 9)], 18.1, 75.2, moving);
    let causes = |found: Vec<crate::judgement::Finding>| -> Vec<String> {
        found
            .into_iter()
            .map(|finding| finding.cause.to_string())
            .collect()
    };
    assert_eq!(causes(gated(&plain, &cloned, 1.215)), ["copies-added"]);
    // Under plain events the waits are in the time, and told.
    let told = causes(found(&plain, &cloned, 1.215));
    assert!(told.contains(&"host-bound".to_owned()), "{told:?}");
    let gaps = timed(200.0, 20.0, active(210, 108, Some(3)));
    let full = timed(100.0, 20.0, active(100, 98, Some(0)));
    assert_eq!(causes(found(&full, &gaps, 2.0)), ["gaps"]);
    assert!(gated(&full, &gaps, 2.0).is_empty());
}

#[test]
fn where_the_hosts_time_is_judged_it_is_told_whatever_the_clock() {
    let before = timed(14.9, 48.5, active(15, 15, Some(0)));
    let after = timed(14.9, 355.0, active(330, 15, Some(300)));
    let (told, _) = explained(&Pair {
        base_ns: Some(Nanoseconds(48.5e3)),
        head_ns: Some(Nanoseconds(355e3)),
        clock: Clock::Host,
        base_clock: Clock::Host,
        ..pair(&before, &after, 7.3)
    });
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].cause.as_str(), "host-bound");
    assert!(
        told[0]
            .evidence()
            .starts_with("host 48.5 → 355.0 µs a call"),
        "{told:?}"
    );
}

#[test]
fn waits_and_memory_of_the_driver_come_before_the_host_they_hold_up() {
    let with = |counts: &[(&str, u64)], device_us, activity| CaseRecord {
        structure: counted(counts).structure,
        ..timed(device_us, device_us, activity)
    };
    let none = [
        ("synchronisations", 0),
        ("driver_allocations", 0),
        ("driver_frees", 0),
    ];
    let quiet = with(&none, 15.0, active(15, 15, Some(0)));
    let told = |counts: &[(&str, u64)]| -> Vec<String> {
        let head = with(counts, 60.0, active(65, 15, Some(48)));
        let found = found(&quiet, &head, 4.0).into_iter();
        let two = found.map(|finding| finding.to_string());
        two.map(|text| text.chars().take(70).collect()).collect()
    };
    let waits = told(&[
        ("synchronisations", 1),
        ("driver_allocations", 0),
        ("driver_frees", 0),
    ]);
    assert_eq!(
        waits[0],
        "synchronisation: waits for the device in each call: 0 → 1"
    );
    assert!(waits[1].starts_with("host-bound: "), "{waits:?}");
    let memory = told(&[
        ("synchronisations", 1),
        ("driver_allocations", 2),
        ("driver_frees", 2),
    ]);
    assert_eq!(
        memory[0],
        "driver-memory: cudaMalloc a call 0 → 2, cudaFree a call 0 → 2"
    );
    assert!(memory[1].starts_with("synchronisation: "), "{memory:?}");
}

/// Where nobody counted, the clock knows that its gate had to be opened.
#[test]
fn a_call_that_opens_its_gate_waits_for_the_device() {
    let quiet = timed(15.0, 20.0, active(15, 15, Some(0)));
    let mut waits = timed(60.0, 60.0, active(65, 15, Some(48)));
    waits.conditions.synchronised = 5;
    let (told, _) = explained(&Pair {
        base_clock: Clock::Gated,
        ..pair(&quiet, &waits, 4.0)
    });
    assert_eq!(told[0].cause.as_str(), "synchronisation", "{told:?}");
    assert_ne!(
        found(&quiet, &waits, 4.0)[0].cause.as_str(),
        "synchronisation"
    );
}
