//! From a type to the JSON Schema that is printed.
//!
//! What schemars makes of the types is finished here: it gets its name and version, every
//! object is closed, and what rustdoc alone understands is taken out of the descriptions.

use schemars::generate::{Contract, SchemaSettings};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::closing::{BY_NAME, OTHER_PLACE, SAME_PLACE, close, name_of};

/// What a schema is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Files that people write.
    Written,
    /// Files that regatta writes and reads.
    Files,
    /// What a worker is asked, and answers.
    Protocol,
    /// What `--json` prints.
    Answers,
}

impl Group {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Group; 4] = [
        Group::Written,
        Group::Files,
        Group::Protocol,
        Group::Answers,
    ];

    /// As a heading.
    pub fn heading(self) -> &'static str {
        match self {
            Group::Written => "files that you write",
            Group::Files => "files that regatta writes",
            Group::Protocol => "messages of a worker",
            Group::Answers => "answers, by --json",
        }
    }

    /// As a word.
    pub fn word(self) -> &'static str {
        match self {
            Group::Written => "written",
            Group::Files => "files",
            Group::Protocol => "protocol",
            Group::Answers => "answers",
        }
    }
}

/// What one file or one `--json` holds of a schema's documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One.
    Whole,
    /// One in each line.
    Lines,
    /// One in each line, which ends with a checksum.
    Summed,
}

/// A document that has a schema.
#[derive(Clone, Copy, Debug)]
pub struct Document {
    /// Its name, as `regatta schema NAME` takes it.
    pub name: &'static str,
    /// What it is of.
    pub group: Group,
    /// Major and minor version. Another major version: who reads the one cannot read the other.
    pub version: (u32, u32),
    /// What the document is, in a line.
    pub title: &'static str,
    /// What a file or an answer holds of it.
    pub form: Form,
    /// The commands that print it for `--json`.
    pub commands: &'static [&'static str],
    /// True of what others write and regatta reads.
    pub is_read: bool,
    /// The schema of its type.
    pub of: fn(&mut SchemaGenerator) -> Schema,
}

impl Document {
    /// `1.0`.
    pub fn version_text(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// The name of the schema in this version, for ever: `urn:regatta:schema:run:1.0`.
    pub fn id(&self) -> String {
        format!("urn:regatta:schema:{}:{}", self.name, self.version_text())
    }

    /// The schema.
    pub fn schema(&self) -> Value {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.contract = match self.is_read {
                true => Contract::Deserialize,
                false => Contract::Serialize,
            };
        });
        let mut generator = settings.into_generator();
        let root = (self.of)(&mut generator);
        let mut defs = generator.take_definitions(true);
        let mut root = root.to_value();
        // The type that it is of stands at the root, not among the definitions.
        if let Some(name) = root.get("$ref").and_then(name_of)
            && let Some(Value::Object(own)) = defs.get(name)
        {
            let (name, own) = (name.to_owned(), own.clone());
            root = Value::Object(own);
            let used = |value: &Value| refers(value, &name);
            if !used(&root) && !defs.values().any(used) {
                defs.remove(&name);
            }
        }
        let Value::Object(mut root) = root else {
            return root;
        };
        if self.form == Form::Summed {
            summed(&mut root);
        }
        // Numbers that JSON does not have are null in what is told to others.
        let mut nullable = |value: &mut Value| {
            plain_description(value);
            if matches!(self.group, Group::Answers) {
                may_be_null(value);
            }
        };
        let mut whole = Value::Object(root);
        each(&mut whole, &mut nullable);
        defs.values_mut().for_each(|def| each(def, &mut nullable));
        close(&mut whole, &mut defs);
        keep_used(&whole, &mut defs);
        let mut schema = Map::new();
        schema.insert(
            "$schema".into(),
            json!("https://json-schema.org/draft/2020-12/schema"),
        );
        schema.insert("$id".into(), json!(self.id()));
        schema.insert("title".into(), json!(self.title));
        if let Value::Object(rest) = whole {
            let rest = rest
                .into_iter()
                .filter(|(key, _)| key != "$schema" && key != "title");
            schema.extend(rest);
        }
        if !defs.is_empty() {
            schema.insert("$defs".into(), Value::Object(defs));
        }
        Value::Object(schema)
    }
}

/// True where a schema refers to a definition.
fn refers(value: &Value, name: &str) -> bool {
    match value {
        Value::Object(fields) => {
            fields.get("$ref").and_then(name_of) == Some(name)
                || fields.values().any(|value| refers(value, name))
        }
        Value::Array(items) => items.iter().any(|value| refers(value, name)),
        _ => false,
    }
}

/// Leaves out what nothing refers to.
fn keep_used(root: &Value, defs: &mut Map<String, Value>) {
    loop {
        let names: Vec<String> = defs.keys().cloned().collect();
        let others = |name: &str, defs: &Map<String, Value>| {
            let mut others = defs.iter().filter(|(other, _)| *other != name);
            refers(root, name) || others.any(|(_, def)| refers(def, name))
        };
        let unused = names.iter().find(|name| !others(name, defs));
        match unused {
            Some(name) => defs.remove(name),
            None => break,
        };
    }
}

/// Adds the checksum that every line ends with.
fn summed(root: &mut Map<String, Value>) {
    let sum = json!({
        "description": "CRC-32 (IEEE) of the line's text without this member, in hex digits.",
        "type": "string",
        "pattern": "^[0-9a-f]{8}$",
    });
    let properties = root.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(properties) = properties {
        properties.insert("sum".into(), sum);
    }
    let required = root.entry("required").or_insert_with(|| json!([]));
    if let Value::Array(required) = required {
        required.push(json!("sum"));
    }
}

/// Visits every schema, whichever place it is of.
fn each(schema: &mut Value, visit: &mut impl FnMut(&mut Value)) {
    visit(schema);
    let Value::Object(fields) = schema else {
        return;
    };
    for (key, value) in fields {
        match (key.as_str(), value) {
            (key, Value::Object(named)) if BY_NAME.contains(&key) => {
                named.values_mut().for_each(|schema| each(schema, visit));
            }
            (key, Value::Array(all)) if SAME_PLACE.contains(&key) || key == "prefixItems" => {
                all.iter_mut().for_each(|schema| each(schema, visit));
            }
            (key, value) if OTHER_PLACE.contains(&key) => each(value, visit),
            _ => {}
        }
    }
}

/// Takes out of a description what rustdoc makes links of.
fn plain_description(schema: &mut Value) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = plain(text);
    }
}

/// ``[`Side::read`](crate::record::side::Side::read)`` as `` `Side::read` ``.
fn plain(text: &str) -> String {
    let mut told = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once("[`") {
        told += before;
        let Some((name, after)) = link.split_once("`]") else {
            told += "[`";
            rest = link;
            continue;
        };
        let name = name
            .strip_prefix("crate::")
            .or(name.strip_prefix("super::"))
            .unwrap_or(name);
        told += &format!("`{name}`");
        rest = match after
            .strip_prefix('(')
            .and_then(|target| target.split_once(')'))
        {
            Some((_, after)) => after,
            None => after,
        };
    }
    told += rest;
    // What is not there is none in any language.
    let told = told.replace("`None`", "none");
    // Only an empty line ends a paragraph.
    let paragraphs = told.split("\n\n").map(|part| part.replace('\n', " "));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// Lets a number with a fraction be null.
fn may_be_null(schema: &mut Value) {
    if schema.get("format") == Some(&json!("double")) && schema["type"] == json!("number") {
        schema["type"] = json!(["number", "null"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_rustdoc_become_names() {
        assert_eq!(
            plain("as [`Side`] and [`x`](crate::y::x) do"),
            "as `Side` and `x` do"
        );
        assert_eq!(plain("[`crate::record::Side`]"), "`record::Side`");
        assert_eq!(plain("one\nline\n\nthe next"), "one line\n\nthe next");
        assert_eq!(
            plain("a list [1, 2] and [`half"),
            "a list [1, 2] and [`half"
        );
    }
}
