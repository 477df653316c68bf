//! Two versions measured in turn, or one against a run that is stored: from their names to what
//! can be judged.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::deciding::{Alone, decide, incomparable};
pub use super::in_turn::InTurn;
use super::ready::{Measured, Ready, reports};
use super::stored::{Base, find};
use super::version::Version;
use super::{ExperimentError, Request};
use crate::laps::Monotonic;
use crate::versions::spec::Spec;
use regatta_core::record::baseline::Store;
use regatta_core::record::header::TurnSide;
use regatta_core::record::types::BaseId;
use regatta_core::suite::Suite;
use regatta_core::suite::rules::Rules;
use regatta_judge::Options;
use regatta_worker::attention::{Case, CaseId, VariantId};
use regatta_worker::units::Share;

/// A comparison that is ready to be measured.
pub enum Comparison {
    /// Two versions, in turn.
    InTurn(Box<InTurn>),
    /// One, compared with a run that is stored.
    Stored(Box<AgainstRun>),
}

impl Comparison {
    /// Makes the versions, and has their workers introduce themselves. Nothing is measured.
    ///
    /// # Errors
    /// Whatever is wrong with a version, the suite or a worker: exit code 2; sides that cannot
    /// be compared: 3.
    pub fn prepare(question: &Question<'_>) -> Result<Comparison, ExperimentError> {
        match question.base {
            [Spec::Run(path)] => {
                let stored = AgainstRun::of(question, path)?;
                Ok(Comparison::Stored(Box::new(stored)))
            }
            _ => match InTurn::of(question) {
                Ok(in_turn) => Ok(Comparison::InTurn(Box::new(in_turn))),
                Err(refused) => Err(refused.stop),
            },
        }
    }

    /// Where the run of what is judged lies.
    pub fn of_head(&self) -> &Path {
        match self {
            Comparison::InTurn(of) => &of.head.directory,
            Comparison::Stored(of) => &of.head.directory,
        }
    }

    /// Measures until everything is decided that can be.
    ///
    /// # Errors
    /// When a run cannot be written or read back: exit code 3.
    pub fn measured(self) -> Result<Measured, ExperimentError> {
        match self {
            Comparison::InTurn(of) => of.measured(),
            Comparison::Stored(of) => of.measured(),
        }
    }
}

/// What is to be compared, and how.
pub struct Question<'a> {
    /// The suite, and what of it.
    pub measure: &'a Request,
    /// What was.
    pub base: &'a [Spec],
    /// What is.
    pub head: &'a [Spec],
    /// Where both runs and the reports go, where that is not as the command line says.
    pub directory: Option<PathBuf>,
    /// The suite of the base, where it is measured otherwise.
    pub measure_base: Option<&'a Request>,
    /// The part of a gate that is measured in pairs, where it is one.
    pub part: Option<&'a Part>,
    /// The smallest change of the device time that counts, where that is not the suite's.
    pub threshold: Option<Share>,
    /// Measure no more that would end later than this after the start.
    pub limit: Option<Duration>,
    /// True where the head is compared with the expectations and limits of the suite as well.
    pub demands: bool,
    /// How to judge.
    pub options: Options,
}

/// The part of a gate that is measured in pairs.
pub struct Part {
    /// Its cases.
    pub cases: BTreeSet<CaseId>,
    /// Cases of the whole gate, among which its error is shared.
    pub of: u32,
}

/// How a comparison is decided, and where its reports go.
pub(super) struct How {
    pub(super) directory: PathBuf,
    pub(super) limit: Option<Duration>,
    pub(super) options: Options,
}

/// Why there is no comparison.
pub struct Refused {
    /// The side that cannot be had, where it is one of them.
    pub side: Option<TurnSide>,
    /// Why.
    pub stop: ExperimentError,
}

impl From<ExperimentError> for Refused {
    fn from(stop: ExperimentError) -> Refused {
        Refused { side: None, stop }
    }
}

pub(super) fn refused(side: TurnSide) -> impl Fn(ExperimentError) -> Refused {
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
        if let Some(threshold) = self.threshold {
            rules.policy.threshold = threshold;
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
            limit: self.limit,
            options: self.options,
        }
    }
}

/// Where each side of a comparison is.
pub(super) const SIDES: [&str; 2] = ["in the base", "in the head"];

/// A comparison that will be refused need not be measured for.
pub(super) fn not_comparable(lines: &str) -> ExperimentError {
    ExperimentError::NotJudged(format!(
        "these cannot be compared (nothing was measured):\n{lines}"
    ))
}

/// A version that is ready to be measured, and the run that it is compared with.
pub struct AgainstRun {
    base: Base,
    pub(super) head: Ready,
    how: How,
}

impl AgainstRun {
    fn of(question: &Question<'_>, path: &str) -> Result<AgainstRun, ExperimentError> {
        let (began, clock) = (Instant::now(), Monotonic::begin());
        let args = question.measure;
        let base = stored(path, &Store::new(&args.baselines))?;
        let mut head = Version::of(question.head, args)?;
        if let Some(variant) = &head.variant {
            return Err(ExperimentError::Usage(alone(variant)));
        }
        question.rule(&mut head.suite);
        let how = question.how(&head.suite);
        let asked = head.asked(how.directory.join("head"), None);
        let mut head = Ready::of(asked, args, clock)?;
        head.began = began;
        match incomparable(&head, &base.side, &how.options, SIDES) {
            None => Ok(AgainstRun { base, head, how }),
            Some(lines) => Err(not_comparable(&lines)),
        }
    }

    fn measured(mut self) -> Result<Measured, ExperimentError> {
        let mut writer = self.head.measure(Some(self.base.id.clone()))?;
        let mut batches = Alone {
            ready: &mut self.head,
            writer: &mut writer,
            base: Some(&self.base),
            options: self.how.options,
            expectations_alone: false,
        };
        decide(&mut batches, self.how.limit)?;
        Ok(Measured {
            ready: self.head,
            writer,
            base: Some(self.base),
            base_writer: None,
            pairs: None,
            folder: self.how.directory,
            options: self.how.options,
        })
    }
}

/// A run or a baseline that is stored.
fn stored(path: &str, store: &Store) -> Result<Base, ExperimentError> {
    let found = find(path, store, None)?;
    Ok(Base {
        id: BaseId {
            name: path.to_owned(),
            sum: found.sum(),
        },
        side: found.side,
    })
}

/// What both runs have in common, and no other has: the moment, and what was asked for.
pub(super) fn pair(base: &Version, head: &Version) -> String {
    let asked = [base.asked.join(" "), head.asked.join(" ")].join(" | ");
    let now = Timestamp::now().as_nanosecond();
    format!("{now:x}-{:08x}", crc32fast::hash(asked.as_bytes()))
}

/// Where variants are compared, leaves each side its own, on the same problems: those that the
/// suite has of either. Gives who stands in for whom.
///
/// # Errors
/// A side without a variant, or a suite without either: exit code 2.
pub(super) fn variants(
    base: &mut Version,
    head: &mut Version,
) -> Result<Vec<(VariantId, VariantId)>, ExperimentError> {
    let (was, is) = match (base.variant.clone(), head.variant.clone()) {
        (None, None) => return Ok(Vec::new()),
        (Some(was), Some(is)) => (was, is),
        (Some(one), None) | (None, Some(one)) => {
            return Err(ExperimentError::Usage(alone(&one)));
        }
    };
    let of_either = head.suite.cases.iter().filter(|case| {
        (case.variant == was || case.variant == is) && case.params.iter().next().is_none()
    });
    let problems: BTreeSet<_> = of_either.map(|case| case.problem.clone()).collect();
    if problems.is_empty() {
        return Err(ExperimentError::Usage(format!(
            "suite {} has no case of {was} or {is}",
            head.suite.name
        )));
    }
    for (version, variant) in [(base, &was), (head, &is)] {
        let cases = problems.iter().map(|problem| Case {
            variant: variant.clone(),
            problem: problem.clone(),
            params: Default::default(),
        });
        version.suite.cases = cases.collect();
        version.suite.cases.sort();
    }
    Ok(match was == is {
        true => Vec::new(),
        false => vec![(was, is)],
    })
}

/// What to do about a side that is a variant where the other is none.
pub(super) fn alone(variant: &VariantId) -> String {
    format!("{variant} is a variant: name the one it is compared with on the other side too")
}

/// The cases of both sides, each beside the other: they are the same but for their variants.
pub(super) fn beside(base: &Version, head: &Version) -> Vec<(Case, Case)> {
    let mut cases = head.suite.cases.clone();
    cases.sort();
    let pair = |of_head: Case| {
        let variant = base
            .variant
            .clone()
            .unwrap_or_else(|| of_head.variant.clone());
        let of_base = Case {
            variant,
            ..of_head.clone()
        };
        (of_base, of_head)
    };
    cases.into_iter().map(pair).collect()
}
