//! Closes the objects of a schema.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// Keywords that hold schemas by names.
pub(super) const BY_NAME: [&str; 3] = ["properties", "patternProperties", "$defs"];
/// Keywords that hold a list of schemas of the same place.
pub(super) const SAME_PLACE: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords that hold the schema of another place.
pub(super) const OTHER_PLACE: [&str; 3] = ["items", "additionalProperties", "propertyNames"];

/// The definition that a reference names.
pub(super) fn name_of(reference: &Value) -> Option<&str> {
    reference.as_str()?.strip_prefix("#/$defs/")
}

/// Closes every object: a member that nobody described is refused.
///
/// A definition that is a part of an object (flattened, or beside a tag) stays open, and the
/// object that it is a part of is closed as a whole.
pub fn close(root: &mut Value, defs: &mut Map<String, Value>) {
    let mut parts = BTreeSet::new();
    parts_in(root, false, &mut parts);
    defs.values()
        .for_each(|def| parts_in(def, false, &mut parts));
    // A part of a part is one as well.
    loop {
        let mut more = parts.clone();
        for name in &parts {
            parts_in(&defs[name], true, &mut more);
        }
        if more == parts {
            break;
        }
        parts = more;
    }
    let all = defs.clone();
    let closed = Closing {
        defs: &all,
        parts: &parts,
    };
    closed.other_place(root);
    for (name, def) in defs {
        match parts.contains(name) {
            true => closed.below(def),
            false => closed.other_place(def),
        }
    }
}

/// Finds the definitions that are a part of an object with other members.
fn parts_in(schema: &Value, beside: bool, parts: &mut BTreeSet<String>) {
    let Value::Object(fields) = schema else {
        return;
    };
    let beside = beside || fields.contains_key("properties") || fields.contains_key("allOf");
    if let Some(name) = fields.get("$ref").and_then(name_of)
        && beside
    {
        parts.insert(name.to_owned());
    }
    for (key, value) in fields {
        match value {
            Value::Array(all) if SAME_PLACE.contains(&key.as_str()) => {
                all.iter()
                    .for_each(|schema| parts_in(schema, beside, parts));
            }
            Value::Object(named) if BY_NAME.contains(&key.as_str()) => {
                named
                    .values()
                    .for_each(|schema| parts_in(schema, false, parts));
            }
            Value::Array(all) if key == "prefixItems" => {
                all.iter().for_each(|schema| parts_in(schema, false, parts));
            }
            value if OTHER_PLACE.contains(&key.as_str()) => parts_in(value, false, parts),
            _ => {}
        }
    }
}

struct Closing<'a> {
    defs: &'a Map<String, Value>,
    parts: &'a BTreeSet<String>,
}

impl Closing<'_> {
    /// Closes a schema that is all there is of a value.
    fn other_place(&self, schema: &mut Value) {
        self.below(schema);
        let open = self.is_open(schema);
        if let Value::Object(fields) = schema
            && open
            && !fields.contains_key("additionalProperties")
        {
            let whole = SAME_PLACE.iter().any(|key| fields.contains_key(*key));
            let key = match whole || fields.contains_key("$ref") {
                true => "unevaluatedProperties",
                false => "additionalProperties",
            };
            fields.insert(key.into(), json!(false));
        }
    }

    /// Closes what a schema holds, and leaves it itself as it is.
    fn below(&self, schema: &mut Value) {
        let Value::Object(fields) = schema else {
            return;
        };
        for (key, value) in fields {
            match (key.as_str(), value) {
                (key, Value::Object(named)) if BY_NAME.contains(&key) => {
                    named
                        .values_mut()
                        .for_each(|schema| self.other_place(schema));
                }
                (key, Value::Array(all)) if SAME_PLACE.contains(&key) => {
                    all.iter_mut().for_each(|schema| self.below(schema));
                }
                ("prefixItems", Value::Array(all)) => {
                    all.iter_mut().for_each(|schema| self.other_place(schema));
                }
                (key, value) if OTHER_PLACE.contains(&key) => self.other_place(value),
                _ => {}
            }
        }
    }

    /// True where a schema describes members of an object, and nobody has closed it.
    fn is_open(&self, schema: &Value) -> bool {
        let referred = || {
            let name = schema.get("$ref").and_then(name_of)?;
            let def = self.defs.get(name)?;
            Some(self.parts.contains(name) && self.is_open(def))
        };
        let same_place = || {
            let lists = SAME_PLACE
                .iter()
                .filter_map(|key| schema.get(key)?.as_array());
            lists.flatten().any(|schema| self.is_open(schema))
        };
        schema.get("properties").is_some() || referred() == Some(true) || same_place()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_an_object_stays_open_and_the_whole_is_closed() {
        let mut defs = Map::new();
        defs.insert(
            "Part".into(),
            json!({"type": "object", "properties": {"a": {}}}),
        );
        defs.insert(
            "Own".into(),
            json!({"type": "object", "properties": {"b": {}}}),
        );
        defs.insert(
            "Map".into(),
            json!({"type": "object", "additionalProperties": {}}),
        );
        let mut root = json!({
            "properties": {"tag": {}, "own": {"$ref": "#/$defs/Own"}, "map": {"$ref": "#/$defs/Map"}},
            "oneOf": [{"$ref": "#/$defs/Part"}, {"type": "null"}],
        });
        close(&mut root, &mut defs);
        assert_eq!(root["unevaluatedProperties"], json!(false));
        assert_eq!(root["properties"]["own"], json!({"$ref": "#/$defs/Own"}));
        assert_eq!(defs["Own"]["additionalProperties"], json!(false));
        assert!(defs["Part"].get("additionalProperties").is_none());
        assert_eq!(defs["Map"]["additionalProperties"], json!({}));
    }
}
