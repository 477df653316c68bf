//! Time of page faults that repeated calls had and the samples had not.

use std::cell::OnceCell;
use std::time::Instant;

use nix::libc;
use regatta_core::record::{median, median_count};

/// Pages that are mapped, written and unmapped in one round, to time a page fault.
const FAULTS_TIMED: usize = 256;
const FAULT_ROUNDS: usize = 20;

/// Page faults of calls. An allocator that has just grown keeps memory that one with free room at
/// its end gives back after each call. The same call then takes 2 µs more for each page in a
/// virtual machine: half of the time of a NumPy function of 1 ms.
pub(super) struct PageFaults {
    /// The median number in a call of the samples.
    a_call: f64,
    /// The time of one fault, measured on first use.
    cost_ns: OnceCell<f64>,
}

impl PageFaults {
    /// Counts faults beyond those that each call of the samples had.
    pub(super) fn beyond(in_samples: &[u32]) -> PageFaults {
        PageFaults {
            a_call: median_count(in_samples).map_or(f64::INFINITY, f64::from),
            cost_ns: OnceCell::new(),
        }
    }

    /// The time of the faults of `calls` calls beyond those that as many calls of the samples had.
    pub(super) fn excused_ns(&self, faults: u64, calls: u32) -> f64 {
        let more = faults as f64 - self.a_call * f64::from(calls);
        if calls == 0 || more <= 0.0 {
            return 0.0;
        }
        more * self.cost_ns.get_or_init(page_fault_ns)
    }
}

/// The median time to map, write and unmap a page.
fn page_fault_ns() -> f64 {
    // SAFETY: sysconf(3) reads a constant.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let round = || {
        let began = Instant::now();
        let length = page * FAULTS_TIMED;
        // SAFETY: only this function knows the memory. It is written within its length, and
        // unmapped at its full length.
        unsafe {
            let memory = libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if memory == libc::MAP_FAILED {
                return 0.0;
            }
            for place in (0..length).step_by(page) {
                memory.cast::<u8>().add(place).write_volatile(1);
            }
            libc::munmap(memory, length);
        }
        began.elapsed().as_nanos() as f64 / FAULTS_TIMED as f64
    };
    let rounds: Vec<f64> = (0..FAULT_ROUNDS).map(|_| round()).collect();
    median(&rounds).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repeated calls whose heap was trimmed after each call, which did not happen in the samples.
    #[test]
    fn page_faults_beyond_those_of_samples_are_excused() {
        let faults = PageFaults::beyond(&[140, 139, 140]);
        faults.cost_ns.set(2000.0).unwrap();
        assert_eq!(faults.excused_ns(4 * 268, 4), 4.0 * 128.0 * 2000.0);
        assert_eq!(faults.excused_ns(4 * 100, 4), 0.0);
        assert_eq!(PageFaults::beyond(&[]).excused_ns(4 * 268, 4), 0.0);
        assert!((50.0..1e6).contains(&page_fault_ns()));
    }
}
