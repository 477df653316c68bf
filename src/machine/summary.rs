//! Where the time of a stretch of a trace went.

use std::collections::BTreeMap;

use regatta_worker::machine::{DeviceTime, Launch, Work, product};
use regatta_worker::units::Nanoseconds;
use serde::Serialize;

use super::recording::{Process, Recorded, Recording};

/// A stretch of a trace in figures. Times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Summary {
    /// Operations of any kind.
    pub operations: usize,
    /// How the devices' time was spent.
    pub time: DeviceTime,
    /// By total time, the most first.
    pub kernels: Vec<KernelRow>,
    /// Total time of all kernels, each counted in full where several ran at once.
    pub kernel_ns: u64,
    /// Copies by direction, and sets, by total time.
    pub copies: Vec<CopyRow>,
    /// API calls by name; of a part of a trace an estimate, since they are counted a few
    /// times a second.
    pub calls: BTreeMap<String, u64>,
}

/// One kernel.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct KernelRow {
    /// Its name.
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
    /// How it was launched, by total time, the most first.
    pub shapes: Vec<Shape>,
    /// Launches of further shapes, beyond the first `SHAPES`.
    pub other_shapes: usize,
}

/// Shapes that are kept apart: a grid that follows a length may have a thousand.
const SHAPES: usize = 64;

impl KernelRow {
    /// Mean time of a launch.
    pub fn mean(&self) -> Nanoseconds {
        Nanoseconds(self.total_ns as f64 / self.count.max(1) as f64)
    }
}

/// One way in which a kernel was launched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Shape {
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

impl Shape {
    /// Multiprocessors that have a block at all, and how many there are.
    pub fn filled(&self) -> Option<(u64, u32)> {
        let blocks = product(self.grid);
        self.sms.map(|sms| (blocks.min(u64::from(sms)), sms))
    }
}

/// Copies of one direction, or sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct CopyRow {
    /// `HtoD`, ..., or `set`.
    pub what: String,
    /// How many.
    pub count: usize,
    /// Bytes in all, as far as they are known.
    pub bytes: u64,
    /// Time in all.
    pub total_ns: u64,
}

/// Sums up operations, which are ordered by start; `window` is the stretch they are of, or
/// nothing for all of the recording.
pub fn summarise(
    recording: &Recording,
    operations: &[&Recorded],
    window: Option<(u64, u64)>,
) -> Summary {
    let mut kernels: BTreeMap<u32, KernelRow> = BTreeMap::new();
    let mut copies: BTreeMap<&str, CopyRow> = BTreeMap::new();
    for operation in operations {
        match &operation.work {
            Work::Kernel(kernel) => {
                let row = kernels.entry(kernel.name).or_insert_with(|| KernelRow {
                    name: recording.name(kernel).to_owned(),
                    count: 0,
                    total_ns: 0,
                    first_ns: operation.ns(),
                    min_ns: u64::MAX,
                    max_ns: 0,
                    shapes: Vec::new(),
                    other_shapes: 0,
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
        time: DeviceTime::of(operations.iter().copied()),
        kernel_ns: kernels
            .iter()
            .fold(0, |sum, row| row.total_ns.saturating_add(sum)),
        kernels,
        copies,
        calls: calls(recording, window),
    }
}

impl KernelRow {
    fn add(&mut self, operation: &Recorded, kernel: &Launch<u32>, sms: Option<u32>) {
        let ns = operation.ns();
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        let new = Shape {
            grid: kernel.grid,
            block: kernel.block,
            registers: kernel.registers,
            shared_bytes: kernel.shared_bytes,
            local_bytes: kernel.local_bytes,
            count: 1,
            total_ns: ns,
            sms,
        };
        let figures = |shape: &Shape| {
            let Shape {
                grid,
                block,
                registers,
                shared_bytes,
                local_bytes,
                sms,
                ..
            } = *shape;
            (grid, block, registers, shared_bytes, local_bytes, sms)
        };
        let alike = |old: &Shape| figures(old) == figures(&new);
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
        count: 0,
        bytes: 0,
        total_ns: 0,
    });
    row.count += 1;
    row.bytes = row.bytes.saturating_add(of.bytes().unwrap_or(0));
    row.total_ns = row.total_ns.saturating_add(of.ns());
}

/// Calls are written as running counts, some times a second: of a window what was added
/// between the first and the last of them, scaled to all of it. A window that is too short for
/// two of them has only what the counts around it tell: calls that were not made from the last
/// before it to the first behind it were not made in it.
pub fn calls(recording: &Recording, window: Option<(u64, u64)>) -> BTreeMap<String, u64> {
    let mut total: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |name: &String, count: u64| *total.entry(name.clone()).or_default() += count;
    for process in &recording.processes {
        let Some((from, to)) = window else {
            let all = process
                .calls
                .last()
                .into_iter()
                .flat_map(|last| &last.counts);
            all.for_each(|(name, count)| add(name, *count));
            continue;
        };
        let mut inside = process
            .calls
            .iter()
            .filter(|calls| (from..to).contains(&calls.at));
        let both = inside.next().zip(inside.next_back());
        let Some((first, last)) = both.filter(|(first, last)| last.at > first.at) else {
            // Nothing is known of what came between, but for what never came.
            let none = none_around(process, (from, to));
            none.into_iter().for_each(|name| add(name, 0));
            continue;
        };
        let scale = (to - from) as f64 / (last.at - first.at) as f64;
        for (name, count) in &last.counts {
            // Not counted when the window began: nothing is known of what came before it.
            let Some(before) = first.counts.get(name) else {
                continue;
            };
            let since = count.saturating_sub(*before);
            add(name, (since as f64 * scale).round() as u64);
        }
    }
    total
}

/// Calls that a process did not make between the counts before a window and behind it.
fn none_around(process: &Process, (from, to): (u64, u64)) -> Vec<&String> {
    let before = process.calls.iter().rfind(|calls| calls.at <= from);
    let behind = process.calls.iter().find(|calls| calls.at >= to);
    let Some((before, behind)) = before.zip(behind) else {
        return Vec::new();
    };
    let same = |(name, count): &(&String, &u64)| before.counts.get(*name) == Some(*count);
    let none = behind.counts.iter().filter(same);
    none.map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::testing::Writer;

    #[test]
    fn a_short_window_has_the_calls_that_never_came() {
        let mut writer = Writer::new();
        writer.calls(&[("launches", 5), ("synchronisations", 3)]);
        for _ in 0..3 {
            writer.kernel("a", 1, 1_000);
        }
        writer.calls(&[("launches", 8), ("synchronisations", 3), ("frees", 1)]);
        writer.kernel("a", 1, 1_000);
        let recording = &writer.recording;
        let [first, .., last] = &recording.operations[..] else {
            panic!("{recording:?}");
        };
        let told = calls(recording, Some((first.start_ns, first.end_ns)));
        assert_eq!(told, [("synchronisations".to_owned(), 0)].into());
        // Nothing was counted behind it.
        assert!(calls(recording, Some((last.start_ns, last.end_ns + 1))).is_empty());
        assert_eq!(calls(recording, None)["launches"], 8);
    }
}
