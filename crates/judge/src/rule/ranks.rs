//! Exact ranks for many cases of the same sizes: the tables are made once.
//!
//! Where tails are heavy, ranks see what means cannot: Mann and Whitney's test, and the
//! interval that inverts it around the estimate of Hodges and Lehmann.

use std::collections::BTreeMap;

use crate::statistics::u_lower_tail;

/// Up to so many values in all the distribution is enumerated; `statistics` has the limit.
/// Beyond it an interval is looked for by bisection.
const COUNTED: usize = 3_600;

/// The distribution of U for some sizes.
#[derive(Clone, Debug)]
struct Table {
    /// P(U ≤ u) for each u up to the middle.
    lower: Vec<f64>,
}

/// Tables by sizes of the two sides.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    made: BTreeMap<(usize, usize), Table>,
}

/// What ranks say of two sides, on the scale of logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// The median of all differences of a head's value and a base's.
    pub shift: f64,
    /// One-sided p against "no difference", in the direction of the shift.
    pub p: f64,
    /// Half of the interval that leaves one in twenty out at each end, downwards: infinite
    /// where so few values have none.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Ends of the interval that leaves one in forty out at each end.
    pub wide: (f64, f64),
}

impl Tables {
    /// Compares two sides that have values; `null` is the difference that is none.
    pub fn ranked(&mut self, base: &[f64], head: &[f64], null: f64) -> Ranked {
        let mut shifts: Vec<f64> = head
            .iter()
            .flat_map(|h| base.iter().map(move |b| h - b))
            .collect();
        shifts.sort_unstable_by(f64::total_cmp);
        let table = self.of(base.len(), head.len());
        let last = shifts.len() - 1;
        let shift = f64::midpoint(shifts[last / 2], shifts[last.div_ceil(2)]);
        let below = shifts.partition_point(|s| *s < null);
        let above = shifts.len() - shifts.partition_point(|s| *s <= null);
        // Ties count for neither side, which errs towards no difference.
        let against = match shift > null {
            true => shifts.len() - above,
            false => shifts.len() - below,
        };
        let ends = |tail: f64| match table.skipped(tail) {
            Some(skipped) => (shifts[skipped], shifts[last - skipped]),
            None => (f64::NEG_INFINITY, f64::INFINITY),
        };
        let (low, high) = ends(0.05);
        Ranked {
            shift,
            p: table.at_most(against),
            low,
            high,
            wide: ends(0.025),
        }
    }

    fn of(&mut self, base: usize, head: usize) -> &Table {
        self.made.entry((base, head)).or_insert_with(|| {
            let mut tail = u_lower_tail(base, head);
            let pairs = base * head;
            let counted = 0..=(pairs / 2).min(COUNTED);
            Table {
                lower: counted.map(&mut tail).collect(),
            }
        })
    }
}

impl Table {
    fn at_most(&self, u: usize) -> f64 {
        self.lower.get(u).copied().unwrap_or(0.5).min(0.5)
    }

    /// How many differences to leave out at each end so that what is left out at one end has
    /// no more than this probability.
    fn skipped(&self, tail: f64) -> Option<usize> {
        let within = self.lower.partition_point(|&p| p <= tail + 1e-12);
        within.checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{two_sample_ratio, u_lower_tail};

    #[test]
    fn they_agree_with_the_tests_they_are_tables_of() {
        let base = [1.0f64, 1.3, 1.1, 1.25, 1.05];
        let head = [1.2f64, 1.4, 1.35, 1.15, 1.5, 1.28];
        let logs = |values: &[f64]| values.iter().map(|v| v.ln()).collect::<Vec<_>>();
        let ranked = Tables::default().ranked(&logs(&base), &logs(&head), 0.0);
        // 25 of the 30 pairs have the head's value above.
        assert!((ranked.p - u_lower_tail(5, 6)(5)).abs() < 1e-12);
        let estimate = two_sample_ratio(&base, &head, 0.90).unwrap();
        assert!((ranked.shift.exp() - estimate.ratio.0).abs() < 1e-12);
        assert!((ranked.low.exp() - estimate.low.0).abs() < 1e-12);
        assert!((ranked.high.exp() - estimate.high.0).abs() < 1e-12);
    }

    #[test]
    fn few_values_have_no_interval() {
        let ranked = Tables::default().ranked(&[0.0, 0.1], &[0.2, 0.3], 0.0);
        assert_eq!(
            (ranked.low, ranked.high),
            (f64::NEG_INFINITY, f64::INFINITY)
        );
        assert!((ranked.p - 1.0 / 6.0).abs() < 1e-12);
    }

    #[test]
    fn ties_with_the_null_are_evidence_for_it() {
        let tied = Tables::default().ranked(&[0.0; 5], &[0.0; 5], 0.0);
        assert_eq!((tied.shift, tied.p), (0.0, 0.5));
    }
}
