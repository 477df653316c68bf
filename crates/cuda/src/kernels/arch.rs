//! The architectures that kernels are compiled for, and those of this machine's GPUs.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use cudarc::driver::{result, sys};
use serde::{Deserialize, Serialize};

use crate::driver::attribute_of;

/// The target of a cubin: a compute capability, and the suffix for features that only some devices
/// have. Written as in compilers: `sm_80`, `sm_90a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Arch {
    /// The capability's major version.
    pub major: u32,
    /// The capability's minor version.
    pub minor: u32,
    /// The features that may be used, as the suffix of the name (CUDA C++ Programming Guide,
    /// "Feature Availability"): none for features that every later capability has, `f` for those of
    /// the family, and `a` for those that no other capability guarantees, such as `wgmma`.
    pub features: Option<char>,
}

/// The error for a text that is not an architecture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an architecture; write `sm_80`, `sm_90a` or `sm_100`, as nvcc does")]
pub struct NoArch(String);

impl Arch {
    /// Ampere, the oldest that regatta's kernels support.
    pub const SM_80: Arch = Arch::new(8, 0, None);
    /// Hopper with its specific instructions.
    pub const SM_90A: Arch = Arch::new(9, 0, Some('a'));
    /// Data-centre Blackwell.
    pub const SM_100: Arch = Arch::new(10, 0, None);

    const fn new(major: u32, minor: u32, features: Option<char>) -> Arch {
        Arch {
            major,
            minor,
            features,
        }
    }

    /// The architecture to compile for on a device of this compute capability. Hopper's specific
    /// instructions have to be requested, since `flash_wgmma` uses them.
    pub fn of_device(major: u32, minor: u32) -> Arch {
        match (major, minor) {
            (9, 0) => Arch::SM_90A,
            _ => Arch::new(major, minor, None),
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)?;
        self.features.map_or(Ok(()), |letter| f.write_char(letter))
    }
}

impl FromStr for Arch {
    type Err = NoArch;

    fn from_str(text: &str) -> Result<Arch, NoArch> {
        let wrong = || NoArch(text.to_owned());
        let name = text.strip_prefix("sm_").ok_or_else(wrong)?;
        let features = name.chars().last().filter(|last| "af".contains(*last));
        let digits = features.and_then(|letter| name.strip_suffix(letter));
        let digits = digits.unwrap_or(name);
        // The last digit is the minor version: sm_103 is 10.3.
        if !matches!(digits.len(), 2 | 3) || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        let number: u32 = digits.parse().map_err(|_| wrong())?;
        Ok(Arch::new(number / 10, number % 10, features))
    }
}

impl From<Arch> for String {
    fn from(arch: Arch) -> String {
        arch.to_string()
    }
}

impl TryFrom<String> for Arch {
    type Error = NoArch;

    fn try_from(text: String) -> Result<Arch, NoArch> {
        text.parse()
    }
}

/// The architectures to compile for on this machine's GPUs, sorted and without duplicates. Empty
/// without a driver or a GPU, or if the driver does not start.
pub fn present() -> Vec<Arch> {
    // Checked first, because without the driver's library every call panics.
    // SAFETY: opens a library whose initialisers every CUDA program runs.
    if !unsafe { sys::is_culib_present() } || result::init().is_err() {
        return Vec::new();
    }
    let count = result::device::get_count().unwrap_or(0);
    let mut archs: Vec<Arch> = (0..count).filter_map(of_ordinal).collect();
    archs.sort();
    archs.dedup();
    archs
}

fn of_ordinal(ordinal: i32) -> Option<Arch> {
    use sys::CUdevice_attribute as A;
    let device = result::device::get(ordinal).ok()?;
    let number = |attribute| attribute_of(device, attribute).ok();
    let major = number(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = number(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Some(Arch::of_device(major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for name in ["sm_80", "sm_86", "sm_90", "sm_90a", "sm_100f", "sm_121"] {
            assert_eq!(name.parse::<Arch>().unwrap().to_string(), name);
        }
        assert_eq!("sm_103".parse(), Ok(Arch::of_device(10, 3)));
        for name in " 80 sm_ sm_8 sm_9a sm_90b sm_90aa compute_90 sm_-80".split(' ') {
            let error = name.parse::<Arch>().unwrap_err().to_string();
            assert!(error.contains("sm_90a"), "{error}");
        }
    }
}
