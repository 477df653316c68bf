//! Decides whether two sides may be compared, and lists their other differences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use super::judgement::Mismatch;
use regatta_core::record::identity::decides_speed;
use regatta_core::record::{Git, RunHeader, WorkerRecord, short_revision};
use regatta_core::suite::{Cache, Settings};
use regatta_worker::joined::Joined;

/// The text in place of a fact that one side lacks.
const ABSENT: &str = "absent";

/// Differences between two sides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Differences that keep times from being compared.
    pub hard: Vec<Mismatch>,
    /// Differences that may explain a change.
    pub soft: Vec<Mismatch>,
}

/// Facts in which two runs differ.
///
/// Hard differences change the meaning of a time: the file's schema, the timing method, the state
/// of the caches, the kind of sample, the machine, the device of a worker and, with `same_suite`,
/// the suite. A fact that one side lacks counts as different, because it may differ.
pub fn differences(base: &RunHeader, head: &RunHeader, same_suite: bool) -> Differences {
    let mut differences = Differences::default();
    let hard = &mut differences.hard;
    differ(hard, "schema", base.schema, head.schema);
    differ(hard, "method", base.method, head.method);
    if base.settings.structure_only && !head.settings.structure_only {
        differ(hard, "times", "not taken", "taken");
    }
    differ(hard, "graph", base.settings.graph, head.settings.graph);
    maps(hard, "", &base.machine.hard, &head.machine.hard);
    for (name, base_worker, head_worker) in shared_workers(base, head) {
        let cache = |header: &RunHeader, worker: &WorkerRecord| {
            let cache = worker.cache.or(header.settings.cache);
            cache.map_or("unknown", Cache::name)
        };
        differ(
            hard,
            format!("{name}.cache"),
            cache(base, base_worker),
            cache(head, head_worker),
        );
        let (base, head) = (base_worker, head_worker);
        let device = |kind: &str, name: &str| format!("{kind} {name}");
        differ(
            hard,
            format!("{name}.device"),
            device(&base.device_kind, &base.device),
            device(&head.device_kind, &head.device),
        );
        differ(hard, format!("{name}.clock"), clock(base), clock(head));
    }
    // The gate of a suite requires that these agree. Where a user compares two runs, they may
    // differ on purpose.
    let promised = if same_suite {
        hard
    } else {
        &mut differences.soft
    };
    differ(promised, "suite", &base.suite.name, &head.suite.name);
    environments(promised, base, head);

    let soft = &mut differences.soft;
    differ(soft, "tool", &base.tool, &head.tool);
    differ(soft, "revision", revision(base), revision(head));
    if let (Some(base), Some(head)) = (&base.identity, &head.identity) {
        differ(soft, "executable", &base.executable, &head.executable);
    }
    for (name, base, head) in shared_workers(base, head) {
        let prefix = format!("{name}.versions.");
        maps(soft, &prefix, &base.versions, &head.versions);
    }
    let lists = |header: &RunHeader, name| match find_worker(header, name) {
        Some(_) => "present",
        None => ABSENT,
    };
    let workers = base.workers.iter().chain(&head.workers);
    let names: BTreeSet<&str> = workers.map(|worker| worker.name.as_str()).collect();
    for name in names {
        differ(soft, name, lists(base, name), lists(head, name));
    }
    settings(soft, &base.settings, &head.settings);
    maps(soft, "", &base.machine.soft, &head.machine.soft);
    // Packages come last: there may be hundreds, and reports show the first differences.
    for (name, base, head) in shared_workers(base, head) {
        // Runs written before packages were recorded have none.
        if !base.packages.is_empty() && !head.packages.is_empty() {
            let prefix = format!("{name}.packages.");
            maps(soft, &prefix, &base.packages, &head.packages);
        }
    }
    differences
}

/// Compares the environment variables that decide speed ([`decides_speed`]) of workers that both
/// sides have. Files written before these were kept have none.
fn environments(mismatches: &mut Vec<Mismatch>, base: &RunHeader, head: &RunHeader) {
    let (Some(base), Some(head)) = (&base.identity, &head.identity) else {
        return;
    };
    for (name, worker) in &base.workers {
        let Some(other) = head.workers.get(name) else {
            continue;
        };
        let deciding = |all: &BTreeMap<String, String>| -> BTreeMap<String, String> {
            let kept = all.iter().filter(|(name, _)| decides_speed(name));
            kept.map(|(name, value)| (name.clone(), value.clone()))
                .collect()
        };
        let prefix = format!("{name}.environment.");
        let (base, head) = (deciding(&worker.environment), deciding(&other.environment));
        maps(mismatches, &prefix, &base, &head);
    }
}

/// The clock that took a worker's times. Readings of two clocks are not compared: on a kernel of 5
/// µs they differ by more than half. A worker that reports no clock uses events.
fn clock(worker: &WorkerRecord) -> &str {
    let clock = worker.versions.get("clock").map(String::as_str);
    clock.unwrap_or("events")
}

/// The shortened revision, with `+` when the working tree had changes.
pub fn revision_text(git: &Git) -> String {
    let short = short_revision(&git.revision);
    format!("{short}{}", if git.dirty { "+" } else { "" })
}

fn revision(header: &RunHeader) -> String {
    let git = header.git.as_ref();
    git.map_or_else(|| ABSENT.to_owned(), revision_text)
}

pub(crate) fn differ(
    mismatches: &mut Vec<Mismatch>,
    field: impl ToString,
    base: impl ToString,
    head: impl ToString,
) {
    let (base, head) = (base.to_string(), head.to_string());
    if base != head {
        mismatches.push(Mismatch {
            field: field.to_string(),
            base,
            head,
        });
    }
}

pub(crate) fn maps(
    mismatches: &mut Vec<Mismatch>,
    prefix: &str,
    base: &BTreeMap<String, String>,
    head: &BTreeMap<String, String>,
) {
    let names: BTreeSet<&String> = base.keys().chain(head.keys()).collect();
    for name in names {
        let text = |side: &BTreeMap<String, String>| {
            side.get(name).cloned().unwrap_or_else(|| ABSENT.to_owned())
        };
        differ(
            mismatches,
            format!("{prefix}{name}"),
            text(base),
            text(head),
        );
    }
}

fn find_worker<'a>(header: &'a RunHeader, name: &str) -> Option<&'a WorkerRecord> {
    header.workers.iter().find(|worker| worker.name == name)
}

/// Workers that both sides have, by name.
fn shared_workers<'a>(
    base: &'a RunHeader,
    head: &'a RunHeader,
) -> impl Iterator<Item = (&'a str, &'a WorkerRecord, &'a WorkerRecord)> {
    let workers = base
        .workers
        .iter()
        .map(|worker| (worker.name.as_str(), worker));
    workers.filter_map(|(name, worker)| Some((name, worker, find_worker(head, name)?)))
}

pub(crate) fn list(all: impl Iterator<Item = impl Display>) -> String {
    match all.joined(", ") {
        text if text.is_empty() => "none".to_owned(),
        text => text,
    }
}

fn settings(mismatches: &mut Vec<Mismatch>, base: &Settings, head: &Settings) {
    let mut each = |name: &str, value: fn(&Settings) -> u64| {
        differ(
            mismatches,
            format!("settings.{name}"),
            value(base),
            value(head),
        );
    };
    each("invocations", |settings| settings.invocations.into());
    each("warmup", |settings| settings.warmup.into());
    each("samples", |settings| settings.samples.into());
    each("min_samples", |settings| settings.min_samples.into());
    each("budget_ms", |settings| settings.budget_ms);
    each("seed", |settings| settings.seed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::header;

    fn fields(differences: &[Mismatch]) -> String {
        differences.iter().map(|one| &one.field).joined(" ")
    }

    /// Applies `change` to a head, and returns the hard and the soft fields that differ then.
    fn found(same_suite: bool, change: impl Fn(&mut RunHeader)) -> (String, String) {
        let (base, mut head) = (header(), header());
        change(&mut head);
        let differences = differences(&base, &head, same_suite);
        (fields(&differences.hard), fields(&differences.soft))
    }

    #[track_caller]
    fn are(fields: (String, String), hard: &str, soft: &str) {
        assert_eq!(fields, (hard.to_owned(), soft.to_owned()));
    }

    #[test]
    fn what_a_time_depends_on_is_hard_and_what_may_explain_it_soft() {
        are(found(true, |_| ()), "", "");
        let all = found(true, |head| {
            head.schema += 1;
            head.method += 1;
            head.workers[0].cache = Some(Cache::Cold);
            head.settings.graph = true;
            let hard = &mut head.machine.hard;
            hard.insert("driver".to_owned(), "570".to_owned());
            hard.remove("cores");
            head.workers[0].device = "another".to_owned();
        });
        let hard = "schema method graph cores driver cpu.cache cpu.device";
        are(all, hard, "");
        let all = found(true, |head| {
            head.tool = "9".to_owned();
            head.git = None;
            head.settings.samples += 1;
            let versions = &mut head.workers[0].versions;
            versions.insert("rust".to_owned(), "9".to_owned());
            head.machine.soft.insert("host".to_owned(), "b".to_owned());
        });
        let soft = "tool revision cpu.versions.rust settings.samples host";
        are(all, "", soft);
        // Another suite is a hard difference only with `same_suite`.
        let other = |head: &mut RunHeader| head.suite.name = "other".to_owned();
        are(found(true, other), "suite", "");
        are(found(false, other), "", "suite");
        let lone = found(true, |head| head.workers[0].name = "torch".to_owned());
        are(lone, "", "cpu torch");
    }

    #[test]
    fn readings_of_two_clocks_are_not_compared() {
        let clock = |text: &str| {
            let fields = found(true, |head| {
                let versions = &mut head.workers[0].versions;
                versions.insert("clock".to_owned(), text.to_owned());
            });
            fields.0
        };
        // A worker that reports no clock uses events.
        assert_eq!(
            (clock("events").as_str(), clock("probe 0.1").as_str()),
            ("", "cpu.clock")
        );
    }

    #[test]
    fn packages_are_compared_where_both_sides_tell_them() {
        let with = |version: Option<&str>| {
            let mut header = header();
            let packages = version.map(|version| ("numpy".to_owned(), version.to_owned()));
            header.workers[0].packages = packages.into_iter().collect();
            header
        };
        let soft = |base, head| fields(&differences(&with(base), &with(head), true).soft);
        assert_eq!(soft(Some("2.3"), Some("2.4")), "cpu.packages.numpy");
        assert_eq!(soft(None, Some("2.4")), "");
    }
}
