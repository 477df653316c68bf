//! `regatta trace`: records what any program does on its GPUs.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::outputs::{OF_TRACES, Outputs, is_stdout};
use super::{Ended, Stop, note, print, print_json, traces};
use regatta_core::machine::Recording;
use regatta_core::record::RecordError;
use regatta_core::record::now;
use regatta_core::record::trace::{Trace, TraceHeader, file, is_script, raw};
use regatta_core::secrets;
use regatta_core::temporary;
use regatta_judge::trace::{Analysis, analyse, times_of};
use regatta_measure::command;
use regatta_measure::git::state_of_checkout;
use regatta_measure::tracing::{self, Recorder};
use regatta_measure::worker::program::why;
use regatta_report::files;
use regatta_report::trace as shown;
use regatta_worker::joined::Joined;

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
    regatta trace --out new.trace --output html=new.html -- ./bench\n  \
    regatta trace --runs 5 -- python train.py --steps 20\n  \
    regatta diff old.trace new.trace"
)]
pub struct TraceArgs {
    /// The trace's file [default: PROGRAM.trace]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    outputs: Outputs,

    /// Print JSON; what CMD prints goes to standard error
    #[arg(long)]
    pub json: bool,

    /// Record which of PyTorch's operators launched what
    ///
    /// Turns on the NVTX ranges that PyTorch has for its operators, forward and backward, in
    /// every Python that CMD starts; CMD needs no change, and must not use torch.profiler. It
    /// costs the host some time at each operator. Ranges that CMD marks itself are always
    /// recorded.
    #[arg(long)]
    torch: bool,

    /// Most operations to keep
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,

    /// Run CMD this many times
    ///
    /// The last run is kept whole; of those before it the times of their repetitions. What runs
    /// of one program differ by is then known: from five on each side, `regatta diff` calls
    /// slower what lies beyond that, and no longer only what is 10 % slower. A run that fails,
    /// or that Ctrl-C ends, is the last.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,

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
    let out = args.out.clone();
    let out = out.unwrap_or_else(|| default_name(&args.command));
    check(args, &out)?;
    let library = command::install_probe().map_err(|error| {
        Stop::Usage(format!(
            "the recorder cannot be written into the cache; name another in XDG_CACHE_HOME: {error}"
        ))
    })?;
    let not_built = || Stop::Usage("this regatta was built without its recorder".to_owned());
    let library = library.ok_or_else(not_built)?;
    let mut earlier = Vec::new();
    for number in 1.. {
        if args.runs > 1 {
            note(format!("run {number} of {}", args.runs));
        }
        let (mut trace, ran) = record(args, &library)?;
        let code = tracing::exit_code(ran.status);
        let operations = &trace.recording.operations;
        if operations.is_empty() {
            return Ok(nothing(args, &trace, code));
        }
        if number < args.runs && code == 0 && !ran.stopped {
            earlier.push(times_of(&analyse(&trace.recording)));
            continue;
        }
        if number < args.runs {
            let runs = args.runs;
            note(format!("it was the last of {runs}: no further run follows"));
        }
        let mut operators = operations.iter().map(|operation| &operation.operator);
        if args.torch && operators.all(Option::is_none) {
            note(
                "--torch: no operator was recorded; CMD did not import torch, or did so with \
                 what PYTHONPATH names ignored (python -I, -E or -S)",
            );
        }
        trace.header.earlier = earlier;
        keep(args, &out, &trace)?;
        return Ok(code);
    }
    Ok(0)
}

/// Runs the program; returns its trace and the way in which it ended.
fn record(args: &TraceArgs, library: &Path) -> Result<(Trace, tracing::ProgramEnd), Stop> {
    let folder = temporary::folder("trace");
    let folder = folder.map_err(|error| {
        let what = "no folder for the recording; name another in TMPDIR";
        Stop::Usage(format!("{what}: {error}"))
    })?;
    let started = now();
    let recorder = Recorder {
        library,
        folder: folder.path(),
        torch: args.torch,
    };
    let ran = tracing::run(&args.command, &recorder, args.json).map_err(|error| {
        let program = &args.command[0];
        let why = why(Path::new(program), &error);
        Stop::Usage(format!("cannot start {program}: {why}"))
    })?;
    let recording = raw::read(folder.path(), args.limit as usize).map_err(Stop::not_judged)?;
    let command = secrets::command_line(&args.command);
    let ended = tracing::ended(ran.status);
    let header = TraceHeader {
        git: state_of_checkout(Path::new("reports")),
        ..tracing::header(command, started, ended, &recording)
    };
    Ok((Trace { header, recording }, ran))
}

/// Prints the reason why nothing was recorded, and returns the exit code.
fn nothing(args: &TraceArgs, trace: &Trace, code: u8) -> u8 {
    let why = why_nothing(&trace.recording);
    note(format!("nothing was recorded: {why}"));
    match code {
        0 => 3,
        code => {
            let ended = &trace.header.ended;
            note(format!("{} ended with {ended}", args.command[0]));
            code
        }
    }
}

/// Checks before the program runs that its trace can be written.
fn check(args: &TraceArgs, out: &Path) -> Result<(), Stop> {
    if out.exists() && !args.replace {
        return Err(Stop::usage(RecordError::taken(out)));
    }
    if args.replace && out.is_file() && !file::is_trace(out) {
        refuse!(
            "{} is not a trace, and --replace replaces only traces; name another file with --out",
            out.display()
        );
    }
    files::check_folder(out).map_err(Stop::usage)?;
    args.outputs.check("a trace", &OF_TRACES, false)?;
    for (_, path) in args.outputs.wanted() {
        if is_stdout(path) {
            refuse!("--output: standard output is the program's; name a file in place of `-`");
        }
        if files::place(path) == files::place(out) {
            refuse!("{} is named twice", out.display());
        }
    }
    match std::env::var_os(tracing::INJECTION).filter(|there| !there.is_empty()) {
        Some(there) => Err(Stop::Usage(format!(
            "{} is set to {}: another tool would be loaded into the program, and CUPTI serves \
             one at a time; unset it",
            tracing::INJECTION,
            there.display()
        ))),
        None => Ok(()),
    }
}

/// The default name of the trace: `train.trace` for `python train.py`.
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
    let processes = recording.processes.iter();
    if let Some(problem) = processes.flat_map(|process| &process.problems).next() {
        return problem.clone();
    }
    if recording.processes.is_empty() {
        return "no process used a GPU through CUDA's driver, or the recorder could not start \
                there; if CUPTI is missing or another profiler uses it, a message above says so"
            .to_owned();
    }
    let pids = recording.processes.iter().map(|process| process.pid);
    let pids = pids.joined(", ");
    match recording.dropped() {
        0 => format!("process {pids} opened a GPU and ran nothing on it"),
        lost => format!("all {lost} records of process {pids} were lost"),
    }
}

/// The JSON of `--json`.
#[derive(Serialize)]
pub(super) struct TraceAnswer<'a> {
    /// The trace's file.
    trace: &'a Path,
    /// The header: how it was recorded.
    header: &'a TraceHeader,
    #[serde(flatten)]
    analysis: &'a Analysis,
}

/// Writes the trace and its page, and prints the analysis.
fn keep(args: &TraceArgs, out: &Path, trace: &Trace) -> Result<(), Stop> {
    file::write(out, trace, args.replace).map_err(Stop::not_judged)?;
    let analysis = analyse(&trace.recording);
    traces::write(&args.outputs, trace, &analysis)?;
    if args.json {
        print_json(&TraceAnswer {
            trace: out,
            header: &trace.header,
            analysis: &analysis,
        })?
    } else {
        print(shown::table(trace, &analysis))?
    };
    note(format!("trace: {}", out.display()));
    Ok(())
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
