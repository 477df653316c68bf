//! Reads the runs of shards, and merges them into one run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::line::Lines;
use super::run_file::{RUN_FILE, differences};
use super::{RecordError, Run, RunEnd, RunHeader, Shard, Side, plan_checksum};
use crate::input;
use crate::suite::plan::Place;
use regatta_worker::case::CaseId;

/// The reason why shards cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// One cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// They are not all the shards of one run; the faults, one on each line.
    #[error("these are not all shards of one run:\n  {}", .0.join("\n  "))]
    Apart(Vec<String>),
}

/// True for the run of a shard.
pub fn is_shard(file: &Path) -> bool {
    /// The part of a header that is read, since the whole may have 100,000 cases.
    #[derive(Deserialize)]
    struct Sharded {
        #[serde(default)]
        shard: Option<IgnoredAny>,
    }
    let mut lines = Lines::open(file, input::RUN, input::RUN);
    let first = lines
        .as_mut()
        .ok()
        .and_then(|lines| lines.first("run").ok());
    first.is_some_and(|first: Sharded| first.shard.is_some())
}

/// The run files of shards in the subfolders of `folder`, sorted.
pub fn within(folder: &Path) -> Vec<PathBuf> {
    let folders = input::paths_in(folder, |folder| is_shard(&folder.join(RUN_FILE)));
    folders.iter().map(|folder| folder.join(RUN_FILE)).collect()
}

/// A shard that was read.
struct ShardPart {
    path: PathBuf,
    place: Place,
    whole: String,
    run: Run,
    side: Side,
}

impl ShardPart {
    fn named(&self) -> String {
        format!("shard {} ({})", self.place, self.path.display())
    }
}

/// Merges the runs of shards, given in any order, into one run. It has no entries.
///
/// # Errors
/// When one cannot be read; when one is missing, unfinished, a duplicate, or of another suite,
/// revision, machine or number of shards than the others. Each is named.
pub fn read(files: &[PathBuf], label: &str) -> Result<(Run, Side), ShardError> {
    let mut parts = Vec::new();
    let mut wrong = Vec::new();
    for path in files {
        let (run, side) = Side::read(path, label)?;
        match run.header.shard.clone() {
            Some(Shard { place, whole }) => parts.push(ShardPart {
                path: path.clone(),
                place,
                whole,
                run,
                side,
            }),
            None => wrong.push(format!("{} is the run of a whole suite", path.display())),
        }
    }
    parts.sort_by_key(|part| part.place);
    let Some(first) = parts.first() else {
        return Err(ShardError::Apart(wrong));
    };
    let count = first.place.of;
    for part in &parts {
        let foreign = foreign(part, first);
        if !foreign.is_empty() {
            let (part, first) = (part.named(), first.named());
            let why = foreign.join("; ");
            wrong.push(format!("{part} does not belong to {first}: {why}"));
        } else if part.run.end.is_none() {
            let problem = "was not measured to its end: repeat the same command to resume it";
            wrong.push(format!("{} {problem}", part.named()));
        }
    }
    for two in parts.windows(2).filter(|two| two[0].place == two[1].place) {
        let (place, one, other) = (two[0].place, two[0].path.display(), two[1].path.display());
        wrong.push(format!("shard {place} is there twice: {one} and {other}"));
    }
    for index in 1..=count {
        if !parts.iter().any(|part| part.place.index == index) {
            wrong.push(format!(
                "shard {index}/{count} is not there: `{} --shard {index}/{count}` measures it",
                unsharded(&first.run.header.argv).join(" ")
            ));
        }
    }
    let plan = parts.iter().flat_map(|part| part.run.header.plan.clone());
    let mut plan: Vec<CaseId> = plan.collect();
    // The order of a suite's cases: by their values, not by their text.
    plan.sort_by_cached_key(|id| (id.case().ok(), id.clone()));
    if wrong.is_empty() && plan_checksum(plan.iter().cloned()) != first.whole {
        wrong.push("their cases are not those of the suite: a file was edited".to_owned());
    }
    if wrong.is_empty() {
        let header = header(&parts, plan);
        Ok(together(parts, header, label))
    } else {
        Err(ShardError::Apart(wrong))
    }
}

/// The reasons why a shard belongs to another run than `first`.
fn foreign(part: &ShardPart, first: &ShardPart) -> Vec<String> {
    let mut differences = differences(&first.run.header, &part.run.header);
    if part.place.of != first.place.of {
        differences.push("it is one of another number of shards".to_owned());
    }
    if differences.is_empty() && part.whole != first.whole {
        differences.push("its suite had other cases".to_owned());
    }
    differences
}

/// The words of a command, without the option that chooses the shard.
fn unsharded(argv: &[String]) -> Vec<String> {
    let mut words = Vec::new();
    let mut argv = argv.iter();
    while let Some(word) = argv.next() {
        match word.as_str() {
            "--shard" => drop(argv.next()),
            word if word.starts_with("--shard=") => {}
            word => words.push(word.to_owned()),
        }
    }
    words
}

/// The header of the merged run.
fn header(parts: &[ShardPart], plan: Vec<CaseId>) -> RunHeader {
    let first = &parts[0].run.header;
    let starts = parts.iter().map(|part| part.run.header.started);
    let hosts = parts.iter().map(|part| {
        let host = part.run.header.machine.soft.get("host").cloned();
        host.unwrap_or_else(|| format!("that of shard {}", part.place.index))
    });
    RunHeader {
        argv: unsharded(&first.argv),
        started: starts.min().unwrap_or(first.started),
        plan,
        shard: None,
        hosts: hosts.collect(),
        ..first.clone()
    }
}

fn together(parts: Vec<ShardPart>, header: RunHeader, label: &str) -> (Run, Side) {
    let mut side = Side {
        label: label.to_owned(),
        header: header.clone(),
        cases: BTreeMap::new(),
        damage: Vec::new(),
    };
    let mut run = Run::begun(header);
    let ends = parts.iter().filter_map(|part| part.run.end.as_ref());
    run.end = ends.map(|end| end.finished).max().map(|finished| RunEnd {
        finished,
        judged: None,
    });
    for part in parts {
        side.cases.extend(part.side.cases);
        side.damage.extend(part.side.damage);
        run.damage.extend(part.run.damage);
    }
    (run, side)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_the_whole_is_that_of_a_shard_without_it() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for argv in [
            "regatta run s --shard 1/4 -q",
            "regatta run s --shard=1/4 -q",
        ] {
            assert_eq!(unsharded(&words(argv)), words("regatta run s -q"));
        }
    }
}
