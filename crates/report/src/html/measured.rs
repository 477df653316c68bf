//! How it was measured: enough to do it again, and to doubt it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::context::{DifferenceView, PageContext, difference};
use crate::text::{clean, one_line, shell_command};
use regatta_core::record::header::SuiteRecord;
use regatta_core::suite::Settings;
use regatta_core::suite::rules::Metric;
use regatta_worker::units::{Elapsed, Nanoseconds};

/// The section, as the template takes it.
#[derive(Serialize)]
pub(super) struct MeasuredView {
    command: String,
    facts: Vec<(String, String)>,
    settings: Vec<(String, String)>,
    policy: Vec<(String, String)>,
    machine: String,
    hard: Vec<(String, String)>,
    soft: Vec<(String, String)>,
    workers: Vec<WorkerView>,
    rules: Vec<(String, String)>,
    differences: Vec<DifferenceView>,
    damage: Vec<String>,
}

#[derive(Serialize)]
struct WorkerView {
    name: String,
    device: String,
    versions: Vec<(String, String)>,
}

impl MeasuredView {
    pub(super) fn new(context: &PageContext) -> MeasuredView {
        let run = context.report.head;
        let header = &run.header;
        let mut damage: Vec<String> = run
            .damage
            .iter()
            .map(|damage| format!("head, line {}: {}", damage.line, clean(&damage.problem)))
            .collect();
        let base = context
            .report
            .base
            .into_iter()
            .flat_map(|base| &base.damage);
        damage.extend(base.map(|problem| format!("base, {}", clean(problem))));
        let workers = header.workers.iter().map(|worker| WorkerView {
            name: one_line(&worker.name),
            device: one_line(&worker.device),
            versions: pairs(&worker.versions),
        });
        let rules = header.rules.expectations.iter().map(|rule| {
            (
                one_line(&rule.name),
                format!("at most {}", rule.within.factor()),
            )
        });
        let judgement = context.report.judgement;
        MeasuredView {
            command: shell_command(&header.argv),
            facts: facts(context),
            settings: settings(context),
            policy: policy(context),
            machine: one_line(&header.machine.name),
            hard: pairs(&header.machine.hard),
            soft: pairs(&header.machine.soft),
            workers: workers.collect(),
            rules: rules.collect(),
            differences: judgement.differences.iter().map(difference).collect(),
            damage,
        }
    }
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

/// What was handed over in place of what the cases ask for, as sentences.
pub(super) fn overrides(suite: &SuiteRecord) -> Vec<String> {
    let overrides = suite.overrides.iter().map(|o| {
        let from = o
            .from
            .as_ref()
            .map_or("whatever is asked for".to_owned(), |value| {
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

fn pairs(facts: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let facts = facts.iter();
    facts
        .map(|(name, value)| (one_line(name), one_line(value)))
        .collect()
}
