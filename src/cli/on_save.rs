//! `--watch`: gives the answer again whenever a file of the checkout is saved.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use super::{Ended, Stop, complain, note, watch_for};
use regatta_measure::git;
use regatta_measure::worker::pool::Pool;

/// The interval at which files are checked. Files saved within one interval are one change.
const PAUSE: Duration = Duration::from_millis(100);

/// The number of checks after which git lists the files again, even if no folder changed.
const MAX_LOOKS: usize = 30;

/// Gives an answer, and another one after each change. A signal ends it.
///
/// # Errors
/// No checkout.
pub fn repeat(pool: &Pool, out: Option<&Path>, answer: impl Fn() -> Ended) -> Ended {
    watch_for("");
    let mut measured = Checkout::look(out)?;
    loop {
        pool.begin(note);
        let exit_code = answer().unwrap_or_else(|stop| {
            complain(&stop);
            stop.exit_code()
        });
        let now = Checkout::look(out)?;
        measured = if now.files == measured.files {
            saved(now, out, exit_code)?
        } else {
            let now = now.settled(out)?;
            let names = now.since(&measured);
            note(format!("saved while it was measured: {names}"));
            now
        };
    }
}

/// Waits until the contents of files differ from those that were measured.
fn saved(mut measured: Checkout, out: Option<&Path>, exit_code: u8) -> Result<Checkout, Stop> {
    let code = || git::state_of_checkout(out.unwrap_or(Path::new("reports")));
    // The state is unknown if a file was saved during this check.
    let before = Some(code()).filter(|_| measured.is_current());
    note(format!(
        "exit code {exit_code}; waiting until one of {} files is saved, Ctrl-C ends this",
        measured.files.len()
    ));
    loop {
        let mut now = measured.clone();
        while now.files == measured.files {
            let mut looks = 0..MAX_LOOKS;
            while looks.next().is_some() && now.is_current() {
                thread::sleep(PAUSE);
            }
            now = Checkout::look(out)?;
        }
        let now = now.settled(out)?;
        let names = now.since(&measured);
        if before != Some(code()) {
            note(format!("saved: {names}"));
            return Ok(now);
        }
        note(format!("saved without a change: {names}"));
        measured = now;
    }
}

/// The modification time and the size of each file or folder; `None` if it does not exist.
type Stamps = BTreeMap<PathBuf, Option<(SystemTime, u64)>>;

fn stamps<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Stamps {
    let stamp = |path: &Path| {
        let facts = path.metadata().ok()?;
        Some((facts.modified().ok()?, facts.len()))
    };
    let paths = paths.into_iter();
    paths.map(|path| (path.to_owned(), stamp(path))).collect()
}

/// The watched files and their folders.
#[derive(Clone)]
struct Checkout {
    files: Stamps,
    folders: Stamps,
}

impl Checkout {
    fn look(out: Option<&Path>) -> Result<Checkout, Stop> {
        let out = out.and_then(|out| out.canonicalize().ok());
        let mut files = git::sources_of_checkout().map_err(Stop::usage)?;
        files.retain(|path| out.as_ref().is_none_or(|out| !path.starts_with(out)));
        Ok(Checkout {
            folders: stamps(files.iter().filter_map(|path| path.parent())),
            files: stamps(files.iter().map(PathBuf::as_path)),
        })
    }

    /// True if nothing was saved, created or removed since.
    fn is_current(&self) -> bool {
        let mut both = [&self.files, &self.folders].into_iter();
        both.all(|was| stamps(was.keys().map(PathBuf::as_path)) == *was)
    }

    /// Waits until no more files are saved.
    fn settled(mut self, out: Option<&Path>) -> Result<Checkout, Stop> {
        loop {
            thread::sleep(PAUSE);
            if self.is_current() {
                return Ok(self);
            }
            self = Checkout::look(out)?;
        }
    }

    /// The files that differ from those before: `old.py (deleted) and 2 more`.
    fn since(&self, before: &Checkout) -> String {
        let here = std::env::current_dir().unwrap_or_default();
        let stamp =
            |checkout: &Checkout, path: &PathBuf| checkout.files.get(path).copied().flatten();
        let all: BTreeSet<&PathBuf> = self.files.keys().chain(before.files.keys()).collect();
        let mut differ = all.into_iter();
        let mut next = || differ.find(|path| stamp(self, path) != stamp(before, path));
        let first = next().map_or(String::new(), |path| {
            let deleted = stamp(self, path).map_or(" (deleted)", |_| "");
            let path = path.strip_prefix(&here).unwrap_or(path);
            format!("{}{deleted}", path.display())
        });
        match std::iter::from_fn(next).count() {
            0 => first,
            more => format!("{first} and {more} more"),
        }
    }
}
