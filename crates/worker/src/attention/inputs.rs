//! The random inputs of attention.

use crate::inputs::{GOLDEN, mixed};

/// The tensor to which an element belongs. The numbers are part of the protocol.
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

/// Element `index` of a tensor, uniform in `[-√3, √3)`: mean 0, variance 1.
///
/// `index` counts in logical order, `[batch, seq, heads, head_dim]` with the last axis contiguous
/// (`[total, heads, head_dim]` if ragged), for any physical layout. The value is not yet rounded to
/// the problem's dtype.
pub fn element(seed: u64, tensor: Tensor, index: u64) -> f64 {
    let counter = (tensor as u64)
        .wrapping_shl(40)
        .wrapping_add(index)
        .wrapping_add(1);
    let z = mixed(seed.wrapping_add(counter.wrapping_mul(GOLDEN)));
    let unit = (z >> 11) as f64 / (1u64 << 53) as f64;
    (2.0 * unit - 1.0) * 3f64.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/PROTOCOL.md has these as test vectors for authors of workers.
    #[test]
    fn frozen_values() {
        let first: Vec<f64> = (0..3).map(|i| element(42, Tensor::Q, i)).collect();
        assert_eq!(
            first,
            [0.836805286714029, -1.1781049573266253, -0.7669481822728474]
        );
        assert_eq!(element(42, Tensor::Dout, 1000), -1.3725259712649156);
    }
}
