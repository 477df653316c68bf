use super::*;
use crate::judgement::VerdictOutcome;
use regatta_core::machine::Scope;
use regatta_core::machine::testing::Writer;
use regatta_core::record::trace::Trace;
use regatta_core::record::trace::testing::{BACKWARD, steps, trace, training};
use regatta_worker::units::Share;

fn compared(base: &Trace, head: &Trace) -> Comparison {
    compare(("base", base), ("head", head), None)
}

/// The first finding of a comparison, as it is told.
fn first(base: &Trace, head: &Trace) -> String {
    let comparison = compared(base, head);
    let first = comparison.findings.first();
    first.map_or_else(String::new, ToString::to_string)
}

#[test]
fn the_lost_splits_come_first_with_everything_one_asks() {
    let (base, head) = (training(157), training(1));
    assert_eq!(
        first(&base, &head),
        "less-parallel: fmha_cutlassB_f32_aligned_64x64_k32_sm80: grid 157x1x1 → 1x1x1, \
         1 of 132 SMs, 2.60 → 268.0 ms, 103.1x slower"
    );
    let comparison = compared(&base, &head);
    assert_eq!(comparison.verdict.outcome, VerdictOutcome::Failed);
    assert_eq!(comparison.scope, Scope::Repetition);
    // The other way round something got better.
    let back = compared(&head, &base);
    assert_eq!(
        back.verdict.outcome,
        VerdictOutcome::Passed,
        "{:?}",
        back.findings
    );
}

#[test]
fn the_steady_part_is_neither_warm_up_nor_tail() {
    let trace = training(157);
    let analysis = analyse(&trace.recording);
    let part = analysis.steady.unwrap();
    assert_eq!((part.steady.period, part.steady.repeats), (3, 10));
    assert_eq!(part.summary.kernels.len(), 3);
    assert_eq!(part.summary.kernels[0].name, BACKWARD);
    assert_eq!(analysis.whole.kernels.len(), 4);
    assert_eq!(part.summary.copies, []);
    // Nine pauses between the steps: the host's, but for the microsecond after a launch.
    assert_eq!(part.summary.time.gaps, 9);
    assert_eq!(part.summary.time.idle_ns(), 9 * 60_000);
    assert_eq!(part.summary.time.host_bound_ns, Some(9 * 59_000));
    assert_eq!(part.summary.calls["launches"], 30);
    assert_eq!(part.summary.calls["module_loads"], 0);
}

#[test]
fn a_kernel_that_ends_a_program_three_times_is_no_loop() {
    let mut writer = Writer::new();
    let names = [
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "z", "z", "z",
    ];
    for name in names {
        writer.kernel(name, 1, 1_000);
    }
    assert_eq!(analyse(&trace(writer.recording).recording).steady, None);
}

#[test]
fn copies_that_were_added_are_counted_and_timed() {
    let plain = steps(|writer, _| {
        writer.kernel("flash_fwd", 132, 82_000);
    });
    let copying = steps(|writer, _| {
        for _ in 0..4 {
            writer.kernel("void at::native::copy_kernel<float>(int)", 1_000, 39_000);
        }
        writer.kernel("flash_fwd", 132, 82_000);
    });
    assert_eq!(
        first(&plain, &copying),
        "copies-added: 4 copy kernels added (copy_kernel), 156.0 of 238.0 µs"
    );
    let fetched = steps(|writer, _| {
        writer.kernel("flash_fwd", 132, 82_000);
        writer.copy("DtoH", 4, 2_000);
    });
    assert_eq!(
        first(&plain, &fetched),
        "copies-added: DtoH 0 → 1, 2.00 of 84.0 µs"
    );
}

#[test]
fn a_late_host_is_told_from_a_slow_device() {
    let quick = steps(|writer, _| {
        writer.kernel("flash_fwd", 132, 20_000);
    });
    let late = steps(|writer, _| {
        writer.kernel("flash_fwd", 132, 20_000);
        writer.host_pauses(250_000);
    });
    let told = first(&quick, &late);
    assert!(
        told.starts_with("host-bound: device idle waiting for the host 0 → "),
        "{told}"
    );
    let comparison = compared(&quick, &late);
    assert_eq!(
        comparison.verdict.reasons.len(),
        1,
        "{:?}",
        comparison.verdict
    );
    assert!(comparison.verdict.reasons[0].starts_with("the program takes"));
    let slow = steps(|writer, _| {
        writer.kernel("flash_fwd", 132, 50_000);
    });
    let told = first(&quick, &slow);
    assert!(
        told.starts_with("same-launch: flash_fwd: 20.0 → 50.0 µs"),
        "{told}"
    );
}

#[test]
fn what_became_faster_is_not_why_a_program_is_slower() {
    let base = steps(|writer, _| {
        writer.kernel("flash_v2", 132, 40_000);
    });
    let head = steps(|writer, _| {
        writer.kernel("flash_v3", 132, 30_000);
        writer.host_pauses(250_000);
    });
    let findings = compared(&base, &head).findings;
    let causes: Vec<&str> = findings.iter().map(|f| f.cause.as_str()).collect();
    assert_eq!(causes, ["host-bound", "kernel-replaced"], "{findings:?}");
    let shares: Vec<bool> = findings.iter().map(|f| f.share.unwrap().0 > 0.0).collect();
    assert_eq!(
        shares,
        [true, false],
        "a gain has less than no share: {findings:?}"
    );
}

#[test]
fn gaps_that_are_not_the_hosts_are_gaps() {
    let trace = |pause: u64| {
        let mut trace = steps(|writer, _| {
            writer.kernel("flash_fwd", 132, 20_000);
            writer.host_pauses(pause);
        });
        for operation in &mut trace.recording.operations {
            operation.launched_ns = Some(900_000);
        }
        trace
    };
    assert_eq!(
        first(&trace(1_000), &trace(60_000)),
        "gaps: device idle 900.0 ns → 54.0 µs of 74.0 µs a repetition, and works 20.0 µs"
    );
}

#[test]
fn modules_that_are_loaded_in_every_repetition_come_first() {
    let trace = |loads: u64| {
        steps(|writer, number| {
            writer.calls(&[("module_loads", 3 + loads * number)]);
            writer.kernel("flash_fwd", 132, 20_000);
        })
    };
    assert_eq!(
        first(&trace(0), &trace(2)),
        "modules-loaded: modules loaded 0 → 2 a repetition"
    );
    assert_eq!(first(&trace(2), &trace(2)), "");
}

#[test]
fn another_kernel_more_launches_and_another_compilation_have_names_of_their_own() {
    let base = steps(|writer, _| {
        writer.kernel("a", 132, 20_000);
        writer.kernel("b", 132, 20_000);
    });
    let replaced = steps(|writer, _| {
        writer.kernel("a", 132, 20_000);
        writer.kernel("c", 132, 40_000);
    });
    assert_eq!(
        first(&base, &replaced),
        "kernel-replaced: b → c: 20.0 → 40.0 µs, 2.00x slower"
    );
    let more = steps(|writer, _| {
        for _ in 0..4 {
            writer.kernel("a", 132, 20_000);
        }
        writer.kernel("b", 132, 20_000);
    });
    assert_eq!(first(&base, &more), "launches-added: launches 2 → 5");
    let recompiled = steps(|writer, _| {
        writer.kernel("a", 132, 20_000).registers = Some(255);
        writer.kernel("b", 132, 20_000);
    });
    let told = first(&base, &recompiled);
    assert!(
        told.starts_with("recompiled: a: registers 168 → 255"),
        "{told}"
    );
}

#[test]
fn harmless_changes_are_not_worse() {
    let base = steps(|writer, _| {
        writer.kernel("a", 132, 20_000);
        writer.kernel("b", 132, 20_000);
        writer.copy("DtoD", 64, 2_000);
    });
    let mut others: Vec<Trace> = vec![
        // Order, jitter, more steps, another warm-up.
        steps(|writer, _| {
            writer.kernel("b", 132, 20_000);
            writer.kernel("a", 132, 20_000);
            writer.copy("DtoD", 64, 2_000);
        }),
        steps(|writer, number| {
            writer.kernel("a", 132, 20_000 + 300 * number);
            writer.kernel("b", 132, 20_000 - 300 * number);
            writer.copy("DtoD", 64, 2_000);
        }),
        // Larger blocks, fewer of them, the same threads.
        steps(|writer, _| {
            let kernel = writer.kernel("a", 66, 20_000);
            kernel.block = [256, 1, 1];
            writer.kernel("b", 132, 20_000);
            writer.copy("DtoD", 64, 2_000);
        }),
    ];
    let mut longer = Writer::new();
    longer.kernel("tuning", 7, 9_000);
    for _ in 0..25 {
        longer.kernel("a", 132, 20_000);
        longer.kernel("b", 132, 20_000);
        longer.copy("DtoD", 64, 2_000);
    }
    others.push(trace(longer.recording));
    let mut streams = base.clone();
    for operation in &mut streams.recording.operations {
        operation.stream = Some(12);
    }
    others.push(streams);
    for other in others {
        let comparison = compared(&base, &other);
        let told = (&comparison.verdict, &comparison.findings);
        assert_eq!(
            comparison.verdict.outcome,
            VerdictOutcome::Passed,
            "{told:?}"
        );
    }
}

#[test]
fn copies_behind_kernels_count_as_hidden_until_they_are_not() {
    let hidden = |shift: u64| {
        let mut trace = steps(|writer, _| {
            writer.kernel("a", 132, 100_000);
            writer.copy("HtoD", 1 << 20, 50_000);
        });
        for operation in &mut trace.recording.operations {
            if operation.kernel().is_none() {
                operation.stream = Some(13);
                operation.start_ns -= shift;
                operation.end_ns -= shift;
            }
        }
        trace
            .recording
            .operations
            .sort_by_key(|operation| operation.start_ns);
        trace
    };
    let (base, head) = (hidden(80_000), hidden(0));
    let overlap = |trace: &Trace| {
        analyse(&trace.recording)
            .steady
            .unwrap()
            .summary
            .time
            .overlap()
    };
    assert_eq!(
        (overlap(&base), overlap(&head)),
        (Some(Share(1.0)), Some(Share(0.0)))
    );
    let comparison = compared(&base, &head);
    let causes: Vec<&str> = comparison
        .findings
        .iter()
        .map(|f| f.cause.as_str())
        .collect();
    assert!(causes.contains(&"lost-overlap"), "{causes:?}");
}

/// A collective on a stream of its own hides under the products, and on theirs it does not.
#[test]
fn a_collective_on_the_stream_that_computes_has_lost_its_overlap() {
    let reduced = |shift: u64| {
        let mut trace = steps(|writer, _| {
            writer.kernel("gemm", 132, 100_000);
            writer.kernel("ncclDevKernel_AllReduce", 16, 60_000);
            writer.kernel("adamw", 132, 10_000);
        });
        let gone = |at: usize| shift * (at as u64 / 3);
        // Behind the warm-up.
        let steps = trace.recording.operations.iter_mut().skip(1);
        for (at, operation) in steps.enumerate() {
            let own = if at % 3 == 0 { 0 } else { shift };
            if at % 3 == 1 && shift > 0 {
                operation.stream = Some(13);
            }
            operation.start_ns -= gone(at) + own;
            operation.end_ns -= gone(at) + own;
            operation.launched_ns = Some(operation.start_ns as i64 - 1_000);
        }
        trace
    };
    let (base, head) = (reduced(55_000), reduced(0));
    let comparison = compared(&base, &head);
    let first = &comparison.findings[0];
    assert_eq!(first.cause.as_str(), "lost-overlap", "{first}");
    assert!(
        first
            .to_string()
            .contains("kernels of two streams at once 55.0 µs → 0"),
        "{first}"
    );
    let same = compared(&base, &reduced(55_000));
    assert!(same.findings.is_empty(), "{:?}", same.findings);
}

#[test]
fn another_device_is_not_judged_by_its_times() {
    let base = training(157);
    let mut head = training(157);
    head.recording.processes[0].devices[0].name = "NVIDIA A100".to_owned();
    head.recording.processes[0].devices[0].sms = 108;
    let comparison = compared(&base, &head);
    assert_eq!(comparison.verdict.outcome, VerdictOutcome::NotJudged);
    assert_eq!(comparison.incomparable[0].field, "devices");
    // One block where there were 157 is worse on any device.
    let mut one = training(1);
    one.recording.processes[0].devices[0].sms = 108;
    assert_eq!(
        compared(&base, &one).verdict.outcome,
        VerdictOutcome::Failed
    );
    let mut empty = training(1);
    empty.recording = Default::default();
    assert_eq!(
        compared(&base, &empty).verdict.outcome,
        VerdictOutcome::NotJudged
    );
}

#[test]
fn what_does_not_repeat_is_compared_whole() {
    let mut writer = Writer::new();
    writer.kernel("a", 10, 1_000);
    writer.kernel("b", 10, 1_000);
    let trace = trace(writer.recording);
    let comparison = compared(&trace, &training(157));
    assert_eq!(comparison.scope, Scope::Whole);
    assert!(
        comparison
            .notes
            .iter()
            .any(|note| note.contains("no part that repeats"))
    );
}

#[test]
fn a_hundred_thousand_operations_are_analysed() {
    let mut writer = Writer::new();
    for number in 0..100_000u32 {
        writer.kernel(["a", "b", "c", "d"][(number % 4) as usize], number, 1_000);
    }
    let trace = trace(writer.recording);
    let part = analyse(&trace.recording).steady.unwrap();
    assert_eq!(part.steady.period, 4);
    let row = &analyse(&trace.recording).whole.kernels[0];
    assert_eq!(row.count, 25_000);
    assert_eq!(row.shapes.len() + row.other_shapes, 25_000);
}
