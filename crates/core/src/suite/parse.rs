//! From the TOML of a suite to its cases and rules.

use std::collections::BTreeMap;

use super::axes::{self, Lists};
use super::build;
use super::demands;
use super::document::{DocumentError, Source, Table, Value};
use super::environment;
use super::rules::{Expectation, Metric, Policy};
use super::selector::selector;
use super::{Override, Settings, Suite, workers};
use regatta_worker::attention::{
    Case, ParamValue, Params, ParseError, Problem, VariantId, parameter_name,
};
use regatta_worker::units::Ratio;

/// Version of the suite format.
const SUITE_SCHEMA: i64 = 1;

/// Reads one suite. `base` finds the suite it extends.
///
/// # Errors
/// The first thing in it that cannot stand.
pub fn suite(
    name: &str,
    source: &Source,
    base: &dyn Fn(&str) -> Result<Suite, DocumentError>,
) -> Result<Suite, DocumentError> {
    source.read(|root| {
        schema(&root.require("schema")?)?;
        let mut suite = match root.get("extends") {
            Some(value) => {
                let mut suite =
                    base(&value.string()?).map_err(|error| value.error(error.to_string()))?;
                suite.extends = Some(suite.name.clone());
                suite
            }
            None => Suite::default(),
        };
        suite.name = name.to_owned();
        suite.description = root.require("description")?.string()?;
        if let Some(table) = root.get("measure") {
            settings(&table.table()?, &mut suite.settings)?;
        }
        if let Some(table) = root.get("policy") {
            policy(&table.table()?, &mut suite.rules.policy)?;
        }
        for value in tables(root, "sweep")? {
            sweep(&value, &mut suite)?;
        }
        for value in tables(root, "expect")? {
            suite.rules.expectations.push(expectation(&value)?);
        }
        for value in tables(root, "limit")? {
            suite.rules.limits.push(demands::limit(&value)?);
        }
        for value in tables(root, "override")? {
            let change = overriding(&value)?;
            suite.push_override(change, value.place());
        }
        for value in tables(root, "count")? {
            let count = super::count::count(&value, &suite.counts, &suite.cases)?;
            suite.counts.push(count);
        }
        if let Some(value) = root.get("build") {
            suite.build = Some(build::read(&value.table()?)?);
        }
        environments(root, &mut suite)?;
        suite.cases.sort();
        suite.cases.dedup();
        demands::few_enough(source, &suite)?;
        // Runs, baselines and expectations know a case by its id alone.
        if let Some(case) = suite
            .cases
            .iter()
            .find(|case| case.id().case().as_ref() != Ok(case))
        {
            return Err(source.error(format!("makes a case whose id cannot be read back: {case}")));
        }
        if suite.cases.is_empty() {
            return Err(source.error("makes no case; add a [[sweep]]"));
        }
        expectations_meet_cases(source, &suite)?;
        demands::limits_meet_cases(source, &suite)?;
        if let Some(idle) = suite.idle_override() {
            return Err(source.error(format!(
                "an [[override]] of {} for {} replaces nothing: no case asks for {}",
                idle.parameter,
                idle.variant,
                idle.from.clone().unwrap_or_else(ParamValue::auto)
            )));
        }
        Ok(suite)
    })
}

/// Reads the `[environments]` and `[workers]` of a suite or of `regatta.toml`.
///
/// # Errors
/// The first thing that cannot stand.
pub fn environments(root: &Table<'_>, suite: &mut Suite) -> Result<(), DocumentError> {
    if let Some(value) = root.get("environments") {
        let entries = value.table()?.entries();
        for (name, _) in &entries {
            // What a suite extends may have one of this name, which this one replaces.
            suite.environments.remove(name);
        }
        for (name, value) in entries {
            workers::named(&name, "an environment", &value)?;
            let environment = environment::read(&value.table()?)?;
            let twice = suite.environments.iter().find_map(|(other, there)| {
                let shared = there
                    .workers
                    .iter()
                    .find(|name| environment.workers.contains(name));
                shared.map(|worker| {
                    format!(
                        "worker `{worker}` runs in `{other}` already; take it out of `workers` \
                         of one of the two"
                    )
                })
            });
            if let Some(problem) = twice {
                return Err(value.error(problem));
            }
            suite.environments.insert(name, environment);
        }
    }
    workers::read(root, suite)
}

fn schema(value: &Value<'_>) -> Result<(), DocumentError> {
    match value.integer()? {
        SUITE_SCHEMA => Ok(()),
        _ => Err(value.error(format!(
            "this regatta reads suites of schema {SUITE_SCHEMA}"
        ))),
    }
}

fn tables<'a>(root: &Table<'a>, key: &'static str) -> Result<Vec<Table<'a>>, DocumentError> {
    match root.get(key) {
        Some(value) => value.list()?.iter().map(Value::table).collect(),
        None => Ok(Vec::new()),
    }
}

fn settings(table: &Table<'_>, settings: &mut Settings) -> Result<(), DocumentError> {
    let whole = |key, least, target: &mut u32| -> Result<(), DocumentError> {
        if let Some(value) = table.get(key) {
            *target = value.integer_within(least, 100_000)? as u32;
        }
        Ok(())
    };
    if let Some(value) = table.get("invocations") {
        settings.invocations = value.integer_within(1, 1000)? as u32;
    }
    whole("warmup", 0, &mut settings.warmup)?;
    whole("samples", 1, &mut settings.samples)?;
    whole("min_samples", 1, &mut settings.min_samples)?;
    whole("timeout_s", 1, &mut settings.timeout_s)?;
    if let Some(value) = table.get("input_sets") {
        settings.input_sets = value.integer_within(1, 100)? as u32;
    }
    if let Some(value) = table.get("graph") {
        settings.graph = value.truth()?;
    }
    if let Some(value) = table.get("peak") {
        settings.peak = value.truth()?;
    }
    if let Some(value) = table.get("instructions") {
        settings.instructions = value.truth()?;
    }
    if let Some(value) = table.get("budget_ms") {
        settings.budget_ms = value.integer_within(1, 3_600_000)? as u64;
    }
    if let Some(value) = table.get("seed") {
        settings.seed = value.integer_within(0, i64::MAX)? as u64;
    }
    if let Some(value) = table.get("cache") {
        let cache = value.string()?.parse();
        settings.cache = cache.map_err(|error: ParseError| value.error(error.to_string()))?;
    }
    table.finish()
}

fn policy(table: &Table<'_>, policy: &mut Policy) -> Result<(), DocumentError> {
    if let Some(value) = table.get("threshold") {
        demands::thresholds(&value, policy)?;
    }
    if let Some(value) = table.get("day") {
        policy.day = Some(demands::fraction(&value)?);
    }
    if let Some(value) = table.get("ignore") {
        for name in value.one_or_more()? {
            policy.ignore.insert(demands::metric(&name)?);
        }
    }
    if let Some(value) = table.get("allow") {
        policy.allow = value.strings()?;
    }
    if let Some(value) = table.get("structure") {
        demands::structure(&value.table()?, &mut policy.structure)?;
    }
    table.finish()
}

fn sweep(table: &Table<'_>, suite: &mut Suite) -> Result<(), DocumentError> {
    let mut variants = Vec::new();
    for value in table.require("variants")?.one_or_more()? {
        let id: VariantId = value
            .string()?
            .parse()
            .map_err(|error| value.error(format!("{error}")))?;
        suite.origins.entry(id.clone()).or_insert(value.place());
        variants.push(id);
    }
    let mut shapes = Vec::new();
    if let Some(value) = table.get("shapes") {
        for shape in value.one_or_more()? {
            let shape = shape.table()?;
            shapes.push(axes::lists(&shape)?);
            shape.finish()?;
        }
    } else {
        shapes.push(Lists::new());
    }
    let axes = axes::lists(table)?;
    let params = params(table)?;
    table.finish()?;
    let shapes_made = shapes.iter().map(Lists::len).fold(0, usize::saturating_add);
    let made = [variants.len(), shapes_made, axes.len(), params.len()];
    let made = made.iter().fold(1usize, |all, n| all.saturating_mul(*n));
    let all = made.saturating_add(suite.cases.len());
    if all > axes::MOST_CASES {
        let before = match suite.cases.len() {
            0 => String::new(),
            before => format!(" beside the {before} that are there already"),
        };
        return Err(table.error(format!(
            "makes {made} cases{before}, and a suite has at most {}; give fewer values",
            axes::MOST_CASES
        )));
    }
    let axes = axes.points();
    let params: Vec<Params> = params.points().iter().map(parameters).collect();
    for shape in shapes.iter().flat_map(Lists::points) {
        for point in &axes {
            if let Some(axis) = point.keys().find(|axis| shape.contains_key(*axis)) {
                return Err(table.error(format!("`{axis}` is set both in `shapes` and beside it")));
            }
            let mut point = point.clone();
            point.extend(shape.clone());
            let problem = Problem::at(&point).map_err(|error| {
                let values: Vec<String> = point.iter().map(|(k, v)| format!("{k} = {v}")).collect();
                table.error(format!("{error} (at {})", values.join(", ")))
            })?;
            for variant in &variants {
                suite.cases.extend(params.iter().map(|params| Case {
                    variant: variant.clone(),
                    problem: problem.clone(),
                    params: params.clone(),
                }));
            }
        }
    }
    Ok(())
}

/// The lists of a sweep's parameters: every name and word can stand in a case id.
fn params(table: &Table<'_>) -> Result<Lists<String>, DocumentError> {
    let mut lists = Lists::new();
    let Some(value) = table.get("params") else {
        return Ok(lists);
    };
    for (name, value) in value.table()?.entries() {
        parameter_name(&name).map_err(|error| value.key_error(error.to_string()))?;
        let mut texts = Vec::new();
        for item in value.one_or_more()? {
            texts.push(parameter(&item)?.to_string());
        }
        lists.push(name, texts);
    }
    Ok(lists)
}

/// The parameters at a point of their product.
fn parameters(point: &BTreeMap<String, String>) -> Params {
    let mut params = Params::default();
    for (name, text) in point {
        params.set(name, ParamValue::from(text.as_str()));
    }
    params
}

/// The value of a parameter.
fn parameter(value: &Value<'_>) -> Result<ParamValue, DocumentError> {
    let text = value.scalar()?;
    text.parse()
        .map_err(|error| value.error(format!("{error}")))
}

fn expectation(table: &Table<'_>) -> Result<Expectation, DocumentError> {
    let within = table.require("within")?;
    let expectation = Expectation {
        name: table.require("name")?.string()?,
        case: selector(&table.require("case")?)?,
        against: selector(&table.require("against")?)?,
        within: Ratio(within.number()?),
        metric: match table.get("metric") {
            None => Metric::Device,
            Some(value) => demands::metric(&value)?,
        },
    };
    if !(0.01..=100.0).contains(&expectation.within.0) {
        return Err(
            within.error("a limit is a ratio of times from 0.01 to 100: 1.10 allows 10 % more")
        );
    }
    table.finish()?;
    Ok(expectation)
}

fn overriding(table: &Table<'_>) -> Result<Override, DocumentError> {
    let variant = table.require("variant")?;
    let scalar = |value: Value<'_>| parameter(&value);
    let parameter = table.require("parameter")?;
    parameter_name(&parameter.string()?).map_err(|error| parameter.error(error.to_string()))?;
    let overriding = Override {
        variant: variant
            .string()?
            .parse()
            .map_err(|error| variant.error(format!("{error}")))?,
        parameter: parameter.string()?,
        from: table.get("from").map(scalar).transpose()?,
        to: scalar(table.require("to")?)?,
    };
    table.finish()?;
    Ok(overriding)
}

/// An expectation that selects nothing would hold for ever: refuse it now.
fn expectations_meet_cases(source: &Source, suite: &Suite) -> Result<(), DocumentError> {
    for expectation in &suite.rules.expectations {
        for (side, selector) in [
            ("case", &expectation.case),
            ("against", &expectation.against),
        ] {
            let about = format!("expectation \"{}\": `{side}`", expectation.name);
            demands::selects(source, suite, &about, selector)?;
        }
        let same =
            |case: &&Case| expectation.case.matches(case) == expectation.against.matches(case);
        if suite.cases.iter().all(|case| same(&case)) {
            return Err(source.error(format!(
                "expectation \"{}\": `case` and `against` select the same cases, so it compares \
                 nothing; name a facet in which they differ",
                expectation.name
            )));
        }
    }
    Ok(())
}
