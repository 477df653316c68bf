//! Random inputs that any worker, in any language, makes alike.
//!
//! Element `index` of tensor `tensor` under `seed` is a pure function of the
//! three (SplitMix64: Steele, Lea, Flood, OOPSLA 2014), so that a worker needs no
//! generator state and the harness can check single elements of a result.

use crate::case::Dtype;

/// Which tensor an element belongs to. The numbers are part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Tensor {
    /// Queries.
    Q = 0,
    /// Keys.
    K = 1,
    /// Values.
    V = 2,
    /// Gradient of the output.
    Dout = 3,
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Element `index` of a tensor, uniform in `[-√3, √3)`: mean 0, variance 1.
///
/// `index` counts in logical order, `[batch, seq, heads, head_dim]` with the last
/// axis fastest (`[total, heads, head_dim]` when ragged), whatever the physical
/// layout. The value is not yet rounded to the problem's dtype.
pub fn element(seed: u64, tensor: Tensor, index: u64) -> f64 {
    let counter = (tensor as u64)
        .wrapping_shl(40)
        .wrapping_add(index)
        .wrapping_add(1);
    let z = mixed(seed.wrapping_add(counter.wrapping_mul(GOLDEN)));
    let unit = (z >> 11) as f64 / (1u64 << 53) as f64;
    (2.0 * unit - 1.0) * 3f64.sqrt()
}

/// SplitMix64's output for a state.
pub fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Number `k` of a draw, below `below`.
pub fn drawn(draw: u64, k: u64, below: u64) -> u64 {
    let z = mixed(draw.wrapping_add((k + 1).wrapping_mul(GOLDEN)));
    ((u128::from(z) * u128::from(below)) >> 64) as u64
}

/// `value` as a tensor of this dtype holds it: rounded to nearest even, first to
/// f32 and from there to the narrower types.
pub fn rounded(value: f64, dtype: Dtype) -> f64 {
    let single = value as f32;
    match dtype {
        Dtype::F32 => f64::from(single),
        Dtype::F16 => half::f16::from_f32(single).to_f64(),
        Dtype::Bf16 => half::bf16::from_f32(single).to_f64(),
    }
}

/// The indices of a tensor of `len` elements at which results are compared one
/// by one: [`drawn`] for `k` in `0..n`, and without a draw `⌊(2k + 1) len / 2n⌋`.
pub fn probe_indices(len: u64, n: usize, draw: Option<u64>) -> impl Iterator<Item = u64> {
    (0..n as u64).map(move |k| match draw {
        Some(draw) => drawn(draw, k, len),
        None => (2 * k + 1) * len / (2 * n as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These are in docs/PROTOCOL.md as test vectors for authors of workers.
    #[test]
    fn frozen_values() {
        let first: Vec<f64> = (0..3).map(|i| element(42, Tensor::Q, i)).collect();
        assert_eq!(
            first,
            [0.836805286714029, -1.1781049573266253, -0.7669481822728474]
        );
        assert_eq!(element(42, Tensor::Dout, 1000), -1.3725259712649156);
        let probes: Vec<u64> = probe_indices(1000, 4, Some(42)).collect();
        assert_eq!(probes, [741, 159, 278, 344]);
    }
}
