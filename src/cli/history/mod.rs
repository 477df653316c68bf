//! `regatta history`: shows the changes over weeks and when they began. A gate's verdict never uses
//! it.

mod add;
mod show;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use super::outputs::Outputs;
use super::reporting::report_error_as_json;
use super::{Ended, Stop};
use regatta_core::suite::Metric;
use regatta_core::text::shell_command;

pub use add::{Keep, add_to_history};

/// Show trends of stored runs, and add runs to a history
///
/// A history has the times of every case of every run that was added, with revision, versions and
/// machine. It reports when cases changed, which drift, and which changed together. It exits 0
/// whatever it found: a gate gives verdicts.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct HistoryArgs {
    #[command(subcommand)]
    command: Option<HistoryCommand>,

    #[command(flatten)]
    show: ShowArgs,
}

#[derive(Subcommand, Debug)]
enum HistoryCommand {
    /// Add runs; one that is there already is skipped
    Add(AddArgs),
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &HistoryArgs) -> Ended {
    match &args.command {
        Some(HistoryCommand::Add(args)) => report_error_as_json(add::run(args), args.json),
        None if args.show.list => report_error_as_json(show::list(&args.show), args.show.json),
        None => report_error_as_json(show::run(&args.show), args.show.json),
    }
}

/// The default folder of histories.
const HISTORIES: &str = "history";

/// Which history.
#[derive(Args, Clone, Debug)]
pub(super) struct Which {
    /// The suite [default: the only one there is]
    pub(super) suite: Option<String>,

    /// The machine, where there are several
    #[arg(long, value_name = "NAME")]
    pub(super) machine: Option<String>,

    /// The folder of histories
    #[arg(long = "history", value_name = "DIR", default_value = HISTORIES)]
    pub(super) root: PathBuf,
}

impl Which {
    /// The command `regatta history SUITE OPTION` for the same folder and machine.
    fn command(&self, suite: &str, option: &str) -> String {
        let words = ["regatta", "history", suite, option];
        let mut words = words.map(str::to_owned).to_vec();
        if let Some(machine) = &self.machine {
            words.extend(["--machine".to_owned(), machine.clone()]);
        }
        if self.root != Path::new(HISTORIES) {
            words.extend(["--history".to_owned(), self.root.display().to_string()]);
        }
        shell_command(&words)
    }
}

#[derive(Args, Debug)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    pub(super) which: Which,

    /// List the runs of the history
    #[arg(long, conflicts_with_all = ["since", "case", "reference", "clock", "output", "all"])]
    pub(super) list: bool,

    /// Changes since: 30d, 12w, 2026-05-01
    ///
    /// Days and weeks are those before the newest run.
    #[arg(long, value_name = "WHEN", default_value = "30d")]
    pub(super) since: String,

    /// Only cases whose id matches (repeatable)
    #[arg(long, value_name = "PATTERN")]
    pub(super) case: Vec<String>,

    /// Measure drift from this date or run on
    #[arg(long, value_name = "WHEN")]
    pub(super) reference: Option<String>,

    /// device, host or cpu time
    #[arg(long, default_value = "device", value_parser = clock)]
    pub(super) clock: Metric,

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
    /// Run files, report folders, or folders of shards
    #[arg(required = true)]
    pub(super) runs: Vec<String>,

    /// Put them at this date or time, not at that of their start
    #[arg(long, value_name = "TIME")]
    pub(super) at: Option<String>,

    /// The folder of histories
    #[arg(long = "history", value_name = "DIR", default_value = HISTORIES)]
    pub(super) root: PathBuf,

    /// Machine-readable output
    #[arg(long)]
    pub(super) json: bool,
}

/// Parses the short name of a metric that is a time of a call.
fn clock(text: &str) -> Result<Metric, String> {
    match text {
        "device" => Ok(Metric::Device),
        "host" => Ok(Metric::Host),
        "cpu" => Ok(Metric::CpuTime),
        _ => Err("use device, host or cpu".to_owned()),
    }
}

/// Parses a date, or a time such as `2026-05-01T12:00:00Z`; dates begin in UTC.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(at);
    }
    // A time needs a zone, and would otherwise be read as its date.
    let date: Date = match text.len() {
        10 => text.parse().ok()?,
        _ => return None,
    };
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// Parses a date or time like [`time`], or a span before `newest`: `30d`, `12h`, `8w`.
pub(super) fn since(text: &str, newest: Timestamp) -> Result<Timestamp, Stop> {
    let span = text.parse::<Span>().ok().filter(|span| !span.is_negative());
    let newest = newest.to_zoned(TimeZone::UTC);
    let before = span.and_then(|span| Some(newest.checked_sub(span).ok()?.timestamp()));
    before.or_else(|| time(text)).ok_or_else(|| {
        Stop::Usage(format!(
            "--since {text}: use a span before the newest run such as 30d, 8w or 12h, a date such \
             as 2026-05-01, or a time such as 2026-05-01T12:00:00Z"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_dates_and_times_are_understood() {
        let newest: Timestamp = "2026-05-31T12:00:00Z".parse().unwrap();
        let parsed = |text| since(text, newest).map(|at| at.to_string()).ok();
        assert_eq!(parsed("30d").unwrap(), "2026-05-01T12:00:00Z");
        assert_eq!(parsed("1w").unwrap(), "2026-05-24T12:00:00Z");
        assert_eq!(parsed("12h").unwrap(), "2026-05-31T00:00:00Z");
        assert_eq!(parsed("2026-05-03").unwrap(), "2026-05-03T00:00:00Z");
        let zoned = parsed("2026-05-03T06:00:00+02:00").unwrap();
        assert_eq!(zoned, "2026-05-03T04:00:00Z");
        let odd = ["", "d", "-3d", "May", "2026-05", "3é", "9999999999d"];
        for odd in odd.into_iter().chain(["99999999999999999999d"]) {
            assert_eq!(parsed(odd), None, "{odd}");
        }
    }
}
