//! Which run becomes a baseline, and what becomes of the one that is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::ExperimentError;
use super::stored::{StoredRun, find, find_one};
use regatta_core::record::RecordError;
use regatta_core::record::baseline::Store;
use regatta_core::record::run_file::RUN_FILE;
use regatta_core::record::side::Side;
use regatta_core::suite::BUILTIN;
use regatta_judge::judgement::VerdictOutcome;
use regatta_judge::{self as judge, Options};

/// Saves a run as a baseline: of none, the newest that passed. The one that is there is replaced
/// only with `replace`; with `force`, a run will do that is not fit to be one. Gives its file, and
/// what it was made of.
///
/// # Errors
/// When a run is none to hold others against: exit code 3; when it cannot be read: 2.
pub fn save(
    store: &Store,
    name: &str,
    runs: &[String],
    replace: bool,
    force: bool,
) -> Result<(PathBuf, Side), ExperimentError> {
    let stored = match runs.is_empty() {
        true => newest_that_passed(Path::new("reports"), name, store, force)?,
        false => find_one(runs, store)?,
    };
    let why = unfit(&stored).or_else(|| suite_mismatch(store, name, &stored.side));
    if let (Some(why), false) = (why, force) {
        return Err(ExperimentError::NotJudged(format!(
            "{} {why}; it makes no baseline unless --force is given",
            stored.side.label
        )));
    }
    let path = store
        .save(name, &stored.side, Timestamp::now(), replace)
        .map_err(|error| match error {
            RecordError::Exists(_) | RecordError::Name(_) | RecordError::Machine(_) => {
                ExperimentError::usage(error)
            }
            _ => ExperimentError::not_judged(error),
        })?;
    Ok((path, stored.side))
}

/// Why a run should not be what others are compared with.
fn unfit(stored: &StoredRun) -> Option<String> {
    let side = &stored.side;
    let suite = &side.header.suite;
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
            "was not measured to its end, or its verdict is missing (the command that \
             measured it goes on with it)"
                .to_owned(),
        );
    }
    let verdict = judge::judge(side, None, &Options::ALONE).verdict;
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
fn suite_mismatch(store: &Store, name: &str, side: &Side) -> Option<String> {
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
) -> Result<StoredRun, ExperimentError> {
    let folders = fs::read_dir(reports).into_iter().flatten().flatten();
    let mut runs: Vec<StoredRun> = folders
        .filter_map(|folder| {
            let run = Some(folder.path().join(RUN_FILE)).filter(|run| run.is_file());
            let run = run.unwrap_or(folder.path()).display().to_string();
            let stored = find(&run, store, None).ok()?;
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
            return Err(ExperimentError::Usage(format!(
                "`{name}` is no suite's name, and there are runs of {}; name the run: regatta \
                 baseline save {name} {}",
                suites.join(", "),
                runs[0].side.label,
            )));
        }
    };
    runs.retain(|stored| {
        let suite = &stored.run.header.suite.name;
        of.as_ref().is_none_or(|of| suite == of)
    });
    let mut why_newest = None;
    for stored in runs {
        let by_itself = || {
            let passed = judge::judge(&stored.side, None, &Options::ALONE).verdict;
            let timed = !stored.run.header.settings.structure_only;
            timed && stored.run.end.is_some() && passed.outcome == VerdictOutcome::Passed
        };
        match unfit(&stored) {
            None => return Ok(stored),
            Some(_) if force && by_itself() => return Ok(stored),
            Some(why) => {
                let newest = (stored.side.label, why);
                why_newest.get_or_insert(newest);
            }
        }
    }
    let (of, make) = match &of {
        Some(suite) => (format!(" of suite {suite}"), suite.as_str()),
        None => (String::new(), "quick"),
    };
    Err(ExperimentError::NotJudged(match why_newest {
        None => format!(
            "there is no run{of} under {}; measure one: regatta run {make}",
            reports.display()
        ),
        Some((newest, why)) => format!(
            "no run{of} under {} can be a baseline; the newest, {newest}, {why}. Save it as it is: \
             regatta baseline save {name} {newest} --force",
            reports.display()
        ),
    }))
}
