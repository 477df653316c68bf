//! `customSmallerIsBetter` of github-action-benchmark:
//! <https://github.com/benchmark-action/github-action-benchmark>

use std::io::Write;

use serde_json::json;

use super::{timed, write_json};
use crate::report::exporter::{Exporter, RenderError, Report};

/// Writes `benchmark-action.json`: of each case its nanoseconds, and half of what lies between
/// its fastest and its slowest invocation.
pub(crate) struct BenchmarkAction;

impl Exporter for BenchmarkAction {
    fn names(&self) -> &'static [&'static str] {
        &["benchmark-action.json"]
    }

    fn write(
        &self,
        report: &Report,
        _: &'static str,
        out: &mut dyn Write,
    ) -> Result<(), RenderError> {
        let machine = &report.head.header.machine.name;
        let cases = timed(report).map(|(case, timing)| {
            let half = (timing.max_ns - timing.min_ns).0 / 2.0;
            json!({
                "name": case,
                "unit": "ns",
                "value": timing.median_ns.0,
                "range": format!("± {half:.0}"),
                "extra": format!(
                    "{machine}, {} invocations",
                    timing.invocations_ns.len()
                ),
            })
        });
        write_json(out, &cases.collect::<Vec<_>>().into())
    }
}
