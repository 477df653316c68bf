//! `regatta diff`: judge two stored runs.

use std::path::PathBuf;

use clap::Args;

use super::reporting::{self, Outputs, Show};
use super::{Ended, sides};
use crate::judge::{self, Options};
use crate::record::baseline::Store;

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
    };
    let judgement = judge::judge(&head.side, Some(&base.side), &options);
    args.outputs
        .write(&judgement, &head.run, Some(&base.side))?;
    reporting::show(&judgement, &head.run, Some(&base.side), &args.show, None)
}
