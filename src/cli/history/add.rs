//! `regatta history add`, and the runs that `run` and `gate` add when they end.

use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use serde_json::json;

use super::AddArgs;
use super::time;
use crate::cli::{Ended, Stop, note, print, print_json};
use regatta_core::record::RecordError;
use regatta_core::record::baseline;
use regatta_core::record::history::{Added, HistoryStore, Reduced, reduced};
use regatta_core::record::run_file::RUN_FILE;
use regatta_judge::judgement::VerdictOutcome;
use regatta_measure::experiment::stored;
use regatta_worker::units::counted;

/// The options for adding a run to the history of its suite.
#[derive(Args, Clone, Debug)]
pub struct Keep {
    /// Add the run to the history in this folder, whatever its verdict
    #[arg(
        long,
        hide_short_help = true,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "history"
    )]
    history: Option<PathBuf>,
}

impl Keep {
    /// True if the run will be added.
    pub fn any(&self) -> bool {
        self.history.is_some()
    }
}

/// Adds runs.
///
/// # Errors
/// When a run cannot be read or added, before any run is added: exit code 2; when one cannot be
/// written: 3.
pub(super) fn run(args: &AddArgs) -> Ended {
    let at = args.at.as_ref().map(|text| {
        time(text).ok_or_else(|| {
            Stop::Usage(format!(
                "--at {text}: use a date such as 2026-05-01, or a time such as 2026-05-01T12:00:00Z"
            ))
        })
    });
    let at = at.transpose()?;
    let store = HistoryStore::new(&args.root);
    let all = found(&args.runs, at)?;
    let mut answers = Vec::new();
    for runs in all.chunk_by(Reduced::goes_with) {
        let added = store.add(runs).map_err(refused)?;
        for (run, added) in runs.iter().zip(&added) {
            let label = &run.about.label;
            let text = outcome(added);
            if !args.json {
                print(format!("{label}: {text}\n"))?;
            }
            if let Some(disturbed) = run.disturbed() {
                note(format!("{label}: {disturbed}"));
            }
            match added {
                Added::New {
                    path, runs, new, ..
                } => {
                    answers.push(json!({
                    "run": label, "added": true, "history": path, "runs": runs, "new_cases": new,
                }));
                }
                Added::Already { path } => {
                    answers.push(json!({ "run": label, "added": false, "history": path }));
                }
            }
        }
    }
    if args.json {
        print_json(&answers)
    } else {
        Ok(0)
    }
}

/// The result of adding a run, as text. Reports damage of the history.
fn outcome(added: &Added) -> String {
    let (path, runs, new) = match added {
        Added::Already { path } => {
            return format!("skipped, this run is in {} already", path.display());
        }
        Added::New {
            path,
            runs,
            new,
            damage,
        } => {
            damage.iter().for_each(note);
            (path.display(), counted(*runs, "run"), *new)
        }
    };
    let new = match new {
        0 => String::new(),
        new => format!(", {} it did not have before", counted(new, "case")),
    };
    format!("added to {path}, which has {runs} now{new}")
}

/// Reads runs, reduced to the parts that a history keeps.
fn found(names: &[String], at: Option<Timestamp>) -> Result<Vec<Reduced>, Stop> {
    if let Some(name) = names.iter().find(|name| !Path::new(name).exists()) {
        refuse!("{name} is neither a run's file nor a folder with a {RUN_FILE}");
    }
    let store = baseline::Store::new("baselines");
    let all = stored::find_all(names, &store, None)?.into_iter();
    let reduced = all.map(|one| {
        if one.is_baseline {
            Err(refused(RecordError::not_added(
                &one.path,
                "it is a baseline; name the run that it was saved from",
            )))
        } else {
            reduced(&one.path, &one.files, &one.run, &one.side, at).map_err(refused)
        }
    });
    reduced.collect()
}

/// The error of a request that is invalid, or that could not be done.
fn refused(error: RecordError) -> Stop {
    match error {
        RecordError::Busy(_) => Stop::not_judged(error),
        error => Stop::usage(error),
    }
}

/// Adds the run of a `run` or `gate` to a history, if requested, and returns the exit code: that of
/// the verdict or, if nothing is worse and the run could not be added, 3.
///
/// # Errors
/// As the command itself.
pub fn add_to_history(ended: Ended, keep: &Keep, directory: &Path, quiet: bool) -> Ended {
    let (Some(root), Ok(code)) = (&keep.history, &ended) else {
        return ended;
    };
    let add = || -> Result<(), Stop> {
        let path = directory.join(RUN_FILE).display().to_string();
        let store = HistoryStore::new(root);
        let runs = found(&[path], None)?;
        runs.iter().filter_map(Reduced::disturbed).for_each(note);
        for added in store.add(&runs).map_err(refused)? {
            let text = outcome(&added);
            if !quiet {
                note(text);
            }
        }
        Ok(())
    };
    match (add(), *code) {
        (Ok(()), code) => Ok(code),
        (Err(stop), code) => {
            note(format!("the run was not added to the history: {stop}"));
            match code {
                0 => Ok(VerdictOutcome::Inconclusive.exit_code()),
                code => Ok(code),
            }
        }
    }
}
