//! Traces of PyTorch's profiler, as they lie in files: as they are, or compressed.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::anyhow;
use jiff::Timestamp;

use crate::cli::Stop;
use regatta_core::record::trace::Trace;
use regatta_core::record::trace::kineto;
use regatta_measure::experiment::arm::argv;
use regatta_measure::tracing::{self, KINETO};

/// Operations that are kept, as `regatta trace` keeps them.
const LIMIT: usize = 1_000_000;

/// What a file begins with that gzip wrote (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// True for a file that PyTorch's profiler wrote.
pub fn is(path: &Path) -> bool {
    let Ok(mut opened) = Opened::open(path) else {
        return false;
    };
    let is = kineto::is(&mut opened.bytes).unwrap_or(false);
    opened.problem();
    is
}

/// Reads it.
///
/// # Errors
/// When it cannot be read, or makes no sense: exit code 2.
pub fn read(path: &Path) -> Result<Trace, Stop> {
    let name = path.display();
    let refused = |problem: String| Stop::Usage(anyhow!("{name}: {problem}"));
    let mut opened = Opened::open(path).map_err(refused)?;
    let label = name.to_string();
    let buffered = BufReader::with_capacity(1 << 16, &mut opened.bytes);
    let read = kineto::read(buffered, &label, LIMIT);
    // What gzip says of a damaged file comes before what is missing then.
    if let (Err(_), Some(problem)) = (&read, opened.problem()) {
        return Err(refused(problem));
    }
    let recording =
        read.map_err(|problem| refused(format!("it is no trace of {KINETO}: {problem}")))?;
    if recording.operations.is_empty() {
        let problem = "it has no operation of a GPU that can be used; PyTorch records these with \
                       activities=[ProfilerActivity.CUDA, ...]";
        return Err(refused(problem.to_owned()));
    }
    let written = fs::metadata(path).and_then(|file| file.modified());
    let started = written.ok().and_then(|at| Timestamp::try_from(at).ok());
    let started = started.unwrap_or(Timestamp::UNIX_EPOCH);
    let mut trace = tracing::of_kineto(recording, label, started);
    trace.header.argv = argv();
    Ok(trace)
}

/// A file, or what gzip makes of it.
struct Opened {
    bytes: Box<dyn Read>,
    gzip: Option<Child>,
}

impl Opened {
    fn open(path: &Path) -> Result<Opened, String> {
        let told = |error: std::io::Error| error.to_string();
        // A pipe would be waited for without end.
        if !fs::metadata(path).map_err(told)?.is_file() {
            return Err("it is no regular file".to_owned());
        }
        let mut begins = Vec::new();
        let file = File::open(path).map_err(told)?;
        file.take(2).read_to_end(&mut begins).map_err(told)?;
        let file = File::open(path).map_err(told)?;
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

    /// What gzip objected to; ends it, where not all of the file was wanted.
    fn problem(self) -> Option<String> {
        drop(self.bytes);
        let ended = self.gzip?.wait_with_output().ok()?;
        let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
        (!ended.status.success() && !said.is_empty()).then(|| format!("{said}; is it all there?"))
    }
}
