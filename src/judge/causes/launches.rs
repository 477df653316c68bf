//! Launches of one structure, grouped by kernel.

use std::collections::BTreeMap;

use crate::attention::{Launch, Structure};
use crate::judge::structure::normalised;

/// Launches by normalised kernel name, in the order of names.
pub fn by_kernel(structure: &Structure) -> BTreeMap<String, Vec<&Launch>> {
    let mut kernels: BTreeMap<String, Vec<&Launch>> = BTreeMap::new();
    for launch in &structure.launches {
        let name = normalised(&launch.name);
        kernels.entry(name).or_default().push(launch);
    }
    kernels
}

/// Threads of a launch over its whole grid.
pub fn threads(launch: &Launch) -> u64 {
    blocks(launch).saturating_mul(product(launch.block))
}

/// Blocks of a launch.
pub fn blocks(launch: &Launch) -> u64 {
    product(launch.grid)
}

fn product(sizes: [u32; 3]) -> u64 {
    let sizes = sizes.into_iter().map(u64::from);
    sizes.fold(1, u64::saturating_mul)
}

/// `157x1x1`.
pub fn sizes([x, y, z]: [u32; 3]) -> String {
    format!("{x}x{y}x{z}")
}

/// [`short`], without template arguments: what kind of kernel it is.
pub fn plain(name: &str) -> String {
    let name = short(name);
    name.split('<').next().unwrap_or_default().to_owned()
}

/// A kernel's name without return type, leading namespaces and the types of its
/// arguments, cut at eighty characters. Template arguments stay: they are often all
/// that tells two kernels apart.
pub fn short(name: &str) -> String {
    const LONGEST: usize = 80;
    let name = name.strip_prefix("void ").unwrap_or(name);
    let name = name.replace("(anonymous namespace)::", "");
    let name = name.split('(').next().unwrap_or_default();
    let plain = name.find('<').unwrap_or(name.len());
    let start = name[..plain].rfind("::").map_or(0, |at| at + 2);
    let cut: String = name[start..].chars().take(LONGEST).collect();
    if cut.len() < name[start..].len() {
        format!("{cut}...")
    } else {
        cut
    }
}
