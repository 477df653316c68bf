//! What is asked of a comparison, and what both shapes of it have in common.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;

use super::super::Stop;
use super::super::measure_args::MeasureArgs;
use super::super::measuring::{Ready, reports};
use regatta_core::record::header::TurnSide;
use regatta_core::suite::Suite;
use regatta_core::suite::rules::Rules;
use regatta_judge::Options;
use regatta_measure::versions::spec::Spec;
use regatta_worker::attention::Case;
use regatta_worker::units::Share;

/// What is to be compared, and how.
pub struct Question<'a> {
    /// The suite, and what of it.
    pub measure: &'a MeasureArgs,
    /// What was.
    pub base: &'a [Spec],
    /// What is.
    pub head: &'a [Spec],
    /// Where both runs and the reports go, where that is not as the command line says.
    pub directory: Option<PathBuf>,
    /// The smallest change that counts, where that is not the suite's.
    pub floor: Option<Share>,
    /// True where the processor time is judged too, whatever the suite says.
    pub processor: bool,
    /// Take no batch that would end later than this after the start.
    pub budget: Option<Duration>,
    /// True where the expectations and limits of the suite are held against the head as well.
    pub demands: bool,
    /// How to judge.
    pub options: Options,
}

/// How a comparison is decided, and where its reports go.
pub(super) struct How {
    pub(super) directory: PathBuf,
    pub(super) budget: Option<Duration>,
    pub(super) options: Options,
}

/// Why there is no comparison.
pub struct Refused {
    /// The side that cannot be had, where it is one of them.
    pub side: Option<TurnSide>,
    /// Why.
    pub stop: Stop,
}

impl From<Stop> for Refused {
    fn from(stop: Stop) -> Refused {
        Refused { side: None, stop }
    }
}

pub(super) fn of(side: TurnSide) -> impl Fn(Stop) -> Refused {
    move |stop| Refused {
        side: Some(side),
        stop,
    }
}

impl Question<'_> {
    /// Leaves a suite the rules that are asked for.
    pub(super) fn rule(&self, suite: &mut Suite) {
        let rules = &mut suite.rules;
        if !self.demands {
            *rules = Rules {
                policy: rules.policy.clone(),
                ..Rules::default()
            };
        }
        rules.policy.processor |= self.processor;
        if let Some(floor) = self.floor {
            rules.policy.floor = floor;
        }
    }

    /// What runs on another device takes no time of the processor that would say anything.
    pub(super) fn refuse_without_processor(&self, head: &Ready) -> Result<(), Stop> {
        let mut cases = head.suite.cases.iter();
        let on_processor = |case: &Case| head.header.runs_on_processor(&case.variant.worker_name());
        match self.processor && !cases.any(on_processor) {
            false => Ok(()),
            true => Err(Stop::Usage(anyhow!(
                "--processor: no case of {} runs on the processor",
                head.suite.name
            ))),
        }
    }

    pub(super) fn how(&self, suite: &Suite) -> How {
        let kind = match self.measure.structure_only {
            true => "compare-structure",
            false => "compare",
        };
        let directory = self.directory.as_ref().or(self.measure.out.as_ref());
        How {
            directory: directory
                .cloned()
                .unwrap_or_else(|| reports(&format!("{}-{kind}", suite.name))),
            budget: self.budget,
            options: self.options,
        }
    }
}

/// Where each side of a comparison is.
pub(super) const SIDES: [&str; 2] = ["in the base", "in the head"];

/// A comparison that will be refused need not be measured for.
pub(super) fn not_comparable(lines: &str) -> Stop {
    Stop::NotJudged(anyhow!(
        "these cannot be compared (nothing was measured):\n{lines}"
    ))
}
