//! On which devices structures mean the same.

use crate::judgement::Difference;
use regatta_core::record::types::RunHeader;
use regatta_worker::attention::CaseId;

/// What launch heuristics ask of a device: grids follow from it by design.
const GPU_FACTS: [&str; 2] = ["sms", "compute_capability"];

/// Why the structures of two runs are not compared; `None` where they are. `differ` are
/// the hard facts in which they differ.
pub fn not_comparable(differ: &[Difference]) -> Vec<Difference> {
    let decides = |field: &str| {
        let gpu = field
            .split_once('.')
            .is_some_and(|(_, fact)| GPU_FACTS.contains(&fact));
        gpu || ["schema", "suite", "cpu.cores"].contains(&field)
    };
    let differ = differ
        .iter()
        .filter(|difference| decides(&difference.field));
    differ.cloned().collect()
}

/// The multiprocessors of the device that a case runs on, where it tells them.
pub fn multiprocessors(header: &RunHeader, case: &CaseId) -> Option<u32> {
    let worker = case.case().ok()?.variant.worker_name();
    let kind = &header
        .workers
        .iter()
        .find(|w| w.name == worker)?
        .device_kind;
    let sms = header.machine.hard.get(&format!("{kind}.sms"))?;
    sms.parse().ok().filter(|sms| *sms > 0)
}
