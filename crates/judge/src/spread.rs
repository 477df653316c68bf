//! How well a run knows its times: how far samples lie apart within an invocation, and
//! how far the invocations' medians do. The judge sees only the second.

use std::collections::HashMap;

use regatta_core::record::side::median;
use regatta_core::record::types::{Entry, Outcome};
use regatta_worker::attention::CaseId;
use regatta_worker::units::{Nanoseconds, Share, numbers};

/// Spread of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Coefficient of variation of the samples of one invocation, the median over the
    /// invocations; not a number where an invocation has one sample.
    pub within: Share,
    /// Coefficient of variation of the invocations' medians; not a number for one.
    pub between: Share,
}

/// What the spreads of a run are told from, the median of each invocation and the coefficient of
/// variation of its samples: an entry is taken in, and its samples are gone.
#[derive(Clone, Debug, Default)]
pub struct Spreads {
    found: HashMap<CaseId, Vec<(Nanoseconds, f64)>>,
}

impl Spreads {
    /// Takes an entry in. Samples that are no numbers count for nothing.
    pub fn add(&mut self, entry: &Entry) {
        let Outcome::Measured(measurement) = &entry.outcome else {
            return;
        };
        let samples = measurement.samples.device_ns.iter().copied();
        let samples: Vec<Nanoseconds> = samples.filter(|time| time.is_finite()).collect();
        let Some(median) = median(&samples) else {
            return;
        };
        let invocation = (median, coefficient_of_variation(&numbers(&samples)));
        match self.found.get_mut(&entry.case) {
            Some(invocations) => invocations.push(invocation),
            None => drop(self.found.insert(entry.case.clone(), vec![invocation])),
        }
    }

    /// The spread of a case; `None` where it was not measured.
    pub fn spread(&self, case: &CaseId) -> Option<Spread> {
        let invocations = self.found.get(case)?;
        let (medians, within): (Vec<Nanoseconds>, Vec<f64>) = invocations.iter().copied().unzip();
        let within: Vec<f64> = within.into_iter().filter(|of| of.is_finite()).collect();
        Some(Spread {
            within: Share(median(&within).unwrap_or(f64::NAN)),
            between: Share(coefficient_of_variation(&numbers(&medians))),
        })
    }
}

/// Standard deviation (of a sample, over n - 1) over the mean; not a number for fewer
/// than two values.
fn coefficient_of_variation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2));
    (squares.sum::<f64>() / (count - 1.0)).sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::record::types::Measurement;
    use regatta_worker::protocol::Measured;
    use regatta_worker::units::quantities;

    /// The spread of a case in whose invocations these samples were taken.
    fn found(invocations: &[&[f64]]) -> Option<Spread> {
        let mut spreads = Spreads::default();
        let case = CaseId("a".to_owned());
        for (invocation, samples) in (0..).zip(invocations) {
            let samples = Measured {
                device_ns: quantities(samples.iter().copied()),
                ..Measured::default()
            };
            let measurement = Measurement {
                samples,
                ..Measurement::default()
            };
            spreads.add(&Entry {
                start: None,
                case: case.clone(),
                invocation,
                outcome: Outcome::Measured(measurement),
            });
        }
        spreads.spread(&case)
    }

    #[test]
    fn within_and_between_are_told_apart() {
        // Wide within, but every invocation has the same median; and the reverse.
        let wide = found(&[&[2.0, 4.0, 6.0], &[3.0, 4.0, 5.0], &[2.0, 4.0, 6.0]]).unwrap();
        assert_eq!((wide.within.0, wide.between.0), (0.5, 0.0));
        let apart = found(&[&[2.0, 2.0], &[4.0, 4.0], &[6.0, 6.0]]).unwrap();
        assert_eq!((apart.within.0, apart.between.0), (0.0, 0.5));
    }

    #[test]
    fn one_value_has_no_spread_and_none_is_no_case() {
        let one = found(&[&[5.0]]).unwrap();
        assert!(!one.within.is_finite() && !one.between.is_finite());
        assert_eq!(found(&[&[f64::NAN]]), None);
    }
}
