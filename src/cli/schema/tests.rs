use std::collections::BTreeSet;

use serde_json::Value;

use super::catalogue::ALL;

/// True where a schema says what it is of, itself or by what it refers to.
fn told(schema: &Value, defs: &Value) -> bool {
    let refers = schema.get("$ref").and_then(Value::as_str);
    let def = refers.map(|to| &defs[to.trim_start_matches("#/$defs/")]);
    let told = |of: &Value| of.get("description").is_some() || of.get("const").is_some();
    told(schema) || def.is_some_and(told)
}

/// Members without a word on what they are, with where they are.
fn untold(schema: &Value, defs: &Value, at: &str, found: &mut BTreeSet<String>) {
    let members = schema.get("properties").and_then(Value::as_object);
    let members = members.into_iter().flatten();
    let silent = members.filter(|(_, member)| !told(member, defs));
    let silent: Vec<&String> = silent.map(|(name, _)| name).collect();
    // Of a choice with one member beside its tag, what is said of the choice is said of that.
    if silent.len() > 1 || schema.get("description").is_none() || !at.ends_with(']') {
        found.extend(silent.iter().map(|name| format!("{at}.{name}")));
    }
    for (key, value) in schema.as_object().into_iter().flatten() {
        match value {
            Value::Object(members) if key == "properties" => {
                for (name, member) in members {
                    untold(member, defs, &format!("{at}.{name}"), found);
                }
            }
            Value::Array(choices) => {
                for (place, choice) in choices.iter().enumerate() {
                    untold(choice, defs, &format!("{at}[{place}]"), found);
                }
            }
            value => untold(value, defs, at, found),
        }
    }
}

#[test]
fn every_member_is_described() {
    let mut found = BTreeSet::new();
    for document in ALL {
        let mut schema = document.schema();
        let defs = schema["$defs"].take();
        untold(&schema, &defs, document.name, &mut found);
        for (name, def) in defs.as_object().into_iter().flatten() {
            untold(def, &defs, name, &mut found);
        }
    }
    let found: Vec<String> = found.into_iter().collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_line_of_the_list_fits_a_terminal() {
    let list = super::list();
    let long = list.lines().find(|line| line.chars().count() > 80);
    assert_eq!(long, None);
}
