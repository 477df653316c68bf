//! Formats of other tools, a file each: what they know of a case is a name and its times.
//!
//! None of them knows a verdict: what is in them is measured, not judged. Times are the device's
//! in seconds or nanoseconds, as each format has it; a case without a time is left out.

pub mod asv;
mod bencher;
mod benchmark_action;
mod google_benchmark;
mod openmetrics;

pub(super) use bencher::Bencher;
pub(super) use benchmark_action::BenchmarkAction;
pub(super) use google_benchmark::GoogleBenchmark;
pub(super) use openmetrics::OpenMetrics;

use std::io::Write;

use serde_json::Value;

use super::exporter::{RenderError, Report};
use crate::judge::judgement::Timing;
use crate::units::Nanoseconds;

/// Cases that have a time, each with its name.
fn timed<'a>(report: &'a Report) -> impl Iterator<Item = (&'a str, &'a Timing)> {
    let rows = report.judgement.rows.iter();
    rows.filter_map(|row| {
        let timing = row.head.as_ref()?;
        is_printable(timing.median_ns).then_some((row.case.0.as_str(), timing))
    })
}

/// A time that a clock can have shown: JSON has no other.
fn is_printable(time: Nanoseconds) -> bool {
    time.is_finite() && time > Nanoseconds::ZERO
}

/// Invocations' medians that are times.
fn invocations(timing: &Timing) -> Vec<Nanoseconds> {
    let all = timing.invocations_ns.iter().copied();
    all.filter(|time| is_printable(*time)).collect()
}

fn write_json(out: &mut dyn Write, value: &Value) -> Result<(), RenderError> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    Ok(writeln!(out)?)
}

#[cfg(test)]
mod tests;
