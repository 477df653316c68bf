//! How far a result is from its float64 reference, in the protocol's figures, from sums
//! that a worker adds up wherever the result lies.

use crate::attention::tolerance::ZERO;
use crate::protocol::TensorError;

/// Sums over the elements of a result and its reference.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Difference {
    /// Elements.
    pub elements: u64,
    /// `Σ (result - reference)²`.
    pub squares: f64,
    /// `Σ reference²`.
    pub norm: f64,
    /// `max |result - reference|`.
    pub largest: f64,
    /// True when every element of the result is finite.
    pub finite: bool,
}

impl Difference {
    /// Takes in the sums over other elements of the same result.
    pub fn add(&mut self, other: &Difference) {
        self.elements += other.elements;
        self.squares += other.squares;
        self.norm += other.norm;
        self.largest = self.largest.max(other.largest);
        self.finite &= other.finite;
    }

    /// The figures of the protocol. Where the reference is zero, a relative error means
    /// nothing: the root mean square of the result stands in its place.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(squares: f64, norm: f64) -> Difference {
        Difference {
            elements: 4,
            squares,
            norm,
            largest: 1.0,
            finite: true,
        }
    }

    #[test]
    fn errors_are_relative_unless_the_reference_is_zero() {
        assert_eq!(of(4.0, 100.0).error().relative_l2, Some(0.2));
        // A gradient that is zero in exact arithmetic.
        assert_eq!(of(4.0, 0.0).error().relative_l2, Some(1.0));
        assert_eq!(of(4.0, 1e-25).error().relative_l2, Some(1.0));
    }

    #[test]
    fn sums_over_parts_are_those_over_the_whole() {
        let mut sums = of(1.0, 30.0);
        sums.add(&Difference {
            largest: 3.0,
            ..of(3.0, 70.0)
        });
        assert_eq!(sums.error().relative_l2, Some(0.2));
        assert_eq!((sums.elements, sums.error().max_abs), (8, Some(3.0)));
        sums.add(&Difference {
            finite: false,
            ..Difference::default()
        });
        assert_eq!(sums.error().relative_l2, None);
    }
}
