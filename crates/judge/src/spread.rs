//! How well a run knows its times: how far samples lie apart within an invocation, and
//! how far the invocations' medians do. The judge sees only the second.

use std::collections::HashMap;

use serde::Serialize;

use regatta_core::record::side::median;
use regatta_core::record::types::{Entry, Outcome, Run};
use regatta_worker::attention::CaseId;
use regatta_worker::units::{Nanoseconds, Share, numbers};

/// Spread of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The case.
    pub case: CaseId,
    /// Median of the invocations' medians.
    pub median_ns: Nanoseconds,
    /// Invocations, later ones of open cases included.
    pub invocations: usize,
    /// Median number of samples of an invocation.
    pub samples: f64,
    /// Coefficient of variation of the samples of one invocation, the median over the
    /// invocations; not a number where an invocation has one sample.
    pub within: Share,
    /// Coefficient of variation of the invocations' medians; not a number for one.
    pub between: Share,
}

/// What the spreads of a run are told from: an entry is taken in, and its samples are gone.
#[derive(Clone, Debug, Default)]
pub struct Spreads {
    found: HashMap<CaseId, Vec<SampleSpread>>,
}

/// The samples of an invocation.
#[derive(Clone, Copy, Debug)]
struct SampleSpread {
    median_ns: Option<Nanoseconds>,
    /// Coefficient of variation.
    within: f64,
    samples: f64,
}

impl Spreads {
    /// Takes an entry in. Samples that are no numbers count for nothing.
    pub fn add(&mut self, entry: &Entry) {
        let Outcome::Measured(measurement) = &entry.outcome else {
            return;
        };
        let samples = measurement.samples.device_ns.iter().copied();
        let samples: Vec<Nanoseconds> = samples.filter(|time| time.is_finite()).collect();
        let invocation = SampleSpread {
            median_ns: median(&samples),
            within: coefficient_of_variation(&numbers(&samples)),
            samples: samples.len() as f64,
        };
        match self.found.get_mut(&entry.case) {
            Some(invocations) => invocations.push(invocation),
            None => drop(self.found.insert(entry.case.clone(), vec![invocation])),
        }
    }

    /// Those of a run, in the order of its plan.
    pub fn all(&self, run: &Run) -> Vec<Spread> {
        let plan = run.header.plan.iter();
        plan.filter_map(|case| self.spread(case)).collect()
    }

    /// The spread of a case; `None` where it was not measured.
    pub fn spread(&self, case: &CaseId) -> Option<Spread> {
        let invocations = self.found.get(case)?;
        let all = || invocations.iter();
        let medians: Vec<Nanoseconds> = all().filter_map(|one| one.median_ns).collect();
        let each = all().map(|one| one.within);
        let each: Vec<f64> = each.filter(|share| share.is_finite()).collect();
        let counts: Vec<f64> = all().map(|one| one.samples).collect();
        Some(Spread {
            case: case.clone(),
            median_ns: median(&medians)?,
            invocations: medians.len(),
            samples: median(&counts)?,
            within: Share(median(&each).unwrap_or(f64::NAN)),
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
    use crate::testing::header;
    use regatta_core::record::types::Measurement;
    use regatta_worker::protocol::Measured;
    use regatta_worker::units::quantities;

    fn found(run: &Run) -> Vec<Spread> {
        let mut spreads = Spreads::default();
        run.entries.iter().for_each(|entry| spreads.add(entry));
        spreads.all(run)
    }

    fn run(invocations: &[(&str, &[f64])]) -> Run {
        let mut header = header();
        header.plan = vec![CaseId("b".to_owned()), CaseId("a".to_owned())];
        let entries = invocations
            .iter()
            .enumerate()
            .map(|(i, (case, samples))| Entry {
                start: None,
                case: CaseId((*case).to_owned()),
                invocation: i as u32,
                outcome: Outcome::Measured(Measurement {
                    samples: Measured {
                        device_ns: quantities(samples.iter().copied()),
                        ..Measured::default()
                    },
                    ..Measurement::default()
                }),
            });
        Run {
            entries: entries.collect(),
            ..Run::begun(header)
        }
    }

    #[test]
    fn within_and_between_are_told_apart() {
        // Wide within, but every invocation has the same median; and the reverse.
        let found = found(&run(&[
            ("a", &[2.0, 4.0, 6.0]),
            ("a", &[3.0, 4.0, 5.0]),
            ("a", &[2.0, 4.0, 6.0]),
            ("b", &[2.0, 2.0]),
            ("b", &[4.0, 4.0]),
            ("b", &[6.0, 6.0]),
        ]));
        let [b, a] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((a.within.0, a.between.0, a.median_ns.0), (0.5, 0.0, 4.0));
        assert_eq!((b.within.0, b.between.0), (0.0, 0.5));
        assert_eq!((a.invocations, a.samples, b.samples), (3, 3.0, 2.0));
    }

    #[test]
    fn one_value_has_no_spread_and_none_is_no_case() {
        let found = found(&run(&[("a", &[5.0]), ("b", &[f64::NAN])]));
        assert_eq!(found.len(), 1);
        assert!(!found[0].within.is_finite() && !found[0].between.is_finite());
    }
}
