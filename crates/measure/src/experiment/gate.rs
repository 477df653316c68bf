//! A suite compared with its baseline.

use std::path::Path;
use std::time::Duration;

use super::base_code;
use super::comparison::{Part, Question};
use super::deciding::{Alone, decide, incomparable};
use super::in_turn::InTurn;
use super::ready::Pairs;
use super::request::BASELINES;
use super::stored::{Base, whole_baseline};
use super::{ExperimentError, Measured, Ready, Request};
use crate::identity::checksum;
use crate::versions::spec::Spec;
use regatta_core::record::baseline::Store;
use regatta_core::record::side::Side;
use regatta_core::record::types::BaseId;
use regatta_core::text::shell_command;
use regatta_judge::Options;
use regatta_judge::judgement::{Judgement, Row, Word};
use regatta_worker::units::counted;

/// Measures a suite against the baseline of this name; of none, against that of the suite's name.
/// What that does not show to be the same is measured in pairs, where the code of the baseline is
/// at hand, and else again, with what another day may change. Nothing is measured that would end
/// later than `limit` after the start.
///
/// # Errors
/// Whatever is wrong with what was asked for: exit code 2; no baseline, or one that this cannot
/// be compared with: 3, before anything is measured.
pub fn gate(
    request: &Request,
    baseline: Option<&str>,
    limit: Option<Duration>,
) -> Result<Measured, ExperimentError> {
    let options = Options::GATE;
    let mut ready = Ready::prepare(request, None)?;
    let name = baseline.unwrap_or(&ready.suite.name).to_owned();
    let store = Store::new(&request.baselines);
    let mut base = match find(&store, &name, &ready)? {
        Some(base) => Some(base),
        // Limits need none.
        None if request.structure_only && baseline.is_none() => None,
        None => {
            return Err(ExperimentError::NotJudged(format!(
                "there is no baseline `{name}` in {}; make one from a run that passed:\n  {}",
                store.root().display(),
                making(&store, &name, &ready),
            )));
        }
    };
    if let Some(base) = &mut base {
        // A part of the suite is compared with the same part of the baseline.
        base.side.keep(&ready.header.suite.filter);
        refuse_before_measuring(&ready, &base.side, &options, &store)?;
    }
    let id = base.as_ref().map(|base| base.id.clone());
    let mut writer = ready.measure(id)?;
    let mut pairs = None;
    if let Some(base) = &base {
        let at_hand = match request.structure_only {
            true => Err(String::new()),
            false => base_code::at_hand(&base.side.header, &ready.header, &ready.directory),
        };
        let mut batches = Alone {
            ready: &mut ready,
            writer: &mut writer,
            base: Some(base),
            options,
            expectations_alone: at_hand.is_ok(),
        };
        let judgement = decide(&mut batches, limit)?;
        match at_hand {
            Ok(code) => {
                pairs = in_pairs(&judgement, request, &mut ready, &code, limit)?;
            }
            Err(why) => {
                if judgement.rows.iter().any(is_inconclusive) && !why.is_empty() {
                    ready.say(format!(
                        "the rest is judged against the stored run, with what another day may \
                         change: {why}"
                    ));
                }
            }
        }
    }
    Ok(Measured {
        folder: ready.directory.clone(),
        ready,
        writer,
        base,
        pairs,
        base_writer: None,
        options,
    })
}

fn is_inconclusive(row: &Row) -> bool {
    let mut metrics = row.metrics.iter();
    metrics.any(|of| of.word == Word::Inconclusive)
}

/// Measures in pairs what a stored run did not show to be the same; `None` where that is nothing,
/// or where the code of the baseline cannot be had after all.
fn in_pairs(
    judgement: &Judgement,
    request: &Request,
    ready: &mut Ready,
    code: &base_code::Code,
    limit: Option<Duration>,
) -> Result<Option<Pairs>, ExperimentError> {
    // The same program beside itself says nothing of what a stored run shows beyond any day.
    let unshown = |row: &&Row| {
        let shown = row.regressed().next().is_some() && code.is_here();
        let mut words = row.metrics.iter().map(|of| of.word);
        !shown && words.any(|word| !matches!(word, Word::Same | Word::Improved))
    };
    let rows = judgement.rows.iter().filter(unshown);
    let part = Part {
        cases: rows.map(|row| row.case.clone()).collect(),
        of: ready.header.plan.len() as u32,
    };
    if part.cases.is_empty() {
        return Ok(None);
    }
    let number = counted(part.cases.len(), "case");
    // Two sides of as many invocations as the run had, of these cases.
    let spent = ready.began.elapsed();
    let share = part.cases.len() as f64 / f64::from(part.of.max(1));
    if limit.is_some_and(|limit| spent + spent.mul_f64(2.0 * share) > limit) {
        ready.say(format!(
            "--time-limit leaves no time for pairs of {number}, judged against the stored run, \
             with what another day may change"
        ));
        return Ok(None);
    }
    let of_base = code.request(request);
    ready.say(format!(
        "{number} not shown to be the same as in the stored run; measuring {} in pairs with {}",
        if part.cases.len() == 1 { "it" } else { "them" },
        code.told,
    ));
    let question = Question {
        measure: request,
        base: &code.specs,
        head: &[Spec::Here],
        directory: Some(ready.directory.join("pairs")),
        measure_base: Some(&of_base),
        part: Some(&part),
        threshold: None,
        limit: limit.map(|limit| limit.saturating_sub(spent)),
        demands: false,
        options: Options::COMPARISON,
    };
    match InTurn::of(&question) {
        Ok(in_turn) => {
            let pairs = in_turn.sides()?;
            ready.spent += pairs.spent;
            Ok(Some(pairs))
        }
        Err(refused) => {
            ready.say(format!(
                "the rest is judged against the stored run, with what another day may change: {}",
                refused.stop
            ));
            Ok(None)
        }
    }
}

/// The baseline of this name for this machine, or else for another; `None` where there is
/// none at all.
fn find(store: &Store, name: &str, ready: &Ready) -> Result<Option<Base>, ExperimentError> {
    let own = store.of_machine(name, &ready.header.machine.name);
    // One of another machine is read too, so that what differs can be said.
    let path = match own.map_err(ExperimentError::usage)? {
        Some(path) => Some(path),
        None => store
            .files(name)
            .map_err(ExperimentError::usage)?
            .into_iter()
            .next(),
    };
    let Some(path) = path else {
        return Ok(None);
    };
    let id = BaseId {
        name: name.to_owned(),
        sum: checksum(&path),
    };
    let side = whole_baseline(&path)?;
    Ok(Some(Base { id, side }))
}

/// A comparison that will be refused need not be measured for.
fn refuse_before_measuring(
    ready: &Ready,
    base: &Side,
    options: &Options,
    store: &Store,
) -> Result<(), ExperimentError> {
    let Some(lines) = incomparable(ready, base, options, ["there", "here"]) else {
        return Ok(());
    };
    Err(ExperimentError::NotJudged(format!(
        "baseline `{}` cannot be compared with this machine and suite (nothing was measured):\n\
         {lines}\nmake one here:\n  {}",
        base.label,
        making(store, &base.label, ready),
    )))
}

/// The commands that make a baseline of this suite.
fn making(store: &Store, name: &str, ready: &Ready) -> String {
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|&word| word.to_owned())
            .collect::<Vec<_>>()
    };
    let run = [
        words(&["regatta", "run"]),
        ready.header.suite.arguments.clone(),
    ]
    .concat();
    let directory = ready.directory.display().to_string();
    let mut save = words(&["regatta", "baseline"]);
    save.extend(in_folder(store.root()));
    save.extend(words(&["save", name, &directory]));
    format!("{}\n  {}", shell_command(&run), shell_command(&save))
}

/// The words that name the folder of baselines; none where it is the usual one.
fn in_folder(baselines: &Path) -> Vec<String> {
    match baselines == Path::new(BASELINES) {
        true => Vec::new(),
        false => vec!["--baselines".to_owned(), baselines.display().to_string()],
    }
}
