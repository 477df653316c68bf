//! Demands of the base's suite that the head's suite does not make. The verdict's first line lists
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use super::comparable::{differ, list, maps};
use super::judgement::{Mismatch, bounds_text};
use super::operators;
use regatta_core::record::{RunHeader, in_turn};
use regatta_core::suite::{Cache, Expectation, Metric, Quantity, Rules, Settings};
use regatta_worker::case::CaseId;
use regatta_worker::joined::Joined;

/// The differences between the demands of two suites.
#[derive(Debug, Default)]
pub struct Demands {
    /// All differences.
    pub all: Vec<Mismatch>,
    /// The demands that the head's suite weakens.
    pub weaker: Vec<Mismatch>,
}

impl Demands {
    /// Adds a key of the suite, if its values differ.
    pub(super) fn add(
        &mut self,
        field: &str,
        base: impl Display,
        head: impl Display,
        is_weaker: bool,
    ) {
        let before = self.all.len();
        differ(&mut self.all, field.to_owned(), base, head);
        let added = self.all[before..].iter().filter(|_| is_weaker).cloned();
        self.weaker.extend(added);
    }
}

/// Compares the demands, the overrides and the sampling of two runs' suites.
pub fn demands(base: &RunHeader, head: &RunHeader) -> Demands {
    let mut demands = Demands::default();
    let pairing = base.pairing.as_ref();
    if let Some(reason) = pairing.and_then(|pairing| pairing.suite_unread.as_ref()) {
        let was = format!("not read ({reason})");
        demands.add("suite", was, "of the head on both sides", true);
    }
    // A value that a version or the command line sets is intended, and reported there.
    let mut options = changed_options(head).into_iter();
    let is_given = options.any(|option| option.starts_with("--threshold"));
    policy(&mut demands, &base.rules, &head.rules, is_given);
    named(&mut demands, &base.rules, &head.rules);
    operators::demands(&mut demands, base, head);
    let asked: Vec<String> = [base, head].into_iter().flat_map(asked_for).collect();
    let overrides = |header: &RunHeader| {
        let own = header.suite.overrides.iter().filter(|change| {
            let written = format!("{}.{}={}", change.variant, change.parameter, change.to);
            !asked.contains(&written)
        });
        list(own.map(|change| {
            let from = change.from.as_ref().map(ToString::to_string);
            let from = from.unwrap_or_else(|| "any".to_owned());
            let (variant, parameter, to) = (&change.variant, &change.parameter, &change.to);
            format!("{variant}: {parameter} {from} → {to}")
        }))
    };
    demands.add("set", overrides(base), overrides(head), true);
    settings(&mut demands, declared(base), &head.settings);
    workers(&mut demands, base, head);
    let dropped: Vec<CaseId> = dropped(base, head);
    if let Some(first) = dropped.first() {
        let more = match dropped.len() {
            1 => String::new(),
            number => format!(" and {} more", number - 1),
        };
        demands.add("cases", format!("{first}{more}"), "left out", true);
    }
    demands
}

/// The settings that the suite of a side declares.
fn declared(header: &RunHeader) -> &Settings {
    let pairing = header.pairing.as_ref();
    let own = pairing.and_then(|pairing| pairing.declared.as_ref());
    own.unwrap_or(&header.settings)
}

/// Cases of the base's suite that the head's suite does not have.
pub fn dropped(base: &RunHeader, head: &RunHeader) -> Vec<CaseId> {
    if in_turn(base, head) {
        let pairing = base.pairing.as_ref();
        return pairing.map_or(Vec::new(), |pairing| pairing.left_out.clone());
    }
    let another = base.suite.name != head.suite.name || head.shard.is_some();
    let is_part = !head.suite.filter.is_empty() || head.pairing.is_some();
    if another || is_part || base.plan == head.plan {
        return Vec::new();
    }
    let kept: BTreeSet<&CaseId> = head.plan.iter().collect();
    let dropped = base.plan.iter().filter(|id| !kept.contains(id));
    dropped.cloned().collect()
}

fn policy(demands: &mut Demands, base: &Rules, head: &Rules, is_given: bool) {
    let (base, head) = (&base.policy, &head.policy);
    let (was, is) = (base.threshold, head.threshold);
    demands.add("policy.threshold", was, is, is > was && !is_given);
    for metric in Metric::ALL {
        let own = base.thresholds.contains_key(&metric) || head.thresholds.contains_key(&metric);
        let (was, is) = (base.threshold_of(metric), head.threshold_of(metric));
        if own {
            let key = format!("policy.threshold.{}", metric.name());
            demands.add(&key, was, is, is > was);
        }
    }
    let more = !head.ignore.is_subset(&base.ignore);
    let [was, is] = [base, head].map(|policy| list(policy.ignore.iter()));
    demands.add("policy.ignore", was, is, more);
    let is_known = |pattern: &String| base.optional.contains(pattern);
    let more = !head.optional.iter().all(is_known);
    let [was, is] = [base, head].map(|policy| list(policy.optional.iter()));
    demands.add("policy.optional", was, is, more);
    let day = |day: Option<_>| day.map_or_else(|| "by device".to_owned(), |day| format!("{day}"));
    let is_larger = match (base.day, head.day) {
        (Some(base), Some(head)) => head > base,
        (was, is) => was != is,
    };
    demands.add("policy.day", day(base.day), day(head.day), is_larger);
}

/// The subject of an expectation. The same subject with other bounds is the same demand with
/// another limit.
fn subject(one: &Expectation) -> String {
    let metric = match &one.metric {
        Quantity::Metric(metric) => metric.text().to_owned(),
        figure => figure.to_string(),
    };
    let kernel = one.kernel.iter().map(|kernel| format!(" in {kernel}"));
    let against = one.against.iter().map(|cases| format!(" against {cases}"));
    let (kernel, against): (String, String) = (kernel.collect(), against.collect());
    format!("{metric}{kernel} of {}{against}", one.case)
}

/// `at least 0.5 and at most 1`.
fn bounds(one: &Expectation) -> String {
    bounds_text(one.at_least, one.at_most, |bound| bound.to_string())
}

/// Expectations by their names.
fn by_name(rules: &Rules) -> BTreeMap<&str, Vec<&Expectation>> {
    let mut all: BTreeMap<&str, Vec<&Expectation>> = BTreeMap::new();
    for one in &rules.expectations {
        all.entry(&one.name).or_default().push(one);
    }
    all
}

fn named(demands: &mut Demands, base: &Rules, head: &Rules) {
    let (base, head) = (by_name(base), by_name(head));
    let names: BTreeSet<&&str> = base.keys().chain(head.keys()).collect();
    for &&name in &names {
        let [was, is] = [&base, &head].map(|side| side.get(name).map_or(&[][..], Vec::as_slice));
        let holds = |one: &&Expectation| {
            let least = |one: &Expectation| one.at_least.unwrap_or(f64::NEG_INFINITY);
            let most = |one: &Expectation| one.at_most.unwrap_or(f64::INFINITY);
            let mut others = is.iter().filter(|other| subject(other) == subject(one));
            others.any(|other| least(other) >= least(one) && most(other) <= most(one))
        };
        let is_moved = |one: &&Expectation| !is.iter().any(|other| subject(other) == subject(one));
        let moved = !is.is_empty() && was.iter().any(is_moved);
        let text = |side: &[&Expectation]| {
            let each = side.iter().map(|one| {
                if moved {
                    format!("{} {}", subject(one), bounds(one))
                } else {
                    bounds(one)
                }
            });
            if side.is_empty() {
                "absent".to_owned()
            } else {
                each.joined("; ")
            }
        };
        let is_weaker = !was.iter().all(holds);
        demands.add(&format!("expect `{name}`"), text(was), text(is), is_weaker);
    }
}

/// Adds settings by which the head takes fewer samples, or different ones.
fn settings(demands: &mut Demands, base: &Settings, head: &Settings) {
    if head.structure_only {
        return;
    }
    let mut fewer = |name: &str, setting: fn(&Settings) -> u64| {
        let (was, is) = (setting(base), setting(head));
        if is < was {
            demands.add(&format!("measure.{name}"), was, is, true);
        }
    };
    fewer("invocations", |settings| settings.invocations.into());
    fewer("samples", |settings| settings.samples.into());
    fewer("min_samples", |settings| settings.min_samples.into());
    fewer("budget_ms", |settings| settings.budget_ms);
    fewer("input_sets", |settings| settings.input_sets.into());
    let cache = |settings: &Settings| settings.cache.map_or("by device", Cache::name);
    demands.add("measure.cache", cache(base), cache(head), true);
    demands.add("measure.graph", base.graph, head.graph, true);
}

/// Adds arguments and variables that the suites give a worker. Where a version other than a
/// revision is measured, they are intended.
fn workers(demands: &mut Demands, base: &RunHeader, head: &RunHeader) {
    let is_of_suite = |header: &RunHeader| {
        let mut versions = header.pairing.iter().flat_map(|pairing| &pairing.version);
        versions.all(|version| version == "here" || version.starts_with("git:"))
    };
    let (Some(was), Some(is)) = (&base.identity, &head.identity) else {
        return;
    };
    if !(in_turn(base, head) && is_of_suite(base) && is_of_suite(head)) {
        return;
    }
    for (name, was) in &was.workers {
        let Some(is) = is.workers.get(name) else {
            continue;
        };
        let (from, to) = (arguments(&was.command), arguments(&is.command));
        demands.add(&format!("workers.{name}"), from, to, true);
        let mut changed = Vec::new();
        let prefix = format!("{name}.environment.");
        maps(&mut changed, &prefix, &was.environment, &is.environment);
        demands.all.extend(changed.iter().cloned());
        demands.weaker.append(&mut changed);
    }
}

/// The arguments of a worker's command; for a script, the script's own.
fn arguments(command: &[String]) -> String {
    let own = command.get(1..).unwrap_or_default();
    let served = own
        .first()
        .filter(|first| first.ends_with("/regatta_worker"));
    let words = match served {
        None => own,
        Some(_) => own.split(|word| word == "--").nth(1).unwrap_or_default(),
    };
    if words.is_empty() {
        "none".to_owned()
    } else {
        words.join(" ")
    }
}

/// The parameter values that the command line or a version of a comparison sets.
fn asked_for(header: &RunHeader) -> Vec<String> {
    let set = changed_options(header).into_iter();
    let set = set.filter_map(|option| option.strip_prefix("--set ").map(str::to_owned));
    let versions = header
        .pairing
        .iter()
        .flat_map(|pairing| pairing.version.iter().cloned());
    set.chain(versions).collect()
}

/// The command-line options that changed what the suite measures or how it is judged, as they were
/// written.
pub fn changed_options(header: &RunHeader) -> Vec<String> {
    let options = ["--threshold", "--set"];
    let mut words = header.argv.iter();
    let mut given = Vec::new();
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.as_str(), None),
        };
        if options.contains(&name) {
            let value = value.or_else(|| words.next().map(String::as_str));
            let value = value.unwrap_or_default();
            // These options only add measurements.
            if !["peak=true", "instructions=true"].contains(&value) {
                given.push(format!("{name} {value}"));
            }
        }
    }
    given
}
