//! Two versions measured in pairs, or one version against a stored run.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use super::arm::reports;
use super::stored::{StoredBase, find};
use super::{Arm, Experiment, ExperimentError, MeasureOptions, Setup};
use crate::laps::Laps;
use crate::listing::{Started, in_order};
use crate::loaded::Roots;
use crate::schedule::CasePair;
use crate::versions::Spec;
use crate::worker::{Launcher, at_once};
use crate::workers::Processes;
use regatta_core::record::baseline::Store;
use regatta_core::record::run_file::{Opening, going_on};
use regatta_core::record::{BaseId, PairSide, Pairing, Run, now, short_revision};
use regatta_core::suite::{Rules, Suite};
use regatta_judge::Options;
use regatta_worker::case::{Case, CaseId, VariantId};

/// The part of a gate that is measured in pairs.
pub(super) struct GatePart {
    /// The request for the base.
    pub(super) base_request: MeasureOptions,
    /// The cases.
    pub(super) cases: BTreeSet<CaseId>,
    /// The number of cases in the whole gate, which share its error rate.
    pub(super) of_cases: u32,
}

impl Experiment {
    /// Makes two versions of a suite, or one version to compare with a stored run, and has their
    /// workers introduce themselves. Measures nothing. With `demands`, the head is also checked
    /// against the expectations and limits of the suite.
    ///
    /// # Errors
    /// A version, the suite or a worker is not usable: exit code 2, with the name of the side. The
    /// sides cannot be compared: 3.
    pub fn compare(
        request: &MeasureOptions,
        base: &[Spec],
        head: &[Spec],
        demands: bool,
    ) -> Result<Experiment, ExperimentError> {
        Experiment::compare_part(request, [base, head], demands, None)
    }

    /// As [`compare`](Experiment::compare), for part of a gate if `part` is given.
    pub(super) fn compare_part(
        request: &MeasureOptions,
        [base, head]: [&[Spec]; 2],
        demands: bool,
        part: Option<&GatePart>,
    ) -> Result<Experiment, ExperimentError> {
        let began = Instant::now();
        let experiment = match base {
            [Spec::Run(path)] => against_run(request, path, head, began)?,
            _ => interleaved(request, [base, head], demands, part, began)?,
        };
        let paired = experiment.paired.as_ref().map(Arm::unmeasured);
        let base = paired.as_ref().or(experiment.base_side());
        match base.and_then(|base| experiment.incomparable(base, SIDES)) {
            None => Ok(experiment),
            Some(lines) => Err(ExperimentError::NotJudged(format!(
                "these cannot be compared (nothing was measured):\n{lines}"
            ))),
        }
    }

    /// Opens both runs to resume them, or both to start again. An invocation that only one side
    /// finished is measured again on both sides, because it has no counterpart.
    pub(super) fn opening_of_both(&self, base: &Arm, opening: Opening) -> Opening {
        let there = |arm: &Arm| going_on(&arm.directory, &arm.header, &opening);
        let pair = |run: &Run| {
            run.header
                .pairing
                .as_ref()
                .map(|pairing| pairing.pair.clone())
        };
        let both = there(base).zip(there(&self.head));
        match both.filter(|(base, head)| pair(base) == pair(head)) {
            Some((base, head)) => Opening {
                only: Some(self.in_both(&base, &head)),
                ..opening
            },
            None => Opening {
                restart: opening.restart.or(Some("both sides resume, or neither")),
                ..opening
            },
        }
    }

    /// The entries of both runs that have a counterpart.
    fn in_both(&self, base: &Run, head: &Run) -> BTreeSet<(u32, CaseId)> {
        let (base, head) = (base.done(), head.done());
        let pairs = self.cases.iter();
        let pairs = pairs.map(|(base, head)| (base.as_ref().map(Case::id), head.id()));
        let pairs: Vec<(Option<CaseId>, CaseId)> = pairs.collect();
        let numbers: BTreeSet<u32> = head.iter().map(|(number, _)| *number).collect();
        let mut both = BTreeSet::new();
        for &number in &numbers {
            for (was, is) in &pairs {
                let was = was.as_ref().map(|was| (number, was.clone()));
                let is = (number, is.clone());
                if was.as_ref().is_none_or(|was| base.contains(was)) && head.contains(&is) {
                    both.extend(was);
                    both.insert(is);
                }
            }
        }
        both
    }
}

/// Keeps only the policy of a suite's rules, unless its `demands` count.
fn set_rules(suite: &mut Suite, demands: bool) {
    if !demands {
        suite.rules = Rules {
            policy: suite.rules.policy.clone(),
            ..Rules::default()
        };
    }
}

/// The folder of both runs and the reports.
fn folder(request: &MeasureOptions, suite: &Suite) -> PathBuf {
    let kind = if request.structure_only {
        "compare-structure"
    } else {
        "compare"
    };
    let usual = || reports(&format!("{}-{kind}", suite.name));
    request.out.clone().unwrap_or_else(usual)
}

/// The sides of a comparison, in messages.
const SIDES: [&str; 2] = ["in the base", "in the head"];

fn against_run(
    request: &MeasureOptions,
    path: &str,
    head: &[Spec],
    began: Instant,
) -> Result<Experiment, ExperimentError> {
    let stored = find(&[path.to_owned()], &Store::new(&request.baselines), None)?;
    let id = BaseId {
        name: path.to_owned(),
        sum: stored.checksum(),
    };
    let mut setup = Setup::make(head, request)?;
    setup.list_alone(&request.filter)?;
    if let Some(variant) = &setup.variant {
        return Err(one_sided(variant));
    }
    set_rules(&mut setup.suite, false);
    let folder = folder(request, &setup.suite);
    let directory = folder.join("head");
    let processes = Arm::processes(&setup, request, &directory)?;
    let times = (began, began);
    let head = Arm::start(setup, processes, request, directory, None, None, times)?;
    let side = stored.side;
    Ok(Experiment {
        base: Some(StoredBase { id, side }),
        folder,
        ..Experiment::new(head, request, Options::COMPARISON)
    })
}

fn interleaved(
    request: &MeasureOptions,
    [base, head]: [&[Spec]; 2],
    demands: bool,
    part: Option<&GatePart>,
    began: Instant,
) -> Result<Experiment, ExperimentError> {
    let base_request = part.map_or(request, |part| &part.base_request);
    let base = Setup::make_base(base, base_request, demands);
    let mut base = base.map_err(unusable(PairSide::Base))?;
    let mut head = Setup::make(head, request).map_err(unusable(PairSide::Head))?;
    list_both(&mut base, &mut head, &request.filter)?;
    base.measure_as(&head.suite);
    base.share_calls(&head.suite)?;
    base.keep_references();
    let lacking = &base.lacking;
    base.suite
        .cases
        .retain(|case| !lacking.contains_key(&case.id()));
    if let Some(part) = part {
        base.left_out.retain(|case| part.cases.contains(case));
        for suite in [&mut base.suite, &mut head.suite] {
            suite.cases.retain(|case| part.cases.contains(&case.id()));
        }
    }
    let counterparts = keep_variants(&mut base, &mut head)?;
    for suite in [&mut base.suite, &mut head.suite] {
        set_rules(suite, demands);
    }
    let base_variant = base.variant.clone();
    let folder = folder(request, &head.suite);
    // An id that only these two runs share, made from the time and the request.
    let specs = [base.asked.join(" "), head.asked.join(" ")].join(" | ");
    let now = now().as_nanosecond();
    let pair = format!("{now:x}-{:08x}", crc32fast::hash(specs.as_bytes()));
    let folders = [&base, &head].map(|side| (side.directory(), side.revision.is_some()));
    let [base_roots, head_roots] = Roots::pair(
        folders
            .each_ref()
            .map(|(folder, is_revision)| (folder.as_path(), *is_revision)),
    );
    let processes = |setup: &Setup, side: PairSide, name: &str| {
        let processes = Arm::processes(setup, request, &folder.join(name));
        processes.map_err(unusable_worker(side, setup))
    };
    let mut base_processes = processes(&base, PairSide::Base, "base")?;
    let mut head_processes = processes(&head, PairSide::Head, "head")?;
    // Both sides import their libraries and create the contexts of their processes at the same
    // time.
    base_processes.begin();
    head_processes.begin();
    let mut laps = Laps::begin();
    if !head.suite.settings.peak {
        let count = head.suite.settings.invocations as usize;
        start_first([&mut base_processes, &mut head_processes], count);
    }
    let starting = laps.end();
    let start =
        |setup: Setup, processes, (side, roots), name: &str, counterparts: Option<_>, since| {
            let (declared, suite_unread) = setup.declared.clone();
            let pairing = Pairing {
                pair: pair.clone(),
                side,
                version: setup.asked.clone(),
                counterparts: counterparts.into_iter().collect(),
                left_out: setup.left_out.clone(),
                declared,
                suite_unread,
                built_by_head: setup.built_by_head,
                cases: part.map(|part| part.of_cases),
            };
            // The time limit includes the time of making the versions.
            let (directory, pair) = (folder.join(name), Some((pairing, roots)));
            let wrong = unusable_worker(side, &setup);
            let times = (began, since);
            Arm::start(setup, processes, request, directory, pair, None, times).map_err(wrong)
        };
    let side = (PairSide::Base, base_roots);
    let mut base = start(base, base_processes, side, "base", counterparts, began)?;
    // The time of the command until here counts for the base.
    base.spent.setting_up -= starting;
    base.spent.workers += starting;
    let (side, since) = ((PairSide::Head, head_roots), Instant::now());
    let head = start(head, head_processes, side, "head", None, since)?;
    let cases = side_by_side(&base.suite, base_variant.as_ref(), &head.suite);
    if cases.iter().any(|(base, _)| base.is_none()) {
        // A revision without any of the workers has reported no device.
        let machine = head.header.machine.clone();
        if base.header.workers.is_empty() {
            base.header.machine = machine;
        } else {
            let hard = &mut base.header.machine.hard;
            for (fact, value) in machine.hard {
                hard.entry(fact).or_insert(value);
            }
        }
    }
    Ok(Experiment {
        paired: Some(base),
        cases,
        folder,
        ..Experiment::new(head, request, Options::COMPARISON)
    })
}

/// Has both sides run their scripts to the end, at the same time; one side after the other for
/// scripts on a GPU, which tune their kernels there.
fn list_both(base: &mut Setup, head: &mut Setup, filter: &[String]) -> Result<(), ExperimentError> {
    let wrong = [(PairSide::Base, &*base), (PairSide::Head, &*head)];
    let wrong = wrong.map(|(side, setup)| unusable_worker(side, setup));
    let starts = [&*base, &*head].map(|side| move || side.start_scripts());
    let mut started = Vec::new();
    for (place, one) in at_once(starts.into()).into_iter().enumerate() {
        started.push(one.map_err(&wrong[place])?);
    }
    let in_turn = started.iter().flatten().any(Started::are_on_gpu);
    let lists = [base, head].into_iter().zip(started);
    let lists: Vec<_> = lists
        .map(|(side, started)| move || side.list(started, filter))
        .collect();
    let listed: Vec<_> = if in_turn {
        lists.into_iter().map(|list| list()).collect()
    } else {
        at_once(lists)
    };
    for (place, one) in listed.into_iter().enumerate() {
        one.map_err(&wrong[place])?;
    }
    Ok(())
}

/// Has both sides fork the processes of the first look at the same time. If the device has no room
/// for all of them, ends all of them.
fn start_first(mut sides: [&mut Processes; 2], count: usize) {
    let starts = sides.each_mut().map(|side| move || side.start_first(count));
    if at_once(starts.into()).contains(&false) {
        sides.iter_mut().for_each(|side| side.end_ahead());
    }
}

/// The requested versions of a side, with the commit if it is a revision.
fn label(setup: &Setup) -> String {
    let asked = setup.asked.join(" ");
    match &setup.revision {
        Some(worktree) => format!("{asked}, {}", short_revision(&worktree.commit)),
        None => asked,
    }
}

/// Puts the side's name in front of errors that do not name it.
fn unusable_worker(
    side: PairSide,
    setup: &Setup,
) -> impl Fn(ExperimentError) -> ExperimentError + use<> {
    let (revision, label) = (setup.revision.clone(), label(setup));
    let place = match side {
        PairSide::Base => format!("the base ({label}): "),
        PairSide::Head => format!("the head ({label}): "),
    };
    move |error| match error {
        ExperimentError::Usage(words) => {
            let words = match &revision {
                Some(revision) => revision.advised(&words),
                None => words,
            };
            ExperimentError::Unusable {
                side,
                place: place.clone(),
                error: Box::new(ExperimentError::Usage(words)),
            }
        }
        error => unusable(side)(error),
    }
}

fn unusable(side: PairSide) -> impl Fn(ExperimentError) -> ExperimentError {
    move |error| ExperimentError::Unusable {
        side,
        place: String::new(),
        error: Box::new(error),
    }
}

/// If two variants are compared, keeps only its own variant on each side, for the problems that the
/// suite has for either. Returns both variants, the base's first.
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

/// The error if a variant is compared with something that is not one.
fn one_sided(variant: &VariantId) -> ExperimentError {
    ExperimentError::Usage(format!(
        "{variant} is a variant: name the one it is compared with on the other side too"
    ))
}

/// Pairs the cases of both sides, which differ only in their variants. A case that a revision lacks
/// has no counterpart.
fn side_by_side(base: &Suite, variant: Option<&VariantId>, head: &Suite) -> Vec<CasePair> {
    let mut cases = head.cases.clone();
    in_order(head, &mut cases);
    let there: BTreeSet<CaseId> = base.cases.iter().map(Case::id).collect();
    let pair = |head: Case| {
        let variant = variant.unwrap_or(&head.variant).clone();
        let base = Case {
            variant,
            ..head.clone()
        };
        (Some(base).filter(|base| there.contains(&base.id())), head)
    };
    cases.into_iter().map(pair).collect()
}
