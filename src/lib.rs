//! regatta: whether attention got slower, how sure that is, and why.
//!
//! The program `regatta` measures attention kernels and judges what it measured
//! (`regatta --help`). This library is what the program stands on; it parses no command line
//! and prints nothing. With it a program of your own plans a suite, drives workers, or, most
//! often, reads runs that were stored elsewhere and judges them.
//!
//! # Judge two stored runs
//!
//! A run is a file, [`record::run_file`]. Reduced to one value an invocation it is a
//! [`Side`](record::side::Side), and of two sides [`judge::judge`] makes a
//! [`Judgement`](judge::judgement::Judgement): values, which [`report`] shows in any format.
//! No worker, device or clock is asked, so this runs anywhere and answers the same each time.
//!
//! ```
//! use std::path::Path;
//!
//! use regatta::judge::{self, judgement::{VerdictOutcome, Word}};
//! use regatta::record::{run_file, side::Side};
//! use regatta::report::terminal;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let read = |label: &str| {
//!     let path = Path::new("reports/samples").join(label).join(run_file::RUN_FILE);
//!     run_file::read(&path).map(|run| Side::from_run(label, &run))
//! };
//! let base = read("xformers-library")?;
//! let head = read("xformers-library-0.0.26")?;
//!
//! let judgement = judge::judge(&head, Some(&base), &judge::Options::default());
//! let options = terminal::Options { colour: false, all: false };
//! println!("{}", terminal::render(&judgement, options));
//!
//! assert_eq!(judgement.verdict.outcome, VerdictOutcome::Failed);
//! let slower = judgement.rows.iter().filter(|row| row.word == Word::Regressed);
//! for row in slower {
//!     for finding in &row.findings {
//!         println!("{} is slower: {}", row.case, finding.cause);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Plan a suite
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut suite = regatta::suite::load("quick")?;
//! suite.keep(&["cpu/split-key:*,bwd*".to_owned()]);
//! for case in &suite.cases {
//!     let flops = regatta::attention::work::flops(&case.problem);
//!     println!("{case}: {:.2} GFLOP", flops / 1e9);
//! }
//! assert_eq!(suite.cases.len(), 6);
//! # Ok(())
//! # }
//! ```
//!
//! # The rooms, in the order of the data
//!
//! | room | what it knows | begin with |
//! |---|---|---|
//! | [`attention`], [`units`] | problems, case ids, inputs, the reference; times and ratios in words. They are [`regatta_worker`]'s, which is all that a worker in Rust needs | [`attention::Case`] |
//! | [`suite`] | what to measure: the TOML as written, and the cases it makes | [`suite::load`] |
//! | [`worker`] | the one boundary: processes that run what is measured | [`worker::host`] |
//! | [`kernels`] | our CUDA sources, and how they become code | [`kernels::compile`] |
//! | [`variants`] | our own kernels under test, as workers | [`variants::worker`] |
//! | [`record`] | what is kept: runs, baselines, histories, traces | [`record::run_file`] |
//! | [`measure`] | how: preflight, schedule, invocations, checks | [`measure::session`] |
//! | [`judge`] | what it means: statistics, verdict, causes | [`judge::judge`] |
//! | [`versions`] | which versions there are, and the search between them | [`versions::search`] |
//! | [`report`] | how it is shown: one file a format | [`report::render`] |
//!
//! A room imports only from those above it; `docs/ARCHITECTURE.md` says which, and
//! `tests/layering/` holds them to it. Times are nanoseconds, and what is not known is
//! absent, never 0.

mod cache;
mod input;
pub mod last_words;
pub mod names;
mod output;

pub use regatta_worker::{attention, units};

pub mod machine;

pub mod suite;
pub mod worker;

pub mod kernels;

pub mod variants;

pub mod record;

pub mod measure;

pub mod judge;

pub mod versions;

pub mod report;
