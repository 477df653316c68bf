//! Recordings made by hand, for the tests of what is made of them.

use super::{Launch, Operation, Process, Recording, TracedGpu, Work};

/// Adds operations one behind the other.
pub struct Writer {
    /// The recording that was made so far.
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
    pub fn new() -> Writer {
        let recording = Recording {
            processes: vec![Process {
                pid: 41,
                argv: vec!["python".to_owned(), "train.py".to_owned()],
                start: 1_000,
                cupti: Some("13.0".to_owned()),
                devices: vec![TracedGpu {
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
    pub fn kernel(&mut self, name: &str, grid: u32, ns: u64) -> &mut Launch<u32> {
        let names = &mut self.recording.names;
        let index = names.iter().position(|known| known == name);
        let index = index.unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        self.add(
            ns,
            Work::Kernel(Launch {
                name: index as u32,
                grid: [grid, 1, 1],
                block: [128, 1, 1],
                registers: Some(168),
                shared_bytes: Some(65_536),
                local_bytes: Some(0),
                ..Launch::default()
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
        self.add(
            ns,
            Work::Copy {
                direction,
                bytes: Some(bytes),
            },
        );
    }

    /// A fill by the driver.
    pub fn set(&mut self, bytes: u64, ns: u64) {
        self.add(ns, Work::Set { bytes: Some(bytes) });
    }

    /// The host does something else for a while, and the device runs out of work.
    pub fn host_pauses(&mut self, ns: u64) {
        self.now += ns;
        self.host = self.now - 1_000;
    }

    /// Calls that were made so far.
    pub fn calls(&mut self, counts: &[(&str, u64)]) {
        let counts = counts.iter().map(|(name, n)| ((*name).to_owned(), *n));
        self.recording.processes[0].calls = counts.collect();
    }

    /// Calls that the host makes now, each recorded; from the first on, all are.
    pub fn moments(&mut self, calls: &[&str]) {
        let moments = self.recording.processes[0].moments.get_or_insert_default();
        for name in calls {
            moments
                .of
                .entry((*name).to_owned())
                .or_default()
                .push(self.host);
        }
    }

    fn add(&mut self, ns: u64, work: Work<Launch<u32>>) {
        self.recording.operations.push(Operation {
            stream: Some(7),
            launched_ns: Some(self.host as i64),
            launch_ns: Some(3_000),
            ..Operation::new(work, self.now, self.now + ns)
        });
        self.now += ns;
        self.host += 10;
    }
}
