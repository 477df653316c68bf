//! `regatta worker`: serves our own variants, or checks a worker against the protocol.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{Ended, Stop, note, print_json, report_error_as_json, show_blocks, watch_for};
use regatta_core::suite::Settings;
use regatta_core::temporary;
use regatta_cuda::{CudaWorker, Offer};
use regatta_measure::conformance::{self, Check, CheckResult};
use regatta_measure::experiment::arm::with_log;
use regatta_measure::interrupt;
use regatta_measure::sensitivity;
use regatta_measure::worker::WorkerSpec;
use regatta_measure::worker::host::WorkerProcess;
use regatta_report::document::{Block, ListItem, Tone};
use regatta_report::text::clean;
use regatta_worker::serve::{Worker, serve_on_descriptors};

/// Check a worker against the protocol
#[derive(Args, Debug)]
pub struct WorkerArgs {
    #[command(subcommand)]
    action: WorkerAction,
}

#[derive(Subcommand, Debug)]
enum WorkerAction {
    /// Be the worker of this name (started by regatta itself)
    #[command(hide = true)]
    Serve {
        /// The worker
        worker: String,
        /// The name of a worker of somebody's kernels
        #[arg(long, requires = "file", requires = "contract")]
        name: Option<String>,
        /// Their CUDA file
        #[arg(long, requires = "name")]
        file: Option<PathBuf>,
        /// The launch contract of its entry points
        #[arg(long, requires = "name")]
        contract: Option<PathBuf>,
    },
    /// Start a worker, and check it by docs/PROTOCOL.md; or check a suite's operators
    ///
    /// With a suite, the reference of each declared operator is run on inputs of which one is drawn
    /// again, or one scalar doubled: each has to move a result by four limits.
    ///
    /// Exits 0 when it conforms, 1 when it does not, 2 when it cannot be started.
    Check {
        /// A suite whose declared operators are checked
        #[arg(conflicts_with = "command", required_unless_present = "command")]
        suite: Option<String>,
        /// Machine-readable output
        #[arg(long)]
        json: bool,
        /// The command that starts it
        #[arg(last = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &WorkerArgs) -> Ended {
    match &args.action {
        WorkerAction::Serve {
            worker,
            name,
            file,
            contract,
        } => match (name, file, contract) {
            (Some(name), Some(file), Some(contract)) => serve(kernels(name, file, contract)?),
            _ => serve(own(worker)?),
        },
        WorkerAction::Check {
            suite: Some(name),
            json,
            ..
        } => report_error_as_json(check_operators(name, *json), *json),
        WorkerAction::Check { json, command, .. } => {
            report_error_as_json(check(command, *json), *json)
        }
    }
}

fn own(name: &str) -> Result<Box<dyn Worker>, Stop> {
    match name {
        regatta_cpu::NAME => Ok(Box::new(regatta_cpu::worker())),
        regatta_cuda::NAME => Ok(Box::new(CudaWorker::new(Offer::ours()))),
        _ => Err(Stop::Usage(format!(
            "regatta has no worker `{name}` of its own"
        ))),
    }
}

fn kernels(name: &str, file: &Path, contract: &Path) -> Result<Box<dyn Worker>, Stop> {
    let read = Offer::read(name, file, contract);
    let own = read.map_err(Stop::Usage)?;
    Ok(Box::new(CudaWorker::new(own)))
}

fn serve(mut worker: Box<dyn Worker>) -> Ended {
    serve_on_descriptors(worker.as_mut()).map_err(Stop::usage)?;
    Ok(0)
}

fn check_operators(name: &str, json: bool) -> Ended {
    watch_for("");
    let suite = regatta_core::suite::load(name)?;
    let logs = temporary::folder("logs").map_err(Stop::usage)?;
    interrupt::leaves(logs.path().to_owned());
    let checks = sensitivity::check(&suite, logs.path().to_owned()).map_err(Stop::usage)?;
    let (passed, failed) = ("each input moves the results", "an input moves no result");
    show(checks, json, passed, failed)
}

fn check(command: &[String], json: bool) -> Ended {
    watch_for("");
    let (program, args) = command
        .split_first()
        .ok_or_else(|| Stop::Usage("no command".to_owned()))?;
    let spec = WorkerSpec::new(program, program, args.to_vec());
    let logs = temporary::folder("logs").map_err(Stop::usage)?;
    interrupt::leaves(logs.path().to_owned());
    let log = logs.path().join("worker.log");
    let limit = Duration::from_secs(Settings::default().timeout_s.into());
    let mut worker = WorkerProcess::start(&spec, &log, limit).map_err(|error| {
        let log = error.log.clone();
        Stop::Usage(with_log(error, &log))
    })?;
    let mut checks = Vec::new();
    if let Err(error) = conformance::check(&mut worker, &mut checks) {
        checks.push(Check {
            name: "the worker lives on".to_owned(),
            result: CheckResult::Failed(error.to_string()),
        });
        if !error.log.is_empty() {
            note(format!("its last words:\n{}", clean(&error.log)));
        }
    }
    show(checks, json, "conforms", "does not conform")
}

/// Prints checks with their results; the exit code is 1 if one failed.
fn show(checks: Vec<Check>, json: bool, passed: &str, failed: &str) -> Ended {
    let failed_checks = checks.iter();
    let failed_checks = failed_checks.filter(|c| matches!(c.result, CheckResult::Failed(_)));
    let failures = failed_checks.count();
    if json {
        print_json(&checks)?;
    } else {
        let verdict = match failures {
            0 => format!("{passed}: {} checks", checks.len()),
            n => format!("{failed}: {n} of {} checks failed", checks.len()),
        };
        let checks = checks.iter().map(item).collect();
        show_blocks(vec![Block::List(checks), Block::Note(verdict)])?;
    }
    Ok(u8::from(failures > 0))
}

fn item(check: &Check) -> ListItem {
    let (lead, tone, reason) = match &check.result {
        CheckResult::Passed => ("ok", Tone::Good, None),
        CheckResult::Unsupported(reason) => ("unsupported", Tone::Doubtful, Some(reason)),
        CheckResult::Failed(reason) => ("FAILED", Tone::Bad, Some(reason)),
    };
    ListItem {
        tone,
        below: reason.cloned().into_iter().collect(),
        ..ListItem::new(lead, &check.name)
    }
}
