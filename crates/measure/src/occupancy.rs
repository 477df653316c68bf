//! How many blocks of a kernel a multiprocessor holds, where the worker does not say.

use regatta_core::machine::{Launch, Structure};
use regatta_cuda::kernels::arch::Arch;
use regatta_cuda::kernels::occupancy::{Demand, resident};
use regatta_worker::protocol::Device;

/// Completes the launches of a structure from what each block takes and what the device
/// holds. Left out where either is not known.
pub(super) fn complete(structure: &mut Structure, device: &Device) {
    let capability = device.facts.get("compute_capability");
    let Some(arch) = capability.and_then(|capability| arch(capability)) else {
        return;
    };
    for launch in &mut structure.launches {
        if launch.blocks_per_sm.is_none() {
            launch.blocks_per_sm = blocks_per_sm(arch, launch);
        }
    }
}

fn arch(capability: &str) -> Option<Arch> {
    let (major, minor) = capability.split_once('.')?;
    Some(Arch::of_device(major.parse().ok()?, minor.parse().ok()?))
}

/// Barriers are not known, and taken to be no limit. A kernel that ran and does not fit is
/// one whose figures are not what they seem: nothing is said of it.
fn blocks_per_sm(arch: Arch, launch: &Launch) -> Option<u32> {
    let demand = Demand {
        threads: u32::try_from(launch.block_threads()).ok()?,
        registers: launch.registers?,
        shared_bytes: u32::try_from(launch.shared_bytes?).ok()?,
        barriers: 0,
    };
    resident(arch, demand).filter(|&blocks| blocks > 0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use regatta_worker::units::Bytes;

    fn completed(capability: &str, launch: Launch) -> Option<u32> {
        let device = Device {
            kind: "cuda".to_owned(),
            name: "NVIDIA H200".to_owned(),
            memory_bytes: Bytes(1),
            facts: BTreeMap::from([("compute_capability".to_owned(), capability.to_owned())]),
        };
        let mut structure = Structure {
            launches: vec![launch],
            ..Structure::default()
        };
        complete(&mut structure, &device);
        structure.launches[0].blocks_per_sm
    }

    /// The backward kernel of xFormers and PyTorch, as an H200 recorded it.
    fn backward() -> Launch {
        Launch {
            grid: [157, 1, 1],
            block: [128, 1, 1],
            registers: Some(232),
            shared_bytes: Some(53_504),
            ..Launch::default()
        }
    }

    #[test]
    fn occupancy_follows_from_what_a_block_takes() {
        // 232 registers of 128 threads are 29,696 of 65,536: two blocks.
        assert_eq!(completed("9.0", backward()), Some(2));
    }

    #[test]
    fn what_is_known_stays_and_what_is_not_known_is_left_out() {
        let told = Launch {
            blocks_per_sm: Some(1),
            ..backward()
        };
        assert_eq!(completed("9.0", told), Some(1));
        let bare = Launch {
            registers: None,
            ..backward()
        };
        assert_eq!(completed("9.0", bare), None);
        let impossible = Launch {
            shared_bytes: Some(1 << 20),
            ..backward()
        };
        assert_eq!(completed("9.0", impossible), None);
        for unknown in ["unknown", "1.3", "9"] {
            assert_eq!(completed(unknown, backward()), None, "{unknown}");
        }
    }
}
