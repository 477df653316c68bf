//! How well a run knows its times: how far samples lie apart within an invocation, and
//! how far the invocations' medians do. The judge sees only the second.

use std::collections::BTreeMap;

use serde::Serialize;

use super::statistics::coefficient_of_variation;
use crate::attention::CaseId;
use crate::record::side::median;
use crate::record::types::{Outcome, Run};

/// Spread of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The case.
    pub case: CaseId,
    /// Median of the invocations' medians, in nanoseconds.
    pub median_ns: f64,
    /// Invocations, confirming ones included.
    pub invocations: usize,
    /// Median number of samples of an invocation.
    pub samples: f64,
    /// Coefficient of variation of the samples of one invocation, the median over the
    /// invocations; not a number where an invocation has one sample.
    pub within: f64,
    /// Coefficient of variation of the invocations' medians; not a number for one.
    pub between: f64,
}

/// Spread of every case that was measured, in the order of the plan. Samples that are no
/// numbers count for nothing.
pub fn spreads(run: &Run) -> Vec<Spread> {
    let mut found: BTreeMap<&CaseId, Vec<Vec<f64>>> = BTreeMap::new();
    for entry in &run.entries {
        if let Outcome::Measured(measurement) = &entry.outcome {
            let samples = measurement.device_ns.iter().copied();
            let samples: Vec<f64> = samples.filter(|ns| ns.is_finite()).collect();
            found.entry(&entry.case).or_default().push(samples);
        }
    }
    let of = |case| spread(case, found.get(case)?);
    run.header.plan.iter().filter_map(of).collect()
}

fn spread(case: &CaseId, invocations: &[Vec<f64>]) -> Option<Spread> {
    let medians: Vec<f64> = invocations.iter().filter_map(|all| median(all)).collect();
    let each: Vec<f64> = invocations
        .iter()
        .map(|all| coefficient_of_variation(all))
        .filter(|share| share.is_finite())
        .collect();
    let counts: Vec<f64> = invocations.iter().map(|all| all.len() as f64).collect();
    Some(Spread {
        case: case.clone(),
        median_ns: median(&medians)?,
        invocations: medians.len(),
        samples: median(&counts)?,
        within: median(&each).unwrap_or(f64::NAN),
        between: coefficient_of_variation(&medians),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::testing::header;
    use crate::record::types::{Entry, Measurement};

    fn run(invocations: &[(&str, &[f64])]) -> Run {
        let mut header = header();
        header.plan = vec![CaseId("b".to_owned()), CaseId("a".to_owned())];
        let entries = invocations
            .iter()
            .enumerate()
            .map(|(i, (case, samples))| Entry {
                case: CaseId((*case).to_owned()),
                invocation: i as u32,
                outcome: Outcome::Measured(Measurement {
                    device_ns: samples.to_vec(),
                    ..Measurement::default()
                }),
            });
        Run {
            header,
            entries: entries.collect(),
            owed: None,
            end: None,
            damage: Vec::new(),
        }
    }

    #[test]
    fn within_and_between_are_told_apart() {
        // Wide within, but every invocation has the same median; and the reverse.
        let found = spreads(&run(&[
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
        assert_eq!((a.within, a.between, a.median_ns), (0.5, 0.0, 4.0));
        assert_eq!((b.within, b.between), (0.0, 0.5));
        assert_eq!((a.invocations, a.samples, b.samples), (3, 3.0, 2.0));
    }

    #[test]
    fn one_value_has_no_spread_and_none_is_no_case() {
        let found = spreads(&run(&[("a", &[5.0]), ("b", &[f64::NAN])]));
        assert_eq!(found.len(), 1);
        assert!(found[0].within.is_nan() && found[0].between.is_nan());
    }
}
