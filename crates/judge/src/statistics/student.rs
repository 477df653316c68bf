//! Student's t, and a centre that a few wild values do not move.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::{normal_upper, normal_upper_quantile};

/// Beyond so many degrees of freedom t is normal.
const NORMAL: f64 = 1e6;

/// Below so few, quantiles are searched for; above, the series is exact to 1 in 1,000.
const SERIES: f64 = 4.0;

/// More values than these count by their median: the pairs would not fit in memory.
const MOST_VALUES: usize = 400;

/// Probability that t with so many degrees of freedom exceeds a value that is not negative.
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

/// The value that t with so many degrees of freedom exceeds with probability `p`, below one
/// half: the expansion of Cornish and Fisher (Abramowitz & Stegun 26.7.5) around the normal
/// quantile.
pub fn t_upper_quantile(p: f64, degrees: f64) -> f64 {
    let z = normal_upper_quantile(p);
    if degrees >= NORMAL {
        return z;
    }
    if degrees < SERIES || z > 3.0 && degrees < 10.0 {
        return searched(p, degrees.max(1.0));
    }
    let square = z * z;
    let terms = [
        z * (square + 1.0) / 4.0,
        z * ((5.0 * square + 16.0) * square + 3.0) / 96.0,
        z * (((3.0 * square + 19.0) * square + 17.0) * square - 15.0) / 384.0,
        z * ((((79.0 * square + 776.0) * square + 1482.0) * square - 1920.0) * square - 945.0)
            / 92_160.0,
    ];
    let terms = terms.iter().rev();
    z + terms.fold(0.0, |sum, term| (sum + term) / degrees)
}

/// By bisection of the tail, which statrs has to full precision.
fn searched(p: f64, degrees: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while t_upper(high, degrees) > p && high < 1e12 {
        high *= 4.0;
    }
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        match t_upper(middle, degrees) > p {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// The centre of values that may have a few wild ones among them: the median of the means of
/// all pairs, each with itself included (Hodges & Lehmann 1963); 0 for none.
pub fn one_sample_centre(values: &[f64]) -> f64 {
    if values.len() > MOST_VALUES {
        let mut values = values.to_vec();
        return middle(&mut values);
    }
    let pairs = (0..values.len()).flat_map(|i| (i..values.len()).map(move |j| (i, j)));
    let mut means: Vec<f64> = pairs
        .map(|(i, j)| f64::midpoint(values[i], values[j]))
        .collect();
    middle(&mut means)
}

fn middle(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    match values.len().checked_sub(1) {
        Some(last) => f64::midpoint(values[last / 2], values[last.div_ceil(2)]),
        None => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // scipy.stats.t.isf.
        for (p, degrees, expected) in [
            (0.05, 1.0, 6.313_751),
            (0.05, 4.0, 2.131_847),
            (0.05, 8.0, 1.859_548),
            (0.025, 30.0, 2.042_272),
            (1e-5, 12.0, 6.765_169),
            (1e-5, 3.0, 47.927_728),
            (1e-6, 200.0, 4.897_302),
            (0.05, f64::INFINITY, 1.644_854),
        ] {
            let found = t_upper_quantile(p, degrees);
            assert!(
                (found / expected - 1.0).abs() < 5e-3,
                "{p} {degrees}: {found}"
            );
        }
        assert!((t_upper(2.131_847, 4.0) - 0.05).abs() < 1e-6);
        assert_eq!(t_upper(f64::NAN, 4.0), 0.5);
    }

    #[test]
    fn a_centre_bears_one_wild_value_in_five() {
        assert_eq!(one_sample_centre(&[3.0]), 3.0);
        assert_eq!(one_sample_centre(&[]), 0.0);
        let centre = one_sample_centre(&[1.0, 1.1, 0.9, 1.05, 100.0]);
        assert!(centre < 1.2, "{centre}");
    }
}
