//! JSON: the judgement as one document, and lists of metrics in the formats of other tools. Those
//! formats have no verdicts: they contain measured values only, and leave out a case without a
//! time.

use std::io::Write;

use serde::Serialize;
use serde_json::{Map, json};

use super::{RenderError, Report};
use regatta_core::record::SCHEMA_VERSION;
use regatta_judge::judgement::{Judgement, Timing};
use regatta_worker::units::Nanoseconds;

#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
struct Envelope<'a> {
    /// [`SCHEMA_VERSION`] of the writer.
    schema: u32,
    /// `judgement`.
    kind: &'static str,
    /// The version of regatta that measured.
    tool: &'a str,
    /// The exit code of the command: 0, 1 or 3.
    exit_code: u8,
    #[serde(flatten)]
    judgement: &'a Judgement,
}

/// The JSON Schema of the document.
#[cfg(feature = "schemas")]
pub fn schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    generator.subschema_for::<Envelope>()
}

/// Writes `judgement.json`. Numbers that JSON cannot represent become `null`.
pub(super) fn judgement(report: &Report, _: &str, out: &mut dyn Write) -> Result<(), RenderError> {
    document(report.judgement, &report.head.header.tool, out)
}

/// Writes a judgement; `tool` is the version of regatta that measured.
pub(super) fn document(
    judgement: &Judgement,
    tool: &str,
    out: &mut dyn Write,
) -> Result<(), RenderError> {
    let envelope = Envelope {
        schema: SCHEMA_VERSION,
        kind: "judgement",
        tool,
        exit_code: judgement.verdict.outcome.exit_code(),
        judgement,
    };
    write_json(out, &envelope)
}

/// The cases that have a time.
fn timed<'a>(report: &'a Report) -> impl Iterator<Item = (&'a str, &'a Timing)> {
    report.judgement.rows.iter().filter_map(|row| {
        let timing = row.head.as_ref()?;
        let is_time = timing.median_ns.is_finite() && timing.median_ns > Nanoseconds::ZERO;
        is_time.then_some((&*row.case.0, timing))
    })
}

/// Writes `bencher.json`, Bencher Metric Format:
/// <https://bencher.dev/docs/reference/bencher-metric-format/>
pub(super) fn bencher(report: &Report, _: &str, out: &mut dyn Write) -> Result<(), RenderError> {
    let cases = timed(report).map(|(case, timing)| {
        let mut metrics = json!({ "latency": {
            "value": timing.median_ns,
            "lower_value": timing.min_ns,
            "upper_value": timing.max_ns,
        } });
        if let Some(rate) = timing.tflops.filter(|rate| rate.0.is_finite()) {
            metrics["tflops"] = json!({ "value": rate });
        }
        (case.to_owned(), metrics)
    });
    write_json(out, &cases.collect::<Map<_, _>>())
}

/// Writes `benchmark-action.json`, the `customSmallerIsBetter` of github-action-benchmark:
/// <https://github.com/benchmark-action/github-action-benchmark>. The range is half of the
/// difference between the slowest and the fastest invocation.
pub(super) fn benchmark_action(
    report: &Report,
    _: &str,
    out: &mut dyn Write,
) -> Result<(), RenderError> {
    let cases = timed(report).map(|(case, timing)| {
        json!({
            "name": case,
            "unit": "ns",
            "value": timing.median_ns,
            "range": format!("± {:.0}", (timing.max_ns - timing.min_ns).0 / 2.0),
            "extra": report.head.header.machine.name,
        })
    });
    write_json(out, &cases.collect::<Vec<_>>())
}

fn write_json(out: &mut dyn Write, value: &impl Serialize) -> Result<(), RenderError> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    Ok(writeln!(out)?)
}

#[cfg(test)]
mod tests {
    use crate::{Format, fixture};

    fn read(format: Format, scene: &fixture::Scene) -> serde_json::Value {
        serde_json::from_str(&scene.shown(format)).unwrap()
    }

    #[test]
    fn the_document_reads_back() {
        let scene = fixture::failed();
        let value = read(Format::Json, &scene);
        assert_eq!(value["schema"], regatta_core::record::SCHEMA_VERSION);
        assert_eq!(value["exit_code"], 1);
        let judgement: regatta_judge::judgement::Judgement = serde_json::from_value(value).unwrap();
        assert_eq!(judgement, scene.judgement);
        let incomplete = read(Format::Json, &fixture::incomplete());
        assert!(incomplete["rows"][0]["head"]["median_ns"].is_null());
    }

    #[test]
    fn what_each_tool_reads_is_there_and_a_case_without_a_time_is_not() {
        let scene = fixture::passed();
        insta::assert_snapshot!("bencher", scene.shown(Format::Bencher));
        insta::assert_snapshot!("benchmark_action", scene.shown(Format::BenchmarkAction));
        let incomplete = fixture::incomplete();
        assert_eq!(read(Format::Bencher, &incomplete), serde_json::json!({}));
        assert_eq!(
            read(Format::BenchmarkAction, &incomplete),
            serde_json::json!([])
        );
    }
}
