//! The tolerances of results against the float64 reference.
//!
//! Limits are on `‖result - reference‖₂ / ‖reference‖₂` with the inputs of
//! [`inputs`](crate::inputs) (variance 1, scores of about unit variance). They
//! are a few times what correct kernels show and far below any real mistake:
//! leaving out a share `f` of the keys moves the output by about `√f`, and a causal
//! diagonal that is off by one by about 0.5.

use crate::case::Dtype;
use crate::inputs::probe_indices;
use crate::operator::Direction;
use crate::protocol::TensorError;

/// The largest tolerable relative L2 error of a result.
///
/// Backward has twice the limit: `ds = p ∘ (dp - δ)` subtracts two rounded numbers of similar size,
/// and the stored `out`, from which δ is computed, is rounded too. `Both` has the limit of
/// backward; ask for the direction to which a result belongs.
///
/// | type | unit | correct kernels | forward limit |
/// |---|---|---|---|
/// | f32 | 2⁻²⁴ = 6e-8 | 3e-7 to 1e-6: sums of `D` and of `seq_k` terms, hardware `exp2` | 5e-6 |
/// | tf32 | 2⁻¹¹ = 5e-4, on the operands only | 3e-4 | 1.5e-3 |
/// | f16 | 2⁻¹¹ = 5e-4: `p` and the results are rounded once each | 2e-4 to 1e-3 | 2e-3 |
/// | bf16 | 2⁻⁸ = 4e-3, likewise | 2e-3 to 5e-3 | 1e-2 |
///
/// Units: largest relative error of rounding to nearest (IEEE 754-2019 §3.6 for
/// binary16 and binary32; 8 and 11 bits of significand for bfloat16 and TF32).
pub fn limit(dtype: Dtype, tf32: bool, direction: Direction) -> f64 {
    let forward = match (dtype, tf32) {
        (Dtype::F32, false) => 5e-6,
        (Dtype::F32, true) => 1.5e-3,
        (Dtype::F16, _) => 2e-3,
        (Dtype::Bf16, _) => 1e-2,
    };
    match direction {
        Direction::Forward => forward,
        Direction::Backward | Direction::Both => 2.0 * forward,
    }
}

/// Compares a result's error, as a worker reports it, with its [`limit`].
///
/// # Errors
/// The error and the limit. `None` means that the result was not finite.
pub fn tolerable(
    dtype: Dtype,
    tf32: bool,
    direction: Direction,
    relative_l2: Option<f64>,
) -> Result<(), String> {
    let limit = limit(dtype, tf32, direction);
    let arithmetic = if tf32 && dtype == Dtype::F32 {
        "tf32"
    } else {
        dtype.name()
    };
    match relative_l2 {
        Some(error) if error <= limit => Ok(()),
        Some(error) => Err(format!(
            "relative L2 error {error:.1e} is above the {limit:.1e} allowed for {arithmetic}"
        )),
        None => Err("the result has elements that are not finite or were never written".to_owned()),
    }
}

/// A float64 result with a smaller root mean square is zero in exact arithmetic: for example `dq`
/// if each query sees one key. A relative error has no meaning then, and the root mean square of
/// the result itself is used instead.
pub const ZERO: f64 = 1e-12;

/// Sums over the elements of a result and its reference.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ErrorSums {
    /// Elements.
    pub elements: u64,
    /// `Σ (result - reference)²`.
    pub squares: f64,
    /// `Σ reference²`.
    pub norm: f64,
    /// `max |result - reference|`.
    pub largest: f64,
    /// True if every element of the result is finite.
    pub finite: bool,
}

impl ErrorSums {
    /// Empty sums.
    pub fn new() -> ErrorSums {
        ErrorSums {
            finite: true,
            ..ErrorSums::default()
        }
    }

    /// Adds elements of a result and of its reference.
    pub fn compare(&mut self, result: &[f32], reference: &[f64]) {
        for (&found, right) in result.iter().zip(reference) {
            let difference = f64::from(found) - right;
            self.finite &= found.is_finite();
            self.squares += difference * difference;
            self.norm += right * right;
            self.largest = self.largest.max(difference.abs());
        }
        self.elements += reference.len() as u64;
    }

    /// Adds whole numbers, whose differences are exact.
    pub fn compare_whole(&mut self, result: &[i64], reference: &[i64]) {
        for (&found, &right) in result.iter().zip(reference) {
            let difference = (i128::from(found) - i128::from(right)) as f64;
            self.squares += difference * difference;
            self.norm += right as f64 * right as f64;
            self.largest = self.largest.max(difference.abs());
        }
        self.elements += reference.len() as u64;
    }

    /// Adds the sums over other elements of the same result.
    pub fn add(&mut self, other: &ErrorSums) {
        self.elements += other.elements;
        self.squares += other.squares;
        self.norm += other.norm;
        self.largest = self.largest.max(other.largest);
        self.finite &= other.finite;
    }

    /// The errors as in the protocol. If the reference is zero, the root mean square of the result
    /// replaces the relative error.
    pub fn error(&self) -> TensorError {
        let count = self.elements.max(1) as f64;
        let zero = (self.norm / count).sqrt() < ZERO;
        let scale = if zero { count } else { self.norm };
        let figure = |value: f64| (self.finite && value.is_finite()).then_some(value);
        TensorError {
            relative_l2: figure((self.squares / scale).sqrt()),
            max_abs: figure(self.largest),
        }
    }
}

/// The expected result, represented by single elements and its size.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// Single elements of the reference, each with its index.
    pub probes: Vec<(u64, f64)>,
    /// The sum of squares over the parts of the reference that contain the probes.
    pub squares: f64,
    /// The number of elements in these parts.
    pub elements: u64,
}

impl Expected {
    /// The expected values of a whole tensor in logical order.
    pub fn from_tensor(reference: &[f64], probes: usize, draw: Option<u64>) -> Expected {
        let elements = reference.len() as u64;
        let at = |index: u64| Some((index, *reference.get(index as usize)?));
        let indices = probe_indices(elements, probes, draw);
        Expected {
            probes: indices.filter_map(at).collect(),
            squares: reference.iter().map(|x| x * x).sum(),
            elements,
        }
    }

    /// The root mean square of the elements; 1 if the reference is [`ZERO`], so that a result is
    /// compared with its own size.
    fn scale(&self) -> f64 {
        let rms = (self.squares / self.elements.max(1) as f64).sqrt();
        if rms < ZERO { 1.0 } else { rms }
    }
}

/// Compares single elements of a result with the reference's.
///
/// `limit` is the tensor's [`limit`]. An element may be off by `limit · (8 · RMS + |element|)`:
/// rounding noise is about Gaussian with a deviation of at most `limit · RMS`, and the first rows
/// of a causal mask are larger than the rest. If the reference is [`ZERO`], 1 replaces its root
/// mean square.
///
/// # Errors
/// The tensor and the index of the first element that is off.
pub fn probes_agree(
    tensor: &str,
    probes: &[Option<f64>],
    expected: &Expected,
    limit: f64,
) -> Result<(), String> {
    for (at, probe) in probes.iter().enumerate() {
        let Some(&(index, expected_value)) = expected.probes.get(at) else {
            return Err(format!("{tensor}: the reference is empty"));
        };
        let Some(found) = *probe else {
            return Err(format!(
                "{tensor}[{index}] is not finite; the reference has {expected_value:.6e}"
            ));
        };
        let allowed = limit * (8.0 * expected.scale() + expected_value.abs());
        let off = (found - expected_value).abs();
        if off.is_nan() || off > allowed {
            return Err(format!(
                "{tensor}[{index}] is {found:.6e}; the reference has {expected_value:.6e} \
                 and allows a difference of {allowed:.1e}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_probe_is_named() {
        let reference: Vec<f64> = (0..64).map(|i| f64::from(i % 3) - 1.0).collect();
        let expected = Expected::from_tensor(&reference, 16, None);
        let mut probes: Vec<Option<f64>> =
            expected.probes.iter().map(|probe| Some(probe.1)).collect();
        assert_eq!(probes_agree("dk", &probes, &expected, 1e-3), Ok(()));
        probes[3] = Some(0.5);
        let error = probes_agree("dk", &probes, &expected, 1e-3).unwrap_err();
        assert!(error.starts_with("dk[14] is 5.0"), "{error}");
        probes[3] = None;
        assert!(probes_agree("dk", &probes, &expected, 1e-3).is_err());
    }

    /// The `dq` of one key on an H200: the reference is 0, or nearly 0.
    #[test]
    fn where_the_reference_is_zero_a_result_is_held_to_its_own_size() {
        for noise in [0.0, 3e-17] {
            let expected = Expected::from_tensor(&[noise; 64], 16, None);
            let probes_of = |value: f64| vec![Some(value); 16];
            assert_eq!(
                probes_agree("dq", &probes_of(1.9e-7), &expected, 1e-5),
                Ok(())
            );
            let error = probes_agree("dq", &probes_of(1e-2), &expected, 1e-5).unwrap_err();
            assert!(error.contains("allows a difference of 8.0e-5"), "{error}");
        }
    }

    fn sums(squares: f64, norm: f64) -> ErrorSums {
        ErrorSums {
            elements: 4,
            squares,
            norm,
            largest: 1.0,
            finite: true,
        }
    }

    #[test]
    fn errors_are_relative_unless_the_reference_is_zero() {
        assert_eq!(sums(4.0, 100.0).error().relative_l2, Some(0.2));
        // A gradient that is zero in exact arithmetic.
        assert_eq!(sums(4.0, 0.0).error().relative_l2, Some(1.0));
        assert_eq!(sums(4.0, 1e-25).error().relative_l2, Some(1.0));
    }

    #[test]
    fn sums_over_parts_are_those_over_the_whole() {
        let mut all = sums(1.0, 30.0);
        all.add(&ErrorSums {
            largest: 3.0,
            ..sums(3.0, 70.0)
        });
        assert_eq!(all.error().relative_l2, Some(0.2));
        assert_eq!((all.elements, all.error().max_abs), (8, Some(3.0)));
        all.add(&ErrorSums {
            finite: false,
            ..ErrorSums::default()
        });
        assert_eq!(all.error().relative_l2, None);
    }
}
