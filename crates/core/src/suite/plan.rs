//! Turns a suite's file into its cases and rules, and divides the cases among shards. Every machine
//! computes the same division by itself.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::document::{DocumentError, TomlDocument, TomlText, key, nearest};
use super::file::{
    ConfigFile, MeasureTable, PolicyTable, Replacements, Scalar, SuiteFile, ValueOr,
};
use super::sweep::{parameter, sweep};
use super::workers::OwnWorker;
use super::{Metric, Origin, Override, Policy, Settings, Suite, expectations, glob, operators};
use regatta_worker::case::{
    Case, CaseId, NAME_RULE, ParamValue, ParseError, VariantId, is_name, parameter_name,
};
use regatta_worker::operator::Operators;
use regatta_worker::units::Share;

/// Reads one suite. `base` loads the suite that it extends.
///
/// # Errors
/// The first invalid value.
pub fn read(
    name: &str,
    source: &TomlText,
    checkout: &Path,
    base: &dyn Fn(&str) -> Result<Suite, DocumentError>,
) -> Result<Suite, DocumentError> {
    let (document, file): (_, SuiteFile) = TomlDocument::read(source)?;
    let mut suite = match &file.extends {
        Some(extended) => {
            let mut suite =
                base(extended).map_err(|error| document.error("extends", error.to_string()))?;
            suite.extends = Some(suite.name.clone());
            suite
        }
        None => Suite::default(),
    };
    suite.name = name.to_owned();
    suite.description = file.description.clone().unwrap_or_default();
    measure(&file.measure, &mut suite.settings);
    policy(&document, &file.policy, &mut suite.rules.policy)?;
    operators::read(&document, file.operators, &mut suite.operators)?;
    for (place, table) in file.sweep.iter().enumerate() {
        let at = format!("sweep[{place}]");
        sweep(&document, &at, table, &file.shapes, &mut suite)?;
    }
    overrides(&document, &file.set, &mut suite)?;
    if let Some(mut build) = file.build {
        build.origin = document.place("build");
        suite.build = Some(build);
    }
    let config = ConfigFile {
        environments: file.environments,
        workers: file.workers,
    };
    let own = config.workers.keys().cloned().collect::<Vec<_>>();
    configure(&document, checkout, config, &mut suite)?;
    let is_script = |name: &String| matches!(suite.workers.get(name), Some(OwnWorker::Script(_)));
    let scripts = own.into_iter().filter(is_script).collect::<Vec<_>>();
    suite.scripts.extend(scripts);
    suite.cases.sort();
    suite.cases.dedup();
    // Runs, baselines and expectations identify a case only by its id.
    let is_lost = |case: &&Case| case.id().case().ok().as_deref() != Some(*case);
    if let Some(case) = suite.cases.iter().find(is_lost) {
        let error = format!("makes a case whose id cannot be read back: {case}");
        return Err(DocumentError::new(&source.label, &error));
    }
    if suite.cases.is_empty() && suite.scripts.is_empty() {
        return Err(DocumentError::new(
            &source.label,
            "makes no case; add a [[sweep]]",
        ));
    }
    expectations::read(&document, &file.expect, &mut suite)?;
    let optional = file.policy.optional.iter().flatten().enumerate();
    let ids: Vec<CaseId> = suite.cases.iter().map(Case::id).collect();
    for (place, pattern) in optional {
        // The full id of a case that the suite no longer has is allowed.
        let named = CaseId(pattern.as_str().into());
        let is_case = named.case().is_ok_and(|case| case.id() == named);
        // The calls of a script are not known yet.
        let is_case = is_case || !suite.scripts.is_empty();
        if !is_case && !ids.iter().any(|id| glob(pattern, &id.0)) {
            let near = nearest(pattern, ids.iter().map(|id| &*id.0));
            let near = near.map_or(String::new(), |near| format!("; the nearest is {near}"));
            let at = format!("policy.optional[{place}]");
            return Err(document.error(&at, format!("selects no case{near}")));
        }
    }
    let mut overrides = suite.overrides.iter();
    if let Some(idle) = overrides.find(|change| suite.is_idle(change)) {
        let at = key("set", &idle.variant.to_string());
        return Err(document.error(
            &key(&at, &idle.parameter),
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
/// The first invalid value.
pub fn read_config(source: &TomlText, checkout: &Path) -> Result<Suite, DocumentError> {
    let (document, file) = TomlDocument::read(source)?;
    let mut config = Suite::default();
    configure(&document, checkout, file, &mut config)?;
    Ok(config)
}

fn configure(
    document: &TomlDocument<'_>,
    checkout: &Path,
    mut config: ConfigFile,
    suite: &mut Suite,
) -> Result<(), DocumentError> {
    for (table, what, names) in [
        (
            "environments",
            "an environment",
            config.environments.keys().collect::<Vec<_>>(),
        ),
        ("workers", "a worker", config.workers.keys().collect()),
    ] {
        if let Some(name) = names.into_iter().find(|name| !is_name(name)) {
            let error = format!("this cannot name {what}: use {NAME_RULE}");
            return Err(document.error(&key(table, name), error));
        }
    }
    for (name, environment) in &mut config.environments {
        let at = key(&key("environments", name), "requirements");
        let read = environment.read_requirements(checkout);
        read.map_err(|error| document.error(&at, error))?;
    }
    // The extended suite may have one of this name, which this one replaces.
    suite.environments.extend(config.environments);
    for (name, written) in config.workers {
        let at = key("workers", &name);
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
    settings.cache = table.cache.or(settings.cache);
    settings.instructions = table.instructions.unwrap_or(settings.instructions);
}

fn policy(
    document: &TomlDocument<'_>,
    table: &PolicyTable,
    policy: &mut Policy,
) -> Result<(), DocumentError> {
    let share = |at: &str, share: f64, most: f64, fix: &str| {
        if (0.0..=most).contains(&share) {
            Ok(Share(share))
        } else {
            Err(document.error(at, fix))
        }
    };
    let fraction =
        |at: &str, value: f64| share(at, value, 1.0, "use a fraction from 0 to 1: 0.05 is 5 %");
    let at = "policy.threshold";
    match &table.threshold {
        None => {}
        Some(ValueOr::Value(value)) => policy.threshold = fraction(at, *value)?,
        Some(ValueOr::Table(by_metric)) => {
            for (&metric, &value) in by_metric {
                let at = key(at, metric.name());
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
        policy.day = Some(fraction("policy.day", day)?);
    }
    if let Some(ignore) = &table.ignore {
        policy.ignore = ignore.iter().map(|(_, ignored)| ignored.clone()).collect();
    }
    if let Some(optional) = &table.optional {
        policy.optional.clone_from(optional);
    }
    Ok(())
}

/// Reads `[set]`: values that replace those that cases ask for.
fn overrides(
    document: &TomlDocument<'_>,
    set: &Replacements,
    suite: &mut Suite,
) -> Result<(), DocumentError> {
    for (variant, parameters) in set {
        let at = key("set", variant);
        let variant: VariantId = variant
            .parse()
            .map_err(|error| document.error(&at, format!("{error}")))?;
        for (name, written) in parameters {
            let at = key(&at, name);
            parameter_name(name).map_err(|error| document.error(&at, error.to_string()))?;
            let values: Vec<(Option<&str>, String, &Scalar)> = match written {
                ValueOr::Value(to) => vec![(None, at, to)],
                ValueOr::Table(values) => values
                    .iter()
                    .map(|(from, to)| (Some(from.as_str()), key(&at, from), to))
                    .collect(),
            };
            for (from, at, to) in values {
                let wrong = |error: String| document.error(&at, error);
                let from = from.map(|from| parameter(&Scalar(from.into())));
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

/// The largest number of shards of a suite.
const MAX_SHARDS: u32 = 10_000;

/// One of several shards: `3/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Place {
    /// The number of this shard, from 1.
    pub index: u32,
    /// The number of shards.
    pub of: u32,
}

impl Place {
    /// The shard of this number, where there is one.
    ///
    /// # Errors
    /// The fault in the numbers, as a sentence.
    pub fn new(index: u32, of: u32) -> Result<Place, ParseError> {
        if (1..=MAX_SHARDS).contains(&of) && (1..=of).contains(&index) {
            Ok(Place { index, of })
        } else {
            Err(ParseError::new(format!(
                "shard {index} of {of} does not exist: shards count from 1 to N, and N is at most {MAX_SHARDS}"
            )))
        }
    }

    /// The name of its folder.
    pub fn folder(self) -> String {
        format!("shard-{}-of-{}", self.index, self.of)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl FromStr for Place {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Place, ParseError> {
        let numbers = text.split_once('/').and_then(|(index, count)| {
            let number = |text: &str| text.trim().parse::<u32>().ok();
            number(index).zip(number(count))
        });
        match numbers {
            Some((index, of)) => Place::new(index, of),
            None => Err(ParseError::new(format!(
                "`{text}` is not a shard; write 3/8 for the third of eight"
            ))),
        }
    }
}

/// Divides cases among `of` shards in turn, the most expensive first. The cost is the number of
/// operations of a problem, or its bytes if the operator has no such formula. Each shard's cases
/// are sorted.
pub fn deal(cases: &[Case], operators: &Operators, of: u32) -> Vec<Vec<Case>> {
    let cost = |case: &Case| {
        let problem = &case.problem;
        let cost = problem
            .flops(operators)
            .or_else(|| problem.bytes(operators));
        cost.unwrap_or_default()
    };
    let mut cards: Vec<(f64, &Case)> = cases.iter().map(|case| (cost(case), case)).collect();
    cards.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    let mut shards = vec![Vec::new(); of as usize];
    for (place, (_, case)) in cards.into_iter().enumerate() {
        shards[place % of as usize].push(case.clone());
    }
    shards.iter_mut().for_each(|shard| shard.sort());
    shards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_dealt_in_turn_the_dearest_first_whatever_their_order() {
        let ids = ["s16", "s32", "s64", "s128", "s256"].map(|seq| format!("cpu/a:{seq},d64"));
        let mut cases: Vec<Case> = ids.iter().map(|id| id.parse().unwrap()).collect();
        let undeclared = Operators::new();
        let dealt = deal(&cases, &undeclared, 2);
        let named = |shard: &[Case]| shard.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            named(&dealt[0]),
            [&ids[0], &ids[2], &ids[4]].map(Clone::clone)
        );
        assert_eq!(named(&dealt[1]), [&ids[1], &ids[3]].map(Clone::clone));
        cases.reverse();
        assert_eq!(deal(&cases, &undeclared, 2), dealt);
        assert_eq!(
            deal(&cases, &undeclared, 7)
                .iter()
                .filter(|one| one.is_empty())
                .count(),
            2
        );
    }
}
