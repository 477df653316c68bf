//! `--watch`: the command again, whenever a file of the checkout is saved.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, SystemTime};

use super::{Ended, Stop, note, watch_for};
use regatta_measure::git;
use regatta_measure::worker::program::{Program, ended};

/// Files are looked at so often. Those that are saved together are one change.
const PAUSE: Duration = Duration::from_millis(300);

/// Runs this command without `--watch`, and again after each change. A signal ends it.
///
/// # Errors
/// No checkout, or a command that cannot be started.
pub fn repeat(out: Option<&Path>) -> Ended {
    watch_for("");
    let program = std::env::current_exe().map_err(Stop::usage)?;
    let own = without_watch(std::env::args().skip(1));
    let mut before = saved(out)?;
    loop {
        let streams = [Stdio::null(), Stdio::inherit(), Stdio::inherit()];
        let command = Program::new(program.clone(), own.clone());
        let started = command.start(streams, Vec::new());
        let mut started = started.map_err(Stop::usage)?;
        let status = started.wait().map_err(Stop::usage)?;
        note(format!(
            "{}; {} files are watched, Ctrl-C ends this",
            ended(status),
            before.len()
        ));
        before = changed(before, out)?;
    }
}

/// The words of a command but `--watch`. Words after `--` are a script's.
fn without_watch(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut is_ours = true;
    let keep = |word: &String| {
        is_ours &= word != "--";
        !is_ours || word != "--watch"
    };
    words.filter(keep).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_script_stay() {
        let words = "gate script:bench.py --watch -- --watch".split(' ');
        let kept = without_watch(words.map(str::to_owned));
        assert_eq!(kept.join(" "), "gate script:bench.py -- --watch");
    }
}
