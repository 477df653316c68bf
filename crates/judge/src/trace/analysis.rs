//! One trace: where the time went, what repeats, and what stands out.

use serde::Serialize;

use crate::causes::{Standing, standing_out};
use crate::judgement::Finding;
use regatta_core::machine::{
    Recorded, Recording, SteadyPart, Summary, in_steady, steady, summarise,
};

/// A trace, analysed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// Everything that was recorded.
    pub whole: Summary,
    /// The part that repeats, where one does.
    pub steady: Option<SteadyPart>,
    /// What stands out in that part, or else in everything; most telling first.
    pub findings: Vec<Finding>,
}

/// Analyses a recording.
pub fn analyse(recording: &Recording) -> Analysis {
    let all: Vec<&Recorded> = recording.operations.iter().collect();
    let whole = summarise(recording, &all, None);
    let steady = steady(recording).map(|steady| {
        let window = Some((steady.from_ns, steady.to_ns));
        let mut summary = summarise(recording, &steady.operations(recording), window);
        // Launches and copies are operations, of which the estimate would be another number.
        let told = in_steady(recording, &steady);
        if !told.is_empty() {
            summary.calls = told;
        }
        SteadyPart { steady, summary }
    });
    Analysis {
        findings: standing_out(&Standing::of(recording, &whole, steady.as_ref())),
        whole,
        steady,
    }
}

#[cfg(test)]
mod tests {
    use super::analyse;
    use regatta_core::machine::testing::Writer;
    use regatta_core::record::trace::Trace;
    use regatta_core::record::trace::testing::{steps, trace, training};

    fn told(trace: &Trace) -> Vec<String> {
        let found = analyse(&trace.recording).findings.into_iter();
        found.map(|finding| finding.to_string()).collect()
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
            operation.launched_ns = None;
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
                writer.kernel("matmul", 132, 80_000).registers = Some(100 + number as u32 % 3);
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
        let lazy = trace(lazy.recording);
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
            trace(writer.recording)
        };
        let all = told(&lengths(2));
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].starts_with("modules-loaded: 2"), "{all:?}");
        assert!(all[0].ends_with("loaded in the second half of the recording"));
        assert!(told(&lengths(0)).is_empty());
    }
}
