//! `regatta baseline`: the only way a run becomes what others are held against.

mod import;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::json;

use super::{Ended, Stop, note, print, sides};
use crate::judge::judgement::VerdictOutcome;
use crate::judge::{self, Options};
use crate::record::RecordError;
use crate::record::baseline::{Store, Stored};
use crate::record::run_file::{self, RUN_FILE};
use crate::record::side::Side;
use crate::record::types::Run;
use crate::report::terminal;

/// Save, import, list, show and remove baselines
#[derive(Args, Debug)]
pub struct BaselineArgs {
    /// The folder of baselines
    #[arg(long, value_name = "DIR", default_value = "baselines", global = true)]
    baselines: PathBuf,

    /// Machine-readable output
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Promote a run under a name, for its machine
    Save {
        /// The baseline's name; `gate SUITE` looks for the suite's name by default
        name: String,
        /// A run file or report folder [default: the newest run under reports/ that
        /// passed]
        run: Option<String>,
        /// Replace the baseline that is there
        #[arg(long)]
        replace: bool,
        /// Save a run that did not pass, is a part of its suite, or was measured
        /// with --set
        #[arg(long)]
        force: bool,
    },
    Import(import::ImportArgs),
    /// List the baselines
    List,
    /// Show what a baseline holds
    Show {
        /// Its name
        name: String,
    },
    /// Remove a baseline
    Remove {
        /// Its name
        name: String,
        /// Only the one of this machine
        #[arg(long)]
        machine: Option<String>,
    },
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &BaselineArgs) -> Ended {
    let store = Store::new(&args.baselines);
    match &args.action {
        Action::Save {
            name,
            run,
            replace,
            force,
        } => save(&store, name, run.as_deref(), *replace, *force, args.json),
        Action::Import(wanted) => import::run(&store, wanted, args.json),
        Action::List => list(&store, args.json),
        Action::Show { name } => show(&store, name, args.json),
        Action::Remove { name, machine } => remove(&store, name, machine.as_deref(), args.json),
    }
}

fn save(
    store: &Store,
    name: &str,
    run: Option<&str>,
    replace: bool,
    force: bool,
    json: bool,
) -> Ended {
    let side = match run {
        Some(run) => sides::find(run, store, None)?.side,
        None => newest_that_passed(Path::new("reports"))?,
    };
    if let (Some(why), false) = (unfit(&side), force) {
        return Err(Stop::NotJudged(anyhow!(
            "{} {why}; it makes no baseline unless --force is given",
            side.label
        )));
    }
    let path = store
        .save(name, &side, Timestamp::now(), replace)
        .map_err(|error| match error {
            RecordError::Exists(_) | RecordError::Name(_) => Stop::usage(error),
            _ => Stop::not_judged(error),
        })?;
    let cases = side.cases.len();
    if json {
        print(format!(
            "{}\n",
            json!({"saved": path, "run": side.label, "cases": cases})
        ))?;
    } else {
        print(format!(
            "{}\n  {cases} cases of {}\n",
            path.display(),
            side.label
        ))?;
    }
    Ok(0)
}

/// Why a run should not be what others are held against.
fn unfit(side: &Side) -> Option<String> {
    let suite = &side.header.suite;
    let verdict = judge::judge(side, None, &Options::default()).verdict;
    if verdict.outcome != VerdictOutcome::Passed {
        return Some(format!("did not pass ({})", verdict.reasons.join("; ")));
    }
    if !suite.filter.is_empty() {
        let filter = suite.filter.join(" ");
        return Some(format!("is a part of its suite only (--filter {filter})"));
    }
    if suite.arguments.iter().any(|argument| argument == "--set") {
        return Some("was measured with --set".to_owned());
    }
    None
}

/// The newest run in the report folders under `reports` that passed by itself.
fn newest_that_passed(reports: &Path) -> Result<Side, Stop> {
    let folders = fs::read_dir(reports).into_iter().flatten().flatten();
    let mut runs: Vec<(PathBuf, Run)> = folders
        .filter_map(|folder| {
            let path = folder.path().join(RUN_FILE);
            Some((path.clone(), run_file::read(&path).ok()?))
        })
        .collect();
    runs.sort_by_key(|(_, run)| std::cmp::Reverse(run.header.started));
    let count = runs.len();
    for (path, run) in runs {
        let side = Side::from_run(path.display().to_string(), &run);
        let verdict = judge::judge(&side, None, &Options::default()).verdict;
        // Held against one without times, a gate would compare none.
        let timed = !run.header.settings.structure_only;
        if timed && run.end.is_some() && verdict.outcome == VerdictOutcome::Passed {
            return Ok(side);
        }
    }
    Err(Stop::NotJudged(anyhow!(
        "none of the {count} runs under {} passed; make one: regatta run quick",
        reports.display()
    )))
}

fn list(store: &Store, json: bool) -> Ended {
    let (stored, broken) = store.list();
    for error in &broken {
        note(format!("left out: {error}"));
    }
    if json {
        let entries: Vec<_> = stored.iter().map(described).collect();
        print(format!("{}\n", json!(entries)))?;
        return Ok(0);
    }
    if stored.is_empty() {
        note(format!(
            "no baseline in {}; make one from a run that passed: regatta baseline save NAME",
            store.root().display()
        ));
    }
    for baseline in &stored {
        print(format!(
            "{}\n  suite {}, {} cases, machine {}, saved {}{}\n",
            baseline.name,
            baseline.header.suite.name,
            baseline.header.plan.len(),
            baseline.header.machine.name,
            baseline.saved.strftime("%Y-%m-%d %H:%M"),
            match &baseline.header.imported {
                Some(imported) => format!(", imported from {}", imported.from),
                None => String::new(),
            },
        ))?;
    }
    Ok(0)
}

fn described(baseline: &Stored) -> serde_json::Value {
    json!({
        "name": baseline.name,
        "path": baseline.path,
        "suite": baseline.header.suite.name,
        "cases": baseline.header.plan.len(),
        "machine": baseline.header.machine,
        "saved": baseline.saved,
        "tool": baseline.header.tool,
        "git": baseline.header.git,
        "imported": baseline.header.imported,
    })
}

fn show(store: &Store, name: &str, json: bool) -> Ended {
    let files = store.files(name).map_err(Stop::usage)?;
    if files.is_empty() {
        return Err(absent(store, name));
    }
    for path in files {
        let stored = sides::read(&path, name)?;
        let judgement = judge::judge(&stored.side, None, &Options::default());
        if json {
            let text = serde_json::to_string(&judgement).map_err(Stop::not_judged)?;
            print(format!("{text}\n"))?;
        } else {
            let options = terminal::Options {
                colour: true,
                all: true,
            };
            print(format!(
                "{}\n{}",
                path.display(),
                terminal::render(&judgement, options)
            ))?;
        }
    }
    Ok(0)
}

fn absent(store: &Store, name: &str) -> Stop {
    Stop::usage(RecordError::Absent {
        name: name.to_owned(),
        root: store.root().to_owned(),
    })
}

fn remove(store: &Store, name: &str, machine: Option<&str>, json: bool) -> Ended {
    let removed = store.remove(name, machine).map_err(Stop::usage)?;
    if json {
        print(format!("{}\n", json!({ "removed": removed })))?;
    } else {
        for path in removed {
            print(format!("removed {}\n", path.display()))?;
        }
    }
    Ok(0)
}
