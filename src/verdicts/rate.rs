//! A rate that was counted, and how well it is known.

use serde::Serialize;

use crate::units::Share;

/// So many out of so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// How often it happened.
    pub hits: usize,
    /// Out of how many.
    pub of: usize,
}

impl Rate {
    /// One that happened, or did not.
    pub fn once(hit: bool) -> Rate {
        Rate {
            hits: usize::from(hit),
            of: 1,
        }
    }

    /// Both together.
    pub fn plus(self, other: Rate) -> Rate {
        Rate {
            hits: self.hits + other.hits,
            of: self.of + other.of,
        }
    }

    /// The share itself; none of nothing is no number.
    pub fn share(self) -> Share {
        Share(self.hits as f64 / self.of as f64)
    }

    /// The 95 % interval (Wilson, Journal of the American Statistical Association 22,
    /// 1927): all shares that the count does not contradict.
    pub fn interval(self) -> (Share, Share) {
        const Z: f64 = 1.959_963_984_540_054;
        if self.of == 0 {
            return (Share(0.0), Share(1.0));
        }
        let (count, share) = (self.of as f64, self.share().0);
        let shrink = 1.0 + Z * Z / count;
        let centre = (share + Z * Z / (2.0 * count)) / shrink;
        let inner = share * (1.0 - share) / count + Z * Z / (4.0 * count * count);
        let half = Z / shrink * inner.sqrt();
        let low = if self.hits == 0 { 0.0 } else { centre - half };
        let high = if self.hits == self.of {
            1.0
        } else {
            centre + half
        };
        (Share(low), Share(high))
    }
}

impl Serialize for Rate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (low, high) = self.interval();
        let written = Written {
            hits: self.hits,
            of: self.of,
            share: self.share(),
            low,
            high,
        };
        written.serialize(serializer)
    }
}

/// A rate as it is written.
#[derive(Serialize)]
struct Written {
    /// How often it happened.
    hits: usize,
    /// Out of how many.
    of: usize,
    /// The share itself.
    share: Share,
    /// Lower end of the 95 % interval of Wilson.
    low: Share,
    /// Its upper end.
    high: Share,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near((low, high): (Share, Share), expected: (f64, f64)) {
        assert!((low.0 - expected.0).abs() < 5e-4, "{low:?}");
        assert!((high.0 - expected.1).abs() < 5e-4, "{high:?}");
    }

    #[test]
    fn intervals_are_those_of_published_examples() {
        // Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
        near(Rate { hits: 81, of: 263 }.interval(), (0.2553, 0.3662));
        near(Rate { hits: 15, of: 148 }.interval(), (0.0624, 0.1605));
        near(Rate { hits: 0, of: 20 }.interval(), (0.0, 0.1611));
        near(Rate { hits: 1, of: 29 }.interval(), (0.0061, 0.1718));
    }

    #[test]
    fn rates_add_up() {
        let both = Rate::once(true).plus(Rate::once(false));
        assert_eq!((both, both.share()), (Rate { hits: 1, of: 2 }, Share(0.5)));
    }
}
