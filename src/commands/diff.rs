//! `regatta diff`: judge two stored runs.

use std::path::PathBuf;

use clap::Args;

use super::reporting::{self, Outputs, Show};
use super::{Ended, sides};
use crate::judge::{self, Options};
use crate::record::baseline::Store;
use crate::report::Report;

/// Judge two stored runs: what got slower, how sure that is, and why
///
/// BASE and HEAD are run files, report folders, or names of baselines. Runs of
/// different suites are compared over the cases they share.
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

    #[command(flatten)]
    show: Show,

    #[command(flatten)]
    outputs: Outputs,
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &DiffArgs) -> Ended {
    args.outputs.check()?;
    let store = Store::new(&args.baselines);
    let head = sides::find(&args.head, &store, None)?;
    let machine = head.side.header.machine.name.as_str();
    let base = sides::find(&args.base, &store, Some(machine))?;
    let options = Options {
        strict: args.strict,
        same_suite: false,
        wants_base: false,
    };
    let judgement = judge::judge(&head.side, Some(&base.side), &options);
    let report = Report {
        judgement: &judgement,
        head: &head.run,
        base: Some(&base.side),
    };
    args.outputs.write(&report)?;
    reporting::show(&report, &args.show, None)
}
