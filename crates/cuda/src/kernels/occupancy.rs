//! Computes how many blocks of a kernel a multiprocessor holds at the same time, without a GPU.
//!
//! The limits are those of the table "Technical Specifications per Compute Capability" in the CUDA
//! C++ Programming Guide (13.0, section 20). The allocation of registers, shared memory and
//! barriers follows NVIDIA's `cuda_occupancy.h` of the same version;
//! `tests/vectors/make_occupancy.cpp` compares this with that header.

use super::arch::Arch;

const WARP: u32 = 32;
const THREADS_PER_BLOCK: u32 = 1024;
/// 32-bit registers of a multiprocessor, and the most that a block may use.
const REGISTERS: u32 = 65_536;
const REGISTERS_PER_THREAD: u32 = 255;
/// A warp's registers are allocated in multiples of this.
const REGISTER_LUMP: u32 = 256;
/// Schedulers of a multiprocessor. Each has a quarter of its registers.
const PARTITIONS: u32 = 4;
/// Shared memory is allocated in multiples of this, in bytes.
const SHARED_LUMP: u32 = 128;
/// Bytes of each block's shared memory that the system reserves.
const SHARED_RESERVED: u32 = 1024;

/// The number of barriers before Hopper, where barriers do not limit the number of blocks.
const NOT_COUNTED: u32 = u32::MAX;

/// The limits of a multiprocessor of one compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmLimits {
    /// Resident blocks.
    pub blocks: u32,
    /// Resident warps.
    pub warps: u32,
    /// Shared memory in bytes.
    pub shared_bytes: u32,
    /// The most shared memory that a block may request, in bytes.
    pub block_shared_bytes: u32,
    /// Named barriers.
    pub barriers: u32,
}

/// The resources of one block of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Threads.
    pub threads: u32,
    /// Registers of each thread.
    pub registers: u32,
    /// Shared memory in bytes, static and dynamic.
    pub shared_bytes: u32,
    /// Named barriers.
    pub barriers: u32,
}

/// The limits of an architecture, if known.
pub fn limits(arch: Arch) -> Option<SmLimits> {
    let (blocks, warps, shared, barriers) = match (arch.major, arch.minor) {
        (8, 0) => (32, 64, 164, NOT_COUNTED),
        (8, 7) => (16, 48, 164, NOT_COUNTED),
        (8, 6) => (16, 48, 100, NOT_COUNTED),
        (8, 9) => (24, 48, 100, NOT_COUNTED),
        (9, 0) | (10, 0 | 3) => (32, 64, 228, 64),
        (11, 0) => (24, 48, 228, 24),
        (12, 0 | 1) => (24, 48, 100, 24),
        _ => return None,
    };
    Some(SmLimits {
        blocks,
        warps,
        shared_bytes: shared * 1024,
        block_shared_bytes: (shared - 1) * 1024,
        barriers,
    })
}

/// The number of blocks that a multiprocessor holds at the same time; 0 if not even one fits.
/// `None` if the architecture's limits are unknown.
pub fn resident(arch: Arch, demand: Demand) -> Option<u32> {
    let limits = limits(arch)?;
    let fits = (1..=THREADS_PER_BLOCK).contains(&demand.threads)
        && demand.registers <= REGISTERS_PER_THREAD
        && demand.shared_bytes <= limits.block_shared_bytes;
    // Checked before any multiplication, because a worker may report any number.
    if !fits {
        return Some(0);
    }
    let warps = demand.threads.div_ceil(WARP);
    let registers = (demand.registers * WARP).next_multiple_of(REGISTER_LUMP);
    // The hardware checks a block as if every scheduler had the same number of its warps.
    let checked = registers * warps.next_multiple_of(PARTITIONS);
    if checked > REGISTERS {
        return Some(0);
    }
    let by_registers = match registers {
        0 => u32::MAX,
        registers => REGISTERS / PARTITIONS / registers * PARTITIONS / warps,
    };
    let shared = (demand.shared_bytes + SHARED_RESERVED).next_multiple_of(SHARED_LUMP);
    let by_barriers = match demand.barriers {
        0 => u32::MAX,
        barriers => limits.barriers / barriers,
    };
    let counts = [
        limits.blocks,
        limits.warps / warps,
        by_registers,
        limits.shared_bytes / shared,
        by_barriers,
    ];
    counts.into_iter().min()
}

/// The share of a multiprocessor's warps that `blocks` blocks fill, in thousandths: a whole number
/// can be compared exactly, and is read back as it was written.
pub fn filled_permille(arch: Arch, blocks: u32, threads: u32) -> Option<u32> {
    let limits = limits(arch)?;
    let warps = u64::from(blocks) * u64::from(threads.div_ceil(WARP));
    u32::try_from(warps.saturating_mul(1000) / u64::from(limits.warps)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of NVIDIA's `cuda_occupancy.h` for random kernels.
    const VECTORS: &str = include_str!("../../../../tests/vectors/occupancy.txt");

    #[test]
    fn any_number_that_a_worker_says_has_an_answer() {
        let most = Demand {
            threads: u32::MAX,
            registers: u32::MAX,
            shared_bytes: u32::MAX,
            barriers: u32::MAX,
        };
        let one = |change: fn(&mut Demand)| {
            let mut demand = Demand {
                threads: 128,
                ..Demand::default()
            };
            change(&mut demand);
            resident(Arch::SM_90A, demand)
        };
        assert_eq!(resident(Arch::SM_90A, most), Some(0));
        assert_eq!(one(|demand| demand.registers = u32::MAX), Some(0));
        assert_eq!(one(|demand| demand.shared_bytes = u32::MAX), Some(0));
        assert_eq!(one(|demand| demand.barriers = u32::MAX), Some(0));
        assert_eq!(filled_permille(Arch::SM_90A, u32::MAX, u32::MAX), None);
    }

    #[test]
    fn counts_are_those_of_nvidias_formula() {
        let mut held = 0;
        for line in VECTORS.lines() {
            let (capability, numbers) = line.split_once(' ').unwrap();
            let (major, minor) = capability.split_once('.').unwrap();
            let arch = Arch::of_device(major.parse().unwrap(), minor.parse().unwrap());
            let numbers: Vec<u32> = numbers.split(' ').map(|n| n.parse().unwrap()).collect();
            let [threads, registers, fixed, dynamic, barriers, blocks] = numbers[..] else {
                panic!("{line}");
            };
            let demand = Demand {
                threads,
                registers,
                shared_bytes: fixed + dynamic,
                barriers,
            };
            assert_eq!(resident(arch, demand), Some(blocks), "{line}");
            held += 1;
        }
        assert_eq!(held, 600);
    }
}
