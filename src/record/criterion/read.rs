//! Reads a folder of criterion's files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::de::DeserializeOwned;

use super::files::{Estimates, Identity, Sample};
use crate::input;
use crate::record::RecordError;
use crate::record::side::{is_time, median};
use crate::units::Nanoseconds;

/// `ROOT/GROUP/FUNCTION/VALUE/BASELINE` is as deep as criterion goes.
const DEEPEST: usize = 4;

/// Folders beside the baselines that are none: relative changes, and pages.
const NOT_BASELINES: [&str; 2] = ["change", "report"];

/// One benchmark under one baseline, reduced as a run's cases are.
#[derive(Clone, Debug, PartialEq)]
pub struct Benchmark {
    /// Its folder, the baseline's name last.
    pub folder: PathBuf,
    /// What was benchmarked.
    pub identity: Identity,
    /// Median time of one call in each invocation, in criterion's unit, which no file
    /// names: nanoseconds for its own clock and for regatta's.
    pub invocations: Vec<Nanoseconds>,
    /// Samples behind them; 0 where only the estimates were there.
    pub samples: u64,
    /// When its times were written, as far as the file system knows.
    pub written: Option<SystemTime>,
}

/// The names of the baselines under a folder.
///
/// # Errors
/// When a folder cannot be read.
pub fn baselines(root: &Path) -> Result<BTreeSet<String>, RecordError> {
    let folders = baseline_folders(root)?;
    let names = folders.iter().filter_map(|folder| folder.file_name());
    Ok(names
        .map(|name| name.to_string_lossy().into_owned())
        .collect())
}

/// Every benchmark under a folder that has a baseline of this name, in the order of
/// their folders.
///
/// # Errors
/// When a folder or a file cannot be read, or a file is damaged or of another
/// format: nothing is used in part.
pub fn read(root: &Path, baseline: &str) -> Result<Vec<Benchmark>, RecordError> {
    let mut folders = baseline_folders(root)?;
    folders.retain(|folder| folder.file_name().is_some_and(|name| name == baseline));
    folders.into_iter().map(benchmark).collect()
}

/// Folders that hold times, sorted.
fn baseline_folders(root: &Path) -> Result<Vec<PathBuf>, RecordError> {
    let mut found = Vec::new();
    walk(root, DEEPEST, &mut found)?;
    found.sort();
    Ok(found)
}

fn walk(folder: &Path, deeper: usize, found: &mut Vec<PathBuf>) -> Result<(), RecordError> {
    let failed = |error| RecordError::io(folder, error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A link could lead round in a circle.
        if !entry.file_type().map_err(failed)?.is_dir() {
            continue;
        }
        let path = entry.path();
        let files = ["benchmark.json", "sample.json", "estimates.json"];
        if NOT_BASELINES.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if files.iter().any(|file| path.join(file).exists()) {
            found.push(path);
        } else if deeper > 0 {
            walk(&path, deeper - 1, found)?;
        }
    }
    Ok(())
}

fn benchmark(folder: PathBuf) -> Result<Benchmark, RecordError> {
    let identity = folder.join("benchmark.json");
    let sample = folder.join("sample.json");
    let (times, invocations, samples) = match sample.exists() {
        true => {
            let read: Sample = file(&sample)?;
            let count = read.times.len() as u64;
            let invocations = reduced(read).map_err(|p| RecordError::invalid(&sample, 1, p))?;
            (sample, invocations, count)
        }
        // Criterion's `--discard-baseline` aside, it writes both; people keep one.
        false => {
            let path = folder.join("estimates.json");
            let median = Nanoseconds(file::<Estimates>(&path)?.median.point_estimate);
            if !is_time(median) {
                let problem = format!("median.point_estimate = {}: no time", median.0);
                return Err(RecordError::invalid(&path, 1, problem));
            }
            (path, vec![median], 0)
        }
    };
    let written = fs::metadata(&times).and_then(|file| file.modified()).ok();
    Ok(Benchmark {
        identity: file(&identity)?,
        folder,
        invocations,
        samples,
        written,
    })
}

/// Median time of one call in each invocation.
fn reduced(sample: Sample) -> Result<Vec<Nanoseconds>, String> {
    let Sample {
        iters,
        times,
        invocations,
        ..
    } = sample;
    let count = times.len();
    let of = invocations.unwrap_or_else(|| vec![0; count]);
    for (name, length) in [("iters", iters.len()), ("invocations", of.len())] {
        if length != count {
            return Err(format!("{count} of `times`, but {length} of `{name}`"));
        }
    }
    if count == 0 {
        return Err("`times` is empty".to_owned());
    }
    let mut calls = Vec::with_capacity(count);
    for (time, iters) in times.iter().zip(&iters) {
        let call = Nanoseconds(time / iters);
        if !(*iters >= 1.0 && is_time(call)) {
            return Err(format!("a sample of {iters} calls in {time}: no time"));
        }
        calls.push(call);
    }
    let mut by_invocation: BTreeMap<u32, Vec<Nanoseconds>> = BTreeMap::new();
    for (call, of) in calls.into_iter().zip(of) {
        by_invocation.entry(of).or_default().push(call);
    }
    let medians = by_invocation.values().filter_map(|calls| median(calls));
    Ok(medians.collect())
}

fn file<T: DeserializeOwned>(path: &Path) -> Result<T, RecordError> {
    let text = input::text(path, input::CRITERION).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => RecordError::invalid(path, 1, "it is no text"),
        io::ErrorKind::NotFound => RecordError::invalid(
            path,
            1,
            "it is missing, and the folder holds times; remove the folder, or benchmark again",
        ),
        _ => RecordError::io(path, error),
    })?;
    serde_json::from_str(&text).map_err(|error| {
        let problem = format!(
            "not as criterion 0.8 writes it: {error}; benchmark again, or remove the folder"
        );
        RecordError::invalid(path, error.line().max(1), problem)
    })
}
