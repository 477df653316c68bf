//! `regatta diff`: judge two stored runs, or two traces.

use std::path::PathBuf;
use std::slice;

use clap::Args;

use super::measure_args::share;
use super::reporting::{self, Answers};
use super::{Ended, Stop, traces};
use regatta_core::record::baseline::Store;
use regatta_judge::{self as judge, Options};
use regatta_measure::experiment::stored;
use regatta_report::{Format, Report};
use regatta_worker::units::Share;

/// Judge two stored runs or traces
///
/// BASE and HEAD are run files, report folders, folders of shards, or names of baselines; or two
/// traces of `regatta trace` or of PyTorch's profiler (export_chrome_trace). Runs of different
/// suites are compared over the cases they share.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// The base, then the head: one run, or the shards of one
    #[arg(required = true, value_name = "BASE HEAD")]
    runs: Vec<String>,

    /// Compare HEAD alone with this baseline, as `regatta gate` does
    #[arg(long, value_name = "NAME", conflicts_with = "no_base")]
    baseline: Option<String>,

    /// Judge HEAD alone by its suite, as `regatta run` does
    #[arg(long)]
    no_base: bool,

    /// The folder of baselines
    #[arg(long, value_name = "DIR", default_value = "baselines")]
    baselines: PathBuf,

    /// For traces: the smallest change of a time that counts
    ///
    /// 0.1 for 10 %, which is the default; with five runs a side it is 0.02.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    threshold: Option<Share>,

    /// A further trace of the base's program (repeatable)
    #[arg(long, value_name = "TRACE")]
    base_run: Vec<PathBuf>,

    /// A further trace of the head's program (repeatable)
    #[arg(long, value_name = "TRACE")]
    head_run: Vec<PathBuf>,

    #[command(flatten)]
    pub answers: Answers,
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &DiffArgs) -> Ended {
    let alone = args.no_base || args.baseline.is_some();
    let (base, heads) = match args.runs.as_slice() {
        all if alone => (None, all),
        [base, heads @ ..] if !heads.is_empty() => (Some(base), heads),
        _ => {
            refuse!(
                "name what it is compared with: regatta diff BASE {0}, or --baseline NAME {0}; \
                 --no-base where it is nothing",
                args.runs.join(" ")
            );
        }
    };
    let trace = args.runs.iter().find(|run| traces::is_trace(run));
    match (base, heads, trace) {
        (Some(base), [head], Some(_)) if traces::is_trace(base) && traces::is_trace(head) => {
            return of_traces(args, base, head);
        }
        (.., Some(trace)) => {
            refuse!(
                "{trace} is a trace, and `regatta diff BASE HEAD` compares a trace with one other \
                 trace only; name two traces, or runs alone"
            );
        }
        _ if args.threshold.is_some() => {
            refuse!("--threshold is for traces; that of a run is its suite's: [policy] threshold");
        }
        _ if !args.base_run.is_empty() || !args.head_run.is_empty() => {
            refuse!("--base-run and --head-run are for traces; a run has invocations of its own");
        }
        _ => {}
    }
    args.answers.check()?;
    let store = Store::new(&args.baselines);
    let head = stored::find(heads, &store, None)?;
    let header = &head.side.header;
    let mut base_files = Vec::new();
    let base = match (base, &args.baseline) {
        (Some(base), _) => {
            let machine = header.machine.name.as_str();
            let base = stored::find(slice::from_ref(base), &store, Some(machine))?;
            base_files = base.entries().to_vec();
            Some(base.side.as_base_of(header))
        }
        (None, Some(name)) => {
            let stored = stored::baseline_of(&store, name, header)?;
            let stored = stored.ok_or_else(|| Stop::not_judged(store.absent(name)))?;
            Some(stored.side)
        }
        (None, None) => None,
    };
    let options = match args.baseline {
        Some(_) => Options::GATE,
        None => Options::ALONE,
    };
    let judgement = judge::judge(&head.side, base.as_ref(), &options);
    let report = Report {
        judgement: &judgement,
        head: &head.run,
        side: &head.side,
        files: head.entries(),
        base: base.as_ref(),
        base_files: &base_files,
    };
    let ended = reporting::show(&report, &args.answers);
    // The process ends anyway, and freeing the memory of 100,000 cases would take a tenth of its
    // time.
    std::mem::forget((judgement, head, base));
    ended
}

fn of_traces(args: &DiffArgs, base: &str, head: &str) -> Ended {
    let Answers { json, all, outputs } = &args.answers;
    if *all {
        refuse!(
            "--all is for runs; of two traces there is the text, --json and --output html=PATH"
        );
    }
    outputs.check("a comparison of traces", &[Format::Html], *json)?;
    let sides = [(base, &args.base_run[..]), (head, &args.head_run[..])];
    traces::diff(sides, args.threshold, *json, outputs)
}
