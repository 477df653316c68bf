//! `--watch`: the command again, whenever a file of the checkout is saved.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, SystemTime};

use clap::Args;

use super::{Ended, Stop, note, watch_for};
use regatta_measure::git;
use regatta_measure::worker::program::Program;

/// Files are looked at so often. Those that are saved together are one change.
const PAUSE: Duration = Duration::from_millis(300);

#[derive(Args, Debug)]
pub struct WatchArgs {
    /// Measure again whenever a file of the checkout is saved, until Ctrl-C
    ///
    /// Files that git tracks count, and code and suites that it does not ignore. One that is saved
    /// while something is measured has it measured again afterwards.
    #[arg(long, hide_short_help = true)]
    pub watch: bool,
}

/// Runs this command without `--watch`, and again after each change. A signal ends it.
///
/// # Errors
/// No checkout, or a command that cannot be started.
pub fn repeat(out: Option<&Path>) -> Ended {
    watch_for("");
    let program = std::env::current_exe().map_err(Stop::usage)?;
    let own = std::env::args().skip(1).filter(|word| word != "--watch");
    let own: Vec<String> = own.collect();
    let mut before = saved(out)?;
    loop {
        let streams = [Stdio::null(), Stdio::inherit(), Stdio::inherit()];
        let command = Program::new(program.clone(), own.clone());
        let started = command.start(streams, Vec::new());
        let mut started = started.map_err(Stop::usage)?;
        let ended = started.wait().map_err(Stop::usage)?;
        let code = ended.code().unwrap_or_default();
        note(format!(
            "exit code {code}; {} files are watched, Ctrl-C ends this",
            before.len()
        ));
        before = changed(before, out)?;
    }
}

/// Waits until a file differs, and then until no more do; returns the files as they are then.
fn changed(before: SavedFiles, out: Option<&Path>) -> Result<SavedFiles, Stop> {
    let mut last = before.clone();
    loop {
        let now = saved(out)?;
        if now == last && now != before {
            let is_new = |path: &&PathBuf| now.get(*path) != before.get(*path);
            let path = now.keys().chain(before.keys()).find(is_new);
            let path = path.map(|path| path.display().to_string());
            note(format!("{} changed", path.unwrap_or_default()));
            return Ok(now);
        }
        last = now;
        thread::sleep(PAUSE);
    }
}

/// The time and the size of each file.
type SavedFiles = BTreeMap<PathBuf, (SystemTime, u64)>;

fn saved(out: Option<&Path>) -> Result<SavedFiles, Stop> {
    let out = out.and_then(|out| out.canonicalize().ok());
    let is_source = |path: &PathBuf| out.as_ref().is_none_or(|out| !path.starts_with(out));
    let files = git::sources_of_checkout().map_err(Stop::usage)?;
    let files = files.into_iter().filter(is_source);
    let states = files.filter_map(|path| {
        let file = path.metadata().ok()?;
        Some((path, (file.modified().ok()?, file.len())))
    });
    Ok(states.collect())
}
