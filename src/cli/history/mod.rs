//! `regatta history`: what changed over weeks, and since when. For trends, never for the verdict
//! of a gate.

mod add;
mod args;
mod list;
mod show;
mod since;

use clap::{Args, Subcommand};

use self::args::{AddArgs, ShowArgs};
use super::Ended;
use super::reporting::told_as_json;

pub use add::{Keep, kept};

/// Show what changed over weeks, add runs to a history, or list them
///
/// A history is what came of every case in every run that was added, with the revision, the
/// versions and the facts of the machine. It tells when cases changed, what creeps, and who
/// moved together. It is for trends, never for the verdict of a gate: it exits 0 when it could
/// answer, whatever the answer is.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct HistoryArgs {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    show: ShowArgs,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Add runs that came to their end, whatever was said of them; one that is there is skipped
    Add(AddArgs),
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &HistoryArgs) -> Ended {
    match &args.command {
        Some(Command::Add(args)) => told_as_json(add::run(args), args.json),
        None if args.show.list => told_as_json(list::run(&args.show), args.show.json),
        None => told_as_json(show::run(&args.show), args.show.json),
    }
}
