//! Builds what a suite says, and measures how long that takes.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::worker::program::{Leaves, Program, Started, Streams, why};
use regatta_core::input;
use regatta_core::last_words;
use regatta_core::record::built::Built;
use regatta_core::suite::build::Build;

/// The end of a log in which the words of a fault are looked for.
const LOG: u64 = 64 << 20;

/// Why something was not built.
#[derive(Debug, thiserror::Error)]
pub enum BuildingError {
    /// The command could not be started.
    #[error("cannot start {program}: {why}")]
    Start {
        /// The program.
        program: String,
        /// The reason.
        why: String,
    },
    /// It failed.
    #[error("`{command}` failed ({status}){words}")]
    Failed {
        /// The command.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// Where its words are, or the last of them.
        words: String,
    },
    /// It took too long.
    #[error("`{command}` was ended after its {} s; allow more by `timeout_s`", limit.as_secs())]
    TooLong {
        /// The command.
        command: String,
        /// What it was allowed.
        limit: Duration,
    },
    /// It ended well, and what it should have made is not there.
    #[error("`{command}` ended well and did not make {path}: does `makes` name the right path?")]
    NotMade {
        /// The command.
        command: String,
        /// The file or folder.
        path: PathBuf,
    },
    /// A file of it.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's words.
        error: io::Error,
    },
}

/// Builds what a suite says, in a folder: a checkout, or a worktree of a revision. What the
/// command prints goes to `log`, or to standard error.
///
/// # Errors
/// When it cannot be started, fails, takes too long, or does not make what it should.
pub fn build(suite: &Build, folder: &Path, log: Option<&Path>) -> Result<Built, BuildingError> {
    let command = suite.command.join(" ");
    let began = Instant::now();
    let mut program = start(suite, folder, log)?;
    if let Some(seconds) = suite.timeout_s {
        let limit = Duration::from_secs(seconds.into());
        if !program.ends_within(limit) {
            program.end();
            return Err(BuildingError::TooLong { command, limit });
        }
    }
    let status = program
        .wait()
        .map_err(|error| cannot_start(suite, folder, &error))?;
    let wall_ns = began.elapsed().into();
    if !status.success() {
        let words = words(log);
        return Err(BuildingError::Failed {
            command,
            status,
            words,
        });
    }
    let mut makes = suite.makes.iter().map(|path| folder.join(path));
    match makes.find(|path| !path.exists()) {
        Some(path) => Err(BuildingError::NotMade { command, path }),
        None => Ok(Built { wall_ns }),
    }
}

fn start(suite: &Build, folder: &Path, log: Option<&Path>) -> Result<Started, BuildingError> {
    let [program, args @ ..] = &suite.command[..] else {
        let error = io::ErrorKind::InvalidInput.into();
        return Err(cannot_start(suite, folder, &error));
    };
    let printed = || match log {
        Some(path) => {
            let file = fs::OpenOptions::new().create(true).append(true).open(path);
            let file = file.map_err(|error| BuildingError::File {
                path: path.to_owned(),
                error,
            });
            Ok(Stdio::from(file?))
        }
        // Standard output is the caller's own, for results.
        None => {
            let words = io::stderr().as_fd().try_clone_to_owned();
            Ok(words.map_or_else(|_| Stdio::null(), Stdio::from))
        }
    };
    let streams = Streams {
        stdin: Stdio::null(),
        stdout: printed()?,
        stderr: printed()?,
    };
    let program = Program {
        program: program.into(),
        args: args.to_vec(),
        env: Vec::new(),
        directory: Some(folder.to_owned()),
        leaves: Leaves::Nothing,
    };
    program
        .start(streams, Vec::new())
        .map_err(|error| cannot_start(suite, folder, &error))
}

fn cannot_start(suite: &Build, folder: &Path, error: &io::Error) -> BuildingError {
    let program = suite.command.first().map_or("", String::as_str);
    let why = match folder.is_dir() {
        false => format!("there is no folder {}", folder.display()),
        true if program.contains('/') => why(&folder.join(program), error),
        true => why(Path::new(program), error),
    };
    BuildingError::Start {
        program: program.to_owned(),
        why,
    }
}

/// Where the words of a failure are, or those that name it.
fn words(log: Option<&Path>) -> String {
    let Some(path) = log else {
        return "; its words are above".to_owned();
    };
    let text = input::bytes(path, LOG).unwrap_or_default();
    let excerpt = last_words::excerpt(&String::from_utf8_lossy(&text));
    format!("; from {}:\n{excerpt}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_worker::units::Nanoseconds;

    fn building(command: &[&str], makes: &[&str], folder: &Path) -> Result<Built, BuildingError> {
        let suite = Build {
            serves: None,
            command: command.iter().map(|&word| word.to_owned()).collect(),
            makes: makes.iter().map(PathBuf::from).collect(),
            timeout_s: Some(300),
            origin: String::new(),
        };
        let log = folder.is_dir().then(|| folder.join("log"));
        build(&suite, folder, log.as_deref())
    }

    #[test]
    fn what_goes_wrong_is_said_with_its_words() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        let shell = |script: &str, makes: &[&str]| building(&["sh", "-c", script], makes, place);
        let built = shell("mkdir out", &["out"]).unwrap();
        assert!(built.wall_ns > Nanoseconds::ZERO);
        let words = "ended well and did not make ".to_owned();
        let unmade = words + &place.join("out/a.so").display().to_string();
        let failing = "echo 'a.cpp:3: error: no such type' >&2; exit 4";
        for (result, words) in [
            (shell(failing, &[]), "exit status: 4"),
            (shell(failing, &[]), "a.cpp:3: error: no such type"),
            (shell("true", &["out/a.so"]), &*unmade),
            (
                building(&["./no-such-tool"], &[], place),
                "cannot start ./no-such-tool: there is no such file",
            ),
            (
                building(&["true"], &[], Path::new("no/such/folder")),
                "there is no folder no/such/folder",
            ),
        ] {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
