//! Distributions that the history of runs is judged by.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Beyond so many degrees of freedom t is normal.
const NORMAL: f64 = 1e6;

/// Standard deviation (of a sample, over n - 1) over the mean; not a number for fewer
/// than two values.
pub fn coefficient_of_variation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2));
    (squares.sum::<f64>() / (count - 1.0)).sqrt() / mean
}

/// Upper tail of the standard normal distribution.
pub(super) fn normal_upper(z: f64) -> f64 {
    Normal::standard().sf(z)
}

/// Probability that Student's t with so many degrees of freedom exceeds a value that is not
/// negative.
pub fn t_upper(t: f64, degrees: f64) -> f64 {
    if t.is_nan() {
        return 0.5;
    }
    if degrees >= NORMAL {
        return normal_upper(t);
    }
    match StudentsT::new(0.0, 1.0, degrees.max(1.0)) {
        Ok(distribution) => distribution.sf(t).clamp(0.0, 1.0),
        Err(_) => 0.5,
    }
}
