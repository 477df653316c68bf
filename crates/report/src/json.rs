//! JSON: the judgement as one document, and a list of metrics as other tools have it. None of
//! those knows a verdict: what is in them is measured, not judged, and a case without a time is
//! left out.

use super::exporter::{Exporter, RenderError, Report};
use regatta_core::record::SCHEMA_VERSION;
use regatta_judge::judgement::Judgement;
use regatta_worker::units::{Nanoseconds, Rate};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::io::Write;

/// Writes `judgement.json`. Numbers that JSON cannot hold read `null`.
pub(super) struct Json;

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
struct Envelope<'a> {
    /// [`SCHEMA_VERSION`] of the writer.
    schema: u32,
    /// `judgement`.
    kind: &'static str,
    /// The version of regatta that measured.
    tool: &'a str,
    /// 0, 1 or 3, as the command ends.
    exit_code: u8,
    #[serde(flatten)]
    judgement: &'a Judgement,
}

/// The JSON Schema of the document.
#[cfg(feature = "schemas")]
pub fn schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    generator.subschema_for::<Envelope>()
}

impl Exporter for Json {
    fn names(&self) -> &'static [&'static str] {
        &["judgement.json"]
    }

    fn write(
        &self,
        report: &Report,
        _: &'static str,
        out: &mut dyn Write,
    ) -> Result<(), RenderError> {
        let envelope = Envelope {
            schema: SCHEMA_VERSION,
            kind: "judgement",
            tool: &report.head.header.tool,
            exit_code: report.judgement.verdict.outcome.exit_code(),
            judgement: report.judgement,
        };
        serde_json::to_writer_pretty(&mut *out, &envelope)?;
        Ok(writeln!(out)?)
    }
}

/// One number of a case.
struct CaseMetric<'a> {
    case: &'a str,
    name: &'static str,
    unit: &'static str,
    value: f64,
    /// The smallest and the largest of its invocations, where that is known.
    range: Option<(f64, f64)>,
}

/// The metrics of every case that has a time: `latency`, and where it is known `tflops`.
fn metrics<'a>(report: &'a Report) -> impl Iterator<Item = CaseMetric<'a>> {
    let timed = report.judgement.rows.iter().filter_map(|row| {
        let timing = row.head.as_ref()?;
        let is_time = timing.median_ns.is_finite() && timing.median_ns > Nanoseconds::ZERO;
        is_time.then_some((row.case.0.as_str(), timing))
    });
    timed.flat_map(|(case, timing)| {
        let latency = CaseMetric {
            case,
            name: "latency",
            unit: "ns",
            value: timing.median_ns.0,
            range: Some((timing.min_ns.0, timing.max_ns.0)),
        };
        let rate = timing.tflops.filter(|rate| rate.0.is_finite());
        let tflops = rate.map(|Rate(value)| CaseMetric {
            case,
            name: "tflops",
            unit: "TFLOP/s",
            value,
            range: None,
        });
        std::iter::once(latency).chain(tflops)
    })
}

/// Writes `bencher.json`, Bencher Metric Format:
/// <https://bencher.dev/docs/reference/bencher-metric-format/>
pub(super) struct Bencher;

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
        let mut cases = Map::new();
        for metric in metrics(report) {
            let mut number = json!({ "value": metric.value });
            if let Some((low, high)) = metric.range {
                number["lower_value"] = low.into();
                number["upper_value"] = high.into();
            }
            let case = cases.entry(metric.case).or_insert_with(|| json!({}));
            case[metric.name] = number;
        }
        write_json(out, &cases.into())
    }
}

/// Writes `benchmark-action.json`, the `customSmallerIsBetter` of github-action-benchmark:
/// <https://github.com/benchmark-action/github-action-benchmark>. Half of what lies between the
/// fastest and the slowest invocation is its range.
pub(super) struct BenchmarkAction;

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
        let times = metrics(report).filter(|metric| metric.name == "latency");
        let cases = times.map(|metric| {
            let half = metric.range.map_or(0.0, |(low, high)| (high - low) / 2.0);
            json!({
                "name": metric.case,
                "unit": metric.unit,
                "value": metric.value,
                "range": format!("± {half:.0}"),
                "extra": report.head.header.machine.name,
            })
        });
        write_json(out, &cases.collect::<Vec<_>>().into())
    }
}

fn write_json(out: &mut dyn Write, value: &Value) -> Result<(), RenderError> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    Ok(writeln!(out)?)
}

#[cfg(test)]
mod tests {
    use crate::{Format, fixture, render};
    use regatta_worker::units::Nanoseconds;
    use serde_json::json;

    #[test]
    fn the_document_reads_back() {
        let scene = fixture::failed();
        let text = &render(Format::Json, &scene.report()).unwrap()[0].text;
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(value["schema"], regatta_core::record::SCHEMA_VERSION);
        assert_eq!(value["exit_code"], 1);
        assert_eq!(value["verdict"]["outcome"], "failed");
        let judgement: regatta_judge::judgement::Judgement = serde_json::from_str(text).unwrap();
        assert_eq!(judgement, scene.judgement);
    }

    #[test]
    fn numbers_that_are_none_are_null() {
        let scene = fixture::incomplete();
        let text = &render(Format::Json, &scene.report()).unwrap()[0].text;
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert!(value["rows"][0]["head"]["median_ns"].is_null());
    }

    #[test]
    fn what_each_tool_reads_is_there() {
        let mut scene = fixture::failed();
        let read = |format, scene: &fixture::Scene| -> serde_json::Value {
            let text = render(format, &scene.report()).unwrap().remove(0).text;
            assert!(!text.contains("null") && !text.contains("NaN"), "{text}");
            serde_json::from_str(&text).unwrap()
        };
        let timed = scene
            .judgement
            .rows
            .iter()
            .position(|row| row.head.is_some());
        let row = timed.unwrap();
        let case = scene.judgement.rows[row].case.0.clone();
        let bencher = read(Format::Bencher, &scene);
        let timing = scene.judgement.rows[row].head.clone().unwrap();
        let latency = &bencher[&case]["latency"];
        assert_eq!(latency["value"], json!(timing.median_ns.0));
        assert_eq!(latency["lower_value"], json!(timing.min_ns.0));
        assert_eq!(latency["upper_value"], json!(timing.max_ns.0));
        assert_eq!(
            bencher[&case]["tflops"]["value"],
            json!(timing.tflops.unwrap().0)
        );
        let action = read(Format::BenchmarkAction, &scene);
        let half = (timing.max_ns - timing.min_ns).0 / 2.0;
        let expected = json!({
            "name": case, "unit": "ns", "value": timing.median_ns.0,
            "range": format!("± {half:.0}"), "extra": scene.head.header.machine.name,
        });
        assert!(action.as_array().unwrap().contains(&expected), "{action}");

        scene.judgement.rows[row].head.as_mut().unwrap().median_ns = Nanoseconds(f64::NAN);
        assert!(read(Format::Bencher, &scene).get(&case).is_none());
        let action = read(Format::BenchmarkAction, &scene).to_string();
        assert!(!action.contains(&format!("\"{case}\"")));
    }
}
