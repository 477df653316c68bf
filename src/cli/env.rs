//! `regatta env`: the Python environments of a suite or of `regatta.toml`.

use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{Ended, Stop, note, print, print_json, show_blocks, watch_for};
use regatta_core::suite::{self, Suite};
use regatta_measure::environments::{PythonEnvironment, interpreter_of};
use regatta_measure::workers::find_environment;
use regatta_report::document::{Block, ListItem};
use regatta_worker::units::counted;

/// List, show or make Python environments
///
/// An environment is a table `[environments.NAME]` of a suite or of regatta.toml. With
/// `requirements` it is made by this command, in the user's cache; without, its `python` is
/// used as it is. What is installed in it is part of every run that is measured with it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    regatta env\n  \
    regatta env make xformers\n  \
    regatta env --suite ./mine.toml make old\n\n\
    In regatta.toml:\n  \
    [environments.xformers]         # the worker of this name runs in it\n  \
    requirements = [\"torch==2.11.0\", \"xformers==0.0.34\"]")]
pub struct EnvArgs {
    #[command(subcommand)]
    action: Option<EnvAction>,

    /// Print what is installed in this one
    name: Option<String>,

    /// A suite whose environments are added to regatta.toml's
    #[arg(long, global = true, value_name = "SUITE")]
    suite: Option<String>,

    /// Machine-readable output
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum EnvAction {
    /// Make an environment from its pinned requirements
    Make {
        /// Its name
        name: String,
        /// Make it again where it is there already
        #[arg(long)]
        recreate: bool,
    },
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &EnvArgs) -> Ended {
    let mut suite = match &args.suite {
        Some(name) => suite::load(name)?,
        None => Suite::default(),
    };
    suite::configure(&mut suite, Path::new("regatta.toml"))?;
    match (&args.action, &args.name) {
        (Some(EnvAction::Make { name, recreate }), _) => make(&suite, name, *recreate, args.json),
        (None, Some(name)) => show(&suite, name, args.json),
        (None, None) => list(&suite, args.json),
    }
}

fn list(suite: &Suite, json: bool) -> Ended {
    let (mut answers, mut items) = (Vec::new(), Vec::new());
    for (name, environment) in &suite.environments {
        let made = PythonEnvironment::locate(name, environment)?;
        let state = match &made {
            None => "as it is",
            Some(made) if made.lock().is_some() => "made",
            Some(_) => "not made",
        };
        let interpreter = match &made {
            Some(made) => made.folder().join("bin/python").display().to_string(),
            None => interpreter_of(environment),
        };
        items.push(ListItem::new(name, format!("{state}, {interpreter}")));
        answers.push(json!({
            "name": name,
            "state": state,
            "interpreter": interpreter,
            "requirements": environment.requirements,
        }));
    }
    if json {
        return print_json(&answers);
    }
    if items.is_empty() {
        note("no environment is declared: add [environments.NAME] to regatta.toml or a suite");
    }
    show_blocks(vec![Block::List(items)])
}

fn make(suite: &Suite, name: &str, recreate: bool, json: bool) -> Ended {
    watch_for("; the environment is not made");
    let environment = find_environment(name, suite)?;
    let Some(made) = PythonEnvironment::locate(name, environment)? else {
        return Err(Stop::Usage(format!(
            "environment `{name}` has no `requirements`: its interpreter ({}) is used as it is",
            interpreter_of(environment)
        )));
    };
    let lock = match made.lock() {
        Some(lock) if !recreate => lock,
        _ => {
            note(format!("making environment {name}"));
            made.make()?
        }
    };
    let built = made.built();
    if json {
        return print_json(&json!({
            "name": name,
            "folder": made.folder(),
            "lock": lock.lines().collect::<Vec<_>>(),
            "built": built,
        }));
    }
    let packages = counted(lock.lines().count(), "package");
    let built = built.map(|built| format!("built in {built}"));
    show_blocks(vec![
        Block::Note(made.folder().display().to_string()),
        Block::list(std::iter::once(packages).chain(built)),
    ])
}

fn show(suite: &Suite, name: &str, json: bool) -> Ended {
    let made = PythonEnvironment::locate(name, find_environment(name, suite)?)?;
    let lock = made.and_then(|made| made.lock()).ok_or_else(|| {
        Stop::Usage(format!(
            "environment `{name}` was not made here: `regatta env` tells the state of each"
        ))
    })?;
    if json {
        return print_json(&lock.lines().collect::<Vec<_>>());
    }
    print(lock)
}
