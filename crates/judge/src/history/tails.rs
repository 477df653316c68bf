//! How improbable a sum of ranks is, far out where the normal distribution is no guide.
//!
//! Against many values, the ranks of few are as good as `few` draws from a uniform
//! distribution, and their sum has the distribution of Irwin (Biometrika 19, 1927) and Hall
//! (ibid.). A sum of five ranks cannot be five deviations away, as a normal one can: where all
//! five are the largest of two hundred, p is that of one arrangement among 2.5 thousand
//! million, and the normal approximation says 1 in 10,000.

use statrs::function::gamma::ln_gamma;

use crate::statistics::normal_upper;

/// From so many ranks on their sum is normal, or a little less far out.
const NORMAL: f64 = 64.0;

/// Logarithm of p against "these `few` ranks among `few + many` are as any others", of their
/// standardised sum, two-sided. Numbers of ranks need not be whole, where values remember those
/// before them.
pub(super) fn ln_p(z: f64, few: f64, many: f64) -> f64 {
    let z = z.abs();
    let few = few.floor().max(1.0);
    let one_side = match few < NORMAL {
        true => irwin_hall(z, few).unwrap_or_else(|| normal(z)),
        false => normal(z),
    };
    (one_side.max(ln_arrangement(few, many)) + f64::ln(2.0)).min(0.0)
}

/// The least that [`ln_p`] can be: no arrangement is less probable than one of them.
pub(super) fn ln_least(few: f64, many: f64) -> f64 {
    ln_arrangement(few.floor().max(1.0), many) + f64::ln(2.0)
}

fn normal(z: f64) -> f64 {
    normal_upper(z).max(f64::MIN_POSITIVE).ln()
}

/// Logarithm of one over the number of ways to choose `few` of all.
fn ln_arrangement(few: f64, many: f64) -> f64 {
    ln_gamma(few + 1.0) + ln_gamma(many.max(0.0) + 1.0) - ln_gamma(few + many.max(0.0) + 1.0)
}

/// Logarithm of the probability that the sum of `few` uniform draws is at most `z` deviations
/// below its mean, the alternating sum of Irwin and Hall. `None` where its terms cancel.
fn irwin_hall(z: f64, few: f64) -> Option<f64> {
    let sum = few / 2.0 - z * (few / 12.0).sqrt();
    if sum <= 0.0 {
        return Some(f64::NEG_INFINITY);
    }
    let (mut series, mut ways, mut largest) = (0.0, 1.0, 0.0f64);
    let mut taken = 0.0;
    while taken < sum && taken <= few {
        let term: f64 = ways * ((sum - taken) / sum).powf(few);
        series += term;
        largest = largest.max(term.abs());
        taken += 1.0;
        ways *= -(few - taken + 1.0) / taken;
    }
    (series > 1e-10 * largest).then(|| few * sum.ln() - ln_gamma(few + 1.0) + f64::ln(series))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::mann_whitney;

    /// p of a rank sum that is short of its most by so many places, by counting.
    fn exact(few: usize, many: usize, short: usize) -> (f64, f64) {
        let base: Vec<f64> = (0..many).map(|n| n as f64).collect();
        // One of the few has `short` of the others above it.
        let mut head: Vec<f64> = (0..few).map(|n| (many + n) as f64).collect();
        head[0] = (many - short) as f64 - 0.5;
        let test = mann_whitney(&base, &head).unwrap();
        assert!(test.exact);
        let (n, m) = (few as f64, many as f64);
        let z = (test.u - n * m / 2.0) / (n * m * (n + m + 1.0) / 12.0).sqrt();
        (z, test.two_sided)
    }

    #[test]
    fn far_out_it_is_what_counting_says() {
        for (few, many, short) in [
            (3, 50, 0),
            (5, 50, 0),
            (5, 50, 20),
            (8, 40, 10),
            (20, 40, 30),
        ] {
            let (z, p) = exact(few, many, short);
            let found = ln_p(z, few as f64, many as f64);
            // Where the many are not so many, it is the larger one.
            let off = found - p.ln();
            assert!((-0.8..2.5).contains(&off), "{few} {many} {short}: {off}");
        }
    }

    #[test]
    fn it_falls_with_the_distance_and_has_an_end() {
        for few in [3.0, 5.0, 12.0, 40.0, 63.0, 64.0, 300.0] {
            let mut before = 0.0;
            for step in 0..200 {
                let p = ln_p(f64::from(step) / 10.0, few, 500.0);
                assert!(p <= before + 0.35, "{few} {step}: {p} after {before}");
                assert!(p.is_finite());
                before = p;
            }
            assert!(before >= ln_least(few, 500.0) - 1e-9);
        }
        // Five of two hundred: one arrangement of 2,535,650,040, either way.
        let least = ln_p(10.0, 5.0, 195.0);
        assert!(
            (least - (2.0f64 / 2_535_650_040.0).ln()).abs() < 1e-6,
            "{least}"
        );
    }
}
