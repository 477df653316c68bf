//! `regatta report`: write reports of stored runs.

use std::path::{Path, PathBuf};
use std::slice;

use clap::Args;

use super::outputs::Outputs;
use super::reporting;
use super::{Ended, Stop, print, traces};
use regatta_core::output::REPORT_FILES;
use regatta_core::record::baseline::Store;
use regatta_core::record::run_file::RUN_FILE;
use regatta_judge::judgement::{Judgement, VerdictOutcome};
use regatta_judge::{self as judge, Options};
use regatta_measure::experiment::rejudge::{Rejudged, head_of_comparison, rejudge};
use regatta_measure::experiment::stored::{self, StoredRun};
use regatta_report::Report;
use regatta_report::files::check_writable;

/// Write reports of stored runs, or show a stored trace
///
/// A run, a gate or a comparison (`reports/SUITE-compare`) is judged as it was when it was measured,
/// with its base and its pairs. Without a format, the HTML report and the tables are written beside
/// each `run.jsonl`, and those of a file with another name into a folder of that name. A trace, of regatta or PyTorch's
/// profiler, is printed, or written as html or perfetto.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Run files, report folders, or folders of shards
    #[arg(required = true)]
    runs: Vec<String>,

    /// Compare them with this run or baseline
    #[arg(long, value_name = "RUN")]
    base: Option<String>,

    /// The folder of baselines
    #[arg(long, value_name = "DIR", default_value = "baselines")]
    baselines: PathBuf,

    #[command(flatten)]
    outputs: Outputs,
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &ReportArgs) -> Ended {
    if let [path] = args.runs.as_slice()
        && traces::is_trace(path)
    {
        return traces::report(path, &args.outputs);
    }
    if let Some(trace) = args.runs.iter().find(|path| traces::is_trace(path)) {
        refuse!(
            "{trace} is a trace, and `regatta report` shows one trace at a time; `regatta diff BASE \
             HEAD` compares two"
        );
    }
    args.outputs.check_of_run(false)?;
    let store = Store::new(&args.baselines);
    let head_of = |name: &String| Some(head_of_comparison(name)?.display().to_string());
    let names = args
        .runs
        .iter()
        .map(|name| head_of(name).unwrap_or_else(|| name.clone()));
    let names: Vec<String> = names.collect();
    // All runs are located before the first report is written.
    let heads = stored::find_all(&names, &store, None)?;
    if heads.len() > 1 && args.outputs.any() {
        refuse!(
            "one path cannot hold the reports of {} runs; leave it out to write each beside its run",
            heads.len()
        );
    }
    for head in &heads {
        if head.is_baseline && !args.outputs.any() {
            refuse!(
                "{} is a baseline; say where its report goes, for example --output html={}.html",
                head.path.display(),
                head.side.label
            );
        }
    }
    for (i, head) in heads.iter().enumerate() {
        if let Some(other) = heads[..i].iter().find(|other| other.is(head)) {
            refuse!(
                "{} and {} are one run; name it once",
                other.path.display(),
                head.path.display()
            );
        }
    }
    for head in heads {
        let mut heads = args.runs.iter().filter_map(|name| head_of_comparison(name));
        let folder = folder_of(&head, heads.any(|own| head.files == [own]));
        let mut base_files = reporting::base_files(&head.path, &head.side.header);
        let Rejudged {
            head,
            base,
            judgement,
        } = match &args.base {
            Some(base) => {
                let machine = head.side.header.machine.name.clone();
                let base = stored::find(slice::from_ref(base), &store, Some(&machine))?;
                base_files = base.entries().to_vec();
                Rejudged {
                    judgement: judge::judge(&head.side, Some(&base.side), &Options::ALONE),
                    base: Some(base.side),
                    head,
                }
            }
            None => rejudge(head, &store)?,
        };
        if !args.outputs.any() {
            check_outcome(&head, &judgement, &folder)?;
        }
        let report = Report {
            judgement: &judgement,
            head: &head.run,
            side: &head.side,
            files: head.entries(),
            base: base.as_ref(),
            base_files: &base_files,
        };
        if args.outputs.any() {
            args.outputs.write(&report)?;
        } else {
            for (name, _) in REPORT_FILES {
                check_writable(&folder.join(name)).map_err(Stop::usage)?;
            }
            for path in reporting::write(&folder, &report)? {
                print(format!("{}\n", path.display()))?;
            }
        }
    }
    Ok(0)
}

/// Refuses to replace the page of a worse verdict by that of a better one.
fn check_outcome(head: &StoredRun, judgement: &Judgement, folder: &Path) -> Result<(), Stop> {
    let judged = head.run.end.as_ref().and_then(|end| end.judged.as_ref());
    let severity = |outcome: VerdictOutcome| match outcome {
        VerdictOutcome::Passed => 0,
        VerdictOutcome::Inconclusive => 1,
        VerdictOutcome::Failed => 2,
    };
    let now = judgement.verdict.outcome;
    match judged.map(|judged| judged.outcome) {
        Some(then) if severity(then) > severity(now) => Err(Stop::Usage(format!(
            "{0}: the run's verdict was {1} and would now be {2}; write that report to another \
             place: --output html=report.html",
            folder.display(),
            then.text(),
            now.text()
        ))),
        _ => Ok(()),
    }
}

/// The folder of a run's page and tables: a report folder itself; else a folder named after the
/// run's file, since `past/` has several; for shards, the folder that contains theirs; for a
/// comparison, its folder above the head's.
fn folder_of(head: &StoredRun, of_comparison: bool) -> PathBuf {
    let run = head.path.as_path();
    if of_comparison {
        let above = run.parent().and_then(Path::parent);
        return above.unwrap_or(Path::new(".")).to_owned();
    }
    if head.files.len() > 1 {
        return run.to_owned();
    }
    let named = run.file_name().is_some_and(|name| name == RUN_FILE);
    match (named, run.extension()) {
        (true, _) => run.parent().unwrap_or(Path::new(".")).to_owned(),
        (false, Some(_)) => run.with_extension(""),
        (false, None) => run.with_extension("report"),
    }
}
