//! A schema as text that people read: what it is comes first, and what is short stays on a line.

use serde_json::{Map, Value};

/// Longest line that holds a whole list or object.
const WIDTH: usize = 96;

/// Keywords that come first, in this order; the others follow by the alphabet.
const FIRST: [&str; 9] = [
    "$schema",
    "$id",
    "title",
    "$ref",
    "description",
    "const",
    "enum",
    "type",
    "format",
];

/// Keywords that come last.
const LAST: [&str; 1] = ["$defs"];

/// Keywords whose members are names, not keywords.
const NAMED: [&str; 2] = ["properties", "$defs"];

/// The text, with a line feed at its end.
pub fn text(schema: &Value) -> String {
    let mut text = String::new();
    write(schema, 0, 0, true, &mut text);
    text + "\n"
}

/// Writes a value that stands `used` columns into a line. In `keywords` the members of an object
/// are keywords.
fn write(value: &Value, indent: usize, used: usize, keywords: bool, text: &mut String) {
    let short = value.to_string();
    // A line of JSON has no spaces; so many are put in at the least.
    let spaces = short.matches([',', ':']).count();
    if used + short.len() + spaces <= WIDTH && !has_nested(value) {
        return line(value, keywords, text);
    }
    let inner = " ".repeat(indent + 2);
    match value {
        Value::Object(fields) => {
            *text += "{\n";
            for (place, (key, value)) in ordered(fields, keywords).into_iter().enumerate() {
                let name = format!("{inner}{}: ", Value::from(key));
                *text += if place > 0 { ",\n" } else { "" };
                *text += &name;
                let keywords = !(keywords && NAMED.contains(&key));
                write(value, indent + 2, name.len(), keywords, text);
            }
            *text += &format!("\n{}}}", " ".repeat(indent));
        }
        Value::Array(items) => {
            *text += "[\n";
            for (place, value) in items.iter().enumerate() {
                *text += if place > 0 { ",\n" } else { "" };
                *text += &inner;
                write(value, indent + 2, inner.len(), true, text);
            }
            *text += &format!("\n{}]", " ".repeat(indent));
        }
        other => *text += &other.to_string(),
    }
}

/// True for an object that holds one: it takes lines of its own.
fn has_nested(value: &Value) -> bool {
    let nested = |value: &Value| matches!(value, Value::Object(fields) if fields.len() > 1);
    match value {
        Value::Object(fields) => fields
            .values()
            .any(|value| nested(value) || has_nested(value)),
        Value::Array(items) => items.iter().any(has_nested),
        _ => false,
    }
}

/// Writes a value in one line.
fn line(value: &Value, keywords: bool, text: &mut String) {
    match value {
        Value::Object(fields) if fields.is_empty() => *text += "{}",
        Value::Object(fields) => {
            *text += "{ ";
            for (place, (key, value)) in ordered(fields, keywords).into_iter().enumerate() {
                *text += if place > 0 { ", " } else { "" };
                *text += &format!("{}: ", Value::from(key));
                line(value, !(keywords && NAMED.contains(&key)), text);
            }
            *text += " }";
        }
        Value::Array(items) => {
            *text += "[";
            for (place, value) in items.iter().enumerate() {
                *text += if place > 0 { ", " } else { "" };
                line(value, true, text);
            }
            *text += "]";
        }
        other => *text += &other.to_string(),
    }
}

fn ordered(fields: &Map<String, Value>, keywords: bool) -> Vec<(&str, &Value)> {
    let mut all: Vec<(&str, &Value)> = fields.iter().map(|(k, v)| (k.as_str(), v)).collect();
    if keywords {
        let rank = |key: &str| match FIRST.iter().position(|first| *first == key) {
            Some(place) => place,
            None => FIRST.len() + usize::from(LAST.contains(&key)),
        };
        all.sort_by_key(|(key, _)| rank(key));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_it_is_comes_first_and_the_text_reads_back() {
        let schema = json!({
            "properties": { "type": { "type": "string", "description": "what\nit is" } },
            "$defs": { "A": {} },
            "$id": "urn:x",
            "required": ["type"],
            "anyOf": [{ "required": ["a"] }, { "type": "null" }],
        });
        let text = text(&schema);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), schema);
        let expected = "\
{
  \"$id\": \"urn:x\",
  \"anyOf\": [{ \"required\": [\"a\"] }, { \"type\": \"null\" }],
  \"properties\": {
    \"type\": { \"description\": \"what\\nit is\", \"type\": \"string\" }
  },
  \"required\": [\"type\"],
  \"$defs\": { \"A\": {} }
}
";
        assert_eq!(text, expected);
    }
}
