//! Two versions measured in pairs, or one against a run that is stored.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::arm::reports;
use super::stored::{StoredBase, find};
use super::{Arm, Base, Experiment, ExperimentError, MeasureOptions, Setup};
use crate::code::Roots;
use crate::schedule::CasePair;
use crate::versions::Spec;
use regatta_core::record::baseline::Store;
use regatta_core::record::header::{Turn, TurnSide};
use regatta_core::record::run_file::{Opening, going_on};
use regatta_core::record::types::{BaseId, Run};
use regatta_core::suite::Suite;
use regatta_core::suite::rules::Rules;
use regatta_judge::Options;
use regatta_worker::attention::{Case, CaseId, VariantId};
use regatta_worker::units::Share;

/// Two versions that are to be compared, and how.
pub struct VersionComparison<'a> {
    /// The suite, and what of it.
    pub request: &'a MeasureOptions,
    /// What was: versions, or one stored run.
    pub base: &'a [Spec],
    /// What is.
    pub head: &'a [Spec],
    /// The smallest change of the device time that counts, where that is not the suite's.
    pub threshold: Option<Share>,
    /// Measure no more that would end later than this after the start.
    pub limit: Option<Duration>,
    /// True where the head is compared with the expectations and limits of the suite as well.
    pub demands: bool,
    /// Where both runs and the reports go, where that is not as the command line says.
    pub(crate) folder: Option<PathBuf>,
    /// The suite as the base is measured.
    pub(super) base_request: &'a MeasureOptions,
    /// The cases of a gate that are measured in pairs, where it is of one.
    pub(super) cases: Option<BTreeSet<CaseId>>,
    /// Cases of the whole gate, among which its error is shared.
    pub(super) of_cases: Option<u32>,
}

/// A base that is measured in pairs with the head.
pub(super) struct Interleaved {
    pub(super) arm: Arm,
    /// Cases of the base and the head, each beside the other.
    pub(super) cases: Vec<CasePair>,
}

impl<'a> VersionComparison<'a> {
    /// A comparison of two versions as the suite asks for it.
    pub fn new(
        request: &'a MeasureOptions,
        base: &'a [Spec],
        head: &'a [Spec],
    ) -> VersionComparison<'a> {
        VersionComparison {
            request,
            base,
            head,
            threshold: None,
            limit: None,
            demands: false,
            folder: None,
            base_request: request,
            cases: None,
            of_cases: None,
        }
    }

    /// Leaves a suite the rules that are asked for.
    fn set_rules(&self, suite: &mut Suite) {
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

    fn folder(&self, suite: &Suite) -> PathBuf {
        let kind = match self.request.structure_only {
            true => "compare-structure",
            false => "compare",
        };
        let folder = self.folder.as_ref().or(self.request.out.as_ref()).cloned();
        folder.unwrap_or_else(|| reports(&format!("{}-{kind}", suite.name)))
    }
}

impl Experiment {
    /// Makes the versions of a comparison, and has their workers introduce themselves. Nothing is
    /// measured.
    ///
    /// # Errors
    /// Whatever is wrong with a version, the suite or a worker: exit code 2, with the side that
    /// cannot be had; sides that cannot be compared: 3.
    pub fn compare(asked: &VersionComparison<'_>) -> Result<Experiment, ExperimentError> {
        let began = Instant::now();
        let experiment = match asked.base {
            [Spec::Run(path)] => against_run(asked, path, began)?,
            _ => interleaved(asked, began)?,
        };
        let lines = match &experiment.base {
            Base::Absent => None,
            Base::Stored(base) => experiment.incomparable(&base.side, SIDES),
            Base::Interleaved(base) => experiment.incomparable(&base.arm.unmeasured(), SIDES),
        };
        match lines {
            None => Ok(experiment),
            Some(lines) => Err(ExperimentError::NotJudged(format!(
                "these cannot be compared (nothing was measured):\n{lines}"
            ))),
        }
    }
}

/// Where each side of a comparison is.
const SIDES: [&str; 2] = ["in the base", "in the head"];

fn against_run(
    asked: &VersionComparison<'_>,
    path: &str,
    began: Instant,
) -> Result<Experiment, ExperimentError> {
    let found = find(path, &Store::new(&asked.request.baselines), None)?;
    let id = BaseId {
        name: path.to_owned(),
        sum: found.checksum(),
    };
    let mut setup = Setup::make(asked.head, asked.request)?;
    if let Some(variant) = &setup.variant {
        return Err(one_sided(variant));
    }
    asked.set_rules(&mut setup.suite);
    let folder = asked.folder(&setup.suite);
    let directory = folder.join("head");
    let processes = Arm::processes(&setup, &directory)?;
    let times = (began, began);
    let head = Arm::start(
        setup,
        processes,
        asked.request,
        directory,
        None,
        None,
        times,
    )?;
    let side = found.side;
    let base = Base::Stored(Box::new(StoredBase { id, side }));
    Ok(Experiment {
        limit: asked.limit,
        folder,
        ..Experiment::new(head, base, Options::COMPARISON)
    })
}

fn interleaved(
    asked: &VersionComparison<'_>,
    began: Instant,
) -> Result<Experiment, ExperimentError> {
    let base = Setup::make(asked.base, asked.base_request);
    let mut base = base.map_err(unusable(TurnSide::Base))?;
    let mut head = Setup::make(asked.head, asked.request).map_err(unusable(TurnSide::Head))?;
    if let Some(cases) = &asked.cases {
        for suite in [&mut base.suite, &mut head.suite] {
            suite.cases.retain(|case| cases.contains(&case.id()));
        }
    }
    let stands_in = keep_variants(&mut base, &mut head)?;
    asked.set_rules(&mut base.suite);
    asked.set_rules(&mut head.suite);
    let cases = side_by_side(&base, &head);
    let folder = asked.folder(&head.suite);
    // What both runs have in common, and no other has: the moment, and what was asked for.
    let specs = [base.asked.join(" "), head.asked.join(" ")].join(" | ");
    let now = Timestamp::now().as_nanosecond();
    let pair = format!("{now:x}-{:08x}", crc32fast::hash(specs.as_bytes()));
    let directories = [&base, &head].map(Setup::directory);
    let processes = |setup: &Setup, side: TurnSide, name: &str| {
        Arm::processes(setup, &folder.join(name)).map_err(unusable(side))
    };
    let mut base_processes = processes(&base, TurnSide::Base, "base")?;
    let mut head_processes = processes(&head, TurnSide::Head, "head")?;
    // Both sides import their libraries at once.
    base_processes.begin();
    head_processes.begin();
    let start = |setup: Setup, processes, side, name: &str, stands_in: Option<_>, since| {
        let [base, head] = &directories;
        let roots = match side {
            TurnSide::Base => Roots::new(base, head),
            TurnSide::Head => Roots::new(head, base),
        };
        let turn = Turn {
            pair: pair.clone(),
            side,
            of: setup.asked.clone(),
            stands_in: stands_in.into_iter().collect(),
            cases: asked.of_cases,
        };
        // What making the versions took is within the time limit.
        let (directory, pair) = (folder.join(name), Some((turn, roots)));
        let times = (began, since);
        Arm::start(
            setup,
            processes,
            asked.request,
            directory,
            pair,
            None,
            times,
        )
        .map_err(unusable(side))
    };
    let side = TurnSide::Base;
    let base = start(base, base_processes, side, "base", stands_in, began)?;
    // What the command did until now is counted by the base.
    let (side, since) = (TurnSide::Head, Instant::now());
    let head = start(head, head_processes, side, "head", None, since)?;
    let base = Base::Interleaved(Box::new(Interleaved { arm: base, cases }));
    Ok(Experiment {
        limit: asked.limit,
        folder,
        ..Experiment::new(head, base, Options::COMPARISON)
    })
}

fn unusable(side: TurnSide) -> impl Fn(ExperimentError) -> ExperimentError {
    move |error| ExperimentError::Unusable {
        side,
        error: Box::new(error),
    }
}

/// Where variants are compared, leaves each side its own, on the same problems: those that the
/// suite has of either. Gives who stands in for whom.
fn keep_variants(
    base: &mut Setup,
    head: &mut Setup,
) -> Result<Option<(VariantId, VariantId)>, ExperimentError> {
    let (was, is) = match (base.variant.clone(), head.variant.clone()) {
        (None, None) => return Ok(None),
        (Some(was), Some(is)) => (was, is),
        (Some(one), None) | (None, Some(one)) => return Err(one_sided(&one)),
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
    for (setup, variant) in [(base, &was), (head, &is)] {
        let cases = problems.iter().map(|problem| Case {
            variant: variant.clone(),
            problem: problem.clone(),
            params: Default::default(),
        });
        setup.suite.cases = cases.collect();
        setup.suite.cases.sort();
    }
    Ok((was != is).then_some((was, is)))
}

/// What to do about a side that is a variant where the other is none.
fn one_sided(variant: &VariantId) -> ExperimentError {
    ExperimentError::Usage(format!(
        "{variant} is a variant: name the one it is compared with on the other side too"
    ))
}

/// The cases of both sides, each beside the other: they are the same but for their variants.
fn side_by_side(base: &Setup, head: &Setup) -> Vec<CasePair> {
    let mut cases = head.suite.cases.clone();
    cases.sort();
    let pair = |head: Case| {
        let variant = base.variant.as_ref().unwrap_or(&head.variant).clone();
        let base = Case {
            variant,
            ..head.clone()
        };
        (Some(base), head)
    };
    cases.into_iter().map(pair).collect()
}

impl Interleaved {
    /// How both runs are opened: both go on where both were stopped, or both begin anew. An
    /// invocation that one side alone came to is measured again in both, since nothing lies beside
    /// it.
    pub(super) fn opening(&self, head: &Arm, opening: Opening) -> Opening {
        let there = |arm: &Arm| going_on(&arm.directory, &arm.header, &opening);
        let pair = |run: &Run| run.header.turn.as_ref().map(|turn| turn.pair.clone());
        let both = there(&self.arm).zip(there(head));
        match both.filter(|(base, head)| pair(base) == pair(head)) {
            Some((base, head)) => Opening {
                only: Some(self.in_both(&base, &head)),
                ..opening
            },
            None => Opening {
                anew: opening.anew.or(Some("both sides resume, or neither")),
                ..opening
            },
        }
    }

    /// The entries of both runs whose counterparts are there.
    fn in_both(&self, base: &Run, head: &Run) -> BTreeSet<(u32, CaseId)> {
        let done = |run: &Run| -> BTreeSet<(u32, CaseId)> {
            let entries = run.entries.iter();
            entries.map(|e| (e.invocation, e.case.clone())).collect()
        };
        let (base, head) = (done(base), done(head));
        let numbers: BTreeSet<u32> = head.iter().map(|(number, _)| *number).collect();
        let mut both = BTreeSet::new();
        for number in numbers {
            for (base_case, head_case) in &self.cases {
                let pair = (base_case.as_ref().map(Case::id), head_case.id());
                let (Some(was), is) = (pair.0.map(|id| (number, id)), (number, pair.1)) else {
                    continue;
                };
                if base.contains(&was) && head.contains(&is) {
                    both.extend([was, is]);
                }
            }
        }
        both
    }
}
