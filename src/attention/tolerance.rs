//! How far a result may be from the float64 reference.
//!
//! Limits are on `‖result - reference‖₂ / ‖reference‖₂` with the inputs of
//! [`inputs`](super::inputs) (variance 1, scores of about unit variance). They
//! are a few times what correct kernels show and far below any real mistake:
//! leaving out a share `f` of the keys moves the output by about `√f`, and a causal
//! diagonal that is off by one by about 0.5.

use super::{Direction, Dtype};

/// The results of a direction, each with the direction whose limit it is held to.
pub fn results(direction: Direction) -> &'static [(&'static str, Direction)] {
    use Direction::{Backward, Forward};
    const ALL: [(&str, Direction); 4] = [
        ("out", Forward),
        ("dq", Backward),
        ("dk", Backward),
        ("dv", Backward),
    ];
    match direction {
        Direction::Forward => &ALL[..1],
        Direction::Backward => &ALL[1..],
        Direction::Both => &ALL,
    }
}

/// The largest tolerable relative L2 error of a result.
///
/// Backward is given twice as much: `ds = p ∘ (dp - δ)` subtracts two rounded
/// numbers of the same size, and the stored `out` from which δ comes is rounded too.
/// `Both` stands for its looser half; ask for the half a result belongs to.
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

/// Holds a result's error, as a worker reports it, to its [`limit`].
///
/// # Errors
/// The figure and the limit; `None` means that the result was not finite.
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

/// Compares single elements of a result with the reference's.
///
/// `probes` are the elements at [`probe_indices`](super::inputs::probe_indices)
/// of `reference`, which is the whole tensor in logical order; `limit` is the
/// tensor's [`limit`]. An element may be off by `limit · (8 · RMS + |element|)`:
/// rounding noise is about Gaussian around `limit · RMS` at the most, and the first
/// rows of a causal mask are larger than the rest.
///
/// # Errors
/// Names the tensor and the index of the first element that is off.
pub fn probes_agree(
    tensor: &str,
    probes: &[Option<f64>],
    reference: &[f64],
    limit: f64,
) -> Result<(), String> {
    let squares: f64 = reference.iter().map(|x| x * x).sum();
    let rms = (squares / reference.len().max(1) as f64).sqrt();
    let indices = super::inputs::probe_indices(reference.len() as u64, probes.len());
    for (index, probe) in indices.zip(probes) {
        let Some(&expected) = reference.get(index as usize) else {
            return Err(format!("{tensor}: the reference is empty"));
        };
        let Some(found) = *probe else {
            return Err(format!(
                "{tensor}[{index}] is not finite; the reference has {expected:.6e}"
            ));
        };
        let allowed = limit * (8.0 * rms + expected.abs());
        let off = (found - expected).abs();
        if off.is_nan() || off > allowed {
            return Err(format!(
                "{tensor}[{index}] is {found:.6e}; the reference has {expected:.6e} \
                 and allows a difference of {allowed:.1e}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::reference::{Gradients, Inputs, backward, forward};
    use crate::attention::{Align, Mask, Problem};

    fn distance(wrong: &[f64], right: &[f64]) -> Option<f64> {
        let difference: f64 = wrong.iter().zip(right).map(|(a, b)| (a - b).powi(2)).sum();
        let norm: f64 = right.iter().map(|b| b * b).sum();
        Some((difference / norm).sqrt())
    }

    /// Results of `right` and of a kernel that computes `wrong` in its stead.
    fn mistake(right: &Problem, wrong: &Problem) -> Vec<(Direction, Option<f64>)> {
        let run = |problem: &Problem| -> (Vec<f64>, Gradients) {
            let inputs = Inputs::generate(right, 42).unwrap();
            let saved = forward(problem, &inputs).unwrap();
            let gradients = backward(problem, &inputs, &saved).unwrap();
            (saved.out, gradients)
        };
        let ((out, grad), (out_wrong, grad_wrong)) = (run(right), run(wrong));
        vec![
            (Direction::Forward, distance(&out_wrong, &out)),
            (Direction::Backward, distance(&grad_wrong.dq, &grad.dq)),
            (Direction::Backward, distance(&grad_wrong.dk, &grad.dk)),
            (Direction::Backward, distance(&grad_wrong.dv, &grad.dv)),
        ]
    }

    #[test]
    fn a_dropped_tile_and_a_shifted_diagonal_fail_in_every_type() {
        let full = Problem::new(128, 64);
        // A window this wide leaves out keys at the far end only: a lost tile.
        let dropped = Problem {
            mask: Mask {
                left: None,
                right: Some(96),
                align: Align::TopLeft,
            },
            ..full.clone()
        };
        let causal = Problem {
            mask: Mask::causal(Align::TopLeft),
            ..full.clone()
        };
        let shifted = Problem {
            mask: Mask {
                left: None,
                right: Some(1),
                align: Align::TopLeft,
            },
            ..full.clone()
        };
        for (right, wrong) in [(&full, &dropped), (&causal, &shifted)] {
            for (direction, error) in mistake(right, wrong) {
                for dtype in Dtype::ALL {
                    let verdict = tolerable(dtype, true, direction, error);
                    assert!(verdict.is_err(), "{dtype} {direction}: {error:?} passed");
                }
            }
        }
    }

    #[test]
    fn messages_say_the_figure_and_the_limit() {
        let error = tolerable(Dtype::F32, false, Direction::Forward, Some(1e-3)).unwrap_err();
        assert_eq!(
            error,
            "relative L2 error 1.0e-3 is above the 5.0e-6 allowed for f32"
        );
        assert!(tolerable(Dtype::F32, true, Direction::Forward, Some(3e-4)).is_ok());
        assert!(tolerable(Dtype::F16, false, Direction::Backward, None).is_err());
        assert!(tolerable(Dtype::F32, false, Direction::Forward, Some(f64::NAN)).is_err());
    }

    #[test]
    fn a_wrong_probe_is_named() {
        let reference: Vec<f64> = (0..64).map(|i| f64::from(i % 3) - 1.0).collect();
        let mut probes: Vec<Option<f64>> = crate::attention::inputs::probe_indices(64, 16)
            .map(|i| Some(reference[i as usize]))
            .collect();
        assert_eq!(probes_agree("dk", &probes, &reference, 1e-3), Ok(()));
        probes[3] = Some(0.5);
        let error = probes_agree("dk", &probes, &reference, 1e-3).unwrap_err();
        assert!(error.starts_with("dk[14] is 5.0"), "{error}");
        probes[3] = None;
        assert!(probes_agree("dk", &probes, &reference, 1e-3).is_err());
    }
}
