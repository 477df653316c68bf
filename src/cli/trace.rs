//! `regatta trace`: what any program does on its GPUs, and `regatta diff` of two traces.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::{Context, anyhow};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use super::outputs::{is_stdout, put};
use super::{Ended, Stop, measuring, note, print};
use regatta::judge::trace::{Analysis, analyse, compare};
use regatta::machine::Recording;
use regatta::measure::checkout::checkout;
use regatta::measure::tracing::{self, Recorder};
use regatta::record::trace::{Trace, TraceHeader, file, is_script, raw};
use regatta::record::{METHOD_VERSION, RecordError, SCHEMA_VERSION};
use regatta::report::files;
use regatta::report::trace as shown;
use regatta::units::Share;
use regatta::worker::gpu_clock;
use regatta::worker::program::why;

/// Record what a program does on its GPUs: kernels, copies, gaps
///
/// Runs CMD with a recorder loaded into it and its children through
/// CUDA_INJECTION64_PATH; the program needs no change. Its input and output are yours.
/// When it has ended, the trace is written and its table printed; `regatta diff` of two
/// traces says what changed between them, and why.
///
/// The exit code is CMD's own when that is not 0, as it is with `time`; 3 when nothing was
/// recorded; otherwise 0. Ctrl-C ends CMD, and what it did until then is kept; what CMD left
/// running ends with it then, and only then.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  regatta trace -- python train.py --steps 20\n  \
    regatta trace --out new.trace --html new.html -- ./bench\n  \
    regatta diff old.trace new.trace"
)]
pub struct TraceArgs {
    /// Where the trace goes [default: named after the program, in this folder]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Write one self-contained page with a timeline
    #[arg(long, value_name = "PAGE")]
    html: Option<PathBuf>,

    /// Print the analysis as JSON; what CMD prints then goes to standard error
    #[arg(long)]
    json: bool,

    /// Also tell which of PyTorch's operators launched what
    ///
    /// Turns on the NVTX ranges that PyTorch has for its operators, forward and backward, in
    /// every Python that CMD starts; CMD needs no change, and must not use torch.profiler. It
    /// costs the host some time at each operator. Ranges that CMD marks itself are always
    /// recorded.
    #[arg(long)]
    torch: bool,

    /// Keep at most so many operations, the last ones
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,

    /// Replace a trace that is there
    #[arg(long)]
    replace: bool,

    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &TraceArgs) -> Ended {
    let out = match &args.out {
        Some(out) => out.clone(),
        None => default_name(&args.command),
    };
    check(args, &out)?;
    let library = gpu_clock::install()
        .context("the recorder cannot be written into the cache; name another in XDG_CACHE_HOME")
        .map_err(Stop::Usage)?
        .ok_or_else(|| Stop::Usage(anyhow!("this regatta was built without its recorder")))?;
    let folder = tempfile::Builder::new()
        .prefix("regatta-trace-")
        .tempdir()
        .context("no folder for the recording; name another in TMPDIR")
        .map_err(Stop::Usage)?;
    let started = Timestamp::now();
    let recorder = Recorder {
        library: &library,
        folder: folder.path(),
        torch: args.torch,
    };
    let status = tracing::run(&args.command, &recorder, args.json).map_err(|error| {
        let program = &args.command[0];
        Stop::Usage(anyhow!(
            "cannot start {program}: {}",
            why(Path::new(program), &error)
        ))
    })?;
    let recording = raw::read(folder.path(), args.limit as usize).map_err(Stop::not_judged)?;
    let code = tracing::exit_code(status);
    if recording.operations.is_empty() {
        note(format!("nothing was recorded: {}", why_nothing(&recording)));
        if code != 0 {
            note(format!(
                "{} ended with {}",
                args.command[0],
                tracing::ended(status)
            ));
        }
        return Ok(if code == 0 { 3 } else { code });
    }
    if args.torch && recording.operations.iter().all(|o| o.operator.is_none()) {
        note(
            "--torch: no operator was recorded; CMD did not import torch, or did so with what \
             PYTHONPATH names ignored (python -I, -E or -S)",
        );
    }
    let trace = Trace {
        header: header(args, started, status, &recording),
        recording,
    };
    keep(args, &out, &trace)?;
    Ok(code)
}

/// Finds out before the program runs what would keep its trace from being kept.
fn check(args: &TraceArgs, out: &Path) -> Result<(), Stop> {
    if out.exists() && !args.replace {
        return Err(Stop::usage(RecordError::Taken(out.to_owned())));
    }
    if args.replace && out.is_file() && !file::is_trace(out) {
        return Err(Stop::Usage(anyhow!(
            "{} is no trace, and --replace replaces nothing else; name another file with --out",
            out.display()
        )));
    }
    files::check_folder(out).map_err(Stop::usage)?;
    if let Some(html) = &args.html {
        if is_stdout(html) {
            return Err(Stop::Usage(anyhow!(
                "--html -: standard output is the program's; name a file"
            )));
        }
        if files::place(html) == files::place(out) {
            return Err(Stop::Usage(anyhow!("{} is named twice", out.display())));
        }
        files::check_writable(html).map_err(Stop::usage)?;
    }
    match std::env::var_os(tracing::INJECTION).filter(|there| !there.is_empty()) {
        Some(there) => Err(Stop::Usage(anyhow!(
            "{} is set to {}: another tool is to be loaded into the program, and CUPTI serves \
             one at a time; unset it",
            tracing::INJECTION,
            there.display()
        ))),
        None => Ok(()),
    }
}

/// `train.trace` for `python train.py`.
fn default_name(command: &[String]) -> PathBuf {
    let script = command.iter().find(|word| is_script(word));
    let named = script.or(command.first()).map(Path::new);
    let stem = named.and_then(Path::file_stem).unwrap_or_default();
    let mut name = stem.to_os_string();
    name.push(".");
    name.push(file::EXTENSION);
    PathBuf::from(name)
}

fn why_nothing(recording: &Recording) -> String {
    let problems = recording
        .processes
        .iter()
        .flat_map(|process| &process.problems);
    if let Some(problem) = problems.into_iter().next() {
        return problem.clone();
    }
    if recording.processes.is_empty() {
        return "no process used a GPU through CUDA's driver, or the recorder could not start \
                there: it says so above when CUPTI is missing, or held by another profiler"
            .to_owned();
    }
    let pids: Vec<String> = recording
        .processes
        .iter()
        .map(|p| p.pid.to_string())
        .collect();
    let lost = recording.dropped();
    match lost {
        0 => format!(
            "process {} opened a GPU and ran nothing on it",
            pids.join(", ")
        ),
        lost => format!(
            "all {lost} records of process {} were lost",
            pids.join(", ")
        ),
    }
}

fn header(
    args: &TraceArgs,
    started: Timestamp,
    status: ExitStatus,
    recording: &Recording,
) -> TraceHeader {
    TraceHeader {
        schema: SCHEMA_VERSION,
        method: METHOD_VERSION,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        argv: measuring::argv(),
        command: args.command.clone(),
        started,
        ended: tracing::ended(status),
        git: checkout(Path::new("reports")),
        machine: tracing::fingerprint(recording),
    }
}

/// What `--json` prints.
#[derive(Serialize, schemars::JsonSchema)]
pub(super) struct Answer<'a> {
    /// The trace's file.
    trace: &'a Path,
    /// How it was taken.
    header: &'a TraceHeader,
    #[serde(flatten)]
    analysis: &'a Analysis,
}

/// Writes the trace and its page, and prints what it says.
fn keep(args: &TraceArgs, out: &Path, trace: &Trace) -> Result<(), Stop> {
    file::write(out, trace, args.replace).map_err(Stop::not_judged)?;
    let analysis = analyse(&trace.recording);
    if let Some(page) = &args.html {
        write_page(page, trace, &analysis)?;
    }
    match args.json {
        true => {
            json(&Answer {
                trace: out,
                header: &trace.header,
                analysis: &analysis,
            })?;
        }
        false => print(shown::table(trace, &analysis))?,
    }
    note(format!("trace: {}", out.display()));
    Ok(())
}

fn json(answer: &impl Serialize) -> Result<(), Stop> {
    let text = serde_json::to_string(answer).map_err(Stop::not_judged)?;
    print(format!("{text}\n"))
}

/// Writes the page of a trace.
///
/// # Errors
/// When it cannot be written: exit code 3.
pub fn write_page(path: &Path, trace: &Trace, analysis: &Analysis) -> Result<(), Stop> {
    let text = shown::page(trace, analysis).map_err(Stop::not_judged)?;
    keep_page(path, text)
}

fn keep_page(path: &Path, text: String) -> Result<(), Stop> {
    put(path, text)?;
    note(format!("page: {}", path.display()));
    Ok(())
}

/// True when a word of the command line names a trace.
pub fn is_trace(word: &str) -> bool {
    let path = Path::new(word);
    // A file that calls itself one is read as one, and its damage named.
    path.is_file() && (file::is_trace(path) || path.extension().is_some_and(|e| e == "trace"))
}

/// `regatta report TRACE`: prints its table, or writes its page.
///
/// # Errors
/// See [`super::Stop`].
pub fn report(path: &str, html: Option<&Path>) -> Ended {
    let trace = file::read(Path::new(path)).map_err(Stop::usage)?;
    let analysis = analyse(&trace.recording);
    match html {
        Some(html) => write_page(html, &trace, &analysis)?,
        None => print(shown::table(&trace, &analysis))?,
    }
    Ok(0)
}

/// `regatta diff` of two traces.
///
/// # Errors
/// See [`super::Stop`].
pub fn diff((base, head): (&str, &str), floor: Share, as_json: bool, page: Option<&Path>) -> Ended {
    let read = |path: &str| file::read(Path::new(path)).map_err(Stop::usage);
    let (before, after) = (read(base)?, read(head)?);
    let comparison = compare((base, &before), (head, &after), floor);
    if let Some(page) = page {
        let text = shown::compared(&comparison, &before, &after).map_err(Stop::not_judged)?;
        keep_page(page, text)?;
    }
    match as_json {
        true => json(&comparison)?,
        false if page.is_some_and(is_stdout) => {}
        false => print(shown::difference(&comparison, true))?,
    }
    Ok(comparison.verdict.outcome.exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_named_after_what_is_run() {
        let name = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            default_name(&words).display().to_string()
        };
        assert_eq!(name(&["python", "-u", "dir/train.py", "x"]), "train.trace");
        assert_eq!(name(&["./bench", "--fast"]), "bench.trace");
    }
}
