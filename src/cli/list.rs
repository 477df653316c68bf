//! `regatta list`: variants, or the plan of a suite.

use clap::Args;
use serde_json::json;

use super::introductions::{Introduction, grouped, introductions};
use super::{Ended, Stop, indented, note, print};
use regatta::report::text::one_line;
use regatta::suite::{self, BUILTIN, Suite};
use regatta::worker::protocol::{Hello, Parameter};

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
    for Introduction { worker, found } in &found {
        if let Ok(hello) = found {
            print(described(worker, hello))?;
        }
    }
    for (absence, workers) in grouped(&found) {
        let verb = if workers.len() == 1 { "is" } else { "are" };
        let text = format!("{} {verb} not here: {}", workers.join(", "), absence.lacks);
        print(indented(&text, 0, 6))?;
    }
    let names: Vec<&str> = BUILTIN.iter().map(|(name, _)| *name).collect();
    note(format!("built-in suites: {}", names.join(", ")));
    Ok(0)
}

fn described(worker: &str, hello: &Hello) -> String {
    let mut text = format!("{worker} on {}\n", one_line(&hello.device.name));
    for variant in &hello.variants {
        let dtypes: Vec<&str> = variant.dtypes.iter().map(|d| d.name()).collect();
        let directions: Vec<&str> = variant.directions.iter().map(|d| d.short()).collect();
        text += &format!("  {worker}/{}\n", variant.name);
        if !variant.summary.is_empty() {
            text += &format!("      {}\n", one_line(&variant.summary));
        }
        text += &format!("      {}; {}\n", dtypes.join(" "), directions.join(" "));
        for (name, parameter) in &variant.parameters {
            text += &match parameter {
                Parameter::Integer(_) => format!("      {} = auto or a number\n", one_line(name)),
                Parameter::Words(words) => {
                    let words = one_line(&words.join(" or "));
                    format!("      {} = {words}\n", one_line(name))
                }
            };
        }
    }
    text
}
