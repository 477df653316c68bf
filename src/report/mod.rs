//! How it is shown: one file a format.
//!
//! Values in, text out: nothing here reads a clock or a device, and only
//! [`files`] writes. Every text that came from outside the process (a worker's
//! reason, a kernel's name, a path) passes [`text`] before it is shown.

mod account;
pub mod bisect;
pub mod by_axes;
mod csv;
mod exporter;
pub mod files;
mod fill;
mod finding;
pub mod foreign;
mod github;
pub mod history;
mod html;
mod json;
mod junit;
pub mod labels;
pub mod machines;
mod markdown;
mod peaks;
mod plot;
pub mod ruler;
pub mod spread;
pub mod summary;
mod template;
pub mod terminal;
pub mod text;
pub mod timings;
pub mod trace;

#[cfg(test)]
mod fixture;

use std::io::Write;

use exporter::Exporter;
pub use exporter::{Document, RenderError, Report};
pub use github::complaint;
pub use json::schema;
pub use markdown::Mark;

/// A format a report can be written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// One self-contained page.
    Html,
    /// Two tables: of cases and of samples.
    Csv,
    /// For a comment on a pull request.
    Markdown,
    /// For the test view of a CI system.
    Junit,
    /// The judgement as one document.
    Json,
    /// Workflow commands of GitHub Actions: annotations.
    Github,
    /// Bencher Metric Format.
    Bencher,
    /// `customSmallerIsBetter` of github-action-benchmark.
    BenchmarkAction,
    /// The JSON of Google Benchmark.
    GoogleBenchmark,
    /// OpenMetrics text, for Prometheus.
    OpenMetrics,
}

impl Format {
    /// Every format, in the order of its declaration.
    pub const ALL: [Format; 10] = [
        Format::Html,
        Format::Csv,
        Format::Markdown,
        Format::Junit,
        Format::Json,
        Format::Github,
        Format::Bencher,
        Format::BenchmarkAction,
        Format::GoogleBenchmark,
        Format::OpenMetrics,
    ];

    fn exporter(self) -> &'static dyn Exporter {
        match self {
            Format::Html => &html::Html,
            Format::Csv => &csv::Csv,
            Format::Markdown => &markdown::Markdown,
            Format::Junit => &junit::Junit,
            Format::Json => &json::Json,
            Format::Github => &github::Github,
            Format::Bencher => &foreign::Bencher,
            Format::BenchmarkAction => &foreign::BenchmarkAction,
            Format::GoogleBenchmark => &foreign::GoogleBenchmark,
            Format::OpenMetrics => &foreign::OpenMetrics,
        }
    }
}

/// The documents of a report in one format, the one that matters most first:
/// one each, but for [`Format::Csv`], which has `cases.csv` and `samples.csv`.
///
/// # Errors
/// Only for what no values should bring about: a template or a figure that does
/// not fit its own data.
pub fn render(format: Format, report: &Report) -> Result<Vec<Document>, RenderError> {
    let documents = names(format).iter().map(|name| {
        let mut bytes = Vec::new();
        write(format, report, name, &mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Document { name, text })
    });
    documents.collect()
}

/// The names of the documents of a format, the one that matters most first.
pub fn names(format: Format) -> &'static [&'static str] {
    format.exporter().names()
}

/// Writes one document of a report, as it is made: of many cases it is never in memory as a
/// whole.
///
/// # Errors
/// When the writer takes no more, or the run's file cannot be read again; and as [`render`].
pub fn write(
    format: Format,
    report: &Report,
    name: &'static str,
    out: &mut dyn Write,
) -> Result<(), RenderError> {
    format.exporter().write(report, name, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Nanoseconds, Probability, Rate, Ratio, Share, quantities};

    #[test]
    fn every_format_takes_any_number() {
        let odd = [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            0.0,
            -0.0,
            -1.0,
            1e308,
            5e-324,
        ];
        for number in odd {
            let (time, ratio) = (Nanoseconds(number), Ratio(number));
            let mut scene = fixture::failed();
            scene.head.header.rules.policy.floor = Share(number);
            for row in &mut scene.judgement.rows {
                for timing in row.head.iter_mut().chain(&mut row.base) {
                    (timing.median_ns, timing.min_ns, timing.max_ns) = (time, time, time);
                    (timing.tflops, timing.gbps) = (Some(Rate(number)), Some(number));
                    timing.invocations_ns = vec![time; 3];
                }
                if let Some(change) = &mut row.change {
                    (change.ratio, change.low, change.high) = (ratio, ratio, ratio);
                    (change.p, change.smallest_effect) = (Probability(number), Share(number));
                }
            }
            for expectation in &mut scene.judgement.expectations {
                (expectation.ratio, expectation.within) = (Some(ratio), ratio);
            }
            for entry in &mut scene.head.entries {
                if let crate::record::types::Outcome::Measured(measurement) = &mut entry.outcome {
                    measurement.device_ns = quantities([number, 1.0, number]);
                }
            }
            for format in Format::ALL {
                render(format, &scene.report()).unwrap();
            }
            for all in [false, true] {
                let options = terminal::Options { colour: true, all };
                terminal::render(&scene.judgement, options);
            }
        }
    }
}
