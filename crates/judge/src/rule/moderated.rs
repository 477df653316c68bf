//! Variances that borrow strength from all cases of a sweep.
//!
//! Five invocations know their own variance badly: a test that believed them would call
//! whatever case was quiet by luck. Smyth (Statistical Applications in Genetics and
//! Molecular Biology 3, 2004, article 3) takes the variances of all cases for draws from one
//! distribution, a scaled inverse chi-squared; each case's is then shrunk towards the centre
//! of it, by as much as the others agree.
//!
//! A case that is noisier than the others can explain keeps its own variance, as Phipson et
//! al. (Annals of Applied Statistics 10, 2016) do: shrinking it would call its tails.

use statrs::distribution::{ContinuousCDF, FisherSnedecor};
use statrs::function::gamma::digamma;

/// No clock and no machine is steadier than this: a quarter of a thousandth, squared. Values
/// that agree to the last digit say that the clock is coarse, not that nothing varies.
const LEAST: f64 = 2.5e-4 * 2.5e-4;

/// Fewer cases than these have no distribution of variances.
const FEWEST: usize = 5;

/// What is believed of a case in a suite of few: half a percent between invocations, as much
/// as one degree of freedom.
const WEAK: Prior = Prior {
    variance: 0.005 * 0.005,
    degrees: 1.0,
};

/// More than these the cases' agreement never counts.
const MOST_DEGREES: f64 = 200.0;

/// A variance that so few draws from the distribution would exceed is the case's own.
const OUTLYING: f64 = 0.01;

/// What the variances of all cases say of that of any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prior {
    /// The variance that cases have in common.
    pub variance: f64,
    /// How many degrees of freedom that is worth.
    pub degrees: f64,
}

/// A variance, and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variance {
    /// Of one value.
    pub value: f64,
    /// Degrees of freedom.
    pub degrees: f64,
}

impl Prior {
    /// Fits the distribution to variances with their degrees of freedom, by the moments of
    /// their logarithms (Smyth 2004, section 6.2).
    pub fn fit(variances: &[Variance]) -> Prior {
        let usable = variances.iter().filter(|v| v.degrees >= 1.0);
        let logs: Vec<(f64, f64)> = usable
            .map(|v| {
                let half = v.degrees / 2.0;
                let centred = v.value.max(LEAST).ln() - digamma(half) + half.ln();
                (centred, trigamma(half))
            })
            .collect();
        if logs.len() < FEWEST {
            return WEAK;
        }
        let count = logs.len() as f64;
        let mean = logs.iter().map(|(log, _)| log).sum::<f64>() / count;
        let spread = logs
            .iter()
            .map(|(log, _)| (log - mean).powi(2))
            .sum::<f64>()
            / (count - 1.0);
        let own = logs.iter().map(|(_, own)| own).sum::<f64>() / count;
        let between = spread - own;
        if between <= 1e-3 {
            return Prior {
                variance: mean.exp(),
                degrees: MOST_DEGREES,
            };
        }
        let half = inverse_trigamma(between);
        Prior {
            variance: (mean + digamma(half) - half.ln()).exp(),
            degrees: (2.0 * half).min(MOST_DEGREES),
        }
    }

    /// The variance of these values, shrunk.
    pub fn moderate(&self, values: &[f64]) -> Variance {
        self.shrink(variance(values))
    }

    /// A variance, shrunk.
    pub fn shrink(&self, own: Variance) -> Variance {
        let Variance { value, degrees } = own;
        if degrees < 1.0 {
            return Variance {
                value: self.variance,
                degrees: self.degrees,
            };
        }
        let weight = match self.outlying(own) {
            true => 0.0,
            false => self.degrees,
        };
        Variance {
            value: ((weight * self.variance + degrees * value) / (weight + degrees)).max(LEAST),
            degrees: weight + degrees,
        }
    }

    fn outlying(&self, own: Variance) -> bool {
        let ratio = own.value / self.variance;
        // Cheap first: nearly all are below.
        ratio > 2.0
            && FisherSnedecor::new(own.degrees, self.degrees).is_ok_and(|f| f.sf(ratio) < OUTLYING)
    }
}

/// The variance of values as they are; no degrees of freedom for fewer than two.
pub fn variance(values: &[f64]) -> Variance {
    let count = values.len() as f64;
    if values.len() < 2 {
        return Variance {
            value: 0.0,
            degrees: 0.0,
        };
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Variance {
        value: squares / (count - 1.0),
        degrees: count - 1.0,
    }
}

/// Two estimates of one variance.
pub fn pooled(one: Variance, two: Variance) -> Variance {
    let degrees = one.degrees + two.degrees;
    match degrees > 0.0 {
        true => Variance {
            value: (one.value * one.degrees + two.value * two.degrees) / degrees,
            degrees,
        },
        false => one,
    }
}

/// The second derivative of the logarithm of the gamma function (Abramowitz & Stegun 6.4.6
/// and 6.4.12).
fn trigamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < 8.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    sum + 1.0 / x + y / 2.0 + y / x * (1.0 / 6.0 - y * (1.0 / 30.0 - y * (1.0 / 42.0 - y / 30.0)))
}

/// The third derivative (Abramowitz & Stegun 6.4.6 and 6.4.13).
fn tetragamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < 8.0 {
        sum -= 2.0 / (x * x * x);
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    sum - y - y / x - y * y / 2.0 + y * y * y * (1.0 / 6.0 - y * (1.0 / 6.0 - y * 0.3))
}

/// Where the trigamma function is `y`, by Newton's method (Smyth 2004, appendix).
fn inverse_trigamma(y: f64) -> f64 {
    let mut x = 0.5 + 1.0 / y;
    for _ in 0..50 {
        let at = trigamma(x);
        let step = at * (1.0 - at / y) / tetragamma(x);
        x += step;
        if (step / x).abs() < 1e-9 {
            break;
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Vec<Variance> {
        let variance = |&value: &f64| Variance {
            value,
            degrees: 8.0,
        };
        values.iter().map(variance).collect()
    }

    #[test]
    fn derivatives_of_the_gamma_function_are_those_of_the_tables() {
        // Abramowitz & Stegun, table 6.1, and π²/6, -2 ζ(3).
        assert!((trigamma(1.0) - 1.644_934_066_8).abs() < 1e-9);
        assert!((trigamma(1.5) - 0.934_802_200_5).abs() < 1e-9);
        assert!((tetragamma(1.0) + 2.404_113_806_3).abs() < 1e-8);
        for x in [0.3, 1.0, 4.0, 60.0] {
            assert!((inverse_trigamma(trigamma(x)) / x - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn cases_that_agree_are_believed_together() {
        let alike = Prior::fit(&of(&[1e-4; 50]));
        assert_eq!(alike.degrees, MOST_DEGREES);
        let lucky = alike.shrink(of(&[1e-8])[0]);
        assert!(lucky.value > 0.9e-4 && lucky.degrees > 200.0);
    }

    #[test]
    fn cases_that_disagree_are_believed_each() {
        let values: Vec<f64> = (0..40).map(|i| 1e-8 * 2f64.powi(i % 14)).collect();
        let apart = Prior::fit(&of(&values));
        assert!(apart.degrees < 2.0, "{apart:?}");
        let own = apart.shrink(of(&[4e-5])[0]);
        assert!((own.value / 4e-5 - 1.0).abs() < 0.2);
    }

    #[test]
    fn the_noisiest_keeps_its_own() {
        let alike = Prior::fit(&of(&[1e-4; 50]));
        let wild = alike.shrink(of(&[1e-2])[0]);
        assert_eq!((wild.value, wild.degrees), (1e-2, 8.0));
    }

    #[test]
    fn few_cases_and_few_values_have_the_weak_belief() {
        assert_eq!(Prior::fit(&of(&[1e-4; 4])), WEAK);
        let one = WEAK.moderate(&[3.0]);
        assert_eq!((one.value, one.degrees), (2.5e-5, 1.0));
        assert!(WEAK.moderate(&[3.0, 3.0, 3.0]).value > 0.0);
    }
}
