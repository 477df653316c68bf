//! Stored traces: `regatta report` of one, and `regatta diff` of two.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use jiff::Timestamp;

use super::outputs::{OF_TRACES, Outputs, is_stdout, put};
use super::{Ended, Stop, note, print, print_as_made, print_json};
use regatta_core::record::trace::{Trace, file, kineto};
use regatta_judge::trace::{Analysis, analyse, compare, runs_of};
use regatta_measure::tracing::{self, KINETO};
use regatta_report::trace as shown;
use regatta_report::{Format, files};
use regatta_worker::units::Share;

/// Writes the requested files of a trace.
///
/// # Errors
/// When one cannot be written: exit code 3.
pub fn write(outputs: &Outputs, trace: &Trace, analysis: &Analysis) -> Result<(), Stop> {
    for (format, path) in outputs.wanted() {
        if format == Format::Perfetto {
            write_perfetto(path, trace)?;
        } else {
            let page = shown::page(trace, analysis).map_err(Stop::not_judged)?;
            keep_page(path, page)?;
        }
    }
    Ok(())
}

fn keep_page(path: &Path, text: String) -> Result<(), Stop> {
    put(path, text)?;
    note(format!("report: {}", path.display()));
    Ok(())
}

/// True when a word of the command line names a trace: regatta's, or one of PyTorch's
/// profiler.
pub fn is_trace(word: &str) -> bool {
    let path = Path::new(word);
    // A file that is named like a trace is read as one, so that its damage is reported.
    path.is_file()
        && (file::is_trace(path)
            || path.extension().is_some_and(|e| e == "trace")
            || is_kineto(path))
}

/// Reads a trace of regatta or of PyTorch's profiler.
fn read(path: &Path) -> Result<Trace, Stop> {
    if is_kineto(path) {
        read_kineto(path)
    } else {
        file::read(path).map_err(Stop::usage)
    }
}

/// `regatta report TRACE`: prints its table, or writes the requested files.
///
/// # Errors
/// See [`super::Stop`].
pub fn report(path: &str, outputs: &Outputs) -> Ended {
    outputs.check("a trace", &OF_TRACES, false)?;
    let trace = read(Path::new(path))?;
    let analysis = analyse(&trace.recording);
    if outputs.any() {
        write(outputs, &trace, &analysis).map(|()| 0)
    } else {
        print(shown::table(&trace, &analysis))
    }
}

fn write_perfetto(path: &Path, trace: &Trace) -> Result<(), Stop> {
    if is_stdout(path) {
        return print_as_made(|out| shown::perfetto(trace, out));
    }
    let written = files::write_as_made(path, |out| shown::perfetto(trace, out));
    written.map_err(Stop::not_judged)?;
    note(format!("for Perfetto: {}", path.display()));
    Ok(())
}

/// Reads one side of a diff: a trace that is compared in detail, and further ones of the same
/// program, of which only the times are used.
fn read_side(first: &str, runs: &[PathBuf]) -> Result<Trace, Stop> {
    let mut trace = read(Path::new(first))?;
    let real = |path: &Path| fs::canonicalize(path).ok();
    let mut known = vec![real(Path::new(first))];
    for path in runs {
        let place = real(path);
        if known.contains(&place) {
            refuse!("{} is named twice; name each run once", path.display());
        }
        known.push(place);
        let further = read(path)?;
        if further.recording.operations.is_empty() {
            refuse!("{} has no operation; leave it out", path.display());
        }
        trace.header.earlier.extend(runs_of(&further));
    }
    Ok(trace)
}

/// `regatta diff` of two traces.
///
/// # Errors
/// See [`super::Stop`].
pub fn diff(
    [base, head]: [(&str, &[PathBuf]); 2],
    threshold: Option<Share>,
    as_json: bool,
    outputs: &Outputs,
) -> Ended {
    let before = read_side(base.0, base.1)?;
    let after = read_side(head.0, head.1)?;
    let comparison = compare((base.0, &before), (head.0, &after), threshold);
    for (_, page) in outputs.wanted() {
        let text = shown::compared(&comparison, &before, &after).map_err(Stop::not_judged)?;
        keep_page(page, text)?;
    }
    if as_json {
        print_json(&comparison)?;
    } else if !outputs.prints() {
        print(shown::difference(&comparison, true))?;
    }
    Ok(comparison.verdict.outcome.exit_code())
}

/// The number of operations that are kept, as in `regatta trace`.
const LIMIT: usize = 1_000_000;

/// The first bytes of a gzip file (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// True for a file that PyTorch's profiler wrote.
fn is_kineto(path: &Path) -> bool {
    let Ok(mut opened) = Opened::open(path) else {
        return false;
    };
    let is = kineto::is(&mut opened.bytes).unwrap_or(false);
    opened.problem();
    is
}

/// Reads a file that PyTorch's profiler wrote, plain or compressed.
///
/// # Errors
/// When it cannot be read or is invalid: exit code 2.
fn read_kineto(path: &Path) -> Result<Trace, Stop> {
    let name = path.display();
    let refused = |problem: String| Stop::Usage(format!("{name}: {problem}"));
    let mut opened = Opened::open(path).map_err(refused)?;
    let label = name.to_string();
    let buffered = BufReader::with_capacity(1 << 16, &mut opened.bytes);
    let read = kineto::read(buffered, &label, LIMIT);
    // Gzip's error about a damaged file comes before the missing lines.
    if let (Err(_), Some(problem)) = (&read, opened.problem()) {
        return Err(refused(problem));
    }
    let recording =
        read.map_err(|problem| refused(format!("it is not a trace of {KINETO}: {problem}")))?;
    if recording.operations.is_empty() {
        let problem = "it has no operation of a GPU that can be used; PyTorch records these with \
                       activities=[ProfilerActivity.CUDA, ...]";
        return Err(refused(problem.to_owned()));
    }
    let written = fs::metadata(path).and_then(|file| file.modified());
    let started = written.ok().and_then(|at| Timestamp::try_from(at).ok());
    let started = started.unwrap_or(Timestamp::UNIX_EPOCH);
    Ok(tracing::of_kineto(recording, label, started))
}

/// A file's contents, decompressed by gzip if needed.
struct Opened {
    bytes: Box<dyn Read>,
    gzip: Option<Child>,
}

impl Opened {
    fn open(path: &Path) -> Result<Opened, String> {
        let text = |error: std::io::Error| error.to_string();
        // Reading a pipe might never end.
        if !fs::metadata(path).map_err(text)?.is_file() {
            return Err("it is not a regular file".to_owned());
        }
        let mut begins = Vec::new();
        let file = File::open(path).map_err(text)?;
        file.take(2).read_to_end(&mut begins).map_err(text)?;
        let file = File::open(path).map_err(text)?;
        if begins != GZIP {
            let bytes = Box::new(file);
            return Ok(Opened { bytes, gzip: None });
        }
        let gzip = Command::new("gzip")
            .arg("-dc")
            .stdin(file)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut gzip = gzip.map_err(|error| {
            format!("gzip cannot be started ({error}); unpack the file by hand")
        })?;
        let bytes: Box<dyn Read> = match gzip.stdout.take() {
            Some(out) => Box::new(out),
            None => Box::new(std::io::empty()),
        };
        let gzip = Some(gzip);
        Ok(Opened { bytes, gzip })
    }

    /// The error of gzip, which is ended if only a part of the file was read.
    fn problem(self) -> Option<String> {
        drop(self.bytes);
        let ended = self.gzip?.wait_with_output().ok()?;
        let message = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
        (!ended.status.success() && !message.is_empty())
            .then(|| format!("{message}; is it all there?"))
    }
}
