//! Samples for drawing, and the library that draws the interactive plots.

use serde_json::{Value, json};

use regatta_core::record::{Entry, Outcome};
use regatta_judge::axes::AxisTable;
use regatta_worker::units::numbers;

/// uPlot 1.6.32 for the interactive plots, committed as on npm: licence, script, style. `None` if
/// no axis has three lengths or numbers to plot against.
pub(super) fn plots(table: &AxisTable) -> Option<Vec<&'static str>> {
    let is_number = |value: &&String| value.parse::<u64>().is_ok();
    let mut axes = table.axes.iter();
    axes.find(|axis| axis.values.iter().filter(is_number).count() >= 3)?;
    // The first line is a URL.
    let script = include_str!("vendor/uPlot.iife.min.js").split_once('\n')?;
    let licence = include_str!("vendor/LICENSE");
    let style = include_str!("vendor/uPlot.min.css");
    Some(vec![licence, script.1, style])
}

/// Every n-th sample of an invocation in nanoseconds, such that there are at most `most`; `None`
/// without a time.
pub(crate) fn taken(entry: &Entry, most: usize) -> Option<Vec<f64>> {
    let Outcome::Measured(measurement) = &entry.outcome else {
        return None;
    };
    let all = numbers(&measurement.samples.device_ns);
    let every = all.len().div_ceil(most.max(1)).max(1);
    Some(all.into_iter().step_by(every).collect())
}

/// The number of samples kept for each invocation, if a case may have `of_case`: a page must be
/// small enough to open on a phone.
pub(super) fn most(of_case: usize, invocations: u32) -> usize {
    (of_case.clamp(24, 400) / invocations.max(1) as usize).max(2)
}

/// The number of steps between the fastest and the slowest sample: more than a figure has pixels.
const STEPS: f64 = 4095.0;

/// The samples as JSON: the fastest in nanoseconds, the size of a step, and for base and head a
/// list of each invocation's samples, in steps from the fastest. `None` if the head has no finite
/// sample.
pub(super) fn samples(base: &[Vec<f64>], head: &[Vec<f64>]) -> Option<Value> {
    let finite = |ns: &&f64| ns.is_finite();
    head.iter().flatten().find(finite)?;
    let all = || base.iter().chain(head).flatten().filter(finite);
    let least = all().copied().fold(f64::INFINITY, f64::min);
    let step = (all().copied().fold(f64::NEG_INFINITY, f64::max) - least) / STEPS;
    let step_of = |ns: &f64| if step > 0.0 { (ns - least) / step } else { 0.0 };
    let steps = |invocations: &[Vec<f64>]| -> Vec<Vec<u32>> {
        let steps = |samples: &Vec<f64>| {
            let samples = samples.iter().filter(finite);
            samples.map(|ns| step_of(ns).round() as u32).collect()
        };
        invocations.iter().map(steps).collect()
    };
    // Six digits are enough to place a sample.
    let short = |value: f64| format!("{value:.5e}").parse().unwrap_or(value);
    let [first, width]: [f64; 2] = [least, step].map(short);
    Some(json!([first, width, steps(base), steps(head)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_can_be_had_back() {
        let document = samples(&[vec![90.0]], &[vec![100.0, 110.0, f64::NAN]]).unwrap();
        let number = |value: &Value| value.as_f64().unwrap();
        let at = |steps: &Value| number(&document[0]) + number(&document[1]) * number(steps);
        assert!((at(&document[2][0][0]) - 90.0).abs() < 0.01);
        assert!((at(&document[3][0][0]) - 100.0).abs() < 0.01);
        assert!((at(&document[3][0][1]) - 110.0).abs() < 0.01);
        assert_eq!(document[3][0].as_array().unwrap().len(), 2);
    }

    #[test]
    fn any_samples_are_a_document_or_none() {
        assert_eq!(samples(&[vec![1.0]], &[]), None);
        assert_eq!(samples(&[vec![1.0]], &[vec![f64::NAN]]), None);
        for odd in [&[0.0, 0.0][..], &[1e9; 3], &[5e-324, 1e308]] {
            let document = samples(&[vec![f64::INFINITY]], &[odd.to_vec()]).unwrap();
            assert!(!document.to_string().contains("null"), "{document}");
        }
    }
}
