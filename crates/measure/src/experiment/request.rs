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

/// The folder of baselines where no other is named.
pub const BASELINES: &str = "baselines";

/// The suite to measure, and how.
#[derive(Clone)]
pub struct MeasureOptions {
    /// A built-in suite's name, or a suite file.
    pub suite: String,
    /// Patterns of case ids; empty: all.
    pub filter: Vec<String>,
    /// Other values of parameters and settings.
    pub set: Vec<String>,
    /// Environment of workers that name none.
    pub environment: Option<String>,
    /// Starts of each worker, in place of the suite's number.
    pub invocations: Option<u32>,
    /// True where nothing is timed.
    pub structure_only: bool,
    /// The smallest change of the device time that counts, in place of the suite's.
    pub threshold: Option<Share>,
    /// Nothing more is measured that would end later than this after the start.
    pub limit: Option<Duration>,
    /// The metrics of which one is measured until it is decided, whatever the others and the
    /// structure say: see [`regatta_judge::next`]. Empty: all.
    pub deciding: Vec<Metric>,
    /// The folder of the run and its reports, if it is not the suite's folder.
    pub out: Option<PathBuf>,
    /// True to begin the run from the start, even if there is one to resume.
    pub fresh: bool,
    /// True where nothing is said but what went wrong.
    pub quiet: bool,
    /// The folder of baselines.
    pub baselines: PathBuf,
    /// Who shows what is done.
    pub listener: Rc<dyn Listener>,
    /// Owns the processes that outlive an answer of a watch.
    pub pool: Pool,
}

impl MeasureOptions {
    /// The arguments that choose what is measured, beside a filter, without secrets.
    pub fn arguments(&self) -> Vec<String> {
        let suite = match Script::parse(&self.suite) {
            Some(Ok(script)) => {
                let file = script.file.to_string_lossy().into_owned();
                script.without_secrets().at(&file)
            }
            _ => self.suite.clone(),
        };
        let mut words = vec![suite];
        // Settings are in the run by themselves.
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

    /// Reads the suite, as it is asked for.
    ///
    /// # Errors
    /// Whatever is wrong with either: exit code 2.
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

    /// The suite as a checkout of another revision has it, with the parameters that are asked for
    /// and without what the command line demands.
    ///
    /// # Errors
    /// Whatever is wrong with it there.
    pub(super) fn load_in(&self, checkout: &Path) -> Result<Suite, ExperimentError> {
        let file = self.file_in(checkout);
        let is_script = Script::parse(&self.suite).is_some();
        // A script's own path is from the folder that it is started in.
        let name = match file.filter(|_| !is_script) {
            Some(file) => file.to_string_lossy().into_owned(),
            None => self.suite.clone(),
        };
        let mut suite = self.load_from(&name, checkout)?;
        suite.keep(&self.filter);
        // The workers are started in the checkout.
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

    /// A suite and the settings of its checkout, with the parameters that are asked for.
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

/// A path as it is from the folder that regatta was started in.
fn from_here(file: &Path) -> &Path {
    let here = std::env::current_dir().unwrap_or_default();
    let below = file.strip_prefix(&here).unwrap_or(file);
    below.strip_prefix("./").unwrap_or(below)
}

/// Why a filter leaves nothing to measure, with the nearest variant or case.
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

/// `peak=true`: changes how is measured, and says whether the text names such a setting.
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

/// `cpu/split-key.num_splits_key=1`
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
        // An explicit value of a case stays explicit: it is the automatic choice
        // that a caller's bug replaces.
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
