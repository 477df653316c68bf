//! How it was measured: enough to do it again, and to doubt it.

use std::collections::BTreeMap;

use super::context::{LONGEST, PageContext};
use crate::document::{Block, Table, TableRow, Tone};
use crate::judgement::{Lists, mismatches};
use crate::text::{one_line, shell_command};
use regatta_core::record::header::SuiteRecord;
use regatta_core::suite::Settings;
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
        Block::facts(settings(context)),
        Block::heading("What the suite demands"),
        Block::facts(policy(context).into_iter().chain(rules)),
    ];
    let lists = Lists {
        most: LONGEST,
        elsewhere: ", which --json lists",
    };
    if !judgement.incomparable.is_empty() {
        let why = "The sides differ in what decides speed, so their times were not compared.";
        blocks.push(Block::Heading(
            "Not comparable".to_owned(),
            why.to_owned(),
            Tone::Bad,
        ));
        blocks.push(mismatches(&judgement.incomparable, lists));
    }
    if !judgement.differences.is_empty() {
        let why = "None of it forbids the comparison; any of it may be the cause of a change.";
        let title = "Where the sides differ".to_owned();
        blocks.push(Block::Heading(title, why.to_owned(), Tone::Calm));
        blocks.push(mismatches(&judgement.differences, lists));
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

fn facts(context: &PageContext) -> Vec<(String, String)> {
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
        format!("{}{dirty}", one_line(&git.revision))
    });
    let named = |name: &str, value: String| (name.to_owned(), value);
    vec![
        named("started", header.started.to_string()),
        named("finished", finished),
        named("git revision", git),
        named("regatta", one_line(&header.tool)),
        named("method", header.method.to_string()),
        named("file schema", header.schema.to_string()),
    ]
}

fn settings(context: &PageContext) -> Vec<(String, String)> {
    let settings = &context.report.head.header.settings;
    let named = |name: &str, value: String| (name.to_owned(), value);
    vec![
        named("invocations", settings.invocations.to_string()),
        named("warm-up calls", settings.warmup.to_string()),
        named(
            "samples an invocation",
            format!("{} to {}", settings.min_samples, settings.samples),
        ),
        named("budget", format!("{} ms", settings.budget_ms)),
        named("caches", settings.cache.to_string()),
        named("a sample", sample(settings)),
        named("seed", settings.seed.to_string()),
    ]
}

/// What one sample is, in words.
fn sample(settings: &Settings) -> String {
    let call = if settings.graph {
        "replay of a CUDA graph of the call"
    } else {
        "call"
    };
    format!("one {call}")
}

fn policy(context: &PageContext) -> Vec<(String, String)> {
    let policy = &context.report.head.header.rules.policy;
    let named = |name: &str, value: String| (name.to_owned(), value);
    let mut facts = Vec::new();
    for metric in Metric::ALL {
        let threshold = match policy.ignores(metric) {
            true => "ignored".to_owned(),
            false => policy.threshold_of(metric).to_string(),
        };
        facts.push(named(&format!("threshold of {}", metric.text()), threshold));
    }
    for pattern in &policy.optional {
        facts.push(named("may fail or be unsupported", one_line(pattern)));
    }
    facts
}

/// Overrides of parameters, as sentences.
pub(super) fn overrides(suite: &SuiteRecord) -> Vec<String> {
    let overrides = suite.overrides.iter().map(|o| {
        let from = o
            .from
            .as_ref()
            .map_or("the value of each case".to_owned(), |value| {
                one_line(&value.to_string())
            });
        format!(
            "{} got {} = {} in place of {from}",
            o.variant,
            one_line(&o.parameter),
            one_line(&o.to.to_string()),
        )
    });
    overrides.collect()
}

fn versions(of: &BTreeMap<String, String>) -> String {
    let each = of.iter().map(|(name, version)| format!("{name} {version}"));
    each.collect::<Vec<_>>().join(", ")
}
