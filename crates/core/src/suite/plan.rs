//! From a suite's file to its cases and rules.

use super::document::{DocumentError, KeyPath, TomlDocument, TomlText, nearest};
use super::expectations;
use super::file::{
    ConfigFile, MeasureTable, PolicyTable, Replacements, Scalar, SuiteFile, ValueOr,
};
use super::rules::{Metric, Origin, Policy, glob};
use super::sweep::{parameter, sweep};
use super::workers::OwnWorker;
use super::{Cache, Override, Settings, Suite};
use regatta_worker::attention::{
    Case, CaseId, NAME_RULE, ParamValue, VariantId, is_name, parameter_name,
};
use regatta_worker::units::Share;

/// The worker whose variants run on the CPU, where a cold cache is no usual state.
const CPU: &str = "cpu";

/// Reads one suite. `base` finds the suite it extends.
///
/// # Errors
/// The first thing in it that cannot stand.
pub fn read(
    name: &str,
    source: &TomlText,
    base: &dyn Fn(&str) -> Result<Suite, DocumentError>,
) -> Result<Suite, DocumentError> {
    let document = TomlDocument::parse(source)?;
    let file: SuiteFile = document.read()?;
    let mut suite = match &file.extends {
        Some(extended) => {
            let at = KeyPath::root("extends");
            let mut suite =
                base(extended).map_err(|error| document.error(&at, error.to_string()))?;
            suite.extends = Some(suite.name.clone());
            suite
        }
        None => Suite::default(),
    };
    suite.name = name.to_owned();
    suite.description = file.description.clone().unwrap_or_default();
    measure(&file.measure, &mut suite.settings);
    policy(&document, &file.policy, &mut suite.rules.policy)?;
    for (place, table) in file.sweep.iter().enumerate() {
        let at = KeyPath::root("sweep").index(place);
        sweep(&document, &at, table, &file.shapes, &mut suite)?;
    }
    overrides(&document, &file.set, &mut suite)?;
    if let Some(mut build) = file.build {
        build.origin = document.place(&KeyPath::root("build"));
        suite.build = Some(build);
    }
    let config = ConfigFile {
        environments: file.environments,
        workers: file.workers,
    };
    configure(&document, config, &mut suite)?;
    suite.cases.sort();
    suite.cases.dedup();
    // Runs, baselines and expectations know a case by its id alone.
    let is_lost = |case: &&Case| case.id().case().as_ref() != Ok(*case);
    if let Some(case) = suite.cases.iter().find(is_lost) {
        return Err(source.error(format!("makes a case whose id cannot be read back: {case}")));
    }
    if suite.cases.is_empty() {
        return Err(source.error("makes no case; add a [[sweep]]"));
    }
    if file.measure.cache.is_none() && file.extends.is_none() {
        suite.settings.cache = match suite.cases.iter().all(|case| case.variant.worker == CPU) {
            true => Cache::Hot,
            false => Cache::Cold,
        };
    }
    expectations::read(&document, &file.expect, &mut suite)?;
    let optional = file.policy.optional.iter().flatten().enumerate();
    let ids: Vec<CaseId> = suite.cases.iter().map(Case::id).collect();
    for (place, pattern) in optional {
        if !ids.iter().any(|id| glob(pattern, &id.0)) {
            let near = nearest(pattern, ids.iter().map(|id| id.0.as_str()));
            let near = near.map_or(String::new(), |near| format!("; the nearest is {near}"));
            let at = KeyPath::root("policy").key("optional").index(place);
            return Err(document.error(&at, format!("selects no case{near}")));
        }
    }
    let mut overrides = suite.overrides.iter();
    if let Some(idle) = overrides.find(|change| suite.is_idle(change)) {
        let at = KeyPath::root("set").key(&idle.variant.to_string());
        return Err(document.error(
            &at.key(&idle.parameter),
            format!(
                "replaces nothing: no case of {} asks for {}",
                idle.variant,
                idle.from.clone().unwrap_or_else(ParamValue::auto)
            ),
        ));
    }
    Ok(suite)
}

/// Reads a `regatta.toml`.
///
/// # Errors
/// The first thing in it that cannot stand.
pub fn read_config(source: &TomlText) -> Result<Suite, DocumentError> {
    let document = TomlDocument::parse(source)?;
    let mut found = Suite::default();
    configure(&document, document.read()?, &mut found)?;
    Ok(found)
}

fn configure(
    document: &TomlDocument<'_>,
    config: ConfigFile,
    suite: &mut Suite,
) -> Result<(), DocumentError> {
    for (key, what, names) in [
        (
            "environments",
            "an environment",
            config.environments.keys().collect::<Vec<_>>(),
        ),
        ("workers", "a worker", config.workers.keys().collect()),
    ] {
        if let Some(name) = names.into_iter().find(|name| !is_name(name)) {
            let error = format!("this cannot name {what}: use {NAME_RULE}");
            return Err(document.error(&KeyPath::root(key).key(name), error));
        }
    }
    // What a suite extends may have one of this name, which this one replaces.
    suite.environments.extend(config.environments);
    for (name, written) in config.workers {
        let at = KeyPath::root("workers").key(&name);
        let worker = OwnWorker::parse(&written, document.folder())
            .map_err(|error| document.error(&at, error))?;
        suite
            .origins_of_workers
            .insert(name.clone(), document.place(&at));
        suite.workers.insert(name, worker);
    }
    Ok(())
}

fn measure(table: &MeasureTable, settings: &mut Settings) {
    let mut set = |value: Option<u32>, field: fn(&mut Settings) -> &mut u32| {
        if let Some(value) = value {
            *field(settings) = value;
        }
    };
    set(table.invocations.map(|n| n.0), |s| &mut s.invocations);
    set(table.samples.map(|n| n.0), |s| &mut s.samples);
    set(table.timeout_s.map(|n| n.0), |s| &mut s.timeout_s);
    settings.min_samples = Settings::default().min_samples.min(settings.samples);
    settings.budget_ms = table.budget_ms.map_or(settings.budget_ms, |n| n.0.into());
    settings.cache = table.cache.unwrap_or(settings.cache);
    settings.instructions = table.instructions.unwrap_or(settings.instructions);
}

fn policy(
    document: &TomlDocument<'_>,
    table: &PolicyTable,
    policy: &mut Policy,
) -> Result<(), DocumentError> {
    let root = KeyPath::root("policy");
    let share = |at: &KeyPath, share: f64, most: f64, fix: &str| match (0.0..=most).contains(&share)
    {
        true => Ok(Share(share)),
        false => Err(document.error(at, fix)),
    };
    let fraction =
        |at: &KeyPath, value: f64| share(at, value, 1.0, "use a fraction from 0 to 1: 0.05 is 5 %");
    let at = root.key("threshold");
    match &table.threshold {
        None => {}
        Some(ValueOr::Value(value)) => policy.threshold = fraction(&at, *value)?,
        Some(ValueOr::Table(by_metric)) => {
            for (&metric, &value) in by_metric {
                let at = at.key(metric.key());
                if metric == Metric::Device {
                    policy.threshold = fraction(&at, value)?;
                    continue;
                }
                let fix = "use a relative change from 0 to 1000: 0.25 is a quarter more";
                policy
                    .thresholds
                    .insert(metric, share(&at, value, 1e3, fix)?);
            }
        }
    }
    if let Some(day) = table.day {
        policy.day = Some(fraction(&root.key("day"), day)?);
    }
    if let Some(ignore) = &table.ignore {
        policy.ignore = ignore.iter().map(|(_, ignored)| ignored.clone()).collect();
    }
    if let Some(optional) = &table.optional {
        policy.optional.clone_from(optional);
    }
    Ok(())
}

/// The values of `[set]`, in place of those that cases ask for.
fn overrides(
    document: &TomlDocument<'_>,
    set: &Replacements,
    suite: &mut Suite,
) -> Result<(), DocumentError> {
    for (variant, parameters) in set {
        let at = KeyPath::root("set").key(variant);
        let variant: VariantId = variant
            .parse()
            .map_err(|error| document.error(&at, format!("{error}")))?;
        for (name, written) in parameters {
            let at = at.key(name);
            parameter_name(name).map_err(|error| document.error(&at, error.to_string()))?;
            let values: Vec<(Option<&str>, KeyPath, &Scalar)> = match written {
                ValueOr::Value(to) => vec![(None, at, to)],
                ValueOr::Table(values) => values
                    .iter()
                    .map(|(from, to)| (Some(from.as_str()), at.key(from), to))
                    .collect(),
            };
            for (from, at, to) in values {
                let wrong = |error: String| document.error(&at, error);
                let from = from.map(|from| parameter(&Scalar::Word(from.to_owned())));
                let change = Override {
                    variant: variant.clone(),
                    parameter: name.clone(),
                    from: from.transpose().map_err(wrong)?,
                    to: parameter(to).map_err(wrong)?,
                    origin: Origin(document.place(&at)),
                };
                suite.overrides.push(change);
            }
        }
    }
    Ok(())
}
