//! What is known of builds: that of a suite is kept beside its reports, that of an
//! environment beside its lock. A run is of those whose outcome is what is there.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::building::{self, BuildingError};
use super::declared::environment_of;
use super::environments::Made;
use regatta_core::input;
use regatta_core::output;
use regatta_core::record::built::{self, Built};
use regatta_core::suite::Suite;
use regatta_core::suite::build::Build;

/// Name of the file beside a suite's reports.
const KEPT: &str = "build.json";

/// A build of a suite that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    command: Vec<String>,
    built: Built,
    /// What it made, as that was then.
    made: Vec<Stamp>,
}

/// A file or folder as it was at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    path: PathBuf,
    /// When it, or what was changed last in it, was changed: nanoseconds since 1970.
    modified_ns: u64,
}

/// What came of a suite's build.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What it took.
    pub built: Built,
    /// False where what it makes was there already and was left as it was: what it took is
    /// that of finding so.
    pub anew: bool,
}

/// Builds what a suite says, here, and keeps what that took in `folder`, where runs of the
/// suite look for it.
///
/// # Errors
/// As [`building::build`], or when it cannot be kept.
pub fn build(build: &Build, folder: &Path) -> Result<Outcome, BuildingError> {
    let here = Path::new(".");
    let before = stamps(build, here);
    let built = building::build(build, here, None)?;
    let after = stamps(build, here);
    let anew = build.makes.is_empty() || before != after;
    if let Some(made) = after.filter(|_| anew && !build.makes.is_empty()) {
        let kept = Kept {
            command: build.command.clone(),
            built: built.clone(),
            made,
        };
        keep(&kept, folder).map_err(|error| BuildingError::File {
            path: folder.join(KEPT),
            error,
        })?;
    }
    Ok(Outcome { built, anew })
}

fn keep(kept: &Kept, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let text = serde_json::to_vec_pretty(kept)?;
    Ok(output::write(&folder.join(KEPT), &text)?)
}

/// What was built for a run of a suite with these workers, by what it is. `folder` is where
/// [`build`] keeps, `default` the environment of workers that name none.
pub fn of_run(
    suite: &Suite,
    workers: &[String],
    default: Option<&str>,
    folder: &Path,
) -> BTreeMap<String, Built> {
    let mut found = BTreeMap::new();
    let own = suite.build.as_ref();
    if let Some(built) = own.and_then(|build| of_suite(build, folder, Path::new("."))) {
        found.insert(built::SUITE.to_owned(), built);
    }
    for worker in workers {
        let Ok((name, environment)) = environment_of(worker, suite, default) else {
            continue;
        };
        let made = Made::of(name, &environment).ok().flatten();
        if let Some(built) = made.and_then(|made| made.built()) {
            found.insert(built::environment(name), built);
        }
    }
    found
}

/// What the build took that is kept, where what it made is still there as it was.
fn of_suite(build: &Build, folder: &Path, here: &Path) -> Option<Built> {
    let text = input::text(&folder.join(KEPT), input::WRITTEN_BY_HAND).ok()?;
    let kept: Kept = serde_json::from_str(&text).ok()?;
    let same = kept.command == build.command && !kept.made.is_empty();
    (same && stamps(build, here).as_ref() == Some(&kept.made)).then_some(kept.built)
}

/// All that a build makes, as it is; `None` where something is not there.
fn stamps(build: &Build, here: &Path) -> Option<Vec<Stamp>> {
    let stamps = build.makes.iter().map(|path| {
        Some(Stamp {
            path: path.clone(),
            modified_ns: newest(&here.join(path)).ok()?,
        })
    });
    stamps.collect()
}

/// When a file, or the newest of all that is in a folder, was changed.
fn newest(path: &Path) -> io::Result<u64> {
    let found = fs::symlink_metadata(path)?;
    let since = found.modified()?.duration_since(UNIX_EPOCH);
    let mut newest = since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0));
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            newest = newest.max(self::newest(&entry?.path())?);
        }
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_worker::units::Nanoseconds;

    fn made_by(command: &str) -> Build {
        Build {
            serves: None,
            command: vec![command.to_owned()],
            makes: vec!["out".into()],
            timeout_s: None,
            origin: String::new(),
        }
    }

    #[test]
    fn a_build_is_that_of_a_run_while_what_it_made_is_there_as_it_was() {
        let place = tempfile::tempdir().unwrap();
        let (here, folder) = (place.path(), place.path().join("reports/s"));
        fs::create_dir(here.join("out")).unwrap();
        fs::write(here.join("out/a"), "one").unwrap();
        let build = made_by("make");
        let built = Built {
            wall_ns: Nanoseconds(5.0),
        };
        assert_eq!(of_suite(&build, &folder, here), None);
        let kept = Kept {
            command: build.command.clone(),
            built: built.clone(),
            made: stamps(&build, here).unwrap(),
        };
        keep(&kept, &folder).unwrap();
        assert_eq!(of_suite(&build, &folder, here), Some(built));
        assert_eq!(of_suite(&made_by("ninja"), &folder, here), None);
        fs::write(here.join("out/a"), "other").unwrap();
        assert_eq!(of_suite(&build, &folder, here), None);
        fs::remove_dir_all(here.join("out")).unwrap();
        assert_eq!(stamps(&build, here), None);
    }
}
