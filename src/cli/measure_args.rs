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

    /// Another value of a parameter (repeatable)
    ///
    /// `cpu/split-key.num_splits_key=1` hands a variant another value than its cases ask for,
    /// keeping their ids. `peak=true` measures first what each device reaches in products of
    /// matrices and in copies. `instructions=true` counts the instructions that each kernel
    /// executes, which needs no quiet GPU, but root, or a driver that lets others read hardware
    /// counters.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,

    /// Environment of workers that name none (declared in the suite or regatta.toml)
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub environment: Option<String>,

    /// Starts of each worker, in place of the suite's number
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub invocations: Option<u32>,

    /// Time nothing, judge what a call does
    ///
    /// Counts once what a call of each case does, and judges that alone.
    /// Works on a throttled or shared GPU. Limits on structure are judged, and changes of
    /// it where there is a baseline; expectations on time are not.
    #[arg(long, conflicts_with = "invocations")]
    pub structure_only: bool,

    /// Where it goes [default: reports/SUITE]
    ///
    /// The run and its reports; with --structure-only by default into reports/SUITE-structure.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Begin anew even where an unfinished run could go on
    #[arg(long, hide_short_help = true)]
    pub fresh: bool,

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
            out: self.out.clone(),
            fresh: self.fresh,
            quiet: self.quiet,
            baselines: self.baselines.clone(),
            listener: Rc::new(Terminal),
        }
    }
}
