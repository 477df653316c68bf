//! Whether invocations remember each other.
//!
//! A machine that warms up, or a clock that wanders, makes neighbours alike; five such
//! invocations then say less than five, and no test of exchangeable values knows it. Von
//! Neumann's ratio (Annals of Mathematical Statistics 12, 1941) compares the squared steps
//! from one value to the next with the variance: it is 2 for values in any order, and less
//! where neighbours are alike. One case has too few invocations to tell; all together have
//! enough.

use super::moderated::{Prior, variance};

/// Fewer series than these cannot tell.
const FEWEST: usize = 20;

/// How many standard errors below 2 the ratio must lie.
const BEYOND: f64 = 3.0;

/// What estimating the memory costs in certainty, on the variance of a mean.
const ESTIMATED: f64 = 1.2;

/// The correlation of one invocation with the next, as of an autoregression of the first
/// order; 0: none was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory(pub f64);

impl Memory {
    /// No memory.
    pub const NONE: Memory = Memory(0.0);

    /// Looks for it in series of values in the order in which they were measured. Each
    /// counts by its own variance, so that no case outweighs the others.
    pub fn of<'a>(series: impl Iterator<Item = &'a [f64]>, prior: &Prior) -> Memory {
        let (mut steps, mut spreads, mut lengths) = (Vec::new(), Vec::new(), 0);
        for values in series.filter(|values| values.len() > 2) {
            let own = variance(values);
            let scale = prior.shrink(own).value;
            let squares = values.windows(2).map(|pair| (pair[1] - pair[0]).powi(2));
            steps.push(squares.sum::<f64>() / own.degrees / scale);
            spreads.push(own.value / scale);
            lengths += values.len();
        }
        let whole: f64 = spreads.iter().sum();
        if steps.len() < FEWEST || whole <= 0.0 {
            return Memory::NONE;
        }
        let ratio = steps.iter().sum::<f64>() / whole;
        let pairs = steps.iter().zip(&spreads);
        let rest: f64 = pairs
            .map(|(step, spread)| (step - ratio * spread).powi(2))
            .sum();
        let error = rest.sqrt() / whole;
        if ratio + BEYOND * error >= 2.0 {
            return Memory::NONE;
        }
        let length = lengths as f64 / steps.len() as f64;
        let found = (1..98).map(|hundredths| f64::from(hundredths) / 100.0);
        let found = found.take_while(|&kept| expected(length, kept) > ratio);
        Memory(found.last().unwrap_or(0.01))
    }

    /// True where there is any.
    pub fn is_found(self) -> bool {
        self.0 > 0.0
    }

    /// By what factor the variance of a mean of `count` values exceeds what a variance
    /// estimated from series of `length` values says of it.
    pub fn inflation(self, count: f64, length: f64) -> f64 {
        if !self.is_found() {
            return 1.0;
        }
        ESTIMATED * of_mean(count, self.0) * count / of_values(length, self.0)
    }
}

/// The variance of the mean of `n` values, in units of that of one: `(1 + 2 Σ (1 - k/n) ρᵏ) / n`.
fn of_mean(n: f64, kept: f64) -> f64 {
    let lags = 1..n.round().max(1.0) as u32;
    let shared = lags.map(|lag| (n - f64::from(lag)) * kept.powi(lag as i32));
    (n + 2.0 * shared.sum::<f64>()) / (n * n)
}

/// What the variance of `n` values comes out as, in units of the true one.
fn of_values(n: f64, kept: f64) -> f64 {
    ((1.0 - of_mean(n, kept)) * n / (n - 1.0)).max(1e-3)
}

/// Von Neumann's ratio of `n` values with this memory.
fn expected(n: f64, kept: f64) -> f64 {
    2.0 * (1.0 - kept) / of_values(n, kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIOR: Prior = Prior {
        variance: 1.0,
        degrees: 50.0,
    };

    /// Series of an autoregression, drawn from a fixed sequence.
    fn series(kept: f64, length: usize) -> Vec<Vec<f64>> {
        let mut state = 1u64;
        let mut draw = || {
            // Twelve uniform draws less six are nearly normal.
            let uniform = (0..12).map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 11) as f64 / (1u64 << 53) as f64
            });
            uniform.sum::<f64>() - 6.0
        };
        let one = |draw: &mut dyn FnMut() -> f64| {
            let mut now = draw();
            let next = |_| {
                let value = now;
                now = kept * now + (1.0 - kept * kept).sqrt() * draw();
                value
            };
            (0..length).map(next).collect()
        };
        (0..400).map(|_| one(&mut draw)).collect()
    }

    fn found(kept: f64, length: usize) -> f64 {
        let series = series(kept, length);
        Memory::of(series.iter().map(Vec::as_slice), &PRIOR).0
    }

    #[test]
    fn values_in_any_order_have_none() {
        assert_eq!(found(0.0, 5), 0.0);
        assert_eq!(Memory::NONE.inflation(5.0, 5.0), 1.0);
    }

    #[test]
    fn memory_is_found_and_about_as_large_as_it_is() {
        for length in [5, 15] {
            let kept = found(0.8, length);
            assert!((0.7..0.9).contains(&kept), "{kept} of 0.8 at {length}");
        }
        // Five invocations of such say less than one alone would.
        assert!(Memory(0.8).inflation(5.0, 5.0) > 8.0);
    }

    #[test]
    fn few_series_say_nothing() {
        let few: Vec<Vec<f64>> = series(0.9, 5).into_iter().take(19).collect();
        let memory = Memory::of(few.iter().map(Vec::as_slice), &PRIOR);
        assert_eq!(memory, Memory::NONE);
    }
}
