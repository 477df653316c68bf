//! What is written behind `regatta history`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::outputs::Outputs;
use regatta_core::record::history::Clock;

/// Which history.
#[derive(Args, Clone, Debug)]
pub(super) struct Which {
    /// The suite [default: the only one there is]
    pub(super) suite: Option<String>,

    /// The machine, by its short name [default: the only one there is]
    #[arg(long, value_name = "NAME")]
    pub(super) machine: Option<String>,

    /// The folder of histories
    #[arg(long = "history", value_name = "DIR", default_value = "history")]
    pub(super) root: PathBuf,
}

#[derive(Args, Debug)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    pub(super) which: Which,

    /// List the histories that there are, or the runs of the one that is named
    #[arg(long, conflicts_with_all = ["since", "case", "reference", "clock", "output", "all"])]
    pub(super) list: bool,

    /// Tell changes since then: `30d`, `12w`, `2026-05-01`, or a time; days and weeks are
    /// those before the newest run
    #[arg(long, value_name = "WHEN", default_value = "30d")]
    pub(super) since: String,

    /// Only cases whose id matches: a part of it, or a pattern with *; may be given several
    /// times
    #[arg(long, value_name = "PATTERN")]
    pub(super) case: Vec<String>,

    /// What creep is measured from: the runs from this date on, or from the run with this
    /// label on [default: the first runs]
    #[arg(long, value_name = "WHEN")]
    pub(super) reference: Option<String>,

    /// Which of the times
    #[arg(long, value_enum, default_value_t)]
    pub(super) clock: ClockArg,

    #[command(flatten)]
    pub(super) outputs: Outputs,

    /// Print every case, and every change since then
    #[arg(long)]
    pub(super) all: bool,

    /// Machine-readable output
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
pub(super) struct AddArgs {
    /// Run files, report folders, or folders of shards: those of one run are one
    #[arg(required = true)]
    pub(super) runs: Vec<String>,

    /// Put them at this time in place of that of their start: a date or a time. For replaying
    /// old versions as if they had been measured then; the line says when they were
    #[arg(long, value_name = "TIME")]
    pub(super) at: Option<String>,

    /// The folder of histories
    #[arg(long = "history", value_name = "DIR", default_value = "history")]
    pub(super) root: PathBuf,

    /// Machine-readable output
    #[arg(long)]
    pub(super) json: bool,
}

/// [`Clock`], as it is asked for.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum ClockArg {
    /// The device's
    #[default]
    Device,
    /// The host's, to issue a call
    Host,
    /// That of the worker's process on all processors
    Processor,
}

impl From<ClockArg> for Clock {
    fn from(clock: ClockArg) -> Clock {
        match clock {
            ClockArg::Device => Clock::Device,
            ClockArg::Host => Clock::Host,
            ClockArg::Processor => Clock::Processor,
        }
    }
}
