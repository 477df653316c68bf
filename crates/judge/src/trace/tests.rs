use super::*;
use crate::judgement::VerdictOutcome;
use regatta_core::machine::Scope;
use regatta_core::machine::testing::Writer;
use regatta_core::record::trace::Trace;
use regatta_core::record::trace::testing::{BACKWARD, steps, trace, training};
use regatta_worker::units::Share;

fn compared(base: &Trace, head: &Trace) -> TraceComparison {
    compare(("base", base), ("head", head), None)
}

/// The first finding of a comparison, as text.
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
        "less-parallel: grid 157x1x1 → 1x1x1, fill 132 → 1 of 132 SMs of \
         fmha_cutlassB_f32_aligned_64x64_k32_sm80, 2.60 → 268.0 ms a launch, 103.1x slower"
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
    // Nine pauses between the steps are the host's, except the microsecond after a launch.
    assert_eq!(part.summary.time.gaps, 9);
    assert_eq!(part.summary.time.idle_ns(), 9 * 60_000);
    assert_eq!(part.summary.time.host_bound_ns, Some(9 * 59_000));
    assert_eq!(part.summary.calls["module_loads"], 0);
    assert_eq!(analysis.whole.calls["launches"], 27);
}

/// A program whose repetitions have the written operations: `name@blocks:us` is a kernel, `HtoD:us`
/// a copy, `pause:us` a pause of the host, `load:number` modules that are loaded.
fn program(line: &str) -> Trace {
    steps(|writer, _| {
        for word in line.split_whitespace() {
            let (what, value) = word.split_once(':').unwrap();
            let value: u64 = value.parse().unwrap();
            match (what, what.split_once('@')) {
                ("pause", _) => writer.host_pauses(1_000 * value),
                ("load", _) => writer.moments(&vec!["module_loads"; value as usize]),
                (_, Some((kernel, blocks))) => {
                    writer.kernel(kernel, blocks.parse().unwrap(), 1_000 * value);
                }
                (copy, None) => writer.copy(copy, 1 << 20, 1_000 * value),
            }
        }
    })
}

#[test]
fn what_differs_of_two_programs_is_told_as_its_cause() {
    let copies = "copy_kernel@1000:39 ".repeat(4);
    let table = format!("
flash@132:82 ; {copies}flash@132:82 => copies-added: copies 0 → 4 of copy_kernel, 156.0 of 238.0 µs
flash@132:82 ; flash@132:82 DtoH:2 => copies-added: DtoH 0 → 1, 2.00 of 84.0 µs
flash@132:20 ; flash@132:20 pause:250 => host-bound: device idle waiting for the host 0 →
flash@132:20 ; flash@132:50 => same-launch: 20.0 → 50.0 µs a launch of flash, 2.50x slower
load:0 flash@132:20 ; load:2 flash@132:20 => modules-loaded: modules loaded 0 → 2 a repetition
load:2 flash@132:20 ; load:2 flash@132:20 =>
a@132:20 b@132:20 ; a@132:20 c@132:40 => kernel-replaced: kernel b → c, 20.0 → 40.0 µs a launch, 2.00x slower
a@132:20 b@132:20 ; a@132:20 a@132:20 a@132:20 a@132:20 b@132:20 => launches-added: launches 2 → 5
");
    for line in table.lines().filter(|line| !line.is_empty()) {
        let (sides, expected) = line.split_once("=>").unwrap();
        let (base, head) = sides.split_once(';').unwrap();
        let finding = first(&program(base), &program(head));
        assert!(finding.starts_with(expected.trim()), "{line}\n{finding}");
        assert_eq!(
            finding.is_empty(),
            expected.trim().is_empty(),
            "{line}\n{finding}"
        );
    }
    let recompiled = steps(|writer, _| {
        writer.kernel("a", 132, 20_000).registers = Some(255);
    });
    let finding = first(&program("a@132:20"), &recompiled);
    assert!(
        finding.starts_with("recompiled: registers 168 → 255 of a, "),
        "{finding}"
    );
    let late = compared(&program("a@132:20"), &program("a@132:20 pause:250"));
    assert!(late.verdict.reasons[0].starts_with("the program takes"));
}

/// The causes found in a single trace.
fn standing(trace: &Trace) -> Vec<String> {
    let findings = analyse(&trace.recording).findings.into_iter();
    findings.map(|finding| finding.to_string()).collect()
}

#[test]
fn what_costs_stands_out_in_one_trace() {
    assert_eq!(
        standing(&training(1)),
        [
            "few-blocks: grid 1x1x1 of fmha_cutlassB_f32_aligned_64x64_k32_sm80, 1 of 132 SMs, \
             268.0 of 268.4 ms of kernels a repetition (99.9 %)"
        ]
    );
    assert!(standing(&training(157)).is_empty());
    let table = "
flash@132:80 seed@1:2 =>
flash@132:30 pause:70 => host-bound: device idle waiting for the host 62.1 of 93.0 µs
a@132:80 HtoD:20 => no-overlap: copies and compute at once 0 of 20.0 µs of copying a repetition
load:0 a@132:80 =>
";
    for line in table.lines().filter(|line| !line.is_empty()) {
        let (trace, expected) = line.split_once("=>").unwrap();
        let all = standing(&program(trace));
        let begins = all
            .iter()
            .all(|finding| finding.starts_with(expected.trim()));
        let number = usize::from(!expected.trim().is_empty());
        assert!(begins && all.len() == number, "{line}\n{all:?}");
    }
    let mut unknown = program("flash@132:30 pause:70");
    for operation in &mut unknown.recording.operations {
        operation.launched_ns = None;
    }
    assert!(standing(&unknown)[0].starts_with("gaps: device idle 63.0 of 93.0 µs"));
}

#[test]
fn code_that_is_loaded_in_every_step_is_compiled_again() {
    let loading = steps(|writer, number| {
        writer.moments(&["module_loads", "module_loads"]);
        writer.kernel("matmul", 132, 80_000).registers = Some(100 + number as u32 % 3);
    });
    assert_eq!(
        standing(&loading),
        [
            "recompiled: 20 modules loaded in the steady part, 2.00 a repetition; matmul ran in \
             3 versions of registers, block and shared memory"
        ]
    );
    // Three in a hundred repetitions are first uses, not a compilation in each.
    let mut lazy = Writer::new();
    for number in 0..100 {
        lazy.moments(&["module_loads"; 3][..if number == 20 { 3 } else { 0 }]);
        lazy.kernel("matmul", 132, 80_000);
    }
    assert!(standing(&trace(lazy.recording)).is_empty());
    // A program that never repeats is judged by its second half.
    let lengths = |loads: usize| {
        let mut writer = Writer::new();
        for number in 0..24u32 {
            // The second half is that of the device's time.
            writer.host_pauses(0);
            writer.moments(&vec!["module_loads"; loads]);
            writer.kernel(&format!("softmax_{number}"), 132 + number, 80_000);
        }
        standing(&trace(writer.recording))
    };
    let all = lengths(2);
    assert!(all[0].starts_with("modules-loaded: 2"), "{all:?}");
    assert!(lengths(0).is_empty());
}

#[test]
fn what_became_faster_is_not_why_a_program_is_slower() {
    let (base, head) = (
        program("flash_v2@132:40"),
        program("flash_v3@132:30 pause:250"),
    );
    let findings = compared(&base, &head).findings;
    let causes: Vec<&str> = findings.iter().map(|f| f.cause.name()).collect();
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
        let mut trace = program(&format!("flash_fwd@132:20 pause:{pause}"));
        for operation in &mut trace.recording.operations {
            operation.launched_ns = Some(900_000);
        }
        trace
    };
    assert_eq!(
        first(&trace(1), &trace(60)),
        "gaps: device idle 900.0 ns → 54.0 µs of 74.0 µs a repetition, and works 20.0 µs"
    );
}

#[test]
fn harmless_changes_are_not_worse() {
    let base = program("a@132:20 b@132:20 DtoD:2");
    let jitter = steps(|writer, number| {
        writer.kernel("a", 132, 20_000 + 300 * number);
        writer.kernel("b", 132, 20_000 - 300 * number);
        writer.copy("DtoD", 64, 2_000);
    });
    // Larger blocks, fewer of them, the same threads.
    let blocks = steps(|writer, _| {
        writer.kernel("a", 66, 20_000).block = [256, 1, 1];
        writer.kernel("b", 132, 20_000);
        writer.copy("DtoD", 64, 2_000);
    });
    // More steps, another warm-up.
    let mut longer = Writer::new();
    longer.kernel("tuning", 7, 9_000);
    for _ in 0..25 {
        longer.kernel("a", 132, 20_000);
        longer.kernel("b", 132, 20_000);
        longer.copy("DtoD", 64, 2_000);
    }
    let mut streams = base.clone();
    for operation in &mut streams.recording.operations {
        operation.stream = Some(12);
    }
    let order = program("b@132:20 a@132:20 DtoD:2");
    for other in [order, jitter, blocks, trace(longer.recording), streams] {
        let comparison = compared(&base, &other);
        assert_eq!(
            comparison.verdict.outcome,
            VerdictOutcome::Passed,
            "{:?}",
            comparison.findings
        );
    }
}

#[test]
fn copies_behind_kernels_count_as_hidden_until_they_are_not() {
    let hidden = |shift: u64| {
        let mut trace = program("a@132:100 HtoD:50");
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
    let causes: Vec<&str> = comparison.findings.iter().map(|f| f.cause.name()).collect();
    assert!(causes.contains(&"lost-overlap"), "{causes:?}");
}

/// A collective on a stream of its own hides under the products, and on theirs it does not.
#[test]
fn a_collective_on_the_stream_that_computes_has_lost_its_overlap() {
    let reduced = |shift: u64| {
        let mut trace = program("gemm@132:100 ncclDevKernel_AllReduce@16:60 adamw@132:10");
        let gone = |at: usize| shift * (at as u64 / 3);
        // After the warm-up.
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
    assert_eq!(first.cause.name(), "lost-overlap", "{first}");
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
    assert_eq!(comparison.verdict.outcome, VerdictOutcome::Inconclusive);
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
        VerdictOutcome::Inconclusive
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
