//! Identifies the machine from the introductions of its workers and from the system.

use std::collections::BTreeMap;
use std::fs;

use regatta_core::record::{CORES, Fingerprint, WorkerRecord};
use regatta_core::suite::Settings;
use regatta_worker::protocol::{Device, DeviceKind, Hello};

/// The fingerprint of a machine whose workers introduced themselves with `hellos`.
///
/// Facts of a GPU are hard for every worker on it. Facts of the processor are hard only if some
/// worker runs on it: device times of a GPU do not depend on the host. Absent workers do not count.
pub fn fingerprint(hellos: &BTreeMap<String, Hello>) -> Fingerprint {
    let present = hellos.values().filter(|hello| hello.absent.is_none());
    of_devices(present.map(|hello| &hello.device))
}

/// The fingerprint of a machine with these devices.
pub fn of_devices<'a>(devices: impl Iterator<Item = &'a Device>) -> Fingerprint {
    let mut print = Fingerprint::default();
    let mut names = Vec::new();
    let mut runs_on_cpu = false;
    for device in devices {
        let kind = &device.kind;
        for (fact, value) in &device.facts {
            print.hard.insert(format!("{kind}.{fact}"), value.clone());
        }
        if device.known_kind() == Some(DeviceKind::Cpu) {
            runs_on_cpu = true;
            continue;
        }
        print.hard.insert(kind.clone(), device.name.clone());
        names.push(gpu_name(device));
    }
    let cpu = if runs_on_cpu {
        &mut print.hard
    } else {
        &mut print.soft
    };
    let (model, cores) = (cpu_model(), cores());
    cpu.insert("cpu".to_owned(), model.clone());
    cpu.insert(CORES.to_owned(), cores.to_string());
    cpu.insert("arch".to_owned(), std::env::consts::ARCH.to_owned());
    if runs_on_cpu {
        names.push(format!("{}-{cores}c", slug(&model)));
    }
    let file = |path| fs::read_to_string(path).map(|text| text.trim().to_owned());
    if let Ok(kernel) = file("/proc/sys/kernel/osrelease") {
        print.soft.insert("kernel".to_owned(), kernel);
    }
    if let Ok(host) = file("/proc/sys/kernel/hostname") {
        print.soft.insert("host".to_owned(), host);
    }
    names.sort();
    names.dedup();
    print.name = file_name(&names.join("+"));
    print
}

/// The longest name of a machine, in bytes.
const MAX_NAME_BYTES: usize = 120;

/// Turns `name` into a file name. A name that is too long ends in a checksum.
fn file_name(name: &str) -> String {
    let sum = || format!("{:08x}", crc32fast::hash(name.as_bytes()));
    match name.len() {
        0..=MAX_NAME_BYTES => name.to_owned(),
        _ => format!("{}-{}", &name[..MAX_NAME_BYTES - 9], sum()),
    }
}

/// The record of a worker from its hello.
pub fn worker_record(name: &str, hello: &Hello, settings: &Settings) -> WorkerRecord {
    WorkerRecord {
        name: name.to_owned(),
        device_kind: hello.device.kind.clone(),
        device: hello.device.name.clone(),
        cache: Some(settings.cache_on(hello.device.known_kind())),
        versions: hello.versions.clone(),
        packages: hello.packages.clone(),
    }
}

/// The processor's marketing name.
pub fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        matches!(key.trim(), "model name" | "Processor" | "cpu model").then(|| value.trim())
    });
    model.unwrap_or("unknown").to_owned()
}

/// The number of hardware threads that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn gpu_name(device: &Device) -> String {
    let name = slug(&device.name.replace("NVIDIA", ""));
    match device.facts.get("sms") {
        Some(sms) => format!("{name}-{}sm", slug(sms)),
        None => name,
    }
}

/// `Intel(R) Xeon(R) Processor` → `intel-xeon-processor`.
fn slug(name: &str) -> String {
    let plain = name.replace("(R)", " ").replace("(TM)", " ");
    let words: Vec<String> = plain
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    if words.is_empty() {
        format!("device-{:08x}", crc32fast::hash(name.as_bytes()))
    } else {
        words.join("-")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hello;

    #[test]
    fn the_processor_is_hard_only_where_something_runs_on_it() {
        let gpu = BTreeMap::from([(
            "torch".to_owned(),
            hello("cuda", "NVIDIA H200", &[("sms", "132")]),
        )]);
        let print = fingerprint(&gpu);
        assert_eq!(print.name, "h200-132sm");
        assert_eq!(print.hard["cuda.sms"], "132");
        assert!(print.soft.contains_key("cpu"));
        let mut both = gpu;
        both.insert("cpu".to_owned(), hello("cpu", "x", &[]));
        let print = fingerprint(&both);
        assert!(print.hard.contains_key("cpu"));
        assert!(print.name.contains("h200-132sm"), "{}", print.name);
    }

    #[test]
    fn names_become_file_names() {
        assert_eq!(slug("Intel(R) Xeon(R) Processor"), "intel-xeon-processor");
        assert!(slug("処理装置").starts_with("device-"));
        assert_ne!(slug("処理装置"), slug("別の装置"));
        assert_eq!(file_name("h200-132sm"), "h200-132sm");
        let long = slug(&"boat".repeat(100));
        assert!(file_name(&long).len() <= MAX_NAME_BYTES);
        assert_ne!(file_name(&long), file_name(&slug(&"boat".repeat(101))));
    }
}
