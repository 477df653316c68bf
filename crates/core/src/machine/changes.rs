//! Kernels of two sides, compared by what became of their launches: of two
//! calls, whose launches are a set, or of two recordings, whose operations are in order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use regatta_worker::machine::{Launch, Structure, sizes};
use regatta_worker::units::{ARROW, Nanoseconds, Ratio};
use serde::{Deserialize, Serialize};

use super::Sides;
use super::align::align;
use super::{Recorded, Recording};

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

/// A figure of a launch, before and after, that is known of both and differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LaunchChange {
    /// Blocks in x, y, z.
    Grid([u32; 3], [u32; 3]),
    /// Threads of a block in x, y, z.
    Block([u32; 3], [u32; 3]),
    /// Blocks of a cluster in x, y, z, where there are clusters; only recordings tell.
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

impl fmt::Display for LaunchChange {
    /// `grid 157x1x1 → 1x1x1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cluster = |sides: Option<_>| sides.map_or("none".to_owned(), sizes);
        let number = |what, before: u64, after: u64| (what, before.to_string(), after.to_string());
        let (what, before, after) = match *self {
            LaunchChange::Grid(before, after) => ("grid", sizes(before), sizes(after)),
            LaunchChange::Block(before, after) => ("block", sizes(before), sizes(after)),
            LaunchChange::Cluster(before, after) => ("cluster", cluster(before), cluster(after)),
            LaunchChange::Registers(before, after) => number("registers", before, after),
            LaunchChange::SharedMemory(before, after) => number("shared memory", before, after),
            LaunchChange::LocalMemory(before, after) => number("local memory", before, after),
            LaunchChange::Occupancy(before, after) => number("occupancy", before, after),
        };
        let unit = match self {
            LaunchChange::SharedMemory(..) => " bytes",
            LaunchChange::LocalMemory(..) => " bytes a thread",
            _ => "",
        };
        write!(f, "{what} {before} {ARROW} {after}{unit}")
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
    /// Mean time of a launch; 0 where only a call tells of it.
    pub mean_ns: Sides<Nanoseconds>,
    /// Figures of its launches that changed, each the gravest of its kind.
    pub changes: Vec<LaunchChange>,
    /// Blocks of the launch whose grid changed most, or else of the largest.
    pub blocks: Sides<u64>,
    /// Multiprocessors of the head's device, where known.
    pub sms: Option<u32>,
    /// How many times fewer blocks and threads that launch has; 1 where it has no fewer.
    pub fewer: f64,
}

impl KernelChange {
    /// Total time of its launches.
    pub fn total_ns(&self) -> Sides<Nanoseconds> {
        let (count, mean) = (self.count, self.mean_ns);
        Sides::new(mean.base * count.base, mean.head * count.head)
    }

    /// The time that it takes more.
    pub fn growth_ns(&self) -> Nanoseconds {
        self.total_ns().growth()
    }

    /// Head over base of a launch's time; 1 where it is on one side only.
    pub fn ratio(&self) -> Ratio {
        match self.mean_ns.base.0 > 0.0 && self.mean_ns.head.0 > 0.0 {
            true => self.mean_ns.head / self.mean_ns.base,
            false => Ratio::ONE,
        }
    }

    /// Multiprocessors with at least one block, where the device tells its own.
    pub fn filled(&self) -> Option<Sides<u64>> {
        let sms = u64::from(self.sms?);
        Some(self.blocks.map(|blocks| sms.min(*blocks)))
    }

    /// The name to call it by.
    pub fn called(&self) -> &str {
        match self.name.head.is_empty() {
            true => &self.name.base,
            false => &self.name.head,
        }
    }
}

/// What differs between launches that stand for each other.
struct KernelPair {
    changes: Vec<LaunchChange>,
    blocks: Option<Sides<u64>>,
    fewer: f64,
}

/// Reads a figure off a launch, where it is known.
type Figure<N> = (fn(&Launch<N>) -> Option<u64>, fn(u64, u64) -> LaunchChange);

/// The gravest difference of each kind: of grids, the one that leaves fewest of what was.
fn compare<N>(pairs: &[(&Launch<N>, &Launch<N>)]) -> KernelPair {
    let mut changes = Vec::new();
    let grids = pairs
        .iter()
        .filter(|(before, after)| before.grid != after.grid);
    let grid = grids.max_by(|a, b| {
        let lost =
            |(before, after): &(&Launch<N>, &Launch<N>)| before.blocks().abs_diff(after.blocks());
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
    let largest = || pairs.iter().max_by_key(|(before, _)| before.blocks());
    KernelPair {
        changes,
        blocks: grid
            .or_else(largest)
            .map(|(before, after)| Sides::new(before.blocks(), after.blocks())),
        fewer: grid.map_or(1.0, fewer),
    }
}

/// How many times fewer blocks and threads a launch has than it had. The same work in larger
/// blocks is no loss.
fn fewer<N>((before, after): &(&Launch<N>, &Launch<N>)) -> f64 {
    let times = |before: u64, after: u64| before as f64 / after.max(1) as f64;
    let blocks = times(before.blocks(), after.blocks());
    let threads = times(before.threads(), after.threads());
    blocks.min(threads).max(1.0)
}

/// Every kernel of either call, by its normalised name. Launches of one kernel are a set:
/// their order and their streams are no difference.
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
    let pairs: Vec<(&Launch, &Launch)> = match before.len() == after.len() {
        true => before.iter().copied().zip(after.iter().copied()).collect(),
        // Which of them is which is unknown; the largest stand for all.
        false => before
            .last()
            .copied()
            .zip(after.last().copied())
            .into_iter()
            .collect(),
    };
    let compared = compare(&pairs);
    let all = |launches: &[&Launch]| {
        let blocks = launches.iter().map(|launch| launch.blocks());
        blocks.fold(0, u64::saturating_add)
    };
    // The same work in more launches is not done by less of the device.
    let spread = after.len() > before.len() && all(after) >= all(before);
    let launched = Sides::new(before, after);
    let largest = |launches: &&[&Launch]| launches.last().map_or(0, |launch| launch.blocks());
    KernelChange {
        became: became(before.is_empty(), after.is_empty()),
        name: launched.map(|side| side.first().map_or("", |_| name).to_owned()),
        count: launched.map(|side| side.len() as f64),
        mean_ns: Sides::default(),
        changes: compared.changes,
        blocks: compared.blocks.unwrap_or_else(|| launched.map(largest)),
        sms,
        fewer: if spread { 1.0 } else { compared.fewer },
    }
}

/// What became of a kernel that has one name where it is launched at all.
fn became(not_before: bool, not_after: bool) -> Became {
    match (not_before, not_after) {
        (true, _) => Became::Added,
        (_, true) => Became::Removed,
        _ => Became::Same,
    }
}

/// A side of a comparison of recordings: the operations that are aligned, and the mean time
/// of each kernel.
pub struct Launches<'a> {
    /// What names and devices are in.
    pub recording: &'a Recording,
    /// In order.
    pub operations: Vec<&'a Recorded>,
    /// By kernel name.
    pub mean_ns: BTreeMap<&'a str, Nanoseconds>,
}

/// Launches of one pair of kernels, by their indices.
#[derive(Default)]
struct KernelGroup {
    both: Vec<(usize, usize)>,
    base: usize,
    head: usize,
}

/// Pairs the kernels of two recordings up. The ones that take most more time come first.
pub fn of_recordings(base: &Launches, head: &Launches) -> Vec<KernelChange> {
    let (base_kernels, head_kernels) = (base.kernels(), head.kernels());
    let left: Vec<&str> = base_kernels.iter().map(|(name, ..)| *name).collect();
    let right: Vec<&str> = head_kernels.iter().map(|(name, ..)| *name).collect();
    let alignment = align(&left, &right);
    let mut groups: BTreeMap<(&str, &str), KernelGroup> = BTreeMap::new();
    for &(i, j) in alignment.same.iter().chain(&alignment.replaced) {
        let group = groups.entry((left[i], right[j])).or_default();
        group.both.push((i, j));
        (group.base, group.head) = (group.base + 1, group.head + 1);
    }
    // More or fewer launches of a kernel that both sides have are a change of its count.
    let own = |groups: &BTreeMap<(&str, &str), KernelGroup>, name, alone| {
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
        let pairs: Vec<(&Launch<u32>, &Launch<u32>)> = pairs.collect();
        let mut compared = compare(&pairs);
        let cluster = pairs
            .iter()
            .find(|(before, after)| before.cluster != after.cluster);
        let cluster =
            cluster.map(|(before, after)| LaunchChange::Cluster(before.cluster, after.cluster));
        compared.changes.extend(cluster);
        let example = head_kernels.iter().find(|(name, ..)| *name == after);
        let mean = |side: &Launches, name| side.mean_ns.get(name).copied().unwrap_or_default();
        KernelChange {
            became: match became(before.is_empty(), after.is_empty()) {
                Became::Same if before != after => Became::Replaced,
                became => became,
            },
            name: Sides::new(before.to_owned(), after.to_owned()),
            count: Sides::new(group.base as f64, group.head as f64),
            mean_ns: Sides::new(mean(base, before), mean(head, after)),
            changes: compared.changes,
            blocks: compared.blocks.unwrap_or_default(),
            sms: example.and_then(|(_, operation, _)| head.recording.sms(operation)),
            fewer: compared.fewer,
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
