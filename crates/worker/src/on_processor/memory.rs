//! Resident memory of this process while samples are taken.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use nix::unistd::{SysconfVar, sysconf};

use crate::sets::SHOWING;
use crate::units::Bytes;

/// The smallest growth that counts: counters of a process lag by 32 pages a core, and an allocator
/// takes memory from the system in steps of 132 KiB.
const MIN_GROWTH: f64 = 512.0 * 1024.0;

/// The resident memory of this process.
#[derive(Debug)]
pub struct ResidentMemory {
    /// True if the kernel reset its count of the peak.
    peak_counted: bool,
    statm: Option<File>,
    page: f64,
    /// The resident bytes before each call.
    before: Vec<f64>,
}

impl ResidentMemory {
    /// Resets the kernel's count of the peak.
    pub fn begin() -> ResidentMemory {
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        ResidentMemory {
            // Writing 5 resets `VmHWM`; see proc_pid_clear_refs(5).
            peak_counted: fs::write("/proc/self/clear_refs", "5").is_ok(),
            statm: File::open("/proc/self/statm").ok(),
            page: page.map_or(f64::NAN, |bytes| bytes as f64),
            before: Vec::new(),
        }
    }

    /// Reads the resident memory before a call.
    pub fn read(&mut self) {
        let mut text = [0; 128];
        let mut read = || {
            let length = self.statm.as_ref()?.read_at(&mut text, 0).ok()?;
            let text = std::str::from_utf8(&text[..length]).ok()?;
            text.split_ascii_whitespace().nth(1)?.parse::<f64>().ok()
        };
        self.before.extend(read().map(|pages| pages * self.page));
    }

    /// The peak since `begin`; `None` if the kernel does not count it.
    pub fn peak(&self) -> Option<Bytes> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let (_, rest) = status.split_once("VmHWM:")?;
        let kibibytes: u64 = rest.split_whitespace().next()?.parse().ok()?;
        self.peak_counted.then_some(Bytes(kibibytes << 10))
    }

    /// Growth in bytes for each call, if it is steady.
    pub fn growth(&self) -> Option<f64> {
        growth(&self.before)
    }
}

/// Growth in bytes for each call from readings before each. `None` unless the median of each
/// quarter is above that of the quarter before, so that a cache that fills up in the first calls
/// does not count.
fn growth(resident: &[f64]) -> Option<f64> {
    let count = resident.len();
    if count < SHOWING as usize {
        return None;
    }
    let medians = [0, 1, 2, 3].map(|quarter| {
        let mut sorted = resident[quarter * count / 4..(quarter + 1) * count / 4].to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    });
    let [first, .., last] = medians;
    let rises = medians.windows(2).all(|two| two[0] < two[1]);
    (rises && last - first >= MIN_GROWTH).then(|| (last - first) / (0.75 * count as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1024.0 * 1024.0;

    #[test]
    fn memory_grows_where_each_quarter_of_the_calls_has_more() {
        let calls =
            |resident: fn(f64) -> f64| growth(&Vec::from_iter((0..20).map(|n| resident(n.into()))));
        assert_eq!(calls(|n| 100.0 * MIB + n * MIB), Some(MIB));
        assert_eq!(calls(|_| 100.0 * MIB), None);
        assert_eq!(calls(|n| 100.0 * MIB + n), None, "less than counters lag");
        assert_eq!(
            calls(|n| n.min(6.0) * MIB),
            None,
            "a cache that is full after 6 calls"
        );
        assert_eq!(calls(|n| (20.0 - n) * MIB), None);
        // Growth in steps, as an allocator takes memory.
        let steps = calls(|n| (n / 4.0).floor() * MIB).unwrap();
        assert!((steps / MIB - 0.25).abs() < 0.05, "{steps}");
        assert_eq!(growth(&[1.0, 1e9, 2e9]), None);
    }

    /// Runs in a process of its own, because other tests allocate and free memory at the same time.
    #[test]
    fn the_peak_is_that_of_the_samples() {
        const ALONE: &str = "REGATTA_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let name = "on_processor::memory::tests::the_peak_is_that_of_the_samples";
            let mut test = std::process::Command::new(std::env::current_exe().unwrap());
            let output = test.args(["--exact", name]).env(ALONE, "1").output();
            let output = output.unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && text.contains("1 passed"),
                "{text}"
            );
            return;
        }
        let mut memory = ResidentMemory::begin();
        memory.read();
        let Some(before) = memory.peak() else {
            panic!("this kernel counts no peak");
        };
        let block = vec![1u8; 64 << 20];
        drop(std::hint::black_box(block));
        let peak = memory.peak().unwrap();
        assert!(peak.0 >= before.0 + (60 << 20), "{before} {peak}");
        let again = ResidentMemory::begin().peak().unwrap();
        assert!(again.0 < peak.0 - (32 << 20), "{again}");
    }
}
