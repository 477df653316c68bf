//! Parses the command line, runs one command, and turns its outcome into an exit
//! code.

mod cli;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use cli::{
    Ended, Stop, baseline, bisect, build, compare, completions, diff, doctor, env, gate, history,
    init, leave_nothing, list, note, report, run, trace, worker,
};
use owo_colors::OwoColorize;
use regatta::worker::supervisor;

/// A performance-regression harness for attention kernels: whether it got slower,
/// how sure that is, and why.
#[derive(Parser, Debug)]
#[command(
    version,
    after_help = "Exit codes:\n  \
                  0  everything planned was measured and checked, and nothing is worse or may be\n  \
                  1  something is worse: slower, structure, a broken expectation or limit, a\n     \
                  wrong result, a crash or a hang (of a case the suite does not allow)\n  \
                  2  usage or configuration: nothing was measured\n  \
                  3  cannot say: incomplete, not comparable, no baseline, or something looks\n     \
                  worse than its floor or limit and was not decided\n\
                  1 wins over 3, whatever becomes of the output. Results go to standard output,\n\
                  progress and diagnostics to standard error.\n\nStart with: regatta run quick"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Run(run::RunArgs),
    Gate(gate::GateArgs),
    Compare(compare::CompareArgs),
    Bisect(bisect::BisectArgs),
    Diff(diff::DiffArgs),
    Baseline(baseline::BaselineArgs),
    Report(report::ReportArgs),
    History(history::HistoryArgs),
    Trace(trace::TraceArgs),
    Build(build::BuildArgs),
    List(list::ListArgs),
    Env(env::EnvArgs),
    Doctor(doctor::DoctorArgs),
    Init(init::InitArgs),
    Worker(worker::WorkerArgs),
    Completions(completions::CompletionsArgs),
}

fn main() -> ExitCode {
    supervisor::here();
    let ended = dispatch(&Cli::parse().command);
    leave_nothing();
    ExitCode::from(ended.unwrap_or_else(|stop| {
        complain(&stop);
        stop.exit_code()
    }))
}

fn dispatch(command: &Command) -> Ended {
    match command {
        Command::Run(args) => run::run(args),
        Command::Gate(args) => gate::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Bisect(args) => bisect::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Baseline(args) => baseline::run(args),
        Command::Report(args) => report::run(args),
        Command::History(args) => history::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Build(args) => build::run(args),
        Command::List(args) => list::run(args),
        Command::Env(args) => env::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Init(args) => init::run(args),
        Command::Worker(args) => worker::run(args),
        Command::Completions(args) => completions::run(args, Cli::command()),
    }
}

/// Prints the chain of an error, without the backtrace that `RUST_BACKTRACE` would
/// add to its debug form.
fn complain(stop: &Stop) {
    let (word, error) = match stop {
        Stop::Usage(error) => ("error", error),
        Stop::NotJudged(error) => ("not judged", error),
        Stop::Unread => return,
    };
    note(format!("{}: {error:#}", word.red().bold()));
}
