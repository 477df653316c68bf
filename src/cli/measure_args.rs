//! The arguments of all commands that measure: a suite, and options that change it.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use jiff::SignedDuration;

use super::progress::Terminal;
use regatta_core::suite::script::Script;
use regatta_measure::experiment::MeasureOptions;
use regatta_measure::experiment::request::BASELINES;
use regatta_measure::worker::pool::Pool;
use regatta_worker::units::Share;

/// The suite to measure, and how.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "What is measured")]
pub struct MeasureArgs {
    /// A built-in suite's name, a suite file, or script:FILE
    ///
    /// `script:bench.py` measures what a benchmark script times by itself, as with
    /// triton.testing.do_bench or timeit: each call of a timer is a case.
    #[arg(help_heading = None)]
    pub suite: String,

    /// Arguments of the script
    #[arg(help_heading = None, last = true, value_name = "ARGS", hide_short_help = true)]
    pub arguments: Vec<String>,

    /// Only cases whose id matches (repeatable)
    ///
    /// A glob with `*`, or a part of the id.
    #[arg(long, short, value_name = "PATTERN")]
    pub filter: Vec<String>,

    /// Override a parameter of a variant (repeatable)
    ///
    /// `cpu/split-key.num_splits_key=1` replaces the automatic choice; case ids stay the same.
    /// `peak=true` first measures the peak of each device, in matrix products and in copies.
    /// `instructions=true` counts the instructions that each kernel executes. That works on a
    /// shared GPU, as root or with a driver that lets others read hardware counters.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,

    /// The environment of workers that name none, of the suite or regatta.toml
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub environment: Option<String>,

    /// Invocations of each worker, in place of the suite's number
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub invocations: Option<u32>,

    /// The smallest change of the device time that counts, 0.01 for 1 % [default: the suite's]
    #[arg(long, value_name = "SHARE", value_parser = share, hide_short_help = true)]
    pub threshold: Option<Share>,

    /// Start no invocation or pair that would end later: 90s, 15m
    ///
    /// The first is always measured. The report says how many there are, and which cases are
    /// inconclusive.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub time_limit: Option<Duration>,

    /// Judge launch structure alone, without timing
    ///
    /// Counts once what a call of each case does. Works on a throttled or shared GPU. Limits on
    /// structure are judged, and its changes against a baseline; expectations on time are skipped.
    #[arg(long, conflicts_with = "invocations")]
    pub structure_only: bool,

    /// Folder of run and reports [default: reports/SUITE]
    ///
    /// Two versions go to reports/SUITE-compare, a bisect to reports/SUITE-bisect; with
    /// --structure-only to reports/SUITE-structure and reports/SUITE-compare-structure.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Start a new run, even where an unfinished one could resume
    #[arg(long, hide_short_help = true)]
    pub no_resume: bool,

    /// No progress on standard error
    #[arg(long, short, hide_short_help = true)]
    pub quiet: bool,

    /// The folder of baselines
    #[arg(long, value_name = "DIR", default_value = BASELINES, hide_short_help = true)]
    pub baselines: PathBuf,

    /// Owns the processes that outlive an answer of a watch.
    #[arg(skip)]
    pub pool: Pool,
}

impl MeasureArgs {
    /// The arguments as options of the library.
    pub fn request(&self) -> MeasureOptions {
        MeasureOptions {
            suite: Script::named(&self.suite, &self.arguments),
            filter: self.filter.clone(),
            set: self.set.clone(),
            environment: self.environment.clone(),
            invocations: self.invocations,
            structure_only: self.structure_only,
            threshold: self.threshold,
            limit: self.time_limit,
            deciding: Vec::new(),
            out: self.out.clone(),
            fresh: self.no_resume,
            quiet: self.quiet,
            baselines: self.baselines.clone(),
            listener: Rc::new(Terminal),
            pool: self.pool.clone(),
        }
    }
}

/// Parses a share of a time, from 0 to 1.
///
/// # Errors
/// A hint at the expected text.
pub fn share(text: &str) -> Result<Share, String> {
    match text.trim().parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(Share(share)),
        _ => Err("use a share from 0 to 1: 0.01 is 1 %".to_owned()),
    }
}

/// Parses a duration: a number with `s`, `m` or `h`, or without a unit in seconds.
///
/// # Errors
/// A hint at the expected text.
pub fn duration(text: &str) -> Result<Duration, String> {
    let has_unit = !text.ends_with(|c: char| c.is_ascii_digit());
    let unit = if has_unit { "" } else { "s" };
    let span = format!("{text}{unit}").parse::<SignedDuration>().ok();
    let span = span.and_then(|span| Duration::try_from(span).ok());
    span.ok_or_else(|| "use a time such as 90s, 15m or 2h".to_owned())
}
