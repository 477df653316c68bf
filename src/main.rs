//! Parses the command line, runs one command, and turns its outcome into an exit
//! code.

mod cli;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use cli::outputs::{self, OF_HISTORIES, OF_TRACES};
use cli::report_error_as_json;
use cli::{
    Ended, Stop, baseline, bisect, build, compare, complain, completions, diff, doctor, env, gate,
    history, init, leave_nothing, list, note, report, run, trace, worker,
};
use regatta_core::secrets;
use regatta_measure::worker::supervisor;
use regatta_report::Format;

/// Says whether kernels got slower, how sure that is, and why
#[derive(Parser, Debug)]
#[command(
    version,
    max_term_width = 80,
    after_help = "Start with: regatta run quick. --help has the exit codes, -V the version.",
    after_long_help = "Exit codes:
  0  everything planned was measured and checked; nothing is worse or may be
  1  something is worse: slower, structure, a violated expectation or limit, a
     wrong result, a crash or a hang
  2  usage or configuration: nothing was measured
  3  inconclusive: a case is missing, the runs are not comparable, there is no
     baseline, or a suspected regression is not confirmed
Exit code 1 takes precedence over 3, even if a report cannot be written.
Results go to standard output, progress and diagnostics to standard error.

Start with: regatta run quick"
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

/// The commands by purpose, each group with a heading.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Measure", &["run", "gate", "compare"]),
    (
        "Judge stored runs",
        &["diff", "report", "baseline", "history", "bisect"],
    ),
    ("Inspect", &["trace", "list", "doctor", "build"]),
    ("Set up", &["env", "init", "worker", "completions"]),
];

/// The command line; its long help has the commands in groups.
fn command_line() -> clap::Command {
    let command = Cli::command();
    let (mut list, mut groups) = (String::new(), String::new());
    for (name, commands) in GROUPS {
        groups += &format!("\n{name}:\n");
        for one in commands {
            let subcommand = command.find_subcommand(one);
            let about = subcommand.and_then(clap::Command::get_about);
            let line = format!("  {one:<12} {}\n", about.cloned().unwrap_or_default());
            list += &line;
            groups += &line;
        }
    }
    // A bisect compares times, so structure alone is not offered.
    let bisect = |bisect: clap::Command| bisect.mut_arg("structure_only", |arg| arg.hide(true));
    let formats = |command: clap::Command, formats: &[Format]| {
        command.mut_arg("output", |arg| arg.long_help(outputs::help(formats)))
    };
    let ends = [command.get_after_help(), command.get_after_long_help()];
    let [end, long_end] = ends.map(|end| end.cloned().unwrap_or_default());
    command
        // Joined here, because clap would leave three blank lines between the two parts.
        .before_help(format!("{list}\n{end}"))
        .before_long_help(format!("{}\n\n{long_end}", groups.trim()))
        .help_template("{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}")
        .mut_subcommand("bisect", bisect)
        .mut_subcommand("trace", |trace| formats(trace, &OF_TRACES))
        .mut_subcommand("history", |history| formats(history, &OF_HISTORIES))
}

fn main() -> ExitCode {
    supervisor::here();
    let words: Vec<String> = std::env::args().collect();
    let read = command_line().try_get_matches();
    let cli = match read.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => match outputs::format_as_flag(&error) {
            Some(text) => {
                complain(&Stop::Usage(text));
                return ExitCode::from(2);
            }
            None => return show(&error, &words),
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
        Command::Diff(args) => report_error_as_json(diff::run(args), args.answers.json),
        Command::Baseline(args) => report_error_as_json(baseline::run(args), args.json),
        Command::Report(args) => report::run(args),
        Command::History(args) => history::run(args),
        Command::Trace(args) => report_error_as_json(trace::run(args), args.json),
        Command::Build(args) => report_error_as_json(build::run(args), args.json),
        Command::List(args) => report_error_as_json(list::run(args), args.json),
        Command::Env(args) => report_error_as_json(env::run(args), args.json),
        Command::Doctor(args) => report_error_as_json(doctor::run(args), args.json),
        Command::Init(args) => init::run(args),
        Command::Worker(args) => worker::run(args),
        Command::Completions(args) => completions::run(args, command_line()),
    }
}

/// Prints clap's help, or its error without secrets.
fn show(error: &clap::Error, words: &[String]) -> ExitCode {
    // Requested help contains nothing of the command line.
    if !error.use_stderr() {
        error.exit();
    }
    let text = error.render().to_string();
    let shown = secrets::masked(text.clone(), &secrets::hidden_values(words, []));
    if shown == text {
        error.exit();
    }
    note(shown.trim_end());
    ExitCode::from(2)
}
