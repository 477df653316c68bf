//! `regatta env`: the Python environments of a suite or of `regatta.toml`, and the cache entries
//! that commands created.

use std::path::Path;

use clap::{ArgGroup, Args, Subcommand};
use serde_json::json;

use super::{Ended, Stop, note, print, print_json, show_blocks, watch_for};
use regatta_core::locked::holder;
use regatta_core::suite::{self, Suite};
use regatta_measure::environments::{PythonEnvironment, interpreter_of};
use regatta_measure::made::{self, Made};
use regatta_measure::workers::find_environment;
use regatta_report::document::{Block, ListItem};
use regatta_worker::units::{Bytes, counted};

/// List, show, make or remove Python environments
///
/// An environment is a table `[environments.NAME]` of a suite or of regatta.toml. With
/// `requirements` it is made by this command, in the user's cache; without, its `python` is
/// used as it is. What is installed in it is part of every run that is measured with it.
///
/// Environments of `pypi:` and `lock:` and worktrees of `git:` stay in the cache until they are
/// removed.
#[derive(Args, Debug)]
#[command(
    disable_help_subcommand = true,
    after_help = "Examples:\n  \
    regatta env make xformers\n  \
    regatta env --suite ./mine.toml make old\n  \
    regatta env remove --all\n\n\
    In regatta.toml:\n  \
    [environments.xformers]         # the worker of this name runs in it\n  \
    requirements = [\"torch==2.11.0\", \"xformers==0.0.34\"]"
)]
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
    pub json: bool,
}

#[derive(Subcommand, Debug)]
enum EnvAction {
    /// Make an environment from its pinned requirements
    Make {
        /// The name of the environment
        name: String,
        /// Make it again where it is there already
        #[arg(long)]
        recreate: bool,
    },
    /// Remove environments and worktrees of revisions from the cache
    #[command(group(ArgGroup::new("which").required(true).args(["names", "all"])))]
    Remove {
        /// Names, as `regatta env` lists them
        names: Vec<String>,
        /// All that no process uses
        #[arg(long)]
        all: bool,
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
        (Some(EnvAction::Remove { names, all }), _) => remove(&suite, names, *all, args.json),
        (None, Some(name)) => show(&suite, name, args.json),
        (None, None) => list(&suite, args.json),
    }
}

fn list(suite: &Suite, json: bool) -> Ended {
    let (mut answers, mut items) = (Vec::new(), Vec::new());
    let mut others = made::all().map_err(Stop::usage)?;
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
        let folder = made.as_ref().map(PythonEnvironment::folder);
        others.retain(|other| Some(other.folder.as_path()) != folder);
        items.push(ListItem::new(name, format!("{state}, {interpreter}")));
        answers.push(json!({
            "name": name,
            "state": state,
            "interpreter": interpreter,
            "requirements": environment.requirements,
        }));
    }
    let mut total = Bytes(0);
    let mut kept = Vec::new();
    for other in &others {
        let size = other.size();
        total.0 += size.0;
        let text = format!("{size}, of {}", other.source);
        kept.push(ListItem::new(&other.name, text));
        answers.push(json!({
            "name": other.name,
            "state": "made by a command",
            "folder": other.folder,
            "bytes": size,
            "source": other.source,
        }));
    }
    if json {
        return print_json(&answers);
    }
    if items.is_empty() {
        note("no environment is declared: add [environments.NAME] to regatta.toml or a suite");
    }
    let mut blocks = vec![Block::List(items)];
    if !kept.is_empty() {
        let what = counted(kept.len(), "folder");
        blocks.push(Block::Note(format!(
            "made by other commands: {what}, {total}; `regatta env remove --all` removes them"
        )));
        blocks.push(Block::List(kept));
    }
    show_blocks(blocks)
}

/// Removes the named entries, or all that no process uses.
fn remove(suite: &Suite, names: &[String], all: bool, json: bool) -> Ended {
    let made = made::all().map_err(Stop::usage)?;
    let mut wanted = Vec::new();
    for name in names {
        let declared = suite.environments.get(name);
        let declared = declared.map(|environment| PythonEnvironment::locate(name, environment));
        let folder = declared.transpose()?.flatten();
        let folder = folder.map(|environment| environment.folder().to_owned());
        let is_named = |made: &&Made| made.name == *name || Some(&made.folder) == folder.as_ref();
        wanted.push(made.iter().find(is_named).ok_or_else(|| {
            Stop::Usage(format!(
                "the cache has no environment or worktree `{}`; `regatta env` lists them",
                name.escape_debug()
            ))
        })?);
    }
    if all {
        wanted = made.iter().collect();
    }
    let (mut removed, mut used, mut total) = (Vec::new(), false, Bytes(0));
    for made in wanted {
        let size = made.size();
        if made.remove().map_err(Stop::usage)? {
            total.0 += size.0;
            removed.push(&made.name);
        } else {
            used = true;
            let holder = holder(&made.folder);
            note(format!("{} stays: {holder} uses it", made.name));
        }
    }
    let code = if used { 3 } else { 0 };
    if json {
        print_json(&json!({ "removed": removed, "bytes": total }))?;
        return Ok(code);
    }
    let count = counted(removed.len(), "folder");
    show_blocks(vec![Block::Note(format!("removed {count}, {total}"))])?;
    Ok(code)
}

fn make(suite: &Suite, name: &str, recreate: bool, json: bool) -> Ended {
    watch_for("; the environment is not made");
    let environment = find_environment(name, suite)?;
    let Some(made) = PythonEnvironment::locate(name, environment)? else {
        refuse!(
            "environment `{name}` has no `requirements`: its interpreter ({}) is used as it is",
            interpreter_of(environment)
        );
    };
    let lock = match made.lock() {
        Some(lock) if !recreate => lock,
        _ => {
            note(format!("making environment {name}"));
            made.make(recreate)?
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
