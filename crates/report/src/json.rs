//! The judgement as one JSON document.

use std::io::Write;

use serde::Serialize;

use super::exporter::{Exporter, RenderError, Report};
use regatta_core::record::SCHEMA_VERSION;
use regatta_judge::judgement::Judgement;

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

#[cfg(test)]
mod tests {
    use crate::{Format, fixture, render};

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
}
