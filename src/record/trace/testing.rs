//! Traces made by hand, for the tests of what is made of them.

use super::{Calls, Device, Kernel, Operation, Process, Recording, Trace, TraceHeader, Work};
use crate::record::types::Fingerprint;

/// The backward kernel whose grid is the number of key splits.
pub const BACKWARD: &str =
    "fmha_cutlassB_f32_aligned_64x64_k32_sm80(PyTorchMemEffAttention::AttentionBackwardKernel)";

/// Adds operations one behind the other.
pub struct Writer {
    /// What was added.
    pub recording: Recording,
    now: u64,
    host: u64,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer::new()
    }
}

impl Writer {
    /// One process on one H200.
    pub(crate) fn new() -> Writer {
        let recording = Recording {
            processes: vec![Process {
                pid: 41,
                argv: vec!["python".to_owned(), "train.py".to_owned()],
                start: 1_000,
                cupti: Some("13.0".to_owned()),
                devices: vec![Device {
                    ordinal: 0,
                    name: "NVIDIA H200".to_owned(),
                    sms: 132,
                    capability: "9.0".to_owned(),
                }],
                ended: true,
                ..Process::default()
            }],
            ..Recording::default()
        };
        Writer {
            recording,
            now: 1_000_000,
            host: 900_000,
        }
    }

    /// A kernel launched ahead of the device.
    pub fn kernel(&mut self, name: &str, grid: u32, ns: u64) -> &mut Kernel {
        let names = &mut self.recording.names;
        let index = names.iter().position(|known| known == name);
        let index = index.unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        self.add(
            ns,
            Work::Kernel(Kernel {
                name: index as u32,
                grid: [grid, 1, 1],
                block: [128, 1, 1],
                registers: 168,
                dynamic_shared: 65_536,
                ..Kernel::default()
            }),
        );
        match self
            .recording
            .operations
            .last_mut()
            .map(|last| &mut last.work)
        {
            Some(Work::Kernel(kernel)) => kernel,
            _ => unreachable!("a kernel was just added"),
        }
    }

    /// A copy.
    pub fn copy(&mut self, direction: &str, bytes: u64, ns: u64) {
        let direction = direction.to_owned();
        self.add(ns, Work::Copy { direction, bytes });
    }

    /// A fill by the driver.
    pub fn set(&mut self, bytes: u64, ns: u64) {
        self.add(ns, Work::Set { bytes });
    }

    /// Operations so far.
    pub fn recording_len(&self) -> usize {
        self.recording.operations.len()
    }

    /// The host does something else for a while, and the device runs out of work.
    pub fn host_pauses(&mut self, ns: u64) {
        self.now += ns;
        self.host = self.now - 1_000;
    }

    /// Running counts of calls.
    pub fn calls(&mut self, counts: &[(&str, u64)]) {
        let counts = counts.iter().map(|(name, n)| ((*name).to_owned(), *n));
        self.recording.processes[0].calls.push(Calls {
            at: self.now,
            counts: counts.collect(),
        });
    }

    fn add(&mut self, ns: u64, work: Work) {
        self.recording.operations.push(Operation {
            process: 0,
            device: 0,
            stream: 7,
            start: self.now,
            end: self.now + ns,
            launched: Some(self.host),
            launch_ns: Some(3_000),
            work,
        });
        self.now += ns;
        self.host += 10;
    }

    /// The trace of it.
    pub fn trace(self) -> Trace {
        Trace {
            header: TraceHeader {
                schema: 1,
                method: 1,
                tool: "0.1.0".to_owned(),
                argv: Vec::new(),
                command: vec!["python".to_owned(), "train.py".to_owned()],
                started: "2026-01-05T12:00:00Z".parse().unwrap(),
                ended: "exit code 0".to_owned(),
                git: None,
                machine: Fingerprint {
                    name: "h200-132sm".to_owned(),
                    ..Fingerprint::default()
                },
            },
            recording: self.recording,
        }
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
    writer.trace()
}

/// A warm-up and ten steps of what `step` adds.
pub fn steps(mut step: impl FnMut(&mut Writer, u64)) -> Trace {
    let mut writer = Writer::new();
    writer.kernel("warm_up", 1, 1_000);
    for number in 0..10 {
        step(&mut writer, number);
    }
    writer.trace()
}
