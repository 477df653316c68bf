//! Processes that have imported libraries, kept between two answers of `--watch`.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::WorkerSpec;
use super::forks::Server;
use super::host::WorkerProcess;

/// Owns the servers that no answer uses. Outside of a watch it is empty.
#[derive(Clone, Debug, Default)]
pub struct Pool(Arc<Mutex<State>>);

/// The processes of a worker that outlive an answer of a watch.
#[derive(Debug)]
pub(super) struct Kept {
    /// Has imported libraries alone.
    pub(super) server: Server,
    /// Workers that it has forked for the next answer. They have opened their device, and will import
    /// the code when they introduce themselves.
    pub(super) ahead: Vec<WorkerProcess>,
}

/// The command of a worker, its variables and its folder.
type Key = (Vec<String>, Vec<(String, String)>, Option<PathBuf>);

/// Servers by the logs of their workers: each side has its own.
type Servers = BTreeMap<PathBuf, (Key, Kept)>;

#[derive(Debug, Default)]
struct State {
    /// Shows why a server was lost; absent outside of a watch.
    note: Option<fn(String)>,
    /// The servers that cannot stay, which is said once.
    brief: BTreeSet<String>,
    /// Those that this answer used.
    idle: Servers,
    /// Those of the answer before that this one has not used.
    earlier: Servers,
}

impl Pool {
    /// Begins an answer of a watch. Servers that the one before did not use end, such as that of a
    /// worker that the suite no longer has.
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

    /// Takes out what an earlier answer put there, unless the command has changed.
    pub(super) fn take(&self, spec: &WorkerSpec, log: &Path) -> Option<Kept> {
        let (started, kept) = self.with(|state| {
            let kept = state.idle.remove(log);
            kept.or_else(|| state.earlier.remove(log))
        })?;
        (started == key(spec)).then_some(kept)
    }

    /// Keeps a server and its workers for the next answer.
    pub(super) fn put(&self, spec: &WorkerSpec, log: PathBuf, kept: Kept) {
        drop(self.with(|state| state.idle.insert(log, (key(spec), kept))));
    }

    /// Says why a server serves no more.
    pub(super) fn lost(&self, worker: &str, reason: &str) {
        if let Some(note) = self.with(|state| state.note) {
            note(format!(
                "worker {worker} imports its libraries again: {reason}"
            ));
        }
    }

    /// Says why a worker's libraries are imported for each answer, once.
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
