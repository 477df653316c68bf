//! The architectures that kernels are compiled for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a cubin runs on: a compute capability, and whether it uses what only that one
/// has. Written as compilers write it: `sm_80`, `sm_90a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Arch {
    /// The capability's major version.
    pub major: u32,
    /// The capability's minor version.
    pub minor: u32,
    /// What of it may be used.
    pub features: Features,
}

/// The suffix of an architecture's name (CUDA C++ Programming Guide, "Feature
/// Availability").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Features {
    /// None: what every later capability has too.
    Baseline,
    /// `f`: what the later capabilities of the same family have too.
    Family,
    /// `a`: what no other capability promises, such as `wgmma`.
    Specific,
}

/// Why a text names no architecture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no architecture; write `sm_80`, `sm_90a` or `sm_100`, as nvcc does")]
pub struct NoArch(String);

impl Arch {
    /// Ampere, the first that our kernels can be compiled for.
    pub const SM_80: Arch = Arch::new(8, 0, Features::Baseline);
    /// Hopper with its own instructions.
    pub const SM_90A: Arch = Arch::new(9, 0, Features::Specific);
    /// Data-centre Blackwell.
    pub const SM_100: Arch = Arch::new(10, 0, Features::Baseline);

    const fn new(major: u32, minor: u32, features: Features) -> Arch {
        Arch {
            major,
            minor,
            features,
        }
    }

    /// What to compile for a device of this compute capability. Hopper's own
    /// instructions are asked for by name, as `flash_wgmma` is made of them.
    pub fn of_device(major: u32, minor: u32) -> Arch {
        match (major, minor) {
            (9, 0) => Arch::SM_90A,
            _ => Arch::new(major, minor, Features::Baseline),
        }
    }

    /// Whether code for `self` may be asked of a kernel that needs what `least` has.
    pub fn is_at_least(self, least: Arch) -> bool {
        (self.major, self.minor) >= (least.major, least.minor)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let suffix = match self.features {
            Features::Baseline => "",
            Features::Family => "f",
            Features::Specific => "a",
        };
        write!(f, "sm_{}{}{suffix}", self.major, self.minor)
    }
}

impl FromStr for Arch {
    type Err = NoArch;

    fn from_str(text: &str) -> Result<Arch, NoArch> {
        let wrong = || NoArch(text.to_owned());
        let name = text.strip_prefix("sm_").ok_or_else(wrong)?;
        let (digits, features) = match name.strip_suffix('a') {
            Some(digits) => (digits, Features::Specific),
            None => match name.strip_suffix('f') {
                Some(digits) => (digits, Features::Family),
                None => (name, Features::Baseline),
            },
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for name in ["sm_80", "sm_86", "sm_90", "sm_90a", "sm_100f", "sm_121"] {
            assert_eq!(name.parse::<Arch>().unwrap().to_string(), name);
        }
        assert_eq!("sm_103".parse(), Ok(Arch::of_device(10, 3)));
        for name in [
            "",
            "80",
            "sm_",
            "sm_8",
            "sm_9a",
            "sm_90b",
            "sm_90aa",
            "compute_90",
            "sm_-80",
        ] {
            let error = name.parse::<Arch>().unwrap_err().to_string();
            assert!(error.contains("sm_90a"), "{error}");
        }
    }
}
