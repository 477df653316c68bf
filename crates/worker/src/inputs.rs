//! Random numbers that are the same for workers in any language.
//!
//! A number is a pure function of a seed and its place (SplitMix64: Steele, Lea, Flood, OOPSLA
//! 2014). So a worker needs no generator state, and the harness can check single elements of a
//! result.

use crate::case::Dtype;

pub(crate) const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64's output for the state `z`.
pub fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Number `k` of a draw, less than `below`.
pub fn drawn(draw: u64, k: u64, below: u64) -> u64 {
    let z = mixed(draw.wrapping_add((k + 1).wrapping_mul(GOLDEN)));
    ((u128::from(z) * u128::from(below)) >> 64) as u64
}

/// `value` as a tensor of this dtype stores it: rounded to nearest even, first to f32 and from
/// there to the narrower types.
pub fn rounded(value: f64, dtype: Dtype) -> f64 {
    let single = value as f32;
    match dtype {
        Dtype::F32 => f64::from(single),
        Dtype::F16 => half::f16::from_f32(single).to_f64(),
        Dtype::Bf16 => half::bf16::from_f32(single).to_f64(),
    }
}

/// The indices at which results of `len` elements are compared one by one: [`drawn`] for `k` in
/// `0..n`, or without a draw `⌊(2k + 1) len / 2n⌋`.
pub fn probe_indices(len: u64, n: usize, draw: Option<u64>) -> impl Iterator<Item = u64> {
    (0..n as u64).map(move |k| match draw {
        Some(draw) => drawn(draw, k, len),
        None => (2 * k + 1) * len / (2 * n as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/PROTOCOL.md has these as test vectors for authors of workers.
    #[test]
    fn frozen_values() {
        let probes: Vec<u64> = probe_indices(1000, 4, Some(42)).collect();
        assert_eq!(probes, [741, 159, 278, 344]);
    }
}
