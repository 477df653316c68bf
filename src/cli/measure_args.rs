//! What `run` and `gate` are asked to measure: a suite, and what the command line changes in it.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Args;

use super::Stop;
use regatta_core::suite::document::nearest;
use regatta_core::suite::{self, Override, Suite};
use regatta_worker::attention::{ParamValue, parameter_name};

/// The folder of baselines where no other is named.
const BASELINES: &str = "baselines";

/// The words that name the folder of baselines; none where it is the usual one.
pub fn in_folder(baselines: &Path) -> Vec<String> {
    match baselines == Path::new(BASELINES) {
        true => Vec::new(),
        false => vec!["--baselines".to_owned(), baselines.display().to_string()],
    }
}

/// What to measure, and how.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "What is measured")]
pub struct MeasureArgs {
    /// A built-in suite's name, or a suite file
    #[arg(help_heading = None)]
    pub suite: String,

    /// Only cases whose id matches (repeatable)
    ///
    /// A glob with `*`, or a part of the id.
    #[arg(long, short, value_name = "PATTERN")]
    pub filter: Vec<String>,

    /// Another value of a parameter (repeatable)
    ///
    /// `cpu/split-key.num_splits_key=1` hands a variant another value than its cases ask for,
    /// keeping their ids. `peak=true` measures first what each device reaches in products of
    /// matrices and in copies. `instructions=true` counts the instructions that each kernel
    /// executes, which needs no quiet GPU, but root, or a driver that lets others read hardware
    /// counters.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,

    /// Environment of workers that name none (declared in the suite or regatta.toml)
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub environment: Option<String>,

    /// Starts of each worker, in place of the suite's number
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub invocations: Option<u32>,

    /// Time nothing, judge what a call does
    ///
    /// Counts once what a call of each case does, and judges that alone.
    /// Works on a throttled or shared GPU. Limits on structure are judged, and changes of
    /// it where there is a baseline; expectations on time are not.
    #[arg(long, conflicts_with = "invocations")]
    pub structure_only: bool,

    /// Where it goes [default: reports/SUITE]
    ///
    /// The run and its reports; with --structure-only by default into reports/SUITE-structure.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Begin anew even where an unfinished run could go on
    #[arg(long, hide_short_help = true)]
    pub fresh: bool,

    /// No progress on standard error
    #[arg(long, short, hide_short_help = true)]
    pub quiet: bool,

    /// The folder of baselines
    #[arg(long, value_name = "DIR", default_value = BASELINES, hide_short_help = true)]
    pub baselines: PathBuf,
}

impl MeasureArgs {
    /// The arguments that choose what is measured, beside a filter.
    pub fn choosing(&self) -> Vec<String> {
        let mut words = vec![self.suite.clone()];
        // Settings are in the run by themselves.
        for change in self.set.iter().filter(|change| change.contains('/')) {
            words.extend(["--set".to_owned(), change.clone()]);
        }
        if let Some(environment) = &self.environment {
            words.extend(["--environment".to_owned(), environment.clone()]);
        }
        if self.structure_only {
            words.push("--structure-only".to_owned());
        }
        words
    }
}

/// Says on what ground times are judged, whatever the suite says: for a machine whose counters
/// are not of what it runs, and for tests.
const GROUND: &str = "REGATTA_GROUND";

/// The suite as the command line wants it.
///
/// # Errors
/// Whatever is wrong with either: exit code 2.
pub fn load(args: &MeasureArgs) -> Result<Suite, Stop> {
    let mut suite = suite::load(&args.suite).map_err(Stop::usage)?;
    suite::configure(&mut suite, Path::new("regatta.toml")).map_err(Stop::usage)?;
    for text in &args.set {
        if set_switch(&mut suite, text)? {
            continue;
        }
        let change = parse_override(text, &suite).map_err(Stop::Usage)?;
        suite.push_override(change, format!("--set {text}"));
    }
    if let Some(idle) = suite.idle_override() {
        return Err(Stop::Usage(anyhow!(
            "--set replaces nothing: no case of {} leaves {} at auto (values that a suite \
             gives explicitly stay as they are)",
            idle.variant,
            idle.parameter
        )));
    }
    if let Some(invocations) = args.invocations {
        suite.settings.invocations = invocations;
    }
    if let Some(ground) = env::var_os(GROUND) {
        let ground = ground.to_string_lossy();
        let ground = ground.parse().with_context(|| format!("{GROUND}={ground}"));
        suite.settings.ground = ground.map_err(Stop::Usage)?;
    }
    if args.structure_only {
        suite.settings.peak = false;
        suite.settings.structure_only = true;
        suite.settings.invocations = 1;
    }
    let ids: Vec<String> = suite.cases.iter().map(ToString::to_string).collect();
    suite.keep(&args.filter);
    if suite.cases.is_empty() {
        let near = args
            .filter
            .iter()
            .find_map(|p| nearest(p, ids.iter().map(String::as_str)));
        let example = near.or(ids.first().map(String::as_str)).unwrap_or_default();
        return Err(Stop::Usage(anyhow!(
            "--filter {} leaves no case of {} (which has {}, for example {example})",
            args.filter.join(" "),
            suite.name,
            ids.len(),
        )));
    }
    Ok(suite)
}

/// `peak=true`: sets a switch of `[measure]`, and says whether the text names one.
fn set_switch(suite: &mut Suite, text: &str) -> Result<bool, Stop> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let switch = match name {
        "peak" => &mut suite.settings.peak,
        "instructions" => &mut suite.settings.instructions,
        _ => return Ok(false),
    };
    let wrong = |_| Stop::Usage(anyhow!("--set {text}: write {name}=true or {name}=false"));
    *switch = value.parse().map_err(wrong)?;
    Ok(true)
}

/// `cpu/split-key.num_splits_key=1`
pub(super) fn parse_override(text: &str, suite: &Suite) -> anyhow::Result<Override> {
    let wrong = || {
        anyhow!(
            "--set {text}: write VARIANT.PARAMETER=VALUE, for example cpu/split-key.num_splits_key=1"
        )
    };
    let (target, value) = text.split_once('=').ok_or_else(wrong)?;
    let (variant, parameter) = target.rsplit_once('.').ok_or_else(wrong)?;
    if parameter.is_empty() || value.is_empty() {
        return Err(wrong());
    }
    let variant = variant.parse().with_context(|| format!("--set {text}"))?;
    parameter_name(parameter).with_context(|| format!("--set {text}"))?;
    let to: ParamValue = value.parse().with_context(|| format!("--set {text}"))?;
    if !suite.cases.iter().any(|case| case.variant == variant) {
        let known: BTreeMap<String, ()> = suite
            .cases
            .iter()
            .map(|case| (case.variant.to_string(), ()))
            .collect();
        let hint = match nearest(&variant.to_string(), known.keys().map(String::as_str)) {
            Some(near) => format!("did you mean {near}?"),
            None => format!(
                "it has {}",
                known.into_keys().collect::<Vec<_>>().join(", ")
            ),
        };
        return Err(anyhow!(
            "--set {text}: suite {} does not measure {variant}; {hint}",
            suite.name
        ));
    }
    Ok(Override {
        variant,
        parameter: parameter.to_owned(),
        // What a case asks for explicitly stays explicit: it is the automatic choice
        // that a caller's bug replaces.
        from: Some(ParamValue::auto()),
        to,
    })
}
