//! What the ruler's readings say of a clock: bias, spread, smallest visible difference.

use serde::Serialize;

use super::statistics::coefficient_of_variation;
use crate::record::ruler::{ADDED, Length, Readings};
use crate::record::side::median;
use crate::units::{Nanoseconds, Share, numbers};

/// What a clock makes of one nominal length.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ruled {
    /// Length of the work.
    pub nominal_ns: Nanoseconds,
    /// Median reading.
    pub read_ns: Nanoseconds,
    /// Median reading less the nominal length and the work's own start and end.
    pub bias_ns: Nanoseconds,
    /// Standard deviation of single samples over their mean.
    pub spread: Share,
    /// Smallest visible difference, as a share of the nominal length: the largest that
    /// was read between two sets of the same work, over all rounds.
    pub visible: Share,
    /// What each of the added shares was read as.
    pub added: Vec<Added>,
}

/// Work that is longer by a known share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Added {
    /// The share.
    pub share: Share,
    /// What was read: the difference of medians within a round over the nominal length,
    /// the median of all rounds.
    pub read: Share,
    /// Whether it is read as such: no further off than the smallest visible difference
    /// and one step of the timer that the work waits by.
    pub right: bool,
    /// Whether it is larger than the smallest visible difference.
    pub visible: bool,
}

/// Rules every length of a clock's readings that has samples.
pub fn ruled(readings: &Readings) -> Vec<Ruled> {
    let step_ns = readings.timer_step_ns.unwrap_or(Nanoseconds::ZERO);
    let lengths = readings.lengths.iter();
    lengths
        .filter_map(|length| length_ruled(length, readings.own_ns, step_ns))
        .collect()
}

fn length_ruled(length: &Length, own_ns: Nanoseconds, step_ns: Nanoseconds) -> Option<Ruled> {
    let nominal_ns = length.nominal_ns;
    let same: Vec<Nanoseconds> = length
        .rounds
        .iter()
        .flat_map(|sets| sets[0].iter().chain(&sets[1]))
        .copied()
        .collect();
    let read_ns = median(&same)?;
    let medians: Vec<Vec<Nanoseconds>> = length
        .rounds
        .iter()
        .map(|sets| sets.iter().filter_map(|set| median(set)).collect())
        .filter(|medians: &Vec<Nanoseconds>| medians.len() == 2 + ADDED.len())
        .collect();
    let visible = medians
        .iter()
        .map(|round| (round[1] - round[0]).abs().share_of(nominal_ns))
        .reduce(Share::max)?;
    let added = ADDED.iter().enumerate().filter_map(|(number, &share)| {
        let more = |round: &Vec<Nanoseconds>| round[2 + number] - (round[0] + round[1]) / 2.0;
        let differences: Vec<Nanoseconds> = medians.iter().map(more).collect();
        let read = median(&differences)?.share_of(nominal_ns);
        Some(Added {
            share,
            read,
            right: (read - share).abs() <= visible + step_ns.share_of(nominal_ns),
            visible: share > visible,
        })
    });
    Some(Ruled {
        nominal_ns,
        read_ns,
        bias_ns: read_ns - nominal_ns - own_ns,
        spread: Share(coefficient_of_variation(&numbers(&same))),
        visible,
        added: added.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::quantities;

    /// A clock that reads `bias` too much, with an error of each reading by its number.
    fn readings(nominal_ns: f64, bias: f64, error: impl Fn(usize) -> f64) -> Readings {
        let shares = [0.0, 0.0, 0.01, 0.02, 0.05, 0.10];
        let mut number = 0;
        let rounds = (0..7).map(|_| {
            shares.map(|share| {
                let set = (0..9).map(|_| {
                    number += 1;
                    nominal_ns * (1.0 + share) + 600.0 + bias + error(number)
                });
                quantities(set)
            })
        });
        Readings {
            device: "d".to_owned(),
            clock: "c".to_owned(),
            timer: "t".to_owned(),
            timer_step_ns: Some(Nanoseconds(32.0)),
            own_ns: Nanoseconds(600.0),
            subtracted: None,
            host: None,
            lengths: vec![Length {
                nominal_ns: Nanoseconds(nominal_ns),
                rounds: rounds.collect(),
            }],
        }
    }

    #[test]
    fn an_exact_clock_sees_everything() {
        let ruled = &ruled(&readings(10_000.0, 250.0, |_| 0.0))[0];
        assert_eq!(
            (ruled.read_ns, ruled.bias_ns),
            (Nanoseconds(10_850.0), Nanoseconds(250.0))
        );
        assert_eq!((ruled.spread, ruled.visible), (Share(0.0), Share(0.0)));
        for (added, share) in ruled.added.iter().zip(ADDED) {
            assert!((added.read - share).abs() < Share(1e-9), "{added:?}");
            assert!(added.right && added.visible, "{added:?}");
        }
    }

    #[test]
    fn noise_decides_what_is_visible() {
        // Every set's median is off by its turn: up to ±300 ns between twins.
        let noisy = readings(10_000.0, 0.0, |number| {
            [-150.0, 150.0, 0.0, 150.0, -150.0][(number - 1) / 9 % 5]
        });
        let ruled = &ruled(&noisy)[0];
        assert!((ruled.visible.0 - 0.03).abs() < 1e-9, "{ruled:?}");
        let visible: Vec<bool> = ruled.added.iter().map(|added| added.visible).collect();
        assert_eq!(visible, [false, false, true, true]);
        assert!(ruled.spread > Share(0.005) && ruled.spread < Share(0.02));
    }

    #[test]
    fn a_clock_that_misreads_is_found_out() {
        let mut wrong = readings(10_000.0, 0.0, |_| 0.0);
        for sets in &mut wrong.lengths[0].rounds {
            for value in &mut sets[5] {
                *value -= Nanoseconds(500.0);
            }
        }
        let ruled = &ruled(&wrong)[0];
        let right: Vec<bool> = ruled.added.iter().map(|added| added.right).collect();
        assert_eq!(right, [true, true, true, false]);
        assert!((ruled.added[3].read.0 - 0.05).abs() < 1e-9);
    }

    #[test]
    fn nothing_read_is_nothing_ruled() {
        let mut none = readings(10.0, 0.0, |_| 0.0);
        none.lengths[0].rounds = vec![Default::default(); 3];
        assert!(ruled(&none).is_empty());
        none.lengths[0].rounds.clear();
        assert!(ruled(&none).is_empty());
    }
}
