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
use regatta_judge::{self as judge, Options};
use regatta_measure::experiment::stored::{self, StoredRun};
use regatta_report::Report;
use regatta_report::files::check_writable;

/// Write reports of stored runs, or show a stored trace
///
/// Without a format, the HTML report and the tables are written beside each `run.jsonl`, and those
/// of a file with another name into a folder of that name. A trace, of regatta or PyTorch's
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
        return Err(Stop::Usage(format!(
            "{trace} is a trace, and `regatta report` shows one trace at a time; `regatta diff BASE \
             HEAD` compares two"
        )));
    }
    args.outputs.check_of_run(false)?;
    let store = Store::new(&args.baselines);
    let options = Options::ALONE;
    // All of them are found before the first is written.
    let heads = stored::find_all(&args.runs, &store, None)?;
    if heads.len() > 1 && args.outputs.any() {
        return Err(Stop::Usage(format!(
            "one path cannot hold the reports of {} runs; leave it out to write each beside its run",
            heads.len()
        )));
    }
    for head in &heads {
        if head.is_baseline && !args.outputs.any() {
            return Err(Stop::Usage(format!(
                "{} is a baseline; say where its report goes, for example --output html={}.html",
                head.path.display(),
                head.side.label
            )));
        }
    }
    for (i, head) in heads.iter().enumerate() {
        if let Some(other) = heads[..i].iter().find(|other| other.is(head)) {
            return Err(Stop::Usage(format!(
                "{} and {} are one run; name it once",
                other.path.display(),
                head.path.display()
            )));
        }
    }
    for head in heads {
        let folder = folder_of(&head);
        let machine = head.side.header.machine.name.clone();
        let base = match &args.base {
            Some(base) => Some(stored::find(slice::from_ref(base), &store, Some(&machine))?.side),
            None => None,
        };
        let judgement = judge::judge(&head.side, base.as_ref(), &options);
        let report = Report {
            judgement: &judgement,
            head: &head.run,
            side: &head.side,
            files: head.entries(),
            base: base.as_ref(),
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

/// Where the page and the tables of a run go: beside a report folder's run, else into a
/// folder named after the file, since several may lie in one place (`past/`); of shards into the
/// folder that holds theirs.
fn folder_of(head: &StoredRun) -> PathBuf {
    let run = head.path.as_path();
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
