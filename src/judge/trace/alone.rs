//! What stands out in one trace, without another to hold it against.
//!
//! Causes have the names that [`super::findings`] gives them. Nothing here says that
//! something got worse; only that it costs, and what it is.

use super::summary::{KernelRow, Shape, Summary, calls};
use super::{SteadyPart, idle::Idle};
use crate::attention::moves_data;
use crate::judge::causes::launches::{short, sizes};
use crate::judge::judgement::Finding;
use crate::judge::phrase::{count, part_of, percent, time};
use crate::record::trace::Recording;

/// Share of all kernels' time from which a launch dominates.
const DOMINATES: f64 = 0.2;

/// Share of the time that passes from which idle time stands out.
const IDLE: f64 = 0.2;

/// Share of the time that passes from which copying stands out.
const COPYING: f64 = 0.1;

/// Part of the copying that may run beside kernels and still count as none.
const NONE: f64 = 0.05;

/// Modules that are loaded late without anything being compiled again: what a program
/// first uses at its end.
const LATE: u64 = 2;

/// Modules a repetition from which code is compiled again and again, rather than loaded
/// when it is first used.
const AGAIN: f64 = 0.05;

/// Finds what stands out, most telling first.
pub fn standing(
    recording: &Recording,
    whole: &Summary,
    steady: Option<&SteadyPart>,
) -> Vec<Finding> {
    let (of, repeats) = match steady {
        Some(part) => (&part.summary, part.steady.repeats),
        None => (whole, 1),
    };
    let scope = Scope {
        repeats: repeats as f64,
        word: if steady.is_some() {
            " a repetition"
        } else {
            ""
        },
    };
    let mut found = few_blocks(of, &scope);
    found.extend(recompiled(recording, of, steady));
    found.extend(waiting(&of.idle, &scope));
    found.extend(no_overlap(&of.idle, &scope));
    found.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
    found
}

/// What figures are told of: one repetition, or all of a recording.
struct Scope {
    repeats: f64,
    word: &'static str,
}

impl Scope {
    fn ns(&self, total: u64) -> f64 {
        total as f64 / self.repeats
    }
}

fn finding(cause: &str, evidence: String, confidence: f64) -> Finding {
    Finding {
        cause: cause.to_owned(),
        evidence,
        confidence,
    }
}

/// Launches with fewer blocks than the device has multiprocessors, in a kernel that
/// dominates.
fn few_blocks(of: &Summary, scope: &Scope) -> Vec<Finding> {
    let told = of.kernels.iter().filter_map(|kernel| {
        let shape = few(kernel)?;
        let (filled, sms) = shape.filled()?;
        let share = shape.total_ns as f64 / of.kernel_ns.max(1) as f64;
        let evidence = format!(
            "{}: grid {}, {filled} of {sms} SMs, {} of kernels{} ({})",
            short(&kernel.name),
            sizes(shape.grid),
            part_of(scope.ns(shape.total_ns), scope.ns(of.kernel_ns)),
            scope.word,
            percent(share)
        );
        // A few multiprocessors without a block cost little.
        let half = 2 * filled <= u64::from(sms);
        (share >= DOMINATES).then(|| finding("few-blocks", evidence, if half { 0.9 } else { 0.4 }))
    });
    told.collect()
}

/// The costliest launch of a kernel that leaves multiprocessors without a block.
fn few(kernel: &KernelRow) -> Option<&Shape> {
    let few = |shape: &&Shape| {
        let filled = shape.filled();
        filled.is_some_and(|(filled, sms)| filled < u64::from(sms))
    };
    kernel.shapes.iter().find(few)
}

/// Code that is still loaded once a program is steady: something is compiled or tuned
/// again. Of a program without a part that repeats, in its second half.
fn recompiled(recording: &Recording, of: &Summary, steady: Option<&SteadyPart>) -> Option<Finding> {
    let (loads, again, part) = match steady {
        Some(part) => {
            let loads = module_loads(&of.calls);
            let each = loads as f64 / part.steady.repeats as f64;
            let part = format!("the steady part, {each:.2} a repetition");
            (loads, each >= AGAIN, part)
        }
        None => {
            let first = recording.operations.first()?.start;
            let last = recording.operations.iter().map(|o| o.end).max()?;
            let window = (first + (last - first) / 2, last);
            let loads = module_loads(&calls(recording, Some(window)));
            (loads, true, "the second half of the recording".to_owned())
        }
    };
    let varied = of
        .kernels
        .iter()
        .map(|kernel| (versions(kernel), kernel))
        .max_by_key(|(versions, _)| *versions)
        .filter(|(versions, _)| *versions > 1)
        .map(|(versions, kernel)| {
            let name = short(&kernel.name);
            format!("; {name} ran in {versions} versions of registers, block and shared memory")
        });
    (loads > LATE && again).then(|| {
        let loads = count(loads as usize, "module");
        let evidence = format!("{loads} loaded in {part}{}", varied.unwrap_or_default());
        finding("recompiled", evidence, 0.85)
    })
}

fn module_loads(calls: &std::collections::BTreeMap<String, u64>) -> u64 {
    calls.get("module_loads").copied().unwrap_or(0)
}

/// In how many ways a kernel was compiled, as far as its launches tell.
fn versions(kernel: &KernelRow) -> usize {
    let shapes = kernel.shapes.iter();
    let versions: std::collections::BTreeSet<_> = shapes
        .map(|shape| (shape.block, shape.registers, shape.shared, shape.local))
        .collect();
    match moves_data(&kernel.name) {
        // One name of many kernels.
        true => 0,
        false => versions.len(),
    }
}

/// Idle time, and whether the host is waited for.
fn waiting(idle: &Idle, scope: &Scope) -> Option<Finding> {
    if idle.idle_share() < IDLE {
        return None;
    }
    let told = |ns: u64, share: f64| {
        format!(
            "{}{} ({}), the longest gap {}",
            part_of(scope.ns(ns), scope.ns(idle.span_ns)),
            scope.word,
            percent(share),
            time(idle.longest_gap_ns as f64)
        )
    };
    let host = idle.host_bound_share().filter(|share| *share >= IDLE);
    Some(match host {
        Some(share) => {
            let told = told(idle.host_bound_ns, share);
            let evidence = format!("device idle waiting for the host {told}");
            finding("host-bound", evidence, 0.75)
        }
        None => {
            let told = told(idle.idle_ns, idle.idle_share());
            finding("gaps", format!("device idle {told}"), 0.6)
        }
    })
}

/// Copies and sets that no kernel hides.
fn no_overlap(idle: &Idle, scope: &Scope) -> Option<Finding> {
    let share = idle.copying_ns as f64 / idle.span_ns.max(1) as f64;
    let none = idle.overlap().is_some_and(|overlap| overlap <= NONE);
    (share >= COPYING && none).then(|| {
        let evidence = format!(
            "copies and compute at once {} of copying{}",
            part_of(scope.ns(idle.overlapped_ns), scope.ns(idle.copying_ns)),
            scope.word
        );
        finding("no-overlap", evidence, 0.7)
    })
}

#[cfg(test)]
mod tests {
    use crate::judge::trace::analyse;
    use crate::record::trace::Trace;
    use crate::record::trace::testing::{Writer, steps, training};

    fn told(trace: &Trace) -> Vec<String> {
        let found = analyse(&trace.recording).findings.into_iter();
        found
            .map(|finding| format!("{}: {}", finding.cause, finding.evidence))
            .collect()
    }

    #[test]
    fn one_block_stands_out_and_a_full_device_does_not() {
        assert_eq!(
            told(&training(1)),
            [
                "few-blocks: fmha_cutlassB_f32_aligned_64x64_k32_sm80: grid 1x1x1, 1 of 132 SMs, \
              268.0 of 268.4 ms of kernels a repetition (99.9 %)"
            ]
        );
        assert!(told(&training(157)).is_empty());
        // One block in a kernel that costs nothing.
        let small = steps(|writer, _| {
            writer.kernel("flash", 132, 80_000);
            writer.kernel("seed", 1, 2_000);
        });
        assert!(told(&small).is_empty());
    }

    #[test]
    fn a_device_that_waits_says_for_whom() {
        let late = steps(|writer, _| {
            writer.kernel("flash", 132, 30_000);
            writer.host_pauses(70_000);
        });
        let all = told(&late);
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(
            all[0].starts_with("host-bound: device idle waiting for the host 62.1 of 93.0 µs"),
            "{all:?}"
        );
        let mut unknown = late.clone();
        for operation in &mut unknown.recording.operations {
            operation.launched = None;
        }
        assert!(told(&unknown)[0].starts_with("gaps: device idle 63.0 of 93.0 µs"));
    }

    #[test]
    fn copies_that_nothing_hides_stand_out() {
        let exposed = steps(|writer, _| {
            writer.kernel("a", 132, 80_000);
            writer.copy("HtoD", 1 << 20, 20_000);
        });
        assert_eq!(
            told(&exposed),
            ["no-overlap: copies and compute at once 0 of 20.0 µs of copying a repetition"]
        );
    }

    #[test]
    fn code_that_is_loaded_in_every_step_is_compiled_again() {
        let loading = |loads: u64| {
            steps(|writer, number| {
                writer.calls(&[("module_loads", 3 + loads * number)]);
                writer.kernel("matmul", 132, 80_000).registers = 100 + number as u32 % 3;
            })
        };
        assert_eq!(
            told(&loading(2)),
            [
                "recompiled: 20 modules loaded in the steady part, 2.00 a repetition; matmul ran in \
              3 versions of registers, block and shared memory"
            ]
        );
        assert!(told(&loading(0)).is_empty());
        // Three in a hundred repetitions are first uses, not a compilation in each.
        let mut lazy = Writer::new();
        for number in 0..100 {
            lazy.calls(&[("module_loads", 3 + u64::from(number > 20) * 3)]);
            lazy.kernel("matmul", 132, 80_000);
        }
        let lazy = lazy.trace();
        let steady = analyse(&lazy.recording).steady.unwrap();
        assert_eq!(steady.summary.calls["module_loads"], 3);
        assert!(told(&lazy).is_empty());
    }

    #[test]
    fn a_program_that_never_repeats_is_judged_by_its_second_half() {
        let lengths = |loads: u64| {
            let mut writer = Writer::new();
            for number in 0..24u32 {
                writer.calls(&[("module_loads", 6 + loads * u64::from(number))]);
                writer.kernel(&format!("attention_{number}"), 132 + number, 80_000);
            }
            writer.trace()
        };
        let all = told(&lengths(2));
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].starts_with("recompiled: 2"), "{all:?}");
        assert!(all[0].ends_with("loaded in the second half of the recording"));
        assert!(told(&lengths(0)).is_empty());
    }
}
