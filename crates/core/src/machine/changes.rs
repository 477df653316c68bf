//! Compares the kernels of two sides by their launches: of two calls, whose launches are a set, or
//! of two recordings, whose operations are ordered.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use regatta_worker::machine::{Launch, Structure, sizes};
use regatta_worker::units::{ARROW, Nanoseconds, Ratio};
use serde::{Deserialize, Serialize};

use super::Sides;
use super::align::align;
use super::{Recorded, Recording};

/// The fate of a kernel.
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

/// A figure of a launch that both sides know and that differs: the base's value, then the head's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
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
    /// Blocks that a multiprocessor holds at once.
    Occupancy(u64, u64),
}

impl LaunchChange {
    /// The quantity that changed.
    pub fn name(&self) -> &'static str {
        match self {
            LaunchChange::Grid(..) => "grid",
            LaunchChange::Block(..) => "block",
            LaunchChange::Cluster(..) => "cluster",
            LaunchChange::Registers(..) => "registers",
            LaunchChange::SharedMemory(..) => "shared memory",
            LaunchChange::LocalMemory(..) => "local memory",
            LaunchChange::Occupancy(..) => "occupancy",
        }
    }
}

impl fmt::Display for LaunchChange {
    /// `grid 157x1x1 → 1x1x1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cluster = |sides: Option<_>| sides.map_or("none".to_owned(), sizes);
        let (before, after) = match *self {
            LaunchChange::Grid(before, after) | LaunchChange::Block(before, after) => {
                (sizes(before), sizes(after))
            }
            LaunchChange::Cluster(before, after) => (cluster(before), cluster(after)),
            LaunchChange::Registers(before, after)
            | LaunchChange::SharedMemory(before, after)
            | LaunchChange::LocalMemory(before, after)
            | LaunchChange::Occupancy(before, after) => (before.to_string(), after.to_string()),
        };
        let unit = match self {
            LaunchChange::SharedMemory(..) => " bytes",
            LaunchChange::LocalMemory(..) => " bytes a thread",
            _ => "",
        };
        write!(f, "{} {before} {ARROW} {after}{unit}", self.name())
    }
}

/// A kernel on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelChange {
    /// The fate of the kernel.
    pub became: Became,
    /// The name on either side; empty where it is not launched.
    pub name: Sides<String>,
    /// The number of launches.
    pub count: Sides<f64>,
    /// The mean time of a launch; 0 if the launches are those of a call, which have no times.
    pub mean_ns: Sides<Nanoseconds>,
    /// The launch figures that changed; of several changes of a kind, the worst.
    pub changes: Vec<LaunchChange>,
    /// The number of blocks of the launch whose grid changed most, or else of the largest.
    pub blocks: Sides<u64>,
    /// Multiprocessors of the head's device, where known.
    pub sms: Option<u32>,
    /// The factor by which the blocks and threads of that launch fell; 1 if they did not.
    pub fewer: f64,
}

impl KernelChange {
    /// Total time of its launches.
    pub fn total_ns(&self) -> Sides<Nanoseconds> {
        let (count, mean) = (self.count, self.mean_ns);
        Sides::new(mean.base * count.base, mean.head * count.head)
    }

    /// The growth of the kernel's total time.
    pub fn growth_ns(&self) -> Nanoseconds {
        self.total_ns().growth()
    }

    /// Head over base of a launch's mean time; 1 if only one side launches it.
    pub fn ratio(&self) -> Ratio {
        if self.mean_ns.base.0 > 0.0 && self.mean_ns.head.0 > 0.0 {
            self.mean_ns.head / self.mean_ns.base
        } else {
            Ratio::ONE
        }
    }

    /// The number of multiprocessors with at least one block, where the device reports its own.
    pub fn filled(&self) -> Option<Sides<u64>> {
        let sms = u64::from(self.sms?);
        Some(self.blocks.map(|blocks| sms.min(*blocks)))
    }

    /// The name in reports: the head's, or else the base's.
    pub fn called(&self) -> &str {
        if self.name.head.is_empty() {
            &self.name.base
        } else {
            &self.name.head
        }
    }
}

/// A launch of the base, and the matching one of the head.
type LaunchPair<'a, N> = (&'a Launch<N>, &'a Launch<N>);

/// Reads a figure of a launch, where it is known, and makes its change.
type Figure<N> = (fn(&Launch<N>) -> Option<u64>, fn(u64, u64) -> LaunchChange);

impl KernelChange {
    /// Compares a kernel's matching launches, and keeps the worst difference of each figure; for
    /// grids, the one that leaves the smallest part of the blocks.
    fn new<N>(name: Sides<&str>, count: Sides<usize>, pairs: &[LaunchPair<N>]) -> KernelChange {
        let mut changes = Vec::new();
        let differ = pairs
            .iter()
            .filter(|(before, after)| before.grid != after.grid);
        let grid = differ.max_by(|a, b| {
            let lost = |(before, after): &LaunchPair<N>| before.blocks().abs_diff(after.blocks());
            fewer(a).total_cmp(&fewer(b)).then(lost(a).cmp(&lost(b)))
        });
        changes.extend(grid.map(|(before, after)| LaunchChange::Grid(before.grid, after.grid)));
        let block = pairs
            .iter()
            .find(|(before, after)| before.block != after.block);
        changes.extend(block.map(|(before, after)| LaunchChange::Block(before.block, after.block)));
        let figures: [Figure<N>; 4] = [
            (
                |launch| launch.registers.map(u64::from),
                LaunchChange::Registers,
            ),
            (|launch| launch.shared_bytes, LaunchChange::SharedMemory),
            (|launch| launch.local_bytes, LaunchChange::LocalMemory),
            (
                |launch| launch.blocks_per_sm.map(u64::from),
                LaunchChange::Occupancy,
            ),
        ];
        for (figure, change) in figures {
            let both = pairs
                .iter()
                .filter_map(|(before, after)| Some((figure(before)?, figure(after)?)));
            let gravest = both.max_by_key(|(before, after)| before.abs_diff(*after));
            let gravest = gravest.filter(|(before, after)| before != after);
            changes.extend(gravest.map(|(before, after)| change(before, after)));
        }
        let cluster = pairs
            .iter()
            .find(|(before, after)| before.cluster != after.cluster);
        let cluster = cluster.map(|(before, after)| (before.cluster, after.cluster));
        changes.extend(cluster.map(|(before, after)| LaunchChange::Cluster(before, after)));
        let largest = pairs.iter().max_by_key(|(before, _)| before.blocks());
        let blocks = grid.or(largest);
        KernelChange {
            became: match (name.base.is_empty(), name.head.is_empty()) {
                (true, _) => Became::Added,
                (_, true) => Became::Removed,
                _ if name.base != name.head => Became::Replaced,
                _ => Became::Same,
            },
            name: name.map(|name| (*name).to_owned()),
            count: count.map(|count| *count as f64),
            mean_ns: Sides::default(),
            changes,
            blocks: blocks.map_or(Sides::default(), |(before, after)| {
                Sides::new(before.blocks(), after.blocks())
            }),
            sms: None,
            fewer: grid.map_or(1.0, fewer),
        }
    }
}

/// The ratio of the blocks and threads before and after, if they are fewer. The same work in larger
/// blocks does not count as fewer.
fn fewer<N>((before, after): &LaunchPair<N>) -> f64 {
    let times = |before: u64, after: u64| before as f64 / after.max(1) as f64;
    let blocks = times(before.blocks(), after.blocks());
    let threads = times(before.threads(), after.threads());
    blocks.min(threads).max(1.0)
}

/// Every kernel of either call, by its normalised name. Launches of one kernel are a set:
/// their order and their streams do not count as differences.
pub fn of_calls(base: &Structure, head: &Structure, sms: Option<u32>) -> Vec<KernelChange> {
    let (before, after) = (base.by_kernel(), head.by_kernel());
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let kernels = names.into_iter().map(|name| {
        let (before, after) = (before.get(name), after.get(name));
        of_one(name, &sorted(before), &sorted(after), sms)
    });
    kernels.collect()
}

/// Launches of a kernel in an order of their own figures.
fn sorted<'a>(launches: Option<&Vec<&'a Launch>>) -> Vec<&'a Launch> {
    let mut launches = launches.cloned().unwrap_or_default();
    launches.sort_by_key(|launch| (launch.blocks(), launch.grid, launch.block));
    launches
}

fn of_one(name: &str, before: &[&Launch], after: &[&Launch], sms: Option<u32>) -> KernelChange {
    let pairs: Vec<(&Launch, &Launch)> = if before.len() == after.len() {
        before.iter().copied().zip(after.iter().copied()).collect()
    } else {
        // It is unknown which launches match, so only the largest ones are compared.
        before
            .last()
            .copied()
            .zip(after.last().copied())
            .into_iter()
            .collect()
    };
    let launched = Sides::new(before, after);
    let largest = |launches: &&[&Launch]| launches.last().map_or(0, |launch| launch.blocks());
    let all = |launches: &&[&Launch]| {
        let blocks = launches.iter().map(|launch| launch.blocks());
        blocks.fold(0, u64::saturating_add)
    };
    let name = launched.map(|side| side.first().map_or("", |_| name));
    let mut change = KernelChange::new(name, launched.map(|side| side.len()), &pairs);
    change.sms = sms;
    if pairs.is_empty() {
        change.blocks = launched.map(largest);
    }
    // As many blocks in more launches are not less parallel.
    if after.len() > before.len() && all(&after) >= all(&before) {
        change.fewer = 1.0;
    }
    change
}

/// A side of a comparison of recordings: the operations that are aligned, and the mean time
/// of each kernel.
pub struct Launches<'a> {
    /// The recording with names and devices.
    pub recording: &'a Recording,
    /// The operations, in order.
    pub operations: Vec<&'a Recorded>,
    /// The mean time of a launch, by kernel name.
    pub mean_ns: BTreeMap<&'a str, Nanoseconds>,
}

/// Compares the kernels of two recordings; those whose time grew most come first.
pub fn of_recordings(base: &Launches, head: &Launches) -> Vec<KernelChange> {
    let (base_kernels, head_kernels) = (base.kernels(), head.kernels());
    let left: Vec<&str> = base_kernels.iter().map(|(name, ..)| *name).collect();
    let right: Vec<&str> = head_kernels.iter().map(|(name, ..)| *name).collect();
    let alignment = align(&left, &right);
    // For each pair of names, the numbers of launches, and the matching launches.
    let mut groups: BTreeMap<_, (Sides<usize>, Vec<_>)> = BTreeMap::new();
    for &(i, j) in alignment.same.iter().chain(&alignment.replaced) {
        let (count, pairs) = groups.entry((left[i], right[j])).or_default();
        (count.base, count.head) = (count.base + 1, count.head + 1);
        pairs.push((base_kernels[i].2, head_kernels[j].2));
    }
    // More or fewer launches of a kernel that both sides have are a change of its count.
    for &i in &alignment.removed {
        let own = (left[i], left[i]);
        let key = if groups.contains_key(&own) {
            own
        } else {
            (left[i], "")
        };
        groups.entry(key).or_default().0.base += 1;
    }
    for &j in &alignment.added {
        let own = (right[j], right[j]);
        let key = if groups.contains_key(&own) {
            own
        } else {
            ("", right[j])
        };
        groups.entry(key).or_default().0.head += 1;
    }
    let changes = groups.into_iter().map(|((before, after), (count, pairs))| {
        let example = head_kernels.iter().find(|(name, ..)| *name == after);
        let mean = |side: &Launches, name| side.mean_ns.get(name).copied().unwrap_or_default();
        KernelChange {
            mean_ns: Sides::new(mean(base, before), mean(head, after)),
            sms: example.and_then(|(_, operation, _)| head.recording.sms(operation)),
            ..KernelChange::new(Sides::new(before, after), count, &pairs)
        }
    });
    let mut changes: Vec<KernelChange> = changes.collect();
    changes.sort_by(|a, b| {
        let growth = b.growth_ns().total_cmp(&a.growth_ns());
        growth.then_with(|| a.name.base.cmp(&b.name.base))
    });
    changes
}

impl<'a> Launches<'a> {
    fn kernels(&self) -> Vec<(&'a str, &'a Recorded, &'a Launch<u32>)> {
        let kernels = self.operations.iter().filter_map(|operation| {
            let kernel = operation.kernel()?;
            Some((self.recording.name(kernel), *operation, kernel))
        });
        kernels.collect()
    }
}
