//! What the schema of a suite is put together from.

use serde_json::{Map, Value, json};

use crate::attention::axes::{Form, SEQ, axis, settable};
use crate::attention::{LONGEST_AXIS, NAME_RULE};
use crate::suite::structural::Kind;

pub(super) fn structure() -> Value {
    let mut properties = Map::new();
    for kind in Kind::ALL {
        let told = format!(
            "How a change of this kind is taken; by default {}.",
            word_of(kind)
        );
        properties.insert(kind.text().to_owned(), action(&told));
    }
    let more = json!({
        "memory_share": share(1, "Smallest relative growth of memory that counts: 0.10 is 10 %."),
        "steady_counts": texts("Beginnings of the names of counts that must not grow in steady state."),
        "rule": list(at("StructureRule", ""), "Exceptions; the last one that matches decides."),
    });
    properties.extend(more.as_object().cloned().unwrap_or_default());
    table(&[], Value::Object(properties))
}

fn word_of(kind: Kind) -> String {
    format!("{:?}", kind.default_action()).to_lowercase()
}

/// The axes of a problem, each of which may be a list, and other properties.
pub(super) fn axes<const N: usize>(more: [(&str, Value); N]) -> Value {
    let mut properties = Map::new();
    for name in settable() {
        let values = match axis(name).map(|axis| axis.form) {
            None | Some(Form::Number(_) | Form::Width(_)) => {
                json!({ "type": "integer", "minimum": 1, "maximum": LONGEST_AXIS })
            }
            Some(Form::Choice(words) | Form::Layer(words)) => {
                let names: Vec<&str> = words().iter().map(|word| word.name).collect();
                json!({ "enum": names })
            }
            Some(Form::Mask | Form::Lengths(_)) => json!({ "type": "string" }),
        };
        let told = match name {
            "batch" => "Sequences.",
            "heads" => "Heads of queries.",
            "kv_heads" => "Heads of keys and values; by default as many.",
            SEQ => "Length of queries and keys alike.",
            "seq_q" => "Length of the queries.",
            "seq_k" => "Length of the keys.",
            "head_dim" => "Elements of a head.",
            "mask" => {
                "`full`, `causal`, or `window-LEFT-RIGHT`; with -tl or -br where lengths differ."
            }
            "varlen" => "Lengths of a ragged batch.",
            "layout" => "Order of the tensors' axes.",
            "direction" => "Which pass is timed.",
            "dtype" => "Type of the elements.",
            "projection" => "A projection in place of attention.",
            "hidden" => "Width of the projection.",
            "ranks" => "GPUs that share the work.",
            _ => "An axis of the problem.",
        };
        properties.insert(name.to_owned(), one_or_more(values, told));
    }
    properties.extend(more.map(|(name, schema)| (name.to_owned(), schema)));
    Value::Object(properties)
}

pub(super) fn described(mut schema: Value, told: &str) -> Value {
    if !told.is_empty() {
        schema["description"] = json!(told);
    }
    schema
}

pub(super) fn text(told: &str) -> Value {
    json!({ "type": "string", "description": told })
}

pub(super) fn texts(told: &str) -> Value {
    list(json!({ "type": "string" }), told)
}

/// A command: its first word is never empty.
pub(super) fn words(told: &str) -> Value {
    json!({
        "type": "array",
        "description": told,
        "prefixItems": [{ "type": "string", "minLength": 1 }],
        "items": { "type": "string" },
        "minItems": 1,
    })
}

pub(super) fn truth(told: &str) -> Value {
    json!({ "type": "boolean", "description": told })
}

pub(super) fn whole(least: i64, most: i64, default: i64, told: &str) -> Value {
    json!({
        "type": "integer", "minimum": least, "maximum": most, "default": default,
        "description": told,
    })
}

pub(super) fn share(most: u32, told: &str) -> Value {
    json!({ "type": "number", "minimum": 0, "maximum": most, "description": told })
}

pub(super) fn word<T: AsRef<str>>(words: &[T], told: &str) -> Value {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    json!({ "enum": words, "description": told })
}

pub(super) fn action(told: &str) -> Value {
    word(&["fail", "warn", "ignore"], told)
}

/// A whole number or a word.
pub(super) fn scalar() -> Value {
    json!({ "type": ["integer", "string"] })
}

pub(super) fn at(name: &str, told: &str) -> Value {
    described(json!({ "$ref": format!("#/$defs/{name}") }), told)
}

pub(super) fn list(of: Value, told: &str) -> Value {
    described(json!({ "type": "array", "items": of }), told)
}

pub(super) fn one_or_more(of: Value, told: &str) -> Value {
    let list = json!({ "type": "array", "items": of, "minItems": 1 });
    described(json!({ "anyOf": [of, list] }), told)
}

/// A table whose keys are names of anything.
pub(super) fn named(of: Value, told: &str) -> Value {
    described(
        json!({ "type": "object", "additionalProperties": of }),
        told,
    )
}

/// A table whose keys name environments or workers.
pub(super) fn by_name(of: Value, told: &str) -> Value {
    let told = format!("{told} Names: {NAME_RULE}.");
    let mut table = named(of, &told);
    table["propertyNames"] = json!({ "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$" });
    table
}

pub(super) fn table(required: &[&str], properties: Value) -> Value {
    let mut table = json!({
        "type": "object", "properties": properties, "additionalProperties": false,
    });
    if !required.is_empty() {
        table["required"] = json!(required);
    }
    table
}
