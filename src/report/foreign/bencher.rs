//! Bencher Metric Format: <https://bencher.dev/docs/reference/bencher-metric-format/>

use std::io::Write;

use serde_json::{Map, json};

use super::{timed, write_json};
use crate::report::exporter::{Exporter, RenderError, Report};
use crate::units::Rate;

/// Writes `bencher.json`: of each case `latency` in nanoseconds with the fastest and the slowest
/// invocation, and where it is known `tflops`.
pub(crate) struct Bencher;

impl Exporter for Bencher {
    fn names(&self) -> &'static [&'static str] {
        &["bencher.json"]
    }

    fn write(
        &self,
        report: &Report,
        _: &'static str,
        out: &mut dyn Write,
    ) -> Result<(), RenderError> {
        let cases = timed(report).map(|(case, timing)| {
            let mut measures = Map::new();
            measures.insert(
                "latency".to_owned(),
                json!({
                    "value": timing.median_ns.0,
                    "lower_value": timing.min_ns.0,
                    "upper_value": timing.max_ns.0,
                }),
            );
            if let Some(Rate(rate)) = timing.tflops.filter(|rate| rate.0.is_finite()) {
                measures.insert("tflops".to_owned(), json!({ "value": rate }));
            }
            (case.to_owned(), measures.into())
        });
        write_json(out, &cases.collect::<Map<_, _>>().into())
    }
}
