//! The options of a measurement: a suite, and the changes to it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::{ExperimentError, Listener};
use crate::worker::pool::Pool;
use regatta_core::suite::document::{name_hint, nearest};
use regatta_core::suite::script::Script;
use regatta_core::suite::workers::{OwnWorker, PythonCode};
use regatta_core::suite::{self, BUILTIN, Override, Suite};
use regatta_core::suite::{Metric, Origin};
use regatta_worker::case::{ParamValue, ParseError, parameter_name};
use regatta_worker::units::Share;

/// The default folder of baselines.
pub const BASELINES: &str = "baselines";

/// The suite to measure, and the options for measuring it.
#[derive(Clone)]
pub struct MeasureOptions {
    /// The name of a built-in suite, or a suite file.
    pub suite: String,
    /// Patterns of case ids. If empty, all cases run.
    pub filter: Vec<String>,
    /// New values of parameters and settings.
    pub set: Vec<String>,
    /// The environment of workers that name none.
    pub environment: Option<String>,
    /// The number of starts of each worker, in place of the suite's.
    pub invocations: Option<u32>,
    /// True if nothing is timed.
    pub structure_only: bool,
    /// The smallest change of the device time that counts, in place of the suite's.
    pub threshold: Option<Share>,
    /// Nothing is measured that would end later than this after the start.
    pub limit: Option<Duration>,
    /// Metrics that decide how long to measure: until one of them is decided, regardless of other
    /// metrics and the structure (see [`regatta_judge::next`]). If empty, all.
    pub deciding: Vec<Metric>,
    /// The folder of the run and its reports, in place of the suite's.
    pub out: Option<PathBuf>,
    /// True to begin the run from the start, even if there is one to resume.
    pub fresh: bool,
    /// True to report errors only.
    pub quiet: bool,
    /// The folder of baselines.
    pub baselines: PathBuf,
    /// Shows the progress.
    pub listener: Rc<dyn Listener>,
    /// Owns the processes that a watch keeps between runs.
    pub pool: Pool,
}

impl MeasureOptions {
    /// The arguments that choose what is measured, without filters and secrets.
    pub fn arguments(&self) -> Vec<String> {
        let suite = match Script::parse(&self.suite) {
            Some(Ok(script)) => {
                let file = script.file.to_string_lossy().into_owned();
                script.without_secrets().at(&file)
            }
            _ => self.suite.clone(),
        };
        let mut words = vec![suite];
        // The run stores settings separately.
        for change in self.set.iter().filter(|change| change.contains('/')) {
            words.extend(["--set".to_owned(), change.clone()]);
        }
        if let Some(threshold) = self.threshold {
            words.extend(["--threshold".to_owned(), threshold.0.to_string()]);
        }
        if let Some(environment) = &self.environment {
            words.extend(["--environment".to_owned(), environment.clone()]);
        }
        if self.structure_only {
            words.push("--structure-only".to_owned());
        }
        words
    }

    /// Reads the suite, and applies the options.
    ///
    /// # Errors
    /// The suite or an option is wrong: exit code 2.
    pub fn load(&self) -> Result<Suite, ExperimentError> {
        let mut suite = self.load_from(&self.suite, Path::new(""))?;
        if let Some(invocations) = self.invocations {
            suite.settings.invocations = invocations;
        }
        if let Some(threshold) = self.threshold {
            suite.rules.policy.threshold = threshold;
        }
        let ids: Vec<String> = suite.cases.iter().map(ToString::to_string).collect();
        suite.keep(&self.filter);
        if suite.cases.is_empty() && suite.scripts.is_empty() {
            return Err(ExperimentError::Usage(no_case_left(
                &self.filter,
                &suite.name,
                &ids,
            )));
        }
        Ok(suite)
    }

    /// The suite as another revision's checkout has it, with the requested parameters but without
    /// other options of the command line, such as a threshold.
    ///
    /// # Errors
    /// The suite is wrong there.
    pub(super) fn load_in(&self, checkout: &Path) -> Result<Suite, ExperimentError> {
        let file = self.file_in(checkout);
        let is_script = Script::parse(&self.suite).is_some();
        // A script's path is relative to the folder in which it is started.
        let name = match file.filter(|_| !is_script) {
            Some(file) => file.to_string_lossy().into_owned(),
            None => self.suite.clone(),
        };
        let mut suite = self.load_from(&name, checkout)?;
        suite.keep(&self.filter);
        // The workers start in the checkout.
        for worker in suite.workers.values_mut() {
            if let OwnWorker::Cuda(path)
            | OwnWorker::Script(Script { file: path, .. })
            | OwnWorker::Python {
                code: PythonCode::File(path),
                ..
            } = worker
                && let Ok(below) = path.strip_prefix(checkout)
            {
                *path = below.to_owned();
            }
        }
        Ok(suite)
    }

    /// The suite's file in another checkout; `None` for a built-in suite.
    pub(super) fn file_in(&self, checkout: &Path) -> Option<PathBuf> {
        if let Some(script) = Script::parse(&self.suite) {
            let file = script.ok()?.file;
            return Some(checkout.join(from_here(&file)));
        }
        let is_built_in = BUILTIN.iter().any(|(name, _)| *name == self.suite);
        let file = Path::new(&self.suite);
        (!is_built_in).then(|| checkout.join(from_here(file)))
    }

    /// Reads a suite and its checkout's settings, and applies the requested parameters.
    fn load_from(&self, name: &str, checkout: &Path) -> Result<Suite, ExperimentError> {
        let mut suite = suite::load_in(name, checkout)?;
        suite::configure(&mut suite, &checkout.join("regatta.toml"))?;
        for text in &self.set {
            if set_switch(&mut suite, text)? {
                continue;
            }
            let change = parse_override(text, &suite)?;
            suite.overrides.push(change);
        }
        if self.structure_only {
            suite.settings.peak = false;
            suite.settings.structure_only = true;
            suite.settings.invocations = 1;
        }
        Ok(suite)
    }
}

/// Makes a path relative to the current folder.
fn from_here(file: &Path) -> &Path {
    let here = std::env::current_dir().unwrap_or_default();
    let below = file.strip_prefix(&here).unwrap_or(file);
    below.strip_prefix("./").unwrap_or(below)
}

/// The message for a filter that leaves no case, with the most similar variant or case.
pub fn no_case_left(filter: &[String], suite: &str, ids: &[String]) -> String {
    let variants = ids.iter().filter_map(|id| id.split(':').next());
    let known: Vec<&str> = variants.chain(ids.iter().map(String::as_str)).collect();
    let bare = filter.iter().map(|pattern| pattern.trim_matches('*'));
    let near = bare.filter_map(|pattern| nearest(pattern, known.iter().copied()));
    let hint = match (near.into_iter().next(), ids.first()) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, Some(first)) => format!("the first is {first}"),
        (None, None) => "the suite has none".to_owned(),
    };
    format!(
        "--filter {} matches no case of {suite}, which has {}; {hint}",
        filter.join(" "),
        ids.len(),
    )
}

/// Applies a setting of the measurement such as `peak=true`. Returns false if `text` names none.
fn set_switch(suite: &mut Suite, text: &str) -> Result<bool, ExperimentError> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let switch = match name {
        "peak" => &mut suite.settings.peak,
        "instructions" => &mut suite.settings.instructions,
        "graph" => &mut suite.settings.graph,
        "input_sets" => {
            let sets = value.parse().ok().filter(|sets| (1..=100).contains(sets));
            suite.settings.input_sets = sets.ok_or_else(|| {
                ExperimentError::Usage(format!("--set {text}: write a number from 1 to 100"))
            })?;
            return Ok(true);
        }
        _ => return Ok(false),
    };
    let wrong =
        |_| ExperimentError::Usage(format!("--set {text}: write {name}=true or {name}=false"));
    *switch = value.parse().map_err(wrong)?;
    Ok(true)
}

/// Parses an override such as `cpu/split-key.num_splits_key=1`.
pub(super) fn parse_override(text: &str, suite: &Suite) -> Result<Override, ExperimentError> {
    let about = format!("--set {text}");
    let wrong = || {
        ExperimentError::Usage(format!(
            "{about}: write VARIANT.PARAMETER=VALUE, for example cpu/split-key.num_splits_key=1, or \
             peak, instructions or graph=true, or input_sets=NUMBER; the suite's [measure] has the \
             other settings"
        ))
    };
    let (target, value) = text.split_once('=').ok_or_else(wrong)?;
    let (variant, parameter) = target.rsplit_once('.').ok_or_else(wrong)?;
    if parameter.is_empty() || value.is_empty() {
        return Err(wrong());
    }
    let refused = |error: ParseError| ExperimentError::Usage(format!("{about}: {error}"));
    let variant = variant.parse().map_err(refused)?;
    parameter_name(parameter).map_err(refused)?;
    let to: ParamValue = value.parse().map_err(refused)?;
    if !suite.cases.iter().any(|case| case.variant == variant) {
        let known = suite.cases.iter().map(|case| case.variant.to_string());
        let known: BTreeSet<String> = known.collect();
        let hint = name_hint(&variant.to_string(), known.iter().map(String::as_str));
        return Err(ExperimentError::Usage(format!(
            "{about}: suite {} does not measure {variant}; {hint}",
            suite.name
        )));
    }
    let change = Override {
        variant,
        parameter: parameter.to_owned(),
        // Explicit values of a case stay, because a caller's bug replaces the automatic choice.
        from: Some(ParamValue::auto()),
        to,
        origin: Origin(about),
    };
    if suite.is_idle(&change) {
        return Err(ExperimentError::Usage(format!(
            "{} replaces nothing: no case of {} leaves {parameter} at auto (values that a suite \
             gives explicitly stay as they are)",
            change.origin.0, change.variant
        )));
    }
    Ok(change)
}
