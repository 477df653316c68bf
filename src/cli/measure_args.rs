//! What `run` and `gate` are asked to measure: a suite, and what the command line changes in it.

use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;

use super::progress::Terminal;
use regatta_measure::experiment::MeasureOptions;
use regatta_measure::experiment::request::BASELINES;

/// What to measure, and how.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "What is measured")]
pub struct MeasureArgs {
    /// A built-in suite's name, or a suite file
    #[arg(help_heading = None)]
    pub suite: String,

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

    /// Judge launch structure alone, without timing
    ///
    /// Counts once what a call of each case does. Works on a throttled or shared GPU. Limits on
    /// structure are judged, and its changes against a baseline; expectations on time are skipped.
    #[arg(long, conflicts_with = "invocations")]
    pub structure_only: bool,

    /// Folder of run and reports [default: reports/SUITE]
    ///
    /// With --structure-only the default is reports/SUITE-structure.
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
}

impl MeasureArgs {
    /// The same, for the library.
    pub fn request(&self) -> MeasureOptions {
        MeasureOptions {
            suite: self.suite.clone(),
            filter: self.filter.clone(),
            set: self.set.clone(),
            environment: self.environment.clone(),
            invocations: self.invocations,
            structure_only: self.structure_only,
            threshold: None,
            limit: None,
            deciding: Vec::new(),
            out: self.out.clone(),
            fresh: self.no_resume,
            quiet: self.quiet,
            baselines: self.baselines.clone(),
            listener: Rc::new(Terminal),
        }
    }
}
