//! Parses the command line, runs one command, and turns its outcome into an exit
//! code.

mod cli;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use cli::{
    Ended, Stop, baseline, bisect, build, compare, completions, diff, doctor, env, gate, gone,
    history, init, leave_nothing, list, note, report, run, trace, worker,
};
use owo_colors::OwoColorize;
use regatta_measure::worker::supervisor;

/// A performance-regression harness for attention kernels: whether it got slower,
/// how sure that is, and why.
#[derive(Parser, Debug)]
#[command(
    version,
    after_help = "Exit codes:\n  \
                  0  everything planned was measured and checked, and nothing is worse or may be\n  \
                  1  something is worse: slower, structure, a violated expectation or limit, a\n     \
                  wrong result, a crash or a hang (of a case the suite does not allow)\n  \
                  2  usage or configuration: nothing was measured\n  \
                  3  inconclusive: incomplete, not comparable, no baseline, or something may\n     \
                  be worse than its threshold or limit\n\
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

/// The commands by what they are for; whatever is in none comes last.
const GROUPS: [(&str, &[&str]); 3] = [
    ("Measure", &["run", "gate", "compare"]),
    (
        "Judge what is stored",
        &["diff", "report", "baseline", "history", "bisect"],
    ),
    ("Look", &["trace", "list", "doctor", "build"]),
];

/// The command line, with its commands in groups.
fn command_line() -> clap::Command {
    let command = Cli::command();
    let mut groups = GROUPS
        .map(|(name, commands)| (name, commands.to_vec()))
        .to_vec();
    let others = command.get_subcommands().filter(|one| !one.is_hide_set());
    let others = others.map(clap::Command::get_name);
    let others = others.filter(|name| !GROUPS.iter().any(|(_, all)| all.contains(name)));
    groups.push(("Also", others.collect()));
    let mut text = "Commands:".to_owned();
    for (name, commands) in groups {
        text += &format!("\n {name}");
        for one in commands {
            let about = command
                .find_subcommand(one)
                .and_then(clap::Command::get_about);
            text += &format!("\n  {one:<12} {}", about.cloned().unwrap_or_default());
        }
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}\n\n\
         Options:\n{{options}}{{after-help}}"
    );
    // A search goes on from what all cases say, by their times.
    let bisect = |bisect: clap::Command| bisect.mut_arg("structure_only", |arg| arg.hide(true));
    command
        .help_template(template)
        .mut_subcommand("bisect", bisect)
}

fn main() -> ExitCode {
    supervisor::here();
    let words: Vec<String> = std::env::args().collect();
    let refused = |text| {
        complain(&Stop::Usage(anyhow::Error::msg(text)));
        ExitCode::from(2)
    };
    if let Some(text) = gone::nested(&words) {
        return refused(text);
    }
    let read = command_line().try_get_matches();
    let cli = match read.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => match gone::on_command_line(&error, &words) {
            Some(text) => return refused(text),
            None => error.exit(),
        },
    };
    let ended = dispatch(&cli.command);
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
        Command::Completions(args) => completions::run(args, command_line()),
    }
}

/// Prints the chain of an error, without the backtrace that `RUST_BACKTRACE` would
/// add to its debug form.
fn complain(stop: &Stop) {
    let (word, error) = match stop {
        Stop::Usage(error) => ("error", error),
        Stop::NotJudged(error) => ("inconclusive", error),
        Stop::Unread => return,
    };
    let text = format!("{error:#}");
    note(format!("{}: {text}", word.red().bold()));
    if let Some(more) = gone::in_suite(&text) {
        note(more);
    }
}
