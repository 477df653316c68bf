//! `regatta submit`: a suite in shards on a cluster, by the scheduler that is there.

mod arguments;
mod commands;
mod manifests;
mod queued;
mod waiting;

pub use arguments::SubmitArgs;

use super::Ended;
use super::reporting::told_as_json;

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &SubmitArgs) -> Ended {
    let ended = match args.kubernetes {
        true => manifests::print(args),
        false => queued::submit(args),
    };
    told_as_json(ended, args.show.json)
}
