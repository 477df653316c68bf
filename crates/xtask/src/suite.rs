//! Holds the schema of a suite to the reader's keys.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use serde_json::Value;

const HEAD: &str = "schema = 1\ndescription = \"d\"\n";
const SWEEP: &str = "[[sweep]]\nvariants = \"cpu/flash\"\nseq = 8\nhead_dim = 8\n";

/// A table's name in the schema, and the TOML that a key of it may follow.
const TABLES: [(&str, &str); 13] = [
    ("Sweep", ""),
    ("Measure", "[measure]\n"),
    ("Policy", "[policy]\n"),
    ("Threshold", "[policy.threshold]\n"),
    ("Structure", "[policy.structure]\n"),
    (
        "StructureRule",
        "[[policy.structure.rule]]\nname = \"n\"\naction = \"warn\"\n",
    ),
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
];

/// Holds every table of the schema to the keys that the reader names.
pub fn check(path: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let schema: Value = serde_json::from_str(&text)?;
    let whole = format!("{HEAD}q9 = 1\n{SWEEP}");
    let tables = TABLES.map(|(name, toml)| {
        let text = format!("{HEAD}{SWEEP}{toml}q9 = 1\n");
        (name, &schema["$defs"][name], text)
    });
    for (name, of, text) in [("suite", &schema, whole)].into_iter().chain(tables) {
        let known = known(&text)?;
        let described = of["properties"].as_object().into_iter().flatten();
        let described: BTreeSet<String> = described.map(|(key, _)| key.clone()).collect();
        let differ: Vec<&String> = known.symmetric_difference(&described).collect();
        ensure!(
            differ.is_empty(),
            "docs/schemas/suite.json: {name} and the reader differ in {differ:?}; edit the schema"
        );
    }
    Ok(())
}

/// The keys that the reader of a table knows, by its own words about one that it does not.
fn known(text: &str) -> anyhow::Result<BTreeSet<String>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("s.toml");
    fs::write(&path, text)?;
    let refused = regatta_core::suite::load(&path.display().to_string()).err();
    let said = refused.map_or(String::new(), |error| error.to_string());
    let (_, keys) = said
        .split_once("known here: ")
        .with_context(|| format!("{text}\n{said}"))?;
    Ok(keys.split(", ").map(str::to_owned).collect())
}
