//! Processes that have imported libraries, kept between two runs of `--watch`.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::WorkerSpec;
use super::forks::Server;
use super::host::WorkerProcess;

/// Owns the servers that no run uses at the moment. Empty outside of a watch.
#[derive(Clone, Debug, Default)]
pub struct Pool(Arc<Mutex<State>>);

/// The processes of a worker that a watch keeps between runs.
#[derive(Debug)]
pub(super) struct Kept {
    /// Has imported only libraries.
    pub(super) server: Server,
    /// Workers that it forked for the next run. They have opened their device, and import the code
    /// under test when they introduce themselves.
    pub(super) ahead: Vec<WorkerProcess>,
}

/// The command, variables and folder of a worker.
type Key = (Vec<String>, Vec<(String, String)>, Option<PathBuf>);

/// Servers by the logs of their workers, since each side has its own.
type Servers = BTreeMap<PathBuf, (Key, Kept)>;

#[derive(Debug, Default)]
struct State {
    /// Reports why a server was lost; absent outside of a watch.
    note: Option<fn(String)>,
    /// Reports about servers that cannot be kept, each made once.
    brief: BTreeSet<String>,
    /// Servers that this run has used.
    idle: Servers,
    /// Servers of the run before that this run has not used yet.
    earlier: Servers,
}

impl Pool {
    /// Begins a run of a watch. Ends servers that the run before did not use, for example because
    /// the suite no longer has their worker.
    pub fn begin(&self, note: fn(String)) {
        drop(self.with(|state| {
            state.note = Some(note);
            let used = mem::take(&mut state.idle);
            mem::replace(&mut state.earlier, used)
        }));
    }

    /// True in a watch.
    pub(crate) fn keeps(&self) -> bool {
        self.with(|state| state.note.is_some())
    }

    /// Takes the server of an earlier run, unless the worker's command has changed.
    pub(super) fn take(&self, spec: &WorkerSpec, log: &Path) -> Option<Kept> {
        let (started, kept) = self.with(|state| {
            let kept = state.idle.remove(log);
            kept.or_else(|| state.earlier.remove(log))
        })?;
        (started == key(spec)).then_some(kept)
    }

    /// Keeps a server and its workers for the next run.
    pub(super) fn put(&self, spec: &WorkerSpec, log: PathBuf, kept: Kept) {
        drop(self.with(|state| state.idle.insert(log, (key(spec), kept))));
    }

    /// Reports why a server can no longer be used.
    pub(super) fn lost(&self, worker: &str, reason: &str) {
        if let Some(note) = self.with(|state| state.note) {
            note(format!(
                "worker {worker} imports its libraries again: {reason}"
            ));
        }
    }

    /// Reports once why a worker's libraries are imported for each run.
    pub(super) fn cannot_stay(&self, worker: &str, reason: &str) {
        let text = format!("worker {worker} imports its libraries for each answer: {reason}");
        let note = self.with(|state| state.note.filter(|_| state.brief.insert(text.clone())));
        if let Some(note) = note {
            note(text);
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn key(spec: &WorkerSpec) -> Key {
    let program = spec.program.display().to_string();
    let command = [&[program], &spec.args[..]].concat();
    (command, spec.variables(), spec.directory.clone())
}
