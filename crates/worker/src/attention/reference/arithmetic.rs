//! Vectors of float64, as long as memory lasts.

use std::collections::TryReserveError;

/// The reference does not fit into memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the float64 reference needs {bytes} bytes more than this machine gives")]
pub struct TooLarge {
    /// Size of the allocation that failed.
    pub bytes: u128,
}

pub(super) fn zeros(axes: &[u64]) -> Result<Vec<f64>, TooLarge> {
    let len = axes
        .iter()
        .fold(1u128, |len, &n| len.saturating_mul(n.into()));
    let too_large = TooLarge {
        bytes: len.saturating_mul(8),
    };
    let Ok(len) = usize::try_from(len) else {
        return Err(too_large);
    };
    let mut values = Vec::new();
    values
        .try_reserve_exact(len)
        .map_err(|_: TryReserveError| too_large)?;
    values.resize(len, 0.0);
    Ok(values)
}

pub(super) fn row(plane: &[f64], i: usize, dim: usize) -> &[f64] {
    &plane[i * dim..(i + 1) * dim]
}

/// Eight running sums: the order of additions is free, so this vectorises.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let tail: f64 = a
        .remainder()
        .iter()
        .zip(b.remainder())
        .map(|(a, b)| a * b)
        .sum();
    for (a, b) in a.zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f64>() + tail
}

pub(super) fn add_scaled(sum: &mut [f64], factor: f64, values: &[f64]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += factor * value;
    }
}
