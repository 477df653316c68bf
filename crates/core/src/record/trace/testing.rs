//! Traces made by hand, for the tests of what is made of them.

use super::{Trace, TraceHeader};
use crate::machine::Recording;
use crate::machine::testing::Writer;
use crate::record::Fingerprint;

/// The backward kernel whose grid is the number of key splits.
pub const BACKWARD: &str = "fmha_cutlassB_f32_aligned_64x64_k32_sm80(BackwardKernel::Params)";

/// The trace that a recording is of.
pub fn trace(recording: Recording) -> Trace {
    Trace {
        header: TraceHeader {
            schema: crate::record::SCHEMA_VERSION,
            method: 1,
            tool: "0.1.0".to_owned(),
            command: vec!["python".to_owned(), "train.py".to_owned()],
            started: "2026-01-05T12:00:00Z".parse().unwrap(),
            ended: "exit code 0".to_owned(),
            machine: Fingerprint {
                name: "h200-132sm".to_owned(),
                ..Fingerprint::default()
            },
            ..TraceHeader::default()
        },
        recording,
    }
}

/// A training loop: a warm-up, ten steps whose backward runs in `splits` blocks, a result
/// that is fetched.
pub fn training(splits: u32) -> Trace {
    let mut writer = Writer::new();
    writer.copy("HtoD", 4 << 20, 300_000);
    writer.kernel("void at::native::fill_kernel<float>(int)", 40_000, 5_000);
    writer.host_pauses(2_000_000);
    for step in 0..10 {
        let backward_ns = if splits < 157 { 268_000_000 } else { 2_600_000 };
        let forward_ns = if step == 0 { 900_000 } else { 310_000 };
        writer.calls(&[
            ("module_loads", 3),
            ("launches", 3 * step),
            ("synchronisations", 0),
        ]);
        writer.moments(&[]);
        writer.kernel(
            "fmha_cutlassF_f32_aligned_64x64_rf_sm80(Params)",
            157,
            forward_ns,
        );
        writer.kernel(BACKWARD, splits, backward_ns);
        writer.kernel(
            "void at::native::vectorized_elementwise_kernel<4>(int)",
            1_250,
            4_000,
        );
        writer.host_pauses(60_000);
    }
    writer.copy("DtoH", 4, 1_500);
    trace(writer.recording)
}

/// A warm-up and ten steps of what `step` adds.
pub fn steps(mut step: impl FnMut(&mut Writer, u64)) -> Trace {
    let mut writer = Writer::new();
    writer.kernel("warm_up", 1, 1_000);
    for number in 0..10 {
        step(&mut writer, number);
    }
    trace(writer.recording)
}
