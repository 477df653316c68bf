//! `regatta list`: variants, or the plan of a suite.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::{Ended, Stop, indented, note, print};
use crate::measure::session::Launcher;
use crate::measure::workers::{self, Processes};
use crate::suite::{self, BUILTIN, Suite};
use crate::worker::host::HostError;
use crate::worker::protocol::{Hello, Parameter};
use crate::worker::python::LIBRARIES;

/// List the variants of every worker, or the cases of a suite
#[derive(Args, Debug)]
pub struct ListArgs {
    /// A built-in suite's name or a suite file; without it, variants are listed
    suite: Option<String>,

    /// Only cases whose id matches (as in `run`)
    #[arg(long, short, value_name = "PATTERN")]
    filter: Vec<String>,

    /// Environment of workers that name none
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,

    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &ListArgs) -> Ended {
    match &args.suite {
        Some(name) => plan(args, name),
        None => variants(args),
    }
}

fn plan(args: &ListArgs, name: &str) -> Ended {
    let mut suite = suite::load(name).map_err(Stop::usage)?;
    suite.keep(&args.filter);
    if suite.cases.is_empty() {
        return Err(Stop::Usage(anyhow::anyhow!(
            "--filter {} leaves no case of {}",
            args.filter.join(" "),
            suite.name
        )));
    }
    if args.json {
        let ids: Vec<String> = suite.cases.iter().map(ToString::to_string).collect();
        let plan = json!({
            "suite": suite.name,
            "description": suite.description,
            "settings": suite.settings,
            "rules": suite.rules,
            "overrides": suite.overrides,
            "cases": ids,
        });
        print(format!("{plan}\n"))?;
        return Ok(0);
    }
    note(format!(
        "{}: {}\n{} cases on {} invocations",
        suite.name,
        suite.description,
        suite.cases.len(),
        suite.settings.invocations
    ));
    for case in &suite.cases {
        print(format!("{case}\n"))?;
    }
    Ok(0)
}

fn variants(args: &ListArgs) -> Ended {
    let mut config = Suite::default();
    suite::configure(&mut config, std::path::Path::new("regatta.toml")).map_err(Stop::usage)?;
    let found = introductions(&config, args.environment.as_deref())?;
    if args.json {
        let entries: Vec<_> = found
            .iter()
            .map(|(worker, hello)| match hello {
                Ok(hello) => json!({ "worker": worker, "hello": hello }),
                Err(reason) => json!({ "worker": worker, "unavailable": reason }),
            })
            .collect();
        let suites: Vec<&str> = BUILTIN.iter().map(|(name, _)| *name).collect();
        print(format!(
            "{}\n",
            json!({ "workers": entries, "suites": suites })
        ))?;
        return Ok(0);
    }
    for (worker, hello) in &found {
        match hello {
            Ok(hello) => print(described(worker, hello))?,
            Err(reason) => print(indented(
                &format!("{worker} is not here: {}", first_line(reason)),
                0,
                6,
            ))?,
        }
    }
    let names: Vec<&str> = BUILTIN.iter().map(|(name, _)| *name).collect();
    note(format!("built-in suites: {}", names.join(", ")));
    Ok(0)
}

/// A worker's name with what it says of itself, or why it is not here.
pub(super) type Introduction = (String, Result<Hello, String>);

/// Every worker that is known; one that cannot be started leaves the others be.
///
/// # Errors
/// A declaration that concerns them all: exit code 2.
pub(super) fn introductions(
    config: &Suite,
    environment: Option<&str>,
) -> Result<Vec<Introduction>, Stop> {
    let names = ["cpu", "cuda"].into_iter().chain(LIBRARIES.iter().copied());
    let names: Vec<String> = names
        .map(str::to_owned)
        .chain(config.workers.keys().cloned())
        .collect();
    let logs: PathBuf = std::env::temp_dir().join(format!("regatta-{}", std::process::id()));
    workers::declared(config, environment).map_err(Stop::usage)?;
    let found = names
        .into_iter()
        .map(|name| {
            let hello = introduction(&name, config, environment, &logs);
            (name, hello)
        })
        .collect();
    let _ = std::fs::remove_dir_all(logs);
    Ok(found)
}

fn introduction(
    name: &String,
    config: &Suite,
    environment: Option<&str>,
    logs: &Path,
) -> Result<Hello, String> {
    let found = Processes::find(std::iter::once(name), config, environment, logs.to_owned());
    let mut processes = found.map_err(|error| error.to_string())?;
    let started = processes.start(name).map_err(|error| match &error {
        HostError::Refused { reason, .. } => reason.clone(),
        error if error.log().is_empty() => error.to_string(),
        error => format!("{error}\n{}", error.log()),
    })?;
    let hello = started.hello();
    match &hello.absent {
        Some(reason) => Err(reason.clone()),
        None => Ok(hello.clone()),
    }
}

fn described(worker: &str, hello: &Hello) -> String {
    let mut text = format!("{worker} on {}\n", hello.device.name);
    for variant in &hello.variants {
        let dtypes: Vec<&str> = variant.dtypes.iter().map(|d| d.name()).collect();
        let directions: Vec<&str> = variant.directions.iter().map(|d| d.short()).collect();
        text += &format!("  {worker}/{}\n", variant.name);
        if !variant.summary.is_empty() {
            text += &format!("      {}\n", variant.summary);
        }
        text += &format!("      {}; {}\n", dtypes.join(" "), directions.join(" "));
        for (name, parameter) in &variant.parameters {
            text += &match parameter {
                Parameter::Integer(_) => format!("      {name} = auto or a number\n"),
                Parameter::Words(words) => format!("      {name} = {}\n", words.join(" or ")),
            };
        }
    }
    text
}

pub(super) fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
