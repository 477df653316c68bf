//! `regatta diff`: judge two stored runs, or two traces.

use std::borrow::Cow;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;

use super::reporting::{self, Answers};
use super::{Ended, Stop, sides, traces};
use regatta::judge::{self, Options};
use regatta::record::baseline::Store;
use regatta::report::Report;
use regatta::units::Share;

/// Judge two stored runs or traces: what got slower, how sure that is, and why
///
/// BASE and HEAD are run files, report folders, or names of baselines; or two traces of
/// `regatta trace` or of PyTorch's profiler (export_chrome_trace). Runs of different suites are
/// compared over the cases they share.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// What was
    base: String,

    /// What is
    head: String,

    /// The folder of baselines
    #[arg(long, value_name = "DIR", default_value = "baselines")]
    baselines: PathBuf,

    /// Call an inconclusive result not judged (exit code 3)
    #[arg(long)]
    strict: bool,

    /// Of traces: the smallest change of a time that counts, 0.1 for 10 % [default: 0.1, or
    /// 0.02 where each side has four runs]
    #[arg(long, value_name = "SHARE")]
    floor: Option<f64>,

    /// Another trace of the base's program, whose times count too; may be repeated
    #[arg(long, value_name = "TRACE")]
    base_run: Vec<PathBuf>,

    /// Another trace of the head's program, likewise
    #[arg(long, value_name = "TRACE")]
    head_run: Vec<PathBuf>,

    #[command(flatten)]
    answers: Answers,
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &DiffArgs) -> Ended {
    match (traces::is_trace(&args.base), traces::is_trace(&args.head)) {
        (true, true) => return of_traces(args),
        (false, false) if args.floor.is_some() => {
            return Err(Stop::Usage(anyhow!(
                "--floor is for traces; the floor of a run is its suite's: [policy] floor"
            )));
        }
        (false, false) if !args.base_run.is_empty() || !args.head_run.is_empty() => {
            return Err(Stop::Usage(anyhow!(
                "--base-run and --head-run are for traces; a run has invocations of its own"
            )));
        }
        (false, false) => {}
        _ => {
            return Err(Stop::Usage(anyhow!(
                "{} and {} are a trace and something else; name two traces, or two runs",
                args.base,
                args.head
            )));
        }
    }
    args.answers.check()?;
    let store = Store::new(&args.baselines);
    let head = sides::find(&args.head, &store, None)?;
    let machine = head.side.header.machine.name.as_str();
    let mut base = sides::find(&args.base, &store, Some(machine))?;
    base.side = base.side.as_base_of(&head.side.header);
    let options = Options {
        strict: args.strict,
        same_suite: false,
        wants_base: false,
        ..Options::default()
    };
    let judgement = judge::judge(&head.side, Some(&base.side), &options);
    let report = Report {
        judgement: &judgement,
        head: &head.run,
        side: Cow::Borrowed(&head.side),
        entries: head.entries(),
        base: Some(&base.side),
    };
    reporting::show(&report, &args.answers)
}

fn of_traces(args: &DiffArgs) -> Ended {
    let Answers {
        show,
        outputs,
        github,
    } = &args.answers;
    if outputs.beside_html() || args.strict || show.all || *github {
        return Err(Stop::Usage(anyhow!(
            "of two traces there is the text, --json and --html; --strict, --all, --github and \
             other report files are for runs"
        )));
    }
    outputs.check()?;
    if let Some(floor) = args.floor
        && !(0.0..=100.0).contains(&floor)
    {
        return Err(Stop::Usage(anyhow!(
            "--floor {floor} is no share; 0.1 stands for 10 %"
        )));
    }
    let page = outputs.html();
    if outputs.prints() && show.json {
        return Err(Stop::Usage(anyhow!(
            "--json and --html - both go to standard output; name a file for the page"
        )));
    }
    let side = |trace, runs| traces::DiffSide { trace, runs };
    let sides = [
        side(&args.base, &args.base_run),
        side(&args.head, &args.head_run),
    ];
    traces::diff(sides, args.floor.map(Share), show.json, page)
}
