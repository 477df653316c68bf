//! `regatta baseline`: the only way a run becomes what others are held against.

mod import;
mod sessions;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::json;

use self::sessions::{Saving, with_sessions};
use super::sides::{self, Stored};
use super::{Ended, Stop, note, print};
use regatta::judge::judgement::VerdictOutcome;
use regatta::judge::{self, Options};
use regatta::record::RecordError;
use regatta::record::baseline::{self, Store};
use regatta::record::run_file::{Known, RUN_FILE};
use regatta::record::side::Side;
use regatta::report::terminal;
use regatta::suite::BUILTIN;
use regatta::units::counted;

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
        /// A run file or report folder [default: the newest run of the suite of this name
        /// under reports/ that passed, or of the only suite there]
        run: Option<String>,
        /// Replace the baseline that is there
        #[arg(long)]
        replace: bool,
        /// Keep the sessions of the baseline that is there, eight in all: a gate then knows how
        /// far days lie apart
        #[arg(long, conflicts_with = "replace")]
        add: bool,
        /// Save a run that did not pass, is a part of its suite, was measured with --set, or
        /// is of another suite than the baseline it replaces
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
            add,
            force,
        } => {
            let how = match (add, replace) {
                (true, _) => Saving::Added,
                (_, true) => Saving::Replacing,
                _ => Saving::New,
            };
            save(&store, name, run.as_deref(), how, *force, args.json)
        }
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
    how: Saving,
    force: bool,
    json: bool,
) -> Ended {
    let stored = match run {
        Some(run) => sides::find(run, store, None, &mut Known::default())?,
        None => newest_that_passed(Path::new("reports"), name, store, force)?,
    };
    let side = &stored.side;
    let why = unfit(&stored).or_else(|| of_another_suite(store, name, side));
    if let (Some(why), false) = (why, force) {
        return Err(Stop::NotJudged(anyhow!(
            "{} {why}; it makes no baseline unless --force is given",
            side.label
        )));
    }
    let (side, earlier) = match how {
        Saving::Added => with_sessions(store, name, side)?,
        _ => (side.clone(), Vec::new()),
    };
    let replace = how != Saving::New;
    let path = store
        .save_session(name, &side, &earlier, Timestamp::now(), replace)
        .map_err(|error| match error {
            RecordError::Exists(_) | RecordError::Name(_) | RecordError::Machine(_) => {
                Stop::usage(error)
            }
            _ => Stop::not_judged(error),
        })?;
    let lost: usize = side.cases.values().map(|case| case.disturbed.len()).sum();
    if lost > 0 {
        note(format!(
            "{} of its cases hold nothing, because the machine was in them: what is held against \
             it has so many times fewer",
            counted(lost, "invocation")
        ));
    }
    let cases = side.cases.len();
    if json {
        print(format!(
            "{}\n",
            json!({
                "saved": path,
                "run": side.label,
                "cases": cases,
                "sessions": earlier.len() + 1,
            })
        ))?;
    } else {
        print(format!(
            "{}\n  {cases} cases of {}{}\n",
            path.display(),
            side.label,
            match earlier.len() {
                0 => String::new(),
                others => format!(", beside {}", counted(others, "earlier session")),
            },
        ))?;
    }
    Ok(0)
}

/// Why a run should not be what others are held against.
fn unfit(stored: &Stored) -> Option<String> {
    let side = &stored.side;
    let suite = &side.header.suite;
    if let Some(shard) = &side.header.shard {
        return Some(format!(
            "is shard {} of its suite; `regatta merge` makes the whole of all",
            shard.place
        ));
    }
    // What was said of it when it was measured: a gate held it against more than itself.
    if let Some(judged) = stored.run.end.as_ref().and_then(|end| end.judged.as_ref())
        && judged.outcome != VerdictOutcome::Passed
    {
        let against = match &judged.base {
            Some(base) => format!(" against baseline {}", base.name),
            None => String::new(),
        };
        let reasons = judged.reasons.join("; ");
        return Some(format!("did not pass{against} ({reasons})"));
    }
    if stored.run.end.is_none() && !stored.is_baseline {
        return Some(
            "was not measured to its end, or not judged and reported (the command that \
             measured it goes on with it)"
                .to_owned(),
        );
    }
    let verdict = judge::judge(side, None, &Options::default()).verdict;
    if verdict.outcome != VerdictOutcome::Passed {
        return Some(format!("did not pass ({})", verdict.reasons.join("; ")));
    }
    if side.header.settings.structure_only {
        return Some("has no times (--structure-only)".to_owned());
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

/// Why a run does not belong under a name: the baseline there is of another suite.
fn of_another_suite(store: &Store, name: &str, side: &Side) -> Option<String> {
    let there = suite_of(store, name)?;
    let own = &side.header.suite.name;
    (there != *own).then(|| format!("is of suite {own}, and baseline {name} is of suite {there}"))
}

/// The suite of a baseline that is there.
fn suite_of(store: &Store, name: &str) -> Option<String> {
    let (stored, _) = store.list();
    let mut of_name = stored.into_iter().filter(|stored| stored.name == name);
    of_name.next().map(|stored| stored.header.suite.name)
}

/// The newest run in the report folders under `reports` that passed, of the suite that `name`
/// stands for: the one of that name, that of the baseline there, or the only one there is.
/// With `force`, one that passed by itself will do.
fn newest_that_passed(
    reports: &Path,
    name: &str,
    store: &Store,
    force: bool,
) -> Result<Stored, Stop> {
    let folders = fs::read_dir(reports).into_iter().flatten().flatten();
    let mut runs: Vec<Stored> = folders
        .filter_map(|folder| {
            let path = folder.path().join(RUN_FILE);
            let label = path.display().to_string();
            let stored = sides::read(&path, &label, &mut Known::default()).ok()?;
            (!stored.is_baseline).then_some(stored)
        })
        .collect();
    runs.sort_by_key(|stored| std::cmp::Reverse(stored.run.header.started));
    let suites: BTreeSet<String> = runs
        .iter()
        .map(|stored| stored.run.header.suite.name.clone())
        .collect();
    let known = suites.contains(name) || BUILTIN.iter().any(|(suite, _)| *suite == name);
    let of = match (known, suite_of(store, name), suites.len()) {
        (true, ..) => Some(name.to_owned()),
        (false, Some(suite), _) => Some(suite),
        (false, None, 0 | 1) => None,
        (false, None, _) => {
            let suites: Vec<String> = suites.into_iter().collect();
            return Err(Stop::Usage(anyhow!(
                "`{name}` is no suite's name, and there are runs of {}; name the run: regatta \
                 baseline save {name} {}",
                suites.join(", "),
                runs[0].path.parent().unwrap_or(reports).display(),
            )));
        }
    };
    runs.retain(|stored| {
        let suite = &stored.run.header.suite.name;
        of.as_ref().is_none_or(|of| suite == of)
    });
    let count = runs.len();
    for stored in runs {
        let by_itself = || {
            let passed = judge::judge(&stored.side, None, &Options::default()).verdict;
            let timed = !stored.run.header.settings.structure_only;
            timed && stored.run.end.is_some() && passed.outcome == VerdictOutcome::Passed
        };
        if unfit(&stored).is_none() || force && by_itself() {
            return Ok(stored);
        }
    }
    let (of, make) = match &of {
        Some(suite) => (format!(" of suite {suite}"), suite.as_str()),
        None => (String::new(), "quick"),
    };
    Err(Stop::NotJudged(anyhow!(
        "none of the {count} runs{of} under {} passed, as a whole; make one: regatta run {make}",
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
            "{}\n  suite {}, {} cases, {}, machine {}, saved {}{}\n",
            baseline.name,
            baseline.header.suite.name,
            baseline.header.plan.len(),
            counted(baseline.earlier.len() + 1, "session"),
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

fn described(baseline: &baseline::Stored) -> serde_json::Value {
    json!({
        "name": baseline.name,
        "path": baseline.path,
        "suite": baseline.header.suite.name,
        "cases": baseline.header.plan.len(),
        "sessions": baseline.earlier.len() + 1,
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
        let stored = sides::read(&path, name, &mut Known::default())?;
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
