//! Chooses the run that becomes a baseline, and replaces an existing one.

use std::path::{Path, PathBuf};

use super::ExperimentError;
use super::arm::reports;
use super::rejudge::head_of_comparison;
use super::stored::{StoredRun, find, runs_within};
use regatta_core::record::baseline::Store;
use regatta_core::record::run_file::RUN_FILE;
use regatta_core::record::{RecordError, Side, now, shards};
use regatta_core::suite::document::nearest;
use regatta_judge::judgement::VerdictOutcome;
use regatta_judge::{self as judge, Options};

/// Saves a run as a baseline. Without `runs` it takes the run in reports/NAME, or else the only one
/// in reports/. An existing baseline is replaced only with `replace`. With `force`, a run that is
/// not fit to be a baseline is accepted. Returns the baseline's file, and its results.
///
/// # Errors
/// The run cannot serve as a baseline: exit code 3. The run is missing or cannot be read: 2.
pub fn save(
    store: &Store,
    name: &str,
    runs: &[String],
    replace: bool,
    force: bool,
) -> Result<(PathBuf, Side), ExperimentError> {
    let suite = suite_of(store, name);
    let stored = if runs.is_empty() {
        find(&[measured(name, suite.as_deref())?], store, None)?
    } else {
        find(runs, store, None)?
    };
    let why = unfit(&stored).or_else(|| suite_mismatch(name, suite.as_deref()?, &stored.side));
    if let (Some(why), false) = (why, force) {
        return Err(ExperimentError::NotJudged(format!(
            "{} {why}; --force saves it as a baseline all the same",
            stored.side.label
        )));
    }
    let path = store
        .save(name, &stored.side, now(), replace)
        .map_err(|error| match error {
            RecordError::Refused(_) => ExperimentError::usage(error),
            _ => ExperimentError::not_judged(error),
        })?;
    Ok((path, stored.side))
}

/// The report folder to save under `name`: that of the existing baseline's suite, or the one of
/// this name, or else the only one.
fn measured(name: &str, suite: Option<&str>) -> Result<String, ExperimentError> {
    let folder = reports(suite.unwrap_or(name));
    let name_of_folder = folder.display().to_string();
    let has_run = folder.join(RUN_FILE).exists() || !shards::within(&folder).is_empty();
    if has_run || head_of_comparison(&name_of_folder).is_some() {
        return Ok(name_of_folder);
    }
    let others = runs_within(&reports(""));
    let suites = others
        .iter()
        .filter_map(|path| Path::new(path).file_name()?.to_str());
    let fix = match (&others[..], nearest(name, suites)) {
        ([only], Some(near)) if suite.is_none() => format!(
            "did you mean `{near}`? regatta baseline save {near}; or name the run: regatta baseline \
             save {name} {only}"
        ),
        ([only], None) if suite.is_none() => return Ok(only.clone()),
        ([], _) => "measure a suite: regatta run SUITE".to_owned(),
        ([first, ..], _) => {
            let all = others.join(", ");
            format!("name one of {all}: regatta baseline save {name} {first}")
        }
    };
    Err(ExperimentError::Usage(format!(
        "{name_of_folder} has no run; {fix}"
    )))
}

/// The reason for which a run should not be compared with later ones, if any.
fn unfit(stored: &StoredRun) -> Option<String> {
    let side = &stored.side;
    let suite = &side.header.suite;
    // The stored verdict, since a gate compared the run with more than itself.
    if let Some(judged) = stored.run.end.as_ref().and_then(|end| end.judged.as_ref())
        && judged.outcome != VerdictOutcome::Passed
    {
        let against = judged.base.as_ref();
        let against = against.map(|base| format!(" against baseline {}", base.name));
        let (against, reasons) = (against.unwrap_or_default(), judged.reasons.join("; "));
        return Some(format!("did not pass{against} ({reasons})"));
    }
    if stored.run.end.is_none() && !stored.is_baseline {
        return Some(
            "was not measured to its end, or its verdict is missing (the command that \
             measured it resumes it)"
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
        return Some(format!("has only a part of its suite (--filter {filter})"));
    }
    if suite.arguments.iter().any(|argument| argument == "--set") {
        return Some("was measured with --set".to_owned());
    }
    None
}

/// The reason for which a run cannot have this name: its baseline is of another suite.
fn suite_mismatch(name: &str, there: &str, side: &Side) -> Option<String> {
    let own = &side.header.suite.name;
    (there != own).then(|| format!("is of suite {own}, and baseline {name} is of suite {there}"))
}

/// The suite of an existing baseline.
fn suite_of(store: &Store, name: &str) -> Option<String> {
    let (stored, _) = store.list();
    let mut of_name = stored.into_iter().filter(|stored| stored.name == name);
    of_name.next().map(|stored| stored.header.suite.name)
}
