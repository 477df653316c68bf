//! Summarises a part of a trace: the device's time by kind of operation.

use std::collections::BTreeMap;

use regatta_worker::machine::{DeviceTime, Launch, Work, product};
use regatta_worker::units::Nanoseconds;
use serde::Serialize;

use super::{Recorded, Recording};

/// The figures of a part of a trace. Times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Operations of any kind.
    pub operations: usize,
    /// The use of the devices' time.
    pub time: DeviceTime,
    /// The kernels, sorted by total time, largest first.
    pub kernels: Vec<KernelRow>,
    /// Total time of all kernels, each counted in full where several ran at once.
    pub kernel_ns: u64,
    /// Copies by direction, and sets, by total time.
    pub copies: Vec<CopyRow>,
    /// API calls by name; for a part of a trace, only those that are recorded call by call.
    pub calls: BTreeMap<String, u64>,
}

/// One kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KernelRow {
    /// The name of the kernel.
    pub name: String,
    /// Launches.
    pub count: usize,
    /// Their total time.
    pub total_ns: u64,
    /// The first one's time.
    pub first_ns: u64,
    /// The shortest one's time.
    pub min_ns: u64,
    /// The longest one's time.
    pub max_ns: u64,
    /// The shapes of its launches, sorted by total time, largest first.
    pub shapes: Vec<LaunchShape>,
    /// Launches of further shapes, beyond the first `SHAPES`.
    pub other_shapes: usize,
}

/// The largest number of shapes that are listed: a grid that depends on a length may have a
/// thousand.
const SHAPES: usize = 64;

impl KernelRow {
    /// Mean time of a launch.
    pub fn mean(&self) -> Nanoseconds {
        Nanoseconds(self.total_ns as f64 / self.count.max(1) as f64)
    }
}

/// One way in which a kernel was launched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaunchShape {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Registers of a thread, where known.
    pub registers: Option<u32>,
    /// Shared memory of a block in bytes, where known.
    pub shared_bytes: Option<u64>,
    /// Local memory of a thread in bytes, where known.
    pub local_bytes: Option<u64>,
    /// Launches.
    pub count: usize,
    /// Their total time.
    pub total_ns: u64,
    /// Multiprocessors of the device, where known.
    pub sms: Option<u32>,
}

impl LaunchShape {
    /// The number of multiprocessors that have a block, and the number of all.
    pub fn filled(&self) -> Option<(u64, u32)> {
        let blocks = product(self.grid);
        self.sms.map(|sms| (blocks.min(u64::from(sms)), sms))
    }
}

/// Copies of one direction, or sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CopyRow {
    /// `HtoD`, ..., or `set`.
    pub what: String,
    /// The number of times.
    pub count: usize,
    /// Bytes in all, as far as they are known.
    pub bytes: u64,
    /// Time in all.
    pub total_ns: u64,
}

/// Summarises operations, which must be sorted by start, with the calls that were made for them.
pub fn summarise(
    recording: &Recording,
    operations: &[&Recorded],
    calls: BTreeMap<String, u64>,
) -> Summary {
    let mut kernels: BTreeMap<u32, KernelRow> = BTreeMap::new();
    let mut copies: BTreeMap<&str, CopyRow> = BTreeMap::new();
    for operation in operations {
        match &operation.work {
            Work::Kernel(kernel) => {
                let row = kernels.entry(kernel.name).or_insert_with(|| KernelRow {
                    name: recording.name(kernel).to_owned(),
                    first_ns: operation.ns(),
                    min_ns: u64::MAX,
                    ..KernelRow::default()
                });
                row.add(operation, kernel, recording.sms(operation));
            }
            Work::Copy { direction, .. } => add(&mut copies, direction, operation),
            Work::Set { .. } => add(&mut copies, "set", operation),
        }
    }
    let mut kernels: Vec<KernelRow> = kernels.into_values().collect();
    for row in &mut kernels {
        row.shapes
            .sort_by_key(|shape| std::cmp::Reverse(shape.total_ns));
    }
    kernels.sort_by(|a, b| {
        b.total_ns
            .cmp(&a.total_ns)
            .then_with(|| a.name.cmp(&b.name))
    });
    let mut copies: Vec<CopyRow> = copies.into_values().collect();
    copies.sort_by_key(|row| std::cmp::Reverse(row.total_ns));
    Summary {
        operations: operations.len(),
        time: DeviceTime::measure(operations.iter().copied()),
        kernel_ns: kernels
            .iter()
            .fold(0, |sum, row| row.total_ns.saturating_add(sum)),
        kernels,
        copies,
        calls,
    }
}

impl KernelRow {
    fn add(&mut self, operation: &Recorded, kernel: &Launch<u32>, sms: Option<u32>) {
        let ns = operation.ns();
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        let new = LaunchShape {
            grid: kernel.grid,
            block: kernel.block,
            registers: kernel.registers,
            shared_bytes: kernel.shared_bytes,
            local_bytes: kernel.local_bytes,
            count: 1,
            total_ns: ns,
            sms,
        };
        let alike = |old: &LaunchShape| {
            let (count, total_ns) = (old.count, old.total_ns);
            *old == LaunchShape {
                count,
                total_ns,
                ..new.clone()
            }
        };
        match self.shapes.iter().position(alike) {
            Some(old) => {
                self.shapes[old].count += 1;
                self.shapes[old].total_ns = self.shapes[old].total_ns.saturating_add(ns);
            }
            None if self.shapes.len() < SHAPES => self.shapes.push(new),
            None => self.other_shapes += 1,
        }
    }
}

fn add<'a>(copies: &mut BTreeMap<&'a str, CopyRow>, what: &'a str, of: &Recorded) {
    let row = copies.entry(what).or_insert_with(|| CopyRow {
        what: what.to_owned(),
        ..CopyRow::default()
    });
    row.count += 1;
    row.bytes = row.bytes.saturating_add(of.bytes().unwrap_or(0));
    row.total_ns = row.total_ns.saturating_add(of.ns());
}
