//! `regatta list`: variants, or the plan of a suite.

mod here;
mod plan;

use std::io::{self, IsTerminal};
use std::path::Path;

use clap::Args;
use serde_json::json;

use super::{Ended, Stop, print, watch_for};
use regatta_core::suite::{self, BUILTIN, Suite};
use regatta_measure::experiment::introductions::{Introduction, introductions};
use regatta_measure::experiment::request::no_case_left;
use regatta_report::terminal::COLUMNS;

/// List the variants of every worker, or the cases of a suite
#[derive(Args, Debug)]
pub struct ListArgs {
    /// A built-in suite's name or file; without it, list variants
    suite: Option<String>,

    /// Only cases whose id matches (as in `run`)
    #[arg(long, short, value_name = "PATTERN")]
    filter: Vec<String>,

    /// The environment of workers that name none
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,

    /// Print the id of each case of the suite, one a line
    #[arg(long, requires = "suite", conflicts_with = "json")]
    ids: bool,

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
        Some(name) => cases(args, name),
        None => variants(args),
    }
}

fn cases(args: &ListArgs, name: &str) -> Ended {
    let mut suite = suite::load(name).map_err(Stop::usage)?;
    let ids: Vec<String> = suite.cases.iter().map(ToString::to_string).collect();
    suite.keep(&args.filter);
    if suite.cases.is_empty() {
        let why = no_case_left(&args.filter, &suite.name, &ids);
        return Err(Stop::Usage(anyhow::Error::msg(why)));
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
    if args.ids {
        let ids: String = suite.cases.iter().map(|case| format!("{case}\n")).collect();
        print(ids)?;
        return Ok(0);
    }
    print(plan::plan(&suite))?;
    Ok(0)
}

fn variants(args: &ListArgs) -> Ended {
    let mut config = Suite::default();
    suite::configure(&mut config, Path::new("regatta.toml")).map_err(Stop::usage)?;
    watch_for("");
    let found = introductions(&config, args.environment.as_deref(), None)?;
    if args.json {
        let entries: Vec<_> = found
            .iter()
            .map(|Introduction { worker, found }| match found {
                Ok(hello) => json!({ "worker": worker, "hello": hello }),
                Err(absence) => json!({ "worker": worker, "unavailable": absence.reason }),
            })
            .collect();
        let suites: Vec<&str> = BUILTIN.iter().map(|(name, _)| *name).collect();
        print(format!(
            "{}\n",
            json!({ "workers": entries, "suites": suites })
        ))?;
        return Ok(0);
    }
    let suites = BUILTIN.iter().map(|(name, _)| suite::load(name));
    let suites = suites.collect::<Result<Vec<Suite>, _>>();
    let suites = suites.map_err(Stop::usage)?;
    // What is piped is searched, and has whole lines.
    let columns = match io::stdout().is_terminal() {
        true => COLUMNS,
        false => usize::MAX,
    };
    print(here::workers(&found, columns) + &here::suites(&suites, &found, columns))?;
    Ok(0)
}
