//! The conditions of the measurement, from which it can be repeated or questioned.

use serde::Serialize;
use serde_json::Value;

use super::context::{LISTED, PageContext};
use crate::document::{Block, Table, TableRow, Tone};
use crate::judgement::mismatches;
use crate::text::shell_command;
use regatta_core::record::SuiteRecord;
use regatta_core::suite::{Metric, Rules};
use regatta_judge::judgement::ExpectationResult;
use regatta_worker::joined::Joined;
use regatta_worker::units::{Elapsed, Nanoseconds};

/// The section.
pub(super) fn blocks(context: &PageContext) -> Vec<Block> {
    let run = context.report.head;
    let header = &run.header;
    let judgement = context.report.judgement;
    let titled =
        |title: &str, about: &str, tone| Block::Heading(title.to_owned(), about.to_owned(), tone);
    let workers = header.workers.iter().map(|worker| {
        let versions = worker.versions.iter();
        let versions = versions.map(|(name, version)| format!("{name} {version}"));
        let cache = worker.cache.iter().map(|cache| cache.name());
        let cells = vec![
            worker.device.clone(),
            cache.collect(),
            versions.joined(", "),
        ];
        TableRow::new(&worker.name, cells)
    });
    let finished = run.end.as_ref().map(|end| {
        let took = end.finished.duration_since(header.started).as_secs_f64();
        let took = Elapsed(Nanoseconds::of_seconds(took));
        format!("{}, after {took}", end.finished)
    });
    let git = header.git.as_ref().map(|git| {
        let changes = if git.dirty {
            ", with uncommitted changes"
        } else {
            ""
        };
        format!("{}{changes}", git.revision)
    });
    let facts = [
        ("started", header.started.to_string()),
        ("finished", finished.unwrap_or("not finished".to_owned())),
        ("git revision", git.unwrap_or("none".to_owned())),
        ("regatta", header.tool.clone()),
        ("method", header.method.to_string()),
        ("file schema", header.schema.to_string()),
    ];
    let heads = vec!["device", "cache", "versions"];
    let mut blocks = vec![
        Block::Command(vec![shell_command(&header.argv)]),
        Block::facts(facts),
        titled(
            &format!("Machine: {}", header.machine.name),
            "Times are compared only where all of these agree.",
            Tone::Calm,
        ),
        Block::facts(header.machine.hard.clone()),
        Block::facts(header.machine.soft.clone()),
        Block::heading("Workers"),
        Block::Table(Table::new("worker", heads, workers)),
        titled(
            "Settings",
            "An invocation is one start of a worker process. It gives one value of each metric, \
             and only these values are compared.",
            Tone::Calm,
        ),
        Block::facts(members(&header.settings)),
        Block::heading("What the suite demands"),
        Block::facts(demands(&header.rules)),
    ];
    if !judgement.incomparable.is_empty() {
        let why = "The sides differ in what decides speed, so their times were not compared.";
        blocks.push(titled("Not comparable", why, Tone::Bad));
        blocks.push(mismatches(&judgement.incomparable, LISTED));
    }
    if !judgement.differences.is_empty() {
        let why = "None of it forbids the comparison; any of it may be the cause of a change.";
        blocks.push(titled("Where the sides differ", why, Tone::Calm));
        blocks.push(mismatches(&judgement.differences, LISTED));
    }
    let damage = run.damage.iter();
    let damage = damage.map(|damage| format!("head, line {}: {}", damage.line, damage.problem));
    let base = context
        .report
        .base
        .into_iter()
        .flat_map(|base| &base.damage);
    let base = base.map(|damage| format!("base, {damage}"));
    let damage: Vec<String> = damage.chain(base).collect();
    if !damage.is_empty() {
        blocks.push(Block::heading("Lines that could not be used"));
        blocks.push(Block::list(damage));
    }
    blocks
}

/// The members of a value as files store it, by key.
fn members(record: &impl Serialize) -> Vec<(String, String)> {
    let value = serde_json::to_value(record).unwrap_or_default();
    let members = value.as_object().into_iter().flatten();
    let members = members.map(|(key, value)| match value {
        Value::String(text) => (key.clone(), text.clone()),
        value => (key.clone(), value.to_string()),
    });
    members.collect()
}

/// The threshold of each metric, the cases that may be absent, and the expectations.
fn demands(rules: &Rules) -> Vec<(String, String)> {
    let policy = &rules.policy;
    let thresholds = Metric::ALL.into_iter().map(|metric| {
        let threshold = if policy.ignores(metric) {
            "ignored".to_owned()
        } else {
            policy.threshold_of(metric).to_string()
        };
        (format!("threshold of {}", metric.text()), threshold)
    });
    let may_fail = "may fail or be unsupported".to_owned();
    let optional = policy.optional.iter();
    let optional = optional.map(|pattern| (may_fail.clone(), pattern.clone()));
    let expectations = rules.expectations.iter();
    let expectations = expectations.map(|rule| {
        let allowed = ExpectationResult::missing(rule, None).allowed();
        (rule.name.clone(), allowed)
    });
    thresholds.chain(optional).chain(expectations).collect()
}

/// Overrides of parameters, as sentences.
pub(super) fn overrides(suite: &SuiteRecord) -> Vec<String> {
    let overrides = suite.overrides.iter().map(|pinned| {
        let (variant, parameter, to) = (&pinned.variant, &pinned.parameter, &pinned.to);
        let from = pinned.from.as_ref();
        let from = from.map_or("the value of each case".to_owned(), ToString::to_string);
        format!("{variant} got {parameter} = {to} in place of {from}")
    });
    overrides.collect()
}
