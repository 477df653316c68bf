//! The edge of a bisect: compares two versions as `regatta compare` does, and keeps what came
//! of it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::bisect::{BisectStep, Comparer, Tried, TriedOutcome, readings};
use super::commits;
use super::journal::Journal;
use super::{Spec, Version};
use crate::environments::PythonEnvironment;
use crate::experiment::{Experiment, ExperimentError, MeasureOptions, Setup, VersionComparison};
use crate::git::Checkout;
use regatta_core::record::header::TurnSide;
use regatta_core::suite::rules::Metric;
use regatta_core::text::{one_line, plain_name};
use regatta_worker::units::Share;

/// Where the runs of the comparisons lie, in the report directory.
const COMPARED: &str = "compared";
/// Compares, and keeps.
pub struct ExperimentComparer<'a> {
    /// What is measured, and how.
    pub measure: &'a MeasureOptions,
    /// The smallest change that counts, where that is not the suite's.
    pub threshold: Option<Share>,
    /// By what versions are told apart.
    pub metric: Metric,
    /// The report directory.
    pub directory: &'a Path,
    /// The checkout whose commits are searched.
    pub git: &'a Checkout,
    /// True where merges are taken as they are.
    pub first_parent: bool,
    /// What was compared.
    pub journal: &'a mut Journal,
    /// When the first comparison began that is made here.
    pub began: Instant,
    /// How many were told of that were made here.
    pub told: u32,
    /// Is told of each step, and how long the others take.
    pub tell: &'a dyn Fn(&BisectStep, Option<Duration>),
}

impl ExperimentComparer<'_> {
    /// What is installed in the environment of a version.
    ///
    /// # Errors
    /// When its spec cannot be read again, which it was.
    pub fn lock(&self, version: &Version) -> Result<Option<String>, ExperimentError> {
        let spec = spec(version)?;
        // It was measured: nothing is made anew.
        Ok(Setup::make(&[spec], self.measure)
            .ok()
            .as_ref()
            .and_then(lock_of))
    }

    /// How long so many more comparisons take, by those that were made; `None`: none is left.
    fn left(&self, comparisons: usize) -> Option<Duration> {
        let each = self.began.elapsed().as_secs_f64() / f64::from(self.told.max(1));
        let left = Duration::try_from_secs_f64(each * comparisons as f64);
        left.ok().filter(|_| comparisons > 0)
    }

    fn place(&self, base: &Version, head: &Version) -> PathBuf {
        let name = format!(
            "{}-against-{}",
            plain_name(&head.name),
            plain_name(&base.name)
        );
        self.directory.join(COMPARED).join(name)
    }
}

/// What is installed in the environment that was made for a side.
fn lock_of(side: &Setup) -> Option<String> {
    let name = side.environment.as_ref()?;
    let environment = side.suite.environments.get(name)?;
    PythonEnvironment::locate(name, environment).ok()??.lock()
}

fn spec(version: &Version) -> Result<Spec, ExperimentError> {
    version.spec.parse().map_err(ExperimentError::usage)
}

/// Why a version is passed over, in a line, without its name before it.
fn reason(stop: &ExperimentError, version: &Version) -> String {
    let said = one_line(&stop.to_string());
    let named = format!("{}: ", version.spec);
    said.strip_prefix(&named).unwrap_or(&said).to_owned()
}

impl Comparer for ExperimentComparer<'_> {
    type Stop = ExperimentError;

    fn compare(&mut self, base: &Version, head: &Version) -> Result<TriedOutcome, ExperimentError> {
        let (base_spec, head_spec) = ([spec(base)?], [spec(head)?]);
        let mut comparison = VersionComparison::new(self.measure, &base_spec, &head_spec);
        comparison.folder = Some(self.place(base, head));
        comparison.threshold = self.threshold;
        let experiment = match Experiment::compare(&comparison) {
            Ok(experiment) => experiment,
            Err(error) => {
                let (side, version) = match error {
                    ExperimentError::Unusable {
                        side: TurnSide::Base,
                        ..
                    } => (TurnSide::Base, base),
                    _ => (TurnSide::Head, head),
                };
                let reason = reason(&error, version);
                return Ok(TriedOutcome::Unusable { side, reason });
            }
        };
        let mut measured = experiment.run()?;
        measured.files.close()?;
        Ok(TriedOutcome::Measured {
            cases: readings(&measured.judgement, self.metric),
        })
    }

    fn brought(
        &mut self,
        low: &Version,
        merge: &Version,
    ) -> Result<Vec<Vec<Version>>, ExperimentError> {
        if self.first_parent {
            return Ok(Vec::new());
        }
        commits::brought(self.git, low, merge).map_err(ExperimentError::not_judged)
    }

    fn keep(&mut self, tried: &Tried, step: &BisectStep) -> Result<(), ExperimentError> {
        self.journal
            .keep(tried)
            .map_err(ExperimentError::not_judged)?;
        self.told += 1;
        let left = self.left(step.about.saturating_sub(step.number));
        (self.tell)(step, left);
        Ok(())
    }
}
