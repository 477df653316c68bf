//! How well a run knows its times: how far samples lie apart within an invocation, and
//! how far the invocations' medians do. The judge sees only the second.

use std::collections::BTreeMap;

use serde::Serialize;

use super::statistics::coefficient_of_variation;
use crate::attention::CaseId;
use crate::record::side::median;
use crate::record::types::{Outcome, Run};
use crate::units::{Nanoseconds, Share, numbers};

/// Spread of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The case.
    pub case: CaseId,
    /// Median of the invocations' medians.
    pub median_ns: Nanoseconds,
    /// Invocations, confirming ones included.
    pub invocations: usize,
    /// Median number of samples of an invocation.
    pub samples: f64,
    /// Coefficient of variation of the samples of one invocation, the median over the
    /// invocations; not a number where an invocation has one sample.
    pub within: Share,
    /// Coefficient of variation of the invocations' medians; not a number for one.
    pub between: Share,
}

/// Spread of every case that was measured, in the order of the plan. Samples that are no
/// numbers, or that the machine was in, count for nothing.
pub fn spreads(run: &Run) -> Vec<Spread> {
    let mut found: BTreeMap<&CaseId, Vec<Vec<Nanoseconds>>> = BTreeMap::new();
    for entry in &run.entries {
        if let Outcome::Measured(measurement) = &entry.outcome
            && measurement.counts_under(&run.header.settings)
        {
            let samples = measurement.device_ns.iter().copied();
            let samples: Vec<Nanoseconds> = samples.filter(|time| time.is_finite()).collect();
            found.entry(&entry.case).or_default().push(samples);
        }
    }
    let of = |case| spread(case, found.get(case)?);
    run.header.plan.iter().filter_map(of).collect()
}

fn spread(case: &CaseId, invocations: &[Vec<Nanoseconds>]) -> Option<Spread> {
    let medians: Vec<Nanoseconds> = invocations.iter().filter_map(|all| median(all)).collect();
    let each: Vec<f64> = invocations
        .iter()
        .map(|all| coefficient_of_variation(&numbers(all)))
        .filter(|share| share.is_finite())
        .collect();
    let counts: Vec<f64> = invocations.iter().map(|all| all.len() as f64).collect();
    Some(Spread {
        case: case.clone(),
        median_ns: median(&medians)?,
        invocations: medians.len(),
        samples: median(&counts)?,
        within: Share(median(&each).unwrap_or(f64::NAN)),
        between: Share(coefficient_of_variation(&numbers(&medians))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::testing::header;
    use crate::record::types::{Entry, Measurement};
    use crate::units::quantities;

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
                    device_ns: quantities(samples.iter().copied()),
                    ..Measurement::default()
                }),
                spent: None,
            });
        Run {
            entries: entries.collect(),
            ..Run::begun(header)
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
        assert_eq!((a.within.0, a.between.0, a.median_ns.0), (0.5, 0.0, 4.0));
        assert_eq!((b.within.0, b.between.0), (0.0, 0.5));
        assert_eq!((a.invocations, a.samples, b.samples), (3, 3.0, 2.0));
    }

    #[test]
    fn one_value_has_no_spread_and_none_is_no_case() {
        let found = spreads(&run(&[("a", &[5.0]), ("b", &[f64::NAN])]));
        assert_eq!(found.len(), 1);
        assert!(!found[0].within.is_finite() && !found[0].between.is_finite());
    }
}
