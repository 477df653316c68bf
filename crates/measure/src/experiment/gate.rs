//! A suite held against its baseline.

use std::path::Path;
use std::time::Duration;

use super::deciding::{AgainstStored, decide, incomparable};
use super::request::BASELINES;
use super::stored::{Base, whole_baseline};
use super::{ExperimentError, Measured, Ready, Request};
use crate::identity::checksum;
use regatta_core::record::baseline::Store;
use regatta_core::record::side::Side;
use regatta_core::record::types::BaseId;
use regatta_core::text::shell_command;
use regatta_judge::Options;

/// Measures a suite until everything is decided that can be, against the baseline of this name;
/// of none, against that of the suite's name. No batch is taken that would end later than
/// `budget` after the start.
///
/// # Errors
/// Whatever is wrong with what was asked for: exit code 2; no baseline, or one that this cannot
/// be compared with: 3, before anything is measured.
pub fn gate(
    request: &Request,
    baseline: Option<&str>,
    budget: Option<Duration>,
    options: Options,
) -> Result<Measured, ExperimentError> {
    let mut ready = Ready::prepare(request, None)?;
    let name = baseline.unwrap_or(&ready.suite.name).to_owned();
    let store = Store::new(&request.baselines);
    let mut base = match find(&store, &name, &ready)? {
        Some(base) => Some(base),
        // Limits need none.
        None if request.structure_only && baseline.is_none() => None,
        None => {
            return Err(ExperimentError::NotJudged(format!(
                "there is no baseline `{name}` in {}; make one from a run that passed:\n  {}",
                store.root().display(),
                making(&store, &name, &ready),
            )));
        }
    };
    if let Some(base) = &mut base {
        // A part of the suite is held against the same part of the baseline.
        base.side.keep(&ready.header.suite.filter);
        refuse_before_measuring(&ready, &base.side, &options, &store)?;
    }
    let id = base.as_ref().map(|base| base.id.clone());
    let mut writer = ready.measure(id)?;
    if let Some(base) = &base {
        let mut batches = AgainstStored {
            ready: &mut ready,
            writer: &mut writer,
            base,
            options: &options,
        };
        decide(&mut batches, budget)?;
    }
    Ok(Measured {
        folder: ready.directory.clone(),
        ready,
        writer,
        base,
        base_writer: None,
        options,
    })
}

/// The baseline of this name for this machine, or else for another; `None` where there is
/// none at all.
fn find(store: &Store, name: &str, ready: &Ready) -> Result<Option<Base>, ExperimentError> {
    let own = store.of_machine(name, &ready.header.machine.name);
    // One of another machine is read too, so that what differs can be said.
    let path = match own.map_err(ExperimentError::usage)? {
        Some(path) => Some(path),
        None => store
            .files(name)
            .map_err(ExperimentError::usage)?
            .into_iter()
            .next(),
    };
    let Some(path) = path else {
        return Ok(None);
    };
    let id = BaseId {
        name: name.to_owned(),
        sum: checksum(&path),
    };
    let side = whole_baseline(&path)?;
    Ok(Some(Base { id, side }))
}

/// A comparison that will be refused need not be measured for.
fn refuse_before_measuring(
    ready: &Ready,
    base: &Side,
    options: &Options,
    store: &Store,
) -> Result<(), ExperimentError> {
    let Some(lines) = incomparable(ready, base, options, ["there", "here"]) else {
        return Ok(());
    };
    Err(ExperimentError::NotJudged(format!(
        "baseline `{}` cannot be compared with this machine and suite (nothing was measured):\n\
         {lines}\nmake one here:\n  {}",
        base.label,
        making(store, &base.label, ready),
    )))
}

/// The commands that make a baseline of this suite.
fn making(store: &Store, name: &str, ready: &Ready) -> String {
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|&word| word.to_owned())
            .collect::<Vec<_>>()
    };
    let run = [
        words(&["regatta", "run"]),
        ready.header.suite.arguments.clone(),
    ]
    .concat();
    let directory = ready.directory.display().to_string();
    let mut save = words(&["regatta", "baseline"]);
    save.extend(in_folder(store.root()));
    save.extend(words(&["save", name, &directory]));
    format!("{}\n  {}", shell_command(&run), shell_command(&save))
}

/// The words that name the folder of baselines; none where it is the usual one.
fn in_folder(baselines: &Path) -> Vec<String> {
    match baselines == Path::new(BASELINES) {
        true => Vec::new(),
        false => vec!["--baselines".to_owned(), baselines.display().to_string()],
    }
}
