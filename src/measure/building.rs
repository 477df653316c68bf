//! Builds something and measures what that costs: elapsed and processor time, memory, and the
//! size of what comes out.
//!
//! Processor time is that of everything below one process, by proc_pid_stat(5): its own and,
//! as soon as a parent has waited for it, within that of the parent. The supervisor of a
//! program ([`crate::worker::supervisor`]) adopts orphans, so that what they worked is counted
//! too. What is done by a server that ran before, such as sccache's, is not the build's by any
//! count of the kernel, and is missing.
//!
//! Memory is sampled, since no count of the kernel is of many processes at once.

mod cause;
mod tree;
mod watch;

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::machine;
use crate::record::built::Built;
use crate::suite::build::Build;
use crate::units::{Bytes, Nanoseconds};
use crate::worker::program::{Leaves, Program, Started, Streams, why};
use crate::{input, last_words};
use tree::Tree;
pub use watch::Part;
use watch::{Look, Watched};

/// The end of a log in which the words of a fault are looked for.
const LOG: u64 = 64 << 20;

/// What is to be built.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    /// The program and its arguments.
    pub command: &'a [String],
    /// Environment variables set for it.
    pub env: Vec<(String, String)>,
    /// Where it runs.
    pub folder: &'a Path,
    /// What must be there afterwards, from `folder` on.
    pub makes: &'a [PathBuf],
    /// When it is ended.
    pub limit: Option<Duration>,
    /// The file that gets what it prints; `None`: standard error.
    pub log: Option<&'a Path>,
    /// What of it is measured.
    pub part: Part,
}

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
/// As [`build`].
pub fn of_suite(suite: &Build, folder: &Path, log: Option<&Path>) -> Result<Built, BuildingError> {
    let order = Order {
        command: &suite.command,
        env: Vec::new(),
        folder,
        makes: &suite.makes,
        limit: suite.timeout_s.map(|s| Duration::from_secs(s.into())),
        log,
        part: Part::Whole,
    };
    Ok(build(&order)?.unwrap_or_default())
}

/// Builds it; `None` where nothing was built by what [`Part`] says.
///
/// # Errors
/// When it cannot be started, fails, takes too long, or does not make what it should.
pub fn build(order: &Order<'_>) -> Result<Option<Built>, BuildingError> {
    let command = order.command.join(" ");
    let mut program = start(order)?;
    let began = Instant::now();
    let mut tree = Tree::below(program.root());
    let mut process = Process {
        program: &mut program,
        tree: &mut tree,
        began,
    };
    let watched = watch::watch(&mut process, order.part, order.limit);
    let Some(tally) = watched else {
        program.end();
        let limit = order.limit.unwrap_or_default();
        return Err(BuildingError::TooLong { command, limit });
    };
    let status = program
        .wait()
        .map_err(|error| cannot_start(order, &error))?;
    if !status.success() {
        let words = words(order.log);
        return Err(BuildingError::Failed {
            command,
            status,
            words,
        });
    }
    let made_bytes = made(order, &command)?;
    Ok(tally.built(cores()).map(|built| Built {
        made_bytes,
        ..built
    }))
}

fn start(order: &Order<'_>) -> Result<Started, BuildingError> {
    let [program, args @ ..] = order.command else {
        return Err(cannot_start(order, &io::ErrorKind::InvalidInput.into()));
    };
    let printed = || match order.log {
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
        env: order.env.clone(),
        directory: Some(order.folder.to_owned()),
        leaves: Leaves::Nothing,
    };
    program
        .start(streams, Vec::new())
        .map_err(|error| cannot_start(order, &error))
}

fn cannot_start(order: &Order<'_>, error: &io::Error) -> BuildingError {
    let program = order.command.first().map_or("", String::as_str);
    let why = match order.folder.is_dir() {
        false => format!("there is no folder {}", order.folder.display()),
        true if program.contains('/') => why(&order.folder.join(program), error),
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

/// The size of everything that was to be made.
fn made(order: &Order<'_>, command: &str) -> Result<Option<Bytes>, BuildingError> {
    let sizes = order.makes.iter().map(|path| {
        let path = order.folder.join(path);
        size(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => BuildingError::NotMade {
                command: command.to_owned(),
                path,
            },
            _ => BuildingError::File { path, error },
        })
    });
    let size: Bytes = sizes.sum::<Result<Bytes, _>>()?;
    Ok((!order.makes.is_empty()).then_some(size))
}

/// The size of a file, or of all files below a folder. A link has none of its own.
///
/// # Errors
/// When it is not there, or cannot be read.
pub fn size(path: &Path) -> io::Result<Bytes> {
    let found = fs::metadata(path)?;
    if !found.is_dir() {
        return Ok(Bytes(found.len()));
    }
    let mut total = Bytes(0);
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        total = total
            + match () {
                () if kind.is_dir() => size(&entry.path())?,
                () if kind.is_file() => Bytes(entry.metadata()?.len()),
                () => Bytes(0),
            };
    }
    Ok(total)
}

/// Does what builds something in this process, and measures that with all it starts. What
/// else this process does meanwhile counts too.
pub fn own<T>(work: impl FnOnce() -> T) -> (T, Built) {
    let mut tree = Tree::with(std::process::id());
    let before = tree.look().cpu;
    let (working, ended) = mpsc::channel::<()>();
    let began = Instant::now();
    let (done, tally) = thread::scope(|scope| {
        let mut process = Own {
            tree,
            before,
            ended,
            began,
        };
        let watching = scope.spawn(move || watch::watch(&mut process, Part::Whole, None));
        let done = work();
        drop(working);
        (done, watching.join().ok().flatten())
    });
    let cores = cores();
    let built = tally.and_then(|tally| tally.built(cores));
    let unwatched = || Built {
        wall_ns: began.elapsed().into(),
        cores,
        ..Built::default()
    };
    (done, built.unwrap_or_else(unwatched))
}

fn cores() -> u32 {
    u32::try_from(machine::cores()).unwrap_or(u32::MAX)
}

/// This process, while it builds.
struct Own {
    tree: Tree,
    /// Processor time that it had taken before.
    before: Option<Nanoseconds>,
    /// Hangs up at the end.
    ended: mpsc::Receiver<()>,
    began: Instant,
}

impl Watched for Own {
    fn ends_within(&mut self, limit: Duration) -> bool {
        self.ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Disconnected)
    }

    fn look(&mut self) -> Look {
        let look = self.tree.look_since(self.began);
        Look {
            cpu: look.cpu.zip(self.before).map(|(now, before)| now - before),
            ..look
        }
    }
}

/// A program that builds.
struct Process<'a> {
    program: &'a mut Started,
    tree: &'a mut Tree,
    began: Instant,
}

impl Watched for Process<'_> {
    fn ends_within(&mut self, limit: Duration) -> bool {
        self.program.ends_within(limit)
    }

    fn look(&mut self) -> Look {
        self.tree.look_since(self.began)
    }
}

#[cfg(test)]
mod tests;
