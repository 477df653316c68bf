//! Runs the build command of a suite or an environment, times it, and stores the result: for a
//! suite beside its reports, for an environment beside its lock. A run has those builds whose
//! outputs still exist.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Instant, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::environments::PythonEnvironment;
use super::git::sources;
use super::workers::environment_of;
use crate::worker::program::{Program, Started, to_stderr, why};
use regatta_core::input;
use regatta_core::last_words;
use regatta_core::output;
use regatta_core::record::{Built, SUITE_BUILD, environment_build};
use regatta_core::secrets;
use regatta_core::suite::Suite;
use regatta_core::suite::workers::Build;

/// Bytes at the end of a log that are searched for the failure.
const LOG: u64 = 64 << 20;

/// The reason for which a build failed.
#[derive(Debug, thiserror::Error)]
pub enum BuildingError {
    /// Nothing was built: the command cannot be started, or a file cannot be written.
    #[error("{0}")]
    NotStarted(String),
    /// The command failed, took too long, or did not make its outputs.
    #[error("`{command}` {what}")]
    Failed {
        /// The command.
        command: String,
        /// The failure, and where its log is.
        what: String,
    },
}

/// Runs a suite's build command in `folder`: a checkout, or a worktree of a revision. Its output
/// goes to `log`, or to standard error.
///
/// # Errors
/// The command cannot be started, fails, takes too long, or does not make its outputs.
pub fn build(suite: &Build, folder: &Path, log: Option<&Path>) -> Result<Built, BuildingError> {
    let failed = |what: String| BuildingError::Failed {
        command: secrets::command_line(&suite.command).join(" "),
        what,
    };
    let began = Instant::now();
    let mut program = start(suite, folder, log)?;
    let status = program.wait();
    let status = status.map_err(|error| cannot_start(suite, folder, &error))?;
    let wall_ns = began.elapsed().into();
    if !status.success() {
        return Err(failed(format!("failed ({status}){}", words(suite, log))));
    }
    let mut makes = suite.makes.iter().map(|path| folder.join(path));
    match makes.find(|path| !path.exists()) {
        Some(path) => Err(failed(format!(
            "succeeded, but did not make {}; correct the path in `makes`",
            path.display()
        ))),
        None => Ok(Built { wall_ns }),
    }
}

fn start(suite: &Build, folder: &Path, log: Option<&Path>) -> Result<Started, BuildingError> {
    let [program, args @ ..] = &suite.command[..] else {
        let error = io::ErrorKind::InvalidInput.into();
        return Err(cannot_start(suite, folder, &error));
    };
    let streams = match log {
        Some(path) => {
            // Drops the lines of an earlier build.
            let file = fs::write(path, "");
            let file = file.and_then(|()| fs::OpenOptions::new().append(true).open(path));
            let copied = file.and_then(|file| Ok((file.try_clone()?, file)));
            let (stdout, stderr) = copied.map_err(|error| not_written(path, &error))?;
            [Stdio::null(), stdout.into(), stderr.into()]
        }
        None => to_stderr(),
    };
    let program = Program {
        directory: Some(folder.to_owned()),
        ..Program::new(program, args)
    };
    program
        .start(streams, Vec::new())
        .map_err(|error| cannot_start(suite, folder, &error))
}

fn not_written(path: &Path, error: &io::Error) -> BuildingError {
    BuildingError::NotStarted(format!("{}: {error}", path.display()))
}

fn cannot_start(suite: &Build, folder: &Path, error: &io::Error) -> BuildingError {
    let program = suite.command.first().map_or("", String::as_str);
    let why = if !folder.is_dir() {
        format!("the folder {} does not exist", folder.display())
    } else if program.contains('/') {
        why(&folder.join(program), error)
    } else {
        why(Path::new(program), error)
    };
    BuildingError::NotStarted(format!("cannot start {program}: {why}"))
}

/// The place of a failure's log, or its lines that name the failure, without secrets.
fn words(suite: &Build, log: Option<&Path>) -> String {
    let Some(path) = log else {
        return "; its output is above".to_owned();
    };
    let text = input::bytes(path, LOG).unwrap_or_default();
    let excerpt = last_words::excerpt(&String::from_utf8_lossy(&text));
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let hidden = secrets::hidden_values(&suite.command, variables);
    let excerpt = secrets::message(&secrets::masked(excerpt, &hidden));
    format!("; from {}:\n{excerpt}", path.display())
}

/// The name of the file beside a suite's reports.
const BUILD_FILE: &str = "build.json";

/// A measured build, and its outputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct BuildNote {
    command: Vec<String>,
    /// The cost of a complete build; `None` if all outputs existed already.
    built: Option<Built>,
    /// The modification time of each output, or of the newest file in it, in nanoseconds since
    /// 1970.
    made: BTreeMap<PathBuf, u64>,
    /// Checksums of files that git tracks and that the build changes in a revision.
    #[serde(default)]
    changed: BTreeMap<PathBuf, String>,
}

/// Writes a note of a build in the folder `here` to `file`: its cost, and the files tracked by git
/// that it `changed`.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn note(
    file: &Path,
    build: &Build,
    here: &Path,
    built: Option<Built>,
    changed: BTreeMap<PathBuf, String>,
) -> io::Result<()> {
    let note = BuildNote {
        command: secrets::command_line(&build.command),
        built,
        made: stamps(build, here).unwrap_or_default(),
        changed,
    };
    Ok(output::write(file, &serde_json::to_vec_pretty(&note)?)?)
}

fn read_note(file: &Path) -> Option<BuildNote> {
    let text = input::text(file, input::WRITTEN_BY_HAND).ok()?;
    serde_json::from_str(&text).ok()
}

/// The tracked files that a build changed, as noted in `file`.
pub(crate) fn noted_changes(file: &Path) -> BTreeMap<PathBuf, String> {
    read_note(file).map_or_else(BTreeMap::new, |note| note.changed)
}

/// The cost of this build as noted in `file`, if its outputs still exist unchanged.
pub(crate) fn noted(file: &Path, build: &Build, here: &Path) -> Option<Built> {
    let note = read_note(file)?;
    let same = note.command == secrets::command_line(&build.command)
        && stamps(build, here) == Some(note.made);
    note.built.filter(|_| same)
}

/// The result of a suite's build.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteBuild {
    /// The cost of the build.
    pub built: Built,
    /// False if the outputs existed already and did not change. The cost is then only that of
    /// checking this.
    pub rebuilt: bool,
}

/// Runs a suite's build command here, and stores the cost in `folder`, where runs of the suite look
/// for it.
///
/// # Errors
/// As [`build`], or the note cannot be written.
pub fn build_suite(build: &Build, folder: &Path) -> Result<SuiteBuild, BuildingError> {
    let here = Path::new(".");
    let before = stamps(build, here);
    let built = self::build(build, here, None)?;
    let rebuilt = build.makes.is_empty() || before != stamps(build, here);
    let file = folder.join(BUILD_FILE);
    let took = if rebuilt {
        Some(built.clone())
    } else {
        noted(&file, build, here)
    };
    fs::create_dir_all(folder)
        .and_then(|()| note(&file, build, here, took, BTreeMap::new()))
        .map_err(|error| not_written(&file, &error))?;
    Ok(SuiteBuild { built, rebuilt })
}

/// The builds for a run of a suite with these workers, by kind. `folder` is where [`build_suite`]
/// stores its note; `default` is the environment of workers that name none.
pub fn builds_of_run(
    suite: &Suite,
    workers: &[String],
    default: Option<&str>,
    folder: &Path,
) -> BTreeMap<String, Built> {
    let mut builds = BTreeMap::new();
    let own = suite.build.as_ref().filter(|build| !build.makes.is_empty());
    let file = folder.join(BUILD_FILE);
    if let Some(built) = own.and_then(|build| noted(&file, build, Path::new("."))) {
        builds.insert(SUITE_BUILD.to_owned(), built);
    }
    for worker in workers {
        let Ok((name, environment)) = environment_of(worker, suite, default) else {
            continue;
        };
        let made = PythonEnvironment::locate(name, &environment).ok().flatten();
        if let Some(built) = made.and_then(|made| made.built()) {
            builds.insert(environment_build(name), built);
        }
    }
    builds
}

/// A file of this folder that changed after the suite's last build, whether by hand or by
/// [`build_suite`], which keeps its note in `folder`. `None` if nothing changed, or no build is
/// known.
pub(crate) fn not_built(build: &Build, folder: &Path) -> Option<PathBuf> {
    let built = last_built(build, folder)?;
    let sources = sources(&build.makes).into_iter();
    let changed = sources.map(|path| (newest(&path).unwrap_or(0), path));
    let (last, path) = changed.max()?;
    (last > built).then_some(path)
}

/// The time of the last known build, in nanoseconds since 1970.
pub(crate) fn last_built(build: &Build, folder: &Path) -> Option<u64> {
    let made = stamps(build, Path::new("."))?.into_values().max();
    // A suite of the same name elsewhere has its reports, and this note, in the same folder.
    let file = folder.join(BUILD_FILE);
    let own = read_note(&file).filter(|note| note.command == secrets::command_line(&build.command));
    made.max(own.and_then(|_| newest(&file).ok()))
}

/// The modification times of all outputs of a build; `None` if one is missing.
fn stamps(build: &Build, here: &Path) -> Option<BTreeMap<PathBuf, u64>> {
    let makes = build.makes.iter();
    let stamps = makes.map(|path| Some((path.clone(), newest(&here.join(path)).ok()?)));
    stamps.collect()
}

/// The modification time of a file, or of the newest file in a folder. Files that Python writes
/// beside imported modules do not count.
fn newest(path: &Path) -> io::Result<u64> {
    let metadata = fs::symlink_metadata(path)?;
    let since = metadata.modified()?.duration_since(UNIX_EPOCH);
    let changed = since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0));
    if !metadata.is_dir() {
        return Ok(changed);
    }
    let (mut newest, mut is_imported) = (0, false);
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name() == "__pycache__" {
            is_imported = true;
        } else {
            newest = newest.max(self::newest(&entry.path())?);
        }
    }
    // A folder's own time changes when an entry is added or removed.
    Ok(if is_imported {
        newest
    } else {
        newest.max(changed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_worker::units::Nanoseconds;

    fn made_by(command: &str) -> Build {
        Build {
            command: vec![command.to_owned()],
            makes: vec!["out".into()],
            origin: String::new(),
        }
    }

    #[test]
    fn a_build_that_names_nothing_is_known_by_when_it_ran() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("reports");
        let build = |makes: &[&str]| Build {
            command: vec!["true".to_owned()],
            makes: makes.iter().map(Into::into).collect(),
            origin: String::new(),
        };
        let changed = || not_built(&build(&[]), &folder);
        assert_eq!(changed(), None);
        fs::create_dir(&folder).unwrap();
        let file = folder.join(BUILD_FILE);
        note(&file, &build(&[]), Path::new("."), None, BTreeMap::new()).unwrap();
        // The sources of this crate are older.
        assert_eq!(changed(), None);
        assert_eq!(last_built(&made_by("make"), &folder), None);
        let noted = fs::File::open(&file).unwrap();
        noted.set_modified(UNIX_EPOCH).unwrap();
        assert!(changed().is_some());
    }

    #[test]
    fn what_an_import_writes_is_not_built() {
        let place = tempfile::tempdir().unwrap();
        let site = place.path().join("site");
        fs::create_dir(&site).unwrap();
        fs::write(site.join("a.py"), "").unwrap();
        let built = newest(&site).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::create_dir(site.join("__pycache__")).unwrap();
        fs::write(site.join("__pycache__/a.pyc"), "").unwrap();
        assert!(newest(&site).unwrap() <= built);
        fs::write(site.join("b.py"), "").unwrap();
        assert!(newest(&site).unwrap() > built);
    }

    #[test]
    fn a_build_is_that_of_a_run_while_what_it_made_is_there_as_it_was() {
        let place = tempfile::tempdir().unwrap();
        let (here, file) = (place.path(), place.path().join("build.json"));
        fs::create_dir(here.join("out")).unwrap();
        fs::write(here.join("out/a"), "one").unwrap();
        let build = made_by("make");
        let built = Built {
            wall_ns: Nanoseconds(5.0),
        };
        assert_eq!(noted(&file, &build, here), None);
        note(&file, &build, here, Some(built.clone()), BTreeMap::new()).unwrap();
        assert_eq!(noted(&file, &build, here), Some(built));
        assert_eq!(noted(&file, &made_by("ninja"), here), None);
        fs::write(here.join("out/a"), "other").unwrap();
        assert_eq!(noted(&file, &build, here), None);
        fs::remove_dir_all(here.join("out")).unwrap();
        assert_eq!(stamps(&build, here), None);
    }
}
