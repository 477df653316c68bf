//! What the machine is: processor, memory, caches.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::protocol::{Device, DeviceKind};
use crate::units::Bytes;

/// The processor as the protocol describes devices.
pub fn device() -> Device {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    Device {
        kind: DeviceKind::Cpu.to_string(),
        name: model_name(),
        memory_bytes: Bytes(available_memory().unwrap_or(0)),
        facts: BTreeMap::from([("cores".to_owned(), cores.to_string())]),
    }
}

/// The first `model name` of `/proc/cpuinfo`, or the architecture.
fn model_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == "model name")
        .map_or_else(
            || std::env::consts::ARCH.to_owned(),
            |(_, name)| name.trim().to_owned(),
        )
}

/// `MemAvailable` of `/proc/meminfo` in bytes: what can be had without swapping.
pub fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let (_, rest) = text.split_once("MemAvailable:")?;
    let kibibytes: u64 = rest.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Bytes of all last-level caches together, as Linux describes them.
///
/// Several processors share a cache, and a large chip has several: each is named
/// by the list of processors that share it, and counted once.
pub fn last_level_cache() -> Option<u64> {
    let mut caches = BTreeMap::new();
    for processor in fs::read_dir("/sys/devices/system/cpu").ok()?.flatten() {
        let Ok(indices) = fs::read_dir(processor.path().join("cache")) else {
            continue;
        };
        let read = |path: &Path, name: &str| {
            let text = fs::read_to_string(path.join(name)).ok()?;
            Some(text.trim().to_owned())
        };
        let largest = indices
            .flatten()
            .filter_map(|index| {
                let level: u32 = read(&index.path(), "level")?.parse().ok()?;
                let size = bytes(&read(&index.path(), "size")?)?;
                Some((level, read(&index.path(), "shared_cpu_list")?, size))
            })
            .max_by_key(|(level, ..)| *level);
        if let Some((_, shared, size)) = largest {
            caches.insert(shared, size);
        }
    }
    (!caches.is_empty()).then(|| caches.values().sum())
}

/// `512K`, `32M`: as sysfs writes sizes.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(char::is_alphabetic).unwrap_or(text.len()));
    let unit = match unit {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}
