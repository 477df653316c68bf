//! How it was measured: enough to do it again, and to doubt it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::context::{LISTED, PageContext};
use crate::document::{Block, Table, TableRow, Tone};
use crate::judgement::mismatches;
use crate::text::shell_command;
use regatta_core::record::header::SuiteRecord;
use regatta_core::suite::rules::Metric;
use regatta_worker::units::{Elapsed, Nanoseconds};

/// The section.
pub(super) fn blocks(context: &PageContext) -> Vec<Block> {
    let run = context.report.head;
    let header = &run.header;
    let judgement = context.report.judgement;
    let workers = header.workers.iter().map(|worker| {
        TableRow::new(
            worker.name.clone(),
            vec![worker.device.clone(), versions(&worker.versions)],
        )
    });
    let workers = Table::new("worker", vec!["device", "versions"], workers);
    let machine = format!("Machine: {}", header.machine.name);
    let compared = "Times are compared only where all of these agree.".to_owned();
    let replicate = "An invocation is one start of a worker process. It gives one value of each \
                     metric, and only these values are compared.";
    let rules = header.rules.expectations.iter();
    let rules = rules.map(|rule| {
        (
            rule.name.clone(),
            format!("at most {}", rule.within.factor()),
        )
    });
    let mut blocks = vec![
        Block::Command(vec![shell_command(&header.argv)]),
        Block::facts(facts(context)),
        Block::Heading(machine, compared, Tone::Calm),
        Block::facts(header.machine.hard.clone()),
        Block::facts(header.machine.soft.clone()),
        Block::heading("Workers"),
        Block::Table(workers),
        Block::Heading("Settings".to_owned(), replicate.to_owned(), Tone::Calm),
        Block::facts(members(&header.settings)),
        Block::heading("What the suite demands"),
        Block::facts(policy(context).into_iter().chain(rules)),
    ];
    if !judgement.incomparable.is_empty() {
        let why = "The sides differ in what decides speed, so their times were not compared.";
        blocks.push(Block::Heading(
            "Not comparable".to_owned(),
            why.to_owned(),
            Tone::Bad,
        ));
        blocks.push(mismatches(&judgement.incomparable, LISTED));
    }
    if !judgement.differences.is_empty() {
        let why = "None of it forbids the comparison; any of it may be the cause of a change.";
        let title = "Where the sides differ".to_owned();
        blocks.push(Block::Heading(title, why.to_owned(), Tone::Calm));
        blocks.push(mismatches(&judgement.differences, LISTED));
    }
    let damage = run.damage.iter();
    let damage = damage.map(|of| format!("head, line {}: {}", of.line, of.problem));
    let base = context
        .report
        .base
        .into_iter()
        .flat_map(|base| &base.damage);
    let damage: Vec<String> = damage.chain(base.map(|of| format!("base, {of}"))).collect();
    if !damage.is_empty() {
        blocks.push(Block::heading("Lines that could not be used"));
        blocks.push(Block::list(damage));
    }
    blocks
}

fn facts(context: &PageContext) -> Vec<(&'static str, String)> {
    let run = context.report.head;
    let header = &run.header;
    let finished = run.end.as_ref().map_or_else(
        || "not finished".to_owned(),
        |end| {
            let took = end.finished.duration_since(header.started);
            let took = Elapsed(Nanoseconds::of_seconds(took.as_secs_f64()));
            format!("{}, after {took}", end.finished)
        },
    );
    let git = header.git.as_ref().map_or("none".to_owned(), |git| {
        let dirty = if git.dirty {
            ", with uncommitted changes"
        } else {
            ""
        };
        format!("{}{dirty}", git.revision)
    });
    vec![
        ("started", header.started.to_string()),
        ("finished", finished),
        ("git revision", git),
        ("regatta", header.tool.clone()),
        ("method", header.method.to_string()),
        ("file schema", header.schema.to_string()),
    ]
}

/// The members of a value that files keep, by their keys.
fn members(of: &impl Serialize) -> Vec<(String, String)> {
    let value = serde_json::to_value(of).unwrap_or_default();
    let members = value.as_object().into_iter().flatten();
    let text = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    members
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}

fn policy(context: &PageContext) -> Vec<(String, String)> {
    let policy = &context.report.head.header.rules.policy;
    let mut facts = Vec::new();
    for metric in Metric::ALL {
        let threshold = match policy.ignores(metric) {
            true => "ignored".to_owned(),
            false => policy.threshold_of(metric).to_string(),
        };
        facts.push((format!("threshold of {}", metric.text()), threshold));
    }
    let optional = policy.optional.iter();
    facts.extend(optional.map(|of| ("may fail or be unsupported".to_owned(), of.clone())));
    facts
}

/// Overrides of parameters, as sentences.
pub(super) fn overrides(suite: &SuiteRecord) -> Vec<String> {
    let overrides = suite.overrides.iter().map(|of| {
        let (variant, parameter, to) = (&of.variant, &of.parameter, &of.to);
        let from = of.from.as_ref();
        let from = from.map_or("the value of each case".to_owned(), ToString::to_string);
        format!("{variant} got {parameter} = {to} in place of {from}")
    });
    overrides.collect()
}

fn versions(of: &BTreeMap<String, String>) -> String {
    let each = of.iter().map(|(name, version)| format!("{name} {version}"));
    each.collect::<Vec<_>>().join(", ")
}
