//! `cargo xtask schemas`: writes the JSON Schemas in docs/schemas of what is stored, spoken and
//! told. With `--check` it writes nothing, and fails where one is not what it would write.

use std::env;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use regatta_core::record::{baseline, run_file};
use regatta_core::suite::file::{ConfigFile, SuiteFile};
use regatta_report as report;
use regatta_worker::protocol::{Reply, Request};
use schemars::generate::{Contract, SchemaSettings};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// A document that has a schema.
struct Document {
    /// The name of its file.
    name: &'static str,
    /// What it is, in a line.
    title: &'static str,
    /// True where each line ends with a checksum.
    summed: bool,
    /// True of what others write and regatta reads.
    is_read: bool,
    of: fn(&mut SchemaGenerator) -> Schema,
}

const DOCUMENTS: [Document; 7] = [
    Document {
        name: "suite",
        title: "A suite of regatta, as TOML",
        summed: false,
        is_read: true,
        of: SuiteFile::json_schema,
    },
    Document {
        name: "regatta",
        title: "regatta.toml: environments and workers of every suite of its folder",
        summed: false,
        is_read: true,
        of: ConfigFile::json_schema,
    },
    Document {
        name: "run",
        title: "A line of run.jsonl: what was measured",
        summed: true,
        is_read: false,
        of: run_file::schema,
    },
    Document {
        name: "baseline",
        title: "A line of a baseline: a run that others are compared with",
        summed: true,
        is_read: false,
        of: baseline::schema,
    },
    Document {
        name: "judgement",
        title: "What run, gate, compare and diff print with --json",
        summed: false,
        is_read: false,
        of: report::schema,
    },
    Document {
        name: "request",
        title: "What a worker is asked, a line each",
        summed: false,
        is_read: false,
        of: |generator| generator.subschema_for::<Request>(),
    },
    Document {
        name: "reply",
        title: "What a worker answers, a line each",
        summed: false,
        is_read: true,
        of: |generator| generator.subschema_for::<Reply>(),
    },
];

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let check = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["schemas"] => false,
        ["schemas", "--check"] => true,
        _ => bail!("usage: cargo xtask schemas [--check]"),
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    for document in &DOCUMENTS {
        let path = folder.join(format!("{}.json", document.name));
        let text = serde_json::to_string_pretty(&schema(document))? + "\n";
        if check {
            let kept = fs::read_to_string(&path).unwrap_or_default();
            let name = document.name;
            ensure!(
                kept == text,
                "docs/schemas/{name}.json is not what its types say; write it: cargo xtask schemas"
            );
        } else {
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

fn schema(document: &Document) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.contract = match document.is_read {
            true => Contract::Deserialize,
            false => Contract::Serialize,
        };
    });
    let mut generator = settings.into_generator();
    let root = (document.of)(&mut generator).to_value();
    let mut schema = Map::new();
    schema.insert(
        "$schema".into(),
        json!("https://json-schema.org/draft/2020-12/schema"),
    );
    schema.insert("title".into(), document.title.into());
    schema.extend(root.as_object().cloned().unwrap_or_default());
    if document.summed {
        let sum = json!({
            "description": "CRC-32 (IEEE) of the line's text without this member, in hex digits.",
            "type": "string",
            "pattern": "^[0-9a-f]{8}$",
        });
        schema.insert("properties".into(), json!({ "sum": sum }));
        schema.insert("required".into(), json!(["sum"]));
    }
    let definitions = generator.take_definitions(true);
    schema.insert("$defs".into(), definitions.into());
    let mut schema = schema.into();
    tidy(&mut schema);
    schema
}

/// Lets a number with a fraction be null, which stands for one that JSON does not have, and
/// takes rustdoc's links out of descriptions.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("format") == Some(&json!("double")) {
                fields.insert("type".into(), json!(["number", "null"]));
            }
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = plain(text);
            }
            fields.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// ``[`Side::read`](regatta_core::record::Side::read)`` as `` `Side::read` ``.
fn plain(text: &str) -> String {
    let mut parts = text.split("[`");
    let mut told = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, after) = part.split_once("`]").unwrap_or((part, ""));
        let target = after
            .strip_prefix('(')
            .and_then(|after| after.split_once(')'));
        told += &format!("`{name}`{}", target.map_or(after, |(_, after)| after));
    }
    told.replace('\n', " ")
}
