//! From a suite's file to its cases and rules.

use std::collections::BTreeMap;

use super::document::{Document, DocumentError, KeyPath, Source, unknown_key};
use super::expectations;
use super::file::{
    Axes, ConfigFile, Facets, MeasureTable, OneOrMore, PolicyTable, Replacements, Scalar,
    SuiteFile, SweepTable, ValueOr,
};
use super::rules::{Metric, Policy};
use super::workers::OwnWorker;
use super::{Cache, Override, Settings, Suite};
use regatta_worker::attention::axes::{Form, axis, settable};
use regatta_worker::attention::{
    Case, LONGEST_AXIS, NAME_RULE, ParamValue, Params, Problem, VariantId, is_name, parameter_name,
};
use regatta_worker::units::Share;

/// More cases than these are a slip of the pen.
pub const MOST_CASES: usize = 100_000;

/// The worker whose variants run on the CPU, where a cold cache is no usual state.
const CPU: &str = "cpu";

/// Reads one suite. `base` finds the suite it extends.
///
/// # Errors
/// The first thing in it that cannot stand.
pub fn read(
    name: &str,
    source: &Source,
    base: &dyn Fn(&str) -> Result<Suite, DocumentError>,
) -> Result<Suite, DocumentError> {
    let document = Document::parse(source)?;
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
    if let Some(idle) = suite.idle_override() {
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
pub fn read_config(source: &Source) -> Result<Suite, DocumentError> {
    let document = Document::parse(source)?;
    let mut found = Suite::default();
    configure(&document, document.read()?, &mut found)?;
    Ok(found)
}

fn configure(
    document: &Document<'_>,
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
        suite.workers.remove(&name);
        suite.callables.remove(&name);
        match worker {
            OwnWorker::Command(command) => drop(suite.workers.insert(name, command)),
            OwnWorker::Code(callable) => drop(suite.callables.insert(name, callable)),
        }
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
    document: &Document<'_>,
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

/// A list of values that stands in a document.
struct List<'a> {
    document: &'a Document<'a>,
    at: KeyPath,
    values: &'a OneOrMore<Scalar>,
}

impl List<'_> {
    /// The text of each value, as `check` has it.
    fn texts(
        &self,
        check: impl Fn(&Scalar) -> Result<String, String>,
    ) -> Result<Vec<String>, DocumentError> {
        let texts = self.values.iter().map(|(place, value)| {
            let wrong = |why| {
                let at = place.map(|place| self.at.index(place));
                self.document.error(&at.unwrap_or(self.at.clone()), why)
            };
            check(value).map_err(wrong)
        });
        let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
        match texts.is_empty() {
            true => Err(self.document.error(
                &self.at,
                "an empty list makes no case; give at least one value",
            )),
            false => Ok(texts),
        }
    }
}

/// The lists of some axes: each value is one that its axis can have.
fn axes(
    document: &Document<'_>,
    at: &KeyPath,
    axes: &Axes,
    beside: &[&'static str],
) -> Result<BTreeMap<&'static str, Vec<String>>, DocumentError> {
    let mut lists = BTreeMap::new();
    for (name, values) in &axes.0 {
        let at = at.key(name);
        let Some(axis) = settable().find(|known| known == name) else {
            let known: Vec<&str> = beside.iter().copied().chain(settable()).collect();
            return Err(document.error(&at, unknown_key(name, &known)));
        };
        let list = List {
            document,
            at,
            values,
        };
        lists.insert(axis, list.texts(|value| axis_value(axis, value))?);
    }
    Ok(lists)
}

fn axis_value(name: &str, value: &Scalar) -> Result<String, String> {
    let found = match value {
        Scalar::Number(_) => "integer",
        Scalar::Word(_) => "string",
        Scalar::Other(found) => found,
    };
    match axis(name) {
        Some(axis) if !matches!(axis.form, Form::Number(_) | Form::Width(_)) => match value {
            Scalar::Word(word) => axis.check(word).map_err(|error| error.to_string()),
            _ => Err(format!("expected a string, found {found}")),
        },
        // `seq` is one, too.
        _ => match value {
            Scalar::Number(number) if (1..=LONGEST_AXIS.into()).contains(number) => {
                Ok(number.to_string())
            }
            Scalar::Number(_) => Err(format!("must be from 1 to {LONGEST_AXIS}")),
            _ => Err(format!("expected a whole number, found {found}")),
        },
    }
}

/// The value of a parameter, which can stand in a case id.
fn parameter(value: &Scalar) -> Result<ParamValue, String> {
    let text = value
        .text()
        .map_err(|found| format!("expected a number or a string, found {found}"))?;
    text.parse().map_err(|error| format!("{error}"))
}

fn sweep(
    document: &Document<'_>,
    at: &KeyPath,
    table: &SweepTable,
    named: &BTreeMap<String, Axes>,
    suite: &mut Suite,
) -> Result<(), DocumentError> {
    let element = |key: &str, place: Option<usize>| match place {
        Some(place) => at.key(key).index(place),
        None => at.key(key),
    };
    let mut variants = Vec::new();
    for (place, written) in table.variants.iter() {
        let at = element("variants", place);
        let id: VariantId = written
            .parse()
            .map_err(|error| document.error(&at, format!("{error}")))?;
        suite
            .origins
            .entry(id.clone())
            .or_insert_with(|| document.place(&at));
        variants.push(id);
    }
    let beside = axes(document, at, &table.axes, &["variants", "shapes", "params"])?;
    let mut shapes = Vec::new();
    for (place, shape) in table.shapes.iter().flat_map(OneOrMore::iter) {
        let at = element("shapes", place);
        let (shape, at) = match shape {
            ValueOr::Table(shape) => (shape, at),
            ValueOr::Value(name) => match named.get(name) {
                Some(shape) => (shape, KeyPath::root("shapes").key(name)),
                None => {
                    let known: Vec<&str> = named.keys().map(String::as_str).collect();
                    let error = unknown_key(name, &known).replace("key", "shape");
                    return Err(document.error(&at, error));
                }
            },
        };
        shapes.push(axes(document, &at, shape, &[])?);
    }
    for (key, is_empty) in [
        ("variants", variants.is_empty()),
        ("shapes", table.shapes.is_some() && shapes.is_empty()),
    ] {
        if is_empty {
            let error = "an empty list makes no case; give at least one value";
            return Err(document.error(&at.key(key), error));
        }
    }
    if table.shapes.is_none() {
        shapes.push(BTreeMap::new());
    }
    // What a shape says of an axis goes before what stands beside it.
    for shape in &mut shapes {
        for (name, values) in &beside {
            shape.entry(name).or_insert_with(|| values.clone());
        }
    }
    let mut params = BTreeMap::new();
    for (name, values) in &table.params {
        let at = at.key("params").key(name);
        parameter_name(name).map_err(|error| document.error(&at, error.to_string()))?;
        let list = List {
            document,
            at,
            values,
        };
        let texts = list.texts(|value| parameter(value).map(|value| value.to_string()))?;
        params.insert(name.as_str(), texts);
    }
    let shapes_made = shapes.iter().map(size).fold(0, usize::saturating_add);
    let made = [variants.len(), shapes_made, size(&params)];
    let made = made.iter().fold(1usize, |all, n| all.saturating_mul(*n));
    if made.saturating_add(suite.cases.len()) > MOST_CASES {
        let before = match suite.cases.len() {
            0 => String::new(),
            before => format!(" beside the {before} that are there already"),
        };
        let error = format!(
            "makes {made} cases{before}, and a suite has at most {MOST_CASES}; give fewer values"
        );
        return Err(document.error(at, error));
    }
    let params: Vec<Params> = product(&params).iter().map(parameters).collect();
    for point in shapes.iter().flat_map(product) {
        let problem = Problem::at(&point).map_err(|error| {
            let values: Vec<String> = point.iter().map(|(k, v)| format!("{k} = {v}")).collect();
            document.error(at, format!("{error} (at {})", values.join(", ")))
        })?;
        for variant in &variants {
            suite.cases.extend(params.iter().map(|params| Case {
                variant: variant.clone(),
                problem: problem.clone(),
                params: params.clone(),
            }));
        }
    }
    Ok(())
}

/// How many points the product of some lists has.
fn size(lists: &BTreeMap<&str, Vec<String>>) -> usize {
    let lengths = lists.values().map(Vec::len);
    lengths.fold(1, usize::saturating_mul)
}

/// The product of some lists.
fn product<'a>(lists: &BTreeMap<&'a str, Vec<String>>) -> Vec<BTreeMap<&'a str, String>> {
    lists
        .iter()
        .fold(vec![BTreeMap::new()], |points, (key, values)| {
            let with = |point: &BTreeMap<&'a str, String>, value: &String| {
                let mut point = point.clone();
                point.insert(*key, value.clone());
                point
            };
            let longer = points
                .iter()
                .flat_map(|point| values.iter().map(move |value| with(point, value)));
            longer.collect()
        })
}

/// The parameters at a point of their product.
fn parameters(point: &BTreeMap<&str, String>) -> Params {
    let mut params = Params::default();
    for (name, text) in point {
        params.set(name, ParamValue::from(text.as_str()));
    }
    params
}

/// The values of `[set]`, in place of those that cases ask for.
fn overrides(
    document: &Document<'_>,
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
                };
                suite.push_override(change, document.place(&at));
            }
        }
    }
    Ok(())
}

/// The facets that a selector names, and their values as texts.
pub(super) fn facets(
    document: &Document<'_>,
    at: &KeyPath,
    facets: &Facets,
) -> Result<BTreeMap<String, Vec<String>>, DocumentError> {
    let lists = facets.iter().map(|(name, values)| {
        let list = List {
            document,
            at: at.key(name),
            values,
        };
        let texts = list.texts(|value| {
            let text = value.text();
            text.map_err(|found| format!("expected a number or a string, found {found}"))
        })?;
        Ok((name.clone(), texts))
    });
    lists.collect()
}
