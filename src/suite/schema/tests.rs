//! Holds the schema to the reader.

use std::collections::BTreeSet;

use super::*;
use crate::suite::document::Source;
use crate::suite::{self, Suite, parse};

const HEAD: &str = "schema = 1\ndescription = \"d\"\n";
const SWEEP: &str = "[[sweep]]\nvariants = \"cpu/flash\"\nseq = 8\nhead_dim = 8\n";

/// What the reader says of a suite.
fn refused(text: &str) -> Option<String> {
    let source = Source {
        label: "s.toml".to_owned(),
        text: text.to_owned(),
    };
    let read = parse::suite("s", &source, &|name| suite::load(name));
    read.err().map(|error| error.to_string())
}

/// The keys that a table's reader knows, by its own words about one that it does not.
fn known(text: &str) -> BTreeSet<String> {
    let error = refused(text).unwrap_or_default();
    let (_, known) = error
        .split_once("unknown key; known here: ")
        .unwrap_or_else(|| {
            panic!("{text}\n{error}");
        });
    known.split(", ").map(str::to_owned).collect()
}

fn described(of: &Value) -> BTreeSet<String> {
    let properties = of["properties"].as_object().unwrap();
    properties.keys().cloned().collect()
}

#[test]
fn the_schema_has_the_keys_that_the_reader_knows() {
    let schema = suite();
    assert_eq!(described(&schema), known(&format!("{HEAD}q9 = 1\n{SWEEP}")));
    for (name, table) in [
        ("Measure", "[measure]\n"),
        ("Policy", "[policy]\n"),
        ("Sight", "[policy.sight]\nchange = 0.1\ncases = 0.9\n"),
        ("Metrics", "[policy.metrics]\n"),
        ("Metric", "[policy.metrics.host]\n"),
        ("Metric", "[policy.metrics.first_call]\n"),
        ("Structure", "[policy.structure]\n"),
        (
            "StructureRule",
            "[[policy.structure.rule]]\nname = \"n\"\naction = \"warn\"\n",
        ),
        ("Sweep", SWEEP),
        (
            "Expect",
            "[[expect]]\nname = \"n\"\ncase = { seq = 8 }\nagainst = { seq = 9 }\nwithin = 1.0\n",
        ),
        (
            "Limit",
            "[[limit]]\nname = \"n\"\ncase = { seq = 8 }\ncount = \"launches\"\nat_most = 1\n",
        ),
        (
            "Count",
            "[[count]]\nname = \"n\"\nworker = \"cpu\"\nfunction = \"m:f\"\n",
        ),
        (
            "Override",
            "[[override]]\nvariant = \"cpu/flash\"\nparameter = \"p\"\nto = 1\n",
        ),
        ("Build", "[build]\ncommand = [\"make\"]\n"),
        ("Environment", "[environments.e]\n"),
        ("Worker", "[workers.w]\ncommand = [\"w\"]\n"),
    ] {
        let text = format!(
            "{HEAD}{}{table}q9 = 1\n",
            if name == "Sweep" { "" } else { SWEEP }
        );
        assert_eq!(described(&schema["$defs"][name]), known(&text), "{name}");
    }
    for name in ["device", "memory"] {
        let text = format!("{HEAD}{SWEEP}[policy.metrics.{name}]\nq9 = 1\n");
        let metrics = &schema["$defs"]["Metrics"]["properties"];
        assert_eq!(described(&metrics[name]), known(&text), "{name}");
    }
    let shape = "shapes = [{ seq = 8, head_dim = 8, q9 = 1 }]\n";
    let text = format!("{HEAD}[[sweep]]\nvariants = \"cpu/flash\"\n{shape}");
    assert_eq!(described(&schema["$defs"]["Shape"]), known(&text));
}

#[test]
fn regatta_toml_has_the_keys_that_its_reader_knows() {
    let source = Source {
        label: "regatta.toml".to_owned(),
        text: "q9 = 1\n".to_owned(),
    };
    let read = source.read(|root| parse::environments(root, &mut Suite::default()));
    let error = read.unwrap_err().to_string();
    let known = error.rsplit("known here: ").next().unwrap_or_default();
    let known: BTreeSet<String> = known.split(", ").map(str::to_owned).collect();
    assert_eq!(described(&config()), known);
}

#[test]
fn defaults_and_bounds_are_those_of_the_reader() {
    let defaults = serde_json::to_value(suite::Settings::default()).unwrap();
    let schema = suite();
    let measure = schema["$defs"]["Measure"]["properties"]
        .as_object()
        .unwrap();
    let numbers = measure.iter().filter(|(_, of)| of.get("default").is_some());
    for (name, of) in numbers {
        // What is one is left out of the settings of a run.
        let default = defaults.get(name).cloned().unwrap_or(json!(1));
        assert_eq!(of["default"], default, "{name}");
        let read = |value: i64| refused(&format!("{HEAD}{SWEEP}[measure]\n{name} = {value}\n"));
        let (least, most) = (
            of["minimum"].as_i64().unwrap(),
            of["maximum"].as_i64().unwrap(),
        );
        assert_eq!((read(least), read(most)), (None, None), "{name}");
        assert!(read(least - 1).is_some(), "{name}");
        if most < i64::MAX {
            assert!(read(most + 1).is_some(), "{name}");
        }
    }
    let confirm = &schema["$defs"]["Policy"]["properties"]["confirm"];
    assert_eq!(confirm["default"], suite::rules::Policy::default().confirm);
}
