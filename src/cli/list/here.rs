//! Workers and their variants, those that are not here, and the built-in suites.

use owo_colors::{OwoColorize, Style};

use super::super::indented;
use regatta_core::suite::Suite;
use regatta_measure::experiment::introductions::{Introduction, grouped};
use regatta_report::terminal::COLUMNS;
use regatta_report::text::{one_line, shorten, width};
use regatta_worker::protocol::{Hello, Parameter, VariantInfo};

/// Columns before a line of a group.
const INDENT: usize = 2;

fn head(text: &str) -> String {
    let text = indented(text, 0, INDENT);
    format!("{}\n", text.trim_end().style(Style::new().bold()))
}

/// A name in its column, and as much of the text as a line of so many columns takes.
fn row(name: &str, column: usize, text: &str, columns: usize) -> String {
    let name = shorten(name, COLUMNS / 2);
    let padding = " ".repeat(column.saturating_sub(width(&name)) + 2);
    let room = columns.saturating_sub(INDENT + width(&name) + padding.len());
    let line = format!("{:INDENT$}{name}{padding}{}", "", shorten(text, room));
    format!("{}\n", line.trim_end())
}

/// Workers that are here with a line a variant; then those that are not, by what they lack.
pub(super) fn workers(found: &[Introduction], columns: usize) -> String {
    let here = found.iter().filter_map(|one| {
        let hello = one.found.as_ref().ok()?;
        Some(described(&one.worker, hello, columns))
    });
    let mut text = here.collect::<Vec<_>>().join("\n");
    let absent = grouped(found);
    if !absent.is_empty() {
        text.push('\n');
        text += &head("Workers that are not here (`regatta doctor` says what would help)");
    }
    for (absence, workers) in absent {
        text += &indented(
            &format!("{}: {}", workers.join(", "), absence.lacks),
            INDENT,
            INDENT + 4,
        );
    }
    text
}

fn described(worker: &str, hello: &Hello, columns: usize) -> String {
    let facts: Vec<Vec<String>> = hello.variants.iter().map(facts).collect();
    let common: Vec<&String> = match facts.split_first() {
        Some((first, others)) => {
            let common = first.iter();
            common
                .filter(|fact| others.iter().all(|of| of.contains(*fact)))
                .collect()
        }
        None => Vec::new(),
    };
    let mut text = format!("{worker} on {}", one_line(&hello.device.name));
    let said: Vec<&str> = common.iter().map(|fact| fact.as_str()).collect();
    if !said.is_empty() {
        text += &format!(": {}", said.join("; "));
    }
    let mut text = head(&text);
    let names = hello.variants.iter();
    let names: Vec<String> = names
        .map(|of| one_line(&format!("{worker}/{}", of.name)))
        .collect();
    let column = names.iter().map(|name| width(name)).max().unwrap_or(0);
    for ((variant, name), facts) in hello.variants.iter().zip(&names).zip(&facts) {
        let own = facts.iter().filter(|fact| !common.contains(fact)).cloned();
        let summary = one_line(&variant.summary);
        let own = own.chain((!summary.is_empty()).then_some(summary));
        text += &row(name, column, &own.collect::<Vec<_>>().join("; "), columns);
    }
    text
}

/// What a variant takes: `f32 f16`, `fwd bwd`, `num_splits_key = auto or a number`.
fn facts(variant: &VariantInfo) -> Vec<String> {
    let words = |words: Vec<&str>| words.join(" ");
    let mut facts = vec![
        words(variant.dtypes.iter().map(|of| of.name()).collect()),
        words(variant.directions.iter().map(|of| of.short()).collect()),
    ];
    let projections = variant.projections.iter();
    facts.push(words(projections.map(|of| of.name()).collect()));
    facts.extend(variant.parameters.iter().map(|(name, of)| match of {
        Parameter::Integer(_) => one_line(&format!("{name} = auto or a number")),
        Parameter::Words(words) => one_line(&format!("{name} = {}", words.join(" or "))),
    }));
    facts.retain(|fact| !fact.is_empty());
    facts
}

/// Built-in suites with a line each, those first whose workers are here.
pub(super) fn suites(suites: &[Suite], found: &[Introduction], columns: usize) -> String {
    let here = |worker: &str| {
        let mut all = found.iter();
        all.any(|one| one.worker == worker && one.found.is_ok())
    };
    let mut workers = |suite: &&Suite| {
        let mut cases = suite.cases.iter();
        cases.all(|case| here(&case.variant.worker))
    };
    let (run, others): (Vec<&Suite>, Vec<&Suite>) = suites.iter().partition(&mut workers);
    let names = suites.iter().map(|suite| width(&suite.name));
    let column = names.max().unwrap_or(0);
    let mut text = String::new();
    for (name, suites) in [
        (
            "Built-in suites on workers that are here, with their cases",
            run,
        ),
        ("Built-in suites on others, with their cases", others),
    ] {
        if suites.is_empty() {
            continue;
        }
        text.push('\n');
        text += &head(name);
        for suite in suites {
            let said = format!("{:>4}  {}", suite.cases.len(), one_line(&suite.description));
            text += &row(&suite.name, column, &said, columns);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::suite::{self, BUILTIN};
    use regatta_worker::protocol::ReplyBody;

    fn introduction(worker: &str, variants: &str) -> Introduction {
        let json = format!(
            r#"{{"type":"hello","protocol":1,"worker":"{worker}","device":{{"kind":"cpu","name":"A CPU","memory_bytes":1}},"variants":[{variants}]}}"#
        );
        let Ok(ReplyBody::Hello(hello)) = serde_json::from_str(&json) else {
            panic!("{json} is no hello");
        };
        Introduction {
            worker: worker.to_owned(),
            found: Ok(hello),
        }
    }

    #[test]
    fn a_line_for_each_variant_and_suite() {
        let long = "words ".repeat(30);
        let variants = [
            r#"{"name":"flash","summary":"tiles and an online softmax","dtypes":["f32","f16"],"directions":["forward"]}"#.to_owned(),
            format!(r#"{{"name":"split-key","summary":"{long}","dtypes":["f32","f16"],"directions":["forward","backward"],"parameters":{{"num_splits_key":"integer"}}}}"#),
        ];
        let found = [
            introduction("cpu", &variants.join(",")),
            introduction("torch", ""),
        ];
        let names = BUILTIN.iter().map(|(name, _)| *name);
        let all: Vec<Suite> = names.map(|name| suite::load(name).unwrap()).collect();
        let text = workers(&found, COLUMNS) + &suites(&all, &found, COLUMNS);
        let plain = anstream::adapter::strip_str(&text).to_string();
        for line in plain.lines() {
            assert!(width(line) <= COLUMNS, "{line}");
        }
        insta::assert_snapshot!(plain);
    }
}
