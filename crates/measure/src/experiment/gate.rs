//! Compares a suite with its baseline, and with the baseline's code in pairs.

use std::collections::BTreeSet;
use std::path::Path;

use super::arm::reports;
use super::base_code::{BaseCode, base_code, not_as_stored};
use super::pairs::GatePart;
use super::request::BASELINES;
use super::stored::{baseline_of, checksums};
use super::{Arm, Evidence, Experiment, ExperimentError, MeasureOptions, MeasuredRun};
use crate::files::checksum;
use crate::versions::Spec;
use regatta_core::record::baseline::Store;
use regatta_core::text::shell_command;
use regatta_judge::judgement::{Judgement, Row, Word};
use regatta_judge::{self as judge, Options};
use regatta_worker::case::CaseId;
use regatta_worker::units::counted;

/// Measures a suite against the named baseline, or by default the one with the suite's name. Cases
/// that are not shown to be unchanged are measured again: in pairs if the baseline's code is
/// available, otherwise alone, with the allowance for another day. Nothing is measured that would
/// end after the time limit of the request.
///
/// # Errors
/// The request is wrong: exit code 2. The baseline is missing, or cannot be compared with this run:
/// 3, before anything is measured.
pub fn gate(
    request: &MeasureOptions,
    baseline: Option<&str>,
) -> Result<MeasuredRun, ExperimentError> {
    let store = Store::new(&request.baselines);
    // Taken before workers start, since the code under test must not choose its baseline.
    let before = checksums(&store);
    let head = Arm::prepare(request, None)?;
    let name = baseline.unwrap_or(&head.suite.name).to_owned();
    let files = store.files(&name).map_err(ExperimentError::usage)?;
    if let Some(file) = files
        .iter()
        .find(|file| before.get(*file) != Some(&checksum(file)))
    {
        return Err(ExperimentError::NotJudged(format!(
            "{} changed while the workers started (nothing was measured); restore it from version \
             control, and let no worker write there",
            file.display()
        )));
    }
    let base = match baseline_of(&store, &name, &head.header)? {
        Some(base) => Some(base),
        // Limits need no baseline.
        None if request.structure_only && baseline.is_none() => None,
        None => {
            return Err(ExperimentError::NotJudged(format!(
                "{}\nmake one from a run that passes:\n  {}",
                store.absent(&name),
                commands_to_make(&store, &name, request, &head),
            )));
        }
    };
    let mut experiment = Experiment {
        base,
        ..Experiment::new(head, request, Options::GATE)
    };
    if let Some(base) = experiment.base_side()
        && let Some(lines) = experiment.incomparable(base, ["there", "here"])
    {
        return Err(ExperimentError::NotJudged(format!(
            "baseline `{}` cannot be compared with this machine and suite (nothing was \
             measured):\n{lines}\nmake one here:\n  {}",
            base.label,
            commands_to_make(&store, &base.label, request, &experiment.head)
        )));
    }
    let mut files = experiment.open()?;
    let timed_base = experiment.base_side().filter(|_| !request.structure_only);
    let code = timed_base.map(|base| {
        let head = &experiment.head;
        base_code(&base.header, &head.header, &head.directory)
    });
    // Other open cases are measured in pairs later.
    experiment.expectations_alone = matches!(code, Some(Ok(_)));
    let evidence = experiment.decide(&mut files)?;
    let pairs = match &code {
        Some(Ok(code)) => measure_pairs(&evidence, request, &mut experiment, code)?,
        Some(Err(why)) if evidence.judgement.rows.iter().any(is_inconclusive) => {
            experiment.head.say(against_stored(why));
            None
        }
        _ => None,
    };
    let mut measured = experiment.conclude(files, evidence);
    if let Some(pairs) = pairs {
        measured.judgement = judge::with_pairs(measured.judgement, pairs, &Options::GATE);
    }
    Ok(measured)
}

fn is_inconclusive(row: &Row) -> bool {
    let mut metrics = row.metrics.iter();
    metrics.any(|metric| metric.change.word == Word::Inconclusive)
}

fn against_stored(why: impl std::fmt::Display) -> String {
    format!("the rest is judged against the stored run, with what another day may change: {why}")
}

/// Measures in pairs the cases that the stored run did not show to be unchanged. `None` without
/// such cases, or if the baseline's code is not available after all.
fn measure_pairs(
    evidence: &Evidence,
    request: &MeasureOptions,
    experiment: &mut Experiment,
    code: &BaseCode,
) -> Result<Option<Judgement>, ExperimentError> {
    let arm = &mut experiment.head;
    // Pairs of the same program say nothing about a slowdown beyond any daily change.
    let unshown = |row: &&Row| {
        let shown = row.regressed().next().is_some() && code.is_here();
        let mut words = row.metrics.iter().map(|metric| metric.change.word);
        !shown && words.any(|word| !matches!(word, Word::Same | Word::Improved))
    };
    let rows = evidence.judgement.rows.iter().filter(unshown);
    let cases: BTreeSet<CaseId> = rows.map(|row| row.case.clone()).collect();
    if cases.is_empty() {
        return Ok(None);
    }
    let (open, all) = (cases.len(), arm.header.plan.len());
    let number = counted(open, "case");
    // Two sides, each with the run's number of invocations, of these cases only.
    let spent = arm.began.elapsed();
    let share = open as f64 / all.max(1) as f64;
    let limit = experiment.limit;
    if limit.is_some_and(|limit| spent + spent.mul_f64(2.0 * share) > limit) {
        arm.say(format!(
            "--time-limit leaves no time for pairs of {number}, judged against the stored run, \
             with what another day may change"
        ));
        return Ok(None);
    }
    arm.say(format!(
        "{number} not shown to be the same as in the stored run; measuring {} in pairs with {}",
        if open == 1 { "it" } else { "them" },
        code.name,
    ));
    let request = MeasureOptions {
        out: Some(arm.directory.join("pairs")),
        limit: limit.map(|limit| limit.saturating_sub(spent)),
        ..request.clone()
    };
    let part = GatePart {
        base_request: code.request(&request),
        cases,
        of_cases: all as u32,
    };
    match Experiment::compare_part(&request, [&code.specs, &[Spec::Here]], false, Some(&part)) {
        Ok(pairs) => {
            let mut pairs = pairs.run()?;
            pairs.files.close()?;
            arm.spent += pairs.arm.spent;
            arm.spent += pairs.spent_on_base.unwrap_or_default();
            let sides = experiment.base.as_ref().zip(pairs.base.as_ref());
            let reason = sides.and_then(|(stored, base)| {
                not_as_stored([&stored.side, &base.side], [&evidence.head, &pairs.head])
            });
            if let Some(reason) = reason {
                experiment.head.say(against_stored(reason));
                return Ok(None);
            }
            Ok(Some(pairs.judgement))
        }
        Err(refused) => {
            arm.say(against_stored(refused));
            Ok(None)
        }
    }
}

/// The commands that make a baseline of this suite.
fn commands_to_make(store: &Store, name: &str, request: &MeasureOptions, head: &Arm) -> String {
    // A baseline has times of the whole suite with its own settings.
    let whole = MeasureOptions {
        set: Vec::new(),
        threshold: None,
        structure_only: false,
        ..request.clone()
    };
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|&word| word.to_owned())
            .collect::<Vec<_>>()
    };
    let mut run = [words(&["regatta", "run"]), whole.arguments()].concat();
    let mut folder = reports(&head.suite.name);
    if let Some(out) = &request.out {
        folder.clone_from(out);
        run.extend(words(&["--out", &out.display().to_string()]));
    }
    let mut save = words(&["regatta", "baseline"]);
    if store.root() != Path::new(BASELINES) {
        save.extend(words(&["--baselines", &store.root().display().to_string()]));
    }
    save.extend(words(&["save", name, &folder.display().to_string()]));
    format!("{}\n  {}", shell_command(&run), shell_command(&save))
}
