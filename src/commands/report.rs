//! `regatta report`: write reports of stored runs.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;

use super::reporting::{self, Outputs};
use super::sides::{self, Stored};
use super::{Ended, Stop, criterion, print};
use crate::judge::{self, Options};
use crate::record::baseline::Store;
use crate::report::Report;
use crate::report::files::check_writable;

/// Write reports of stored runs
///
/// Without a format, the page and the tables are written beside each run.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Run files or report folders
    #[arg(required = true)]
    runs: Vec<String>,

    /// Hold them against this run or baseline
    #[arg(long, value_name = "RUN")]
    base: Option<String>,

    /// The folder of baselines
    #[arg(long, value_name = "DIR", default_value = "baselines")]
    baselines: PathBuf,

    #[command(flatten)]
    outputs: Outputs,

    /// Write each case's samples and estimates as criterion does, for `cargo bench` and
    /// critcmp: target/criterion is where they look
    #[arg(long, value_name = "DIR")]
    criterion: Option<PathBuf>,

    /// The name under which criterion finds them: cargo bench --bench suite --
    /// --baseline NAME
    #[arg(
        long,
        value_name = "NAME",
        default_value = "regatta",
        requires = "criterion"
    )]
    criterion_baseline: String,
}

impl ReportArgs {
    /// True when a file was asked for in place of the page and the tables.
    fn any_output(&self) -> bool {
        self.outputs.any() || self.criterion.is_some()
    }
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &ReportArgs) -> Ended {
    args.outputs.check()?;
    if args.runs.len() > 1 && args.any_output() {
        return Err(Stop::Usage(anyhow!(
            "one path cannot hold the reports of {} runs; leave it out to write each beside its run",
            args.runs.len()
        )));
    }
    if let Some(root) = &args.criterion {
        criterion::check(root, &args.criterion_baseline)?;
    }
    let store = Store::new(&args.baselines);
    let options = Options::default();
    // All of them are found before the first is written.
    let heads: Vec<Stored> = args
        .runs
        .iter()
        .map(|name| sides::find(name, &store, None))
        .collect::<Result<_, Stop>>()?;
    for head in &heads {
        if head.run.entries.is_empty() && !args.any_output() {
            return Err(Stop::Usage(anyhow!(
                "{} is a baseline; say where its report goes, for example --html {}.html",
                head.path.display(),
                head.side.label
            )));
        }
    }
    for head in heads {
        let machine = head.side.header.machine.name.clone();
        let base = match &args.base {
            Some(base) => Some(sides::find(base, &store, Some(&machine))?.side),
            None => None,
        };
        let judgement = judge::judge(&head.side, base.as_ref(), &options);
        let report = Report {
            judgement: &judgement,
            head: &head.run,
            base: base.as_ref(),
        };
        if args.any_output() {
            args.outputs.write(&report)?;
            if let Some(root) = &args.criterion {
                criterion::write(root, &args.criterion_baseline, &head)?;
            }
        } else {
            let folder = head.path.parent().unwrap_or(Path::new("."));
            check_writable(&folder.join("index.html")).map_err(Stop::usage)?;
            for path in reporting::write(folder, &report)? {
                print(format!("{}\n", path.display()))?;
            }
        }
    }
    Ok(0)
}
