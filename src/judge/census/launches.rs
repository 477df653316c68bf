//! Kernels of two traces, held against each other by what became of their launches.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

use super::align::align;
use super::sides::Sides;
use crate::judge::kernels::sizes;
use crate::judge::phrase::{self, from_to};
use crate::record::trace::{Kernel, Operation, Recording};
use crate::units::ARROW;

/// What became of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Became {
    /// It is launched on both sides.
    Same,
    /// Another one is launched in its place.
    Replaced,
    /// Only the head launches it.
    Added,
    /// Only the base launches it.
    Removed,
}

/// A figure of a launch, before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchChange {
    /// Blocks in x, y, z.
    Grid([u32; 3], [u32; 3]),
    /// Threads of a block in x, y, z.
    Block([u32; 3], [u32; 3]),
    /// Blocks of a cluster in x, y, z, where there are clusters.
    Cluster(Option<[u32; 3]>, Option<[u32; 3]>),
    /// Registers of a thread.
    Registers(u64, u64),
    /// Static and dynamic shared memory of a block, in bytes.
    SharedMemory(u64, u64),
    /// Local memory of a thread, in bytes.
    LocalMemory(u64, u64),
}

impl LaunchChange {
    /// True when it is a change at all.
    pub fn differs(&self) -> bool {
        match *self {
            LaunchChange::Grid(before, after) | LaunchChange::Block(before, after) => {
                before != after
            }
            LaunchChange::Cluster(before, after) => before != after,
            LaunchChange::Registers(before, after)
            | LaunchChange::SharedMemory(before, after)
            | LaunchChange::LocalMemory(before, after) => before != after,
        }
    }
}

impl fmt::Display for LaunchChange {
    /// `grid 157x1x1 → 1x1x1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cluster = |sides: Option<_>| sides.map_or("none".to_owned(), sizes);
        let (what, before, after) = match *self {
            LaunchChange::Grid(before, after) => ("grid", sizes(before), sizes(after)),
            LaunchChange::Block(before, after) => ("block", sizes(before), sizes(after)),
            LaunchChange::Cluster(before, after) => ("cluster", cluster(before), cluster(after)),
            LaunchChange::Registers(before, after) => {
                ("registers", before.to_string(), after.to_string())
            }
            LaunchChange::SharedMemory(before, after) => {
                ("shared memory", before.to_string(), after.to_string())
            }
            LaunchChange::LocalMemory(before, after) => {
                ("local memory", before.to_string(), after.to_string())
            }
        };
        write!(f, "{what} {before} {ARROW} {after}")
    }
}

impl Serialize for LaunchChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A kernel, before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelChange {
    /// What became of it.
    pub became: Became,
    /// Its name on either side; empty where it is not launched.
    pub name: Sides<String>,
    /// Launches.
    pub count: Sides<f64>,
    /// Mean time of a launch in nanoseconds.
    pub mean_ns: Sides<f64>,
    /// Figures of its launch that changed.
    pub changes: Vec<LaunchChange>,
    /// Multiprocessors with at least one block, of the launch that lost most blocks.
    pub filled: Option<Sides<u64>>,
    /// Multiprocessors of the head's device, where known.
    pub sms: Option<u32>,
    /// How many times fewer blocks and threads that launch has; 1 where it has no fewer.
    pub fewer: f64,
}

impl KernelChange {
    /// Total time of its launches in nanoseconds.
    pub fn total_ns(&self) -> Sides<f64> {
        let (count, mean) = (self.count, self.mean_ns);
        Sides::of(count.base * mean.base, count.head * mean.head)
    }

    /// Nanoseconds that it takes more.
    pub fn growth_ns(&self) -> f64 {
        self.total_ns().growth()
    }

    /// Head over base of a launch's time; 1 where it is on one side only.
    pub fn ratio(&self) -> f64 {
        match self.mean_ns.base > 0.0 && self.mean_ns.head > 0.0 {
            true => self.mean_ns.head / self.mean_ns.base,
            false => 1.0,
        }
    }

    /// `2.60 → 268.0 ms, 103.1x slower`, of a launch.
    pub fn times(&self) -> String {
        let times = from_to(self.mean_ns.base, self.mean_ns.head);
        format!("{times}, {}", phrase::change(self.ratio()))
    }

    /// The name to call it by.
    pub fn called(&self) -> &str {
        match self.name.head.is_empty() {
            true => &self.name.base,
            false => &self.name.head,
        }
    }
}

/// A side of a comparison: its recording, the operations that are aligned, and the mean
/// time of each kernel.
pub struct Launches<'a> {
    /// What names and devices are in.
    pub recording: &'a Recording,
    /// In order.
    pub operations: Vec<&'a Operation>,
    /// Nanoseconds by kernel name.
    pub mean_ns: BTreeMap<&'a str, f64>,
}

/// Launches of one pair of kernels, by their indices.
#[derive(Default)]
struct Group {
    both: Vec<(usize, usize)>,
    base: usize,
    head: usize,
}

/// Pairs kernels up. The ones that take most more time come first.
pub fn changes(base: &Launches, head: &Launches) -> Vec<KernelChange> {
    let (base_kernels, head_kernels) = (base.kernels(), head.kernels());
    let left: Vec<&str> = base_kernels.iter().map(|(name, ..)| *name).collect();
    let right: Vec<&str> = head_kernels.iter().map(|(name, ..)| *name).collect();
    let alignment = align(&left, &right);
    let mut groups: BTreeMap<(&str, &str), Group> = BTreeMap::new();
    for &(i, j) in alignment.same.iter().chain(&alignment.replaced) {
        let group = groups.entry((left[i], right[j])).or_default();
        group.both.push((i, j));
        (group.base, group.head) = (group.base + 1, group.head + 1);
    }
    // More or fewer launches of a kernel that both sides have are a change of its count.
    let own = |groups: &BTreeMap<(&str, &str), Group>, name, alone| {
        let own = groups.contains_key(&(name, name));
        if own { (name, name) } else { alone }
    };
    for &i in &alignment.removed {
        let key = own(&groups, left[i], (left[i], ""));
        groups.entry(key).or_default().base += 1;
    }
    for &j in &alignment.added {
        let key = own(&groups, right[j], ("", right[j]));
        groups.entry(key).or_default().head += 1;
    }
    let changes = groups.into_iter().map(|((before, after), group)| {
        let pairs = group.both.iter();
        let pairs = pairs.map(|&(i, j)| (base_kernels[i].2, head_kernels[j].2));
        let example = head_kernels.iter().find(|(name, ..)| *name == after);
        let sms = example.and_then(|(_, operation, _)| head.recording.sms(operation));
        let pairs: Vec<(&Kernel, &Kernel)> = pairs.collect();
        change(before, after, &group, &pairs, sms, [base, head])
    });
    let mut changes: Vec<KernelChange> = changes.collect();
    changes.sort_by(|a, b| {
        let growth = b.growth_ns().total_cmp(&a.growth_ns());
        growth.then_with(|| a.name.base.cmp(&b.name.base))
    });
    changes
}

impl<'a> Launches<'a> {
    fn kernels(&self) -> Vec<(&'a str, &'a Operation, &'a Kernel)> {
        let kernels = self.operations.iter().filter_map(|operation| {
            let kernel = operation.kernel()?;
            Some((self.recording.name(kernel), *operation, kernel))
        });
        kernels.collect()
    }
}

fn change(
    before: &str,
    after: &str,
    group: &Group,
    pairs: &[(&Kernel, &Kernel)],
    sms: Option<u32>,
    [base, head]: [&Launches; 2],
) -> KernelChange {
    let fewer = |(before, after): &(&Kernel, &Kernel)| -> f64 {
        // The same work in larger blocks is no loss.
        let blocks = before.blocks() as f64 / after.blocks().max(1) as f64;
        let threads = before.threads() as f64 / after.threads().max(1) as f64;
        blocks.min(threads).max(1.0)
    };
    let differ = |(before, after): &&(&Kernel, &Kernel)| !launch_changes(before, after).is_empty();
    let told = pairs
        .iter()
        .filter(differ)
        .max_by(|a, b| fewer(a).total_cmp(&fewer(b)));
    let filled = |kernel: &Kernel| sms.map(|sms| kernel.blocks().min(u64::from(sms)));
    let mean = |side: &Launches, name| side.mean_ns.get(name).copied().unwrap_or(0.0);
    KernelChange {
        became: match (before.is_empty(), after.is_empty()) {
            (true, _) => Became::Added,
            (_, true) => Became::Removed,
            _ if before == after => Became::Same,
            _ => Became::Replaced,
        },
        name: Sides::of(before.to_owned(), after.to_owned()),
        count: Sides::of(group.base as f64, group.head as f64),
        mean_ns: Sides::of(mean(base, before), mean(head, after)),
        changes: told.map_or_else(Vec::new, |(before, after)| launch_changes(before, after)),
        filled: told.and_then(|(before, after)| Sides::both(filled(before), filled(after))),
        sms,
        fewer: told.map_or(1.0, fewer),
    }
}

/// What differs between two launches.
fn launch_changes(before: &Kernel, after: &Kernel) -> Vec<LaunchChange> {
    let number = u64::from;
    let all = [
        LaunchChange::Grid(before.grid, after.grid),
        LaunchChange::Block(before.block, after.block),
        LaunchChange::Cluster(before.cluster, after.cluster),
        LaunchChange::Registers(number(before.registers), number(after.registers)),
        LaunchChange::SharedMemory(before.shared(), after.shared()),
        LaunchChange::LocalMemory(before.local, after.local),
    ];
    all.into_iter().filter(LaunchChange::differs).collect()
}
