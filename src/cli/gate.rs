//! `regatta gate`: measure, hold against a baseline, confirm, report.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;

use super::measure_args::MeasureArgs;
use super::measuring::Ready;
use super::reporting::{self, Base, Show};
use super::{Ended, Stop};
use regatta::judge::{self, Options};
use regatta::measure::identity::checksum;
use regatta::measure::laps::Laps;
use regatta::record::baseline::{self, Store};
use regatta::record::run_file::Known;
use regatta::record::run_file::RunWriter;
use regatta::record::side::Side;
use regatta::record::spent::Phase;
use regatta::record::types::{BaseId, Owed};
use regatta::report::text::shell_command;
use regatta::suite::matches_id;

/// Measure a suite and hold it against a baseline
///
/// Exits 0 when everything was measured and checked and nothing is worse or may be, 1 when
/// something is worse: slower, a broken expectation or limit, a wrong result, a crash or a
/// hang, or a structure that got worse (fewer blocks, added copies, spills;
/// [policy.structure] says which). Exits 3 when it cannot say: no baseline, another machine,
/// cases that could not be measured, or something looks worse and was not decided. A gate
/// that was stopped goes on where it was.
#[derive(Args, Debug)]
pub struct GateArgs {
    #[command(flatten)]
    measure: MeasureArgs,

    /// The baseline to hold it against [default: the suite's name]
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,

    /// The folder of baselines
    #[arg(long, value_name = "DIR", default_value = "baselines")]
    baselines: PathBuf,

    /// Call an inconclusive result not judged (exit code 3)
    #[arg(long)]
    strict: bool,

    #[command(flatten)]
    show: Show,
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &GateArgs) -> Ended {
    reporting::told_as_json(gate(args), args.show.json)
}

fn gate(args: &GateArgs) -> Ended {
    let mut ready = Ready::prepare(&args.measure)?;
    let options = Options {
        strict: args.strict,
        same_suite: true,
        wants_base: true,
    };
    let name = args
        .baseline
        .clone()
        .unwrap_or_else(|| ready.suite.name.clone());
    let store = Store::new(&args.baselines);
    let mut base = match find(&store, &name, &ready)? {
        Some(base) => Some(base),
        // Limits need none.
        None if args.measure.structure_only && args.baseline.is_none() => None,
        None => {
            return Err(Stop::NotJudged(anyhow!(
                "there is no baseline `{name}` in {}; make one from a run that passed:\n  {}",
                store.root().display(),
                making(&store, &name, &ready),
            )));
        }
    };
    if let Some(base) = &mut base {
        let filter = &ready.header.suite.filter;
        if !filter.is_empty() {
            // A part of the suite is held against the same part of the baseline: by the
            // pattern, not by what is left of it, or a case that is gone would not be missed.
            let chosen = |id: &str| filter.iter().any(|pattern| matches_id(pattern, id));
            base.side.cases.retain(|case, _| chosen(&case.0));
        }
        refuse_before_measuring(&ready, &base.side, &options, &store)?;
    }
    let mut writer = ready.measure(base.as_ref().map(|base| base.id.clone()))?;
    if let Some(base) = &base {
        confirm(&mut ready, &mut writer, base, &options)?;
    }
    reporting::conclude(&ready, writer, base.as_ref(), &options, &args.show)
}

/// Takes the fresh invocations that the screen asks for, or those that were owed when the
/// gate was stopped.
fn confirm(
    ready: &mut Ready,
    writer: &mut RunWriter,
    base: &Base,
    options: &Options,
) -> Result<(), Stop> {
    if writer.owed.is_none() {
        let mut laps = Laps::begin(&ready.clock);
        let label = ready.directory.display().to_string();
        let read = Side::read_screen(writer.path(), &label, &mut Known::default());
        let (_, screen) = read.map_err(Stop::not_judged)?;
        let policy = &ready.suite.rules.policy;
        let judgement = judge::judge(&screen, Some(&base.side), options);
        let suspects = judge::suspects(&judgement, policy);
        laps.end(Phase::Judging);
        ready.judging.extend(laps.stretch());
        if suspects.is_empty() || policy.confirm == 0 {
            return Ok(());
        }
        let invocations = base.side.header.settings.invocations as usize;
        let owed = Owed {
            base: base.id.clone(),
            fresh: judge::fresh_needed(suspects.len(), invocations, policy.confirm),
            cases: suspects,
        };
        writer.owe(owed).map_err(Stop::not_judged)?;
    }
    let Some(owed) = writer.owed.clone() else {
        return Ok(());
    };
    ready.say(format!(
        "{} of {} cases look different; measuring them again on {} fresh invocations",
        owed.cases.len(),
        ready.header.plan.len(),
        owed.fresh
    ));
    ready.confirm(writer, &owed)
}

/// The baseline of this name for this machine, or else for another; `None` where there is
/// none at all.
fn find(store: &Store, name: &str, ready: &Ready) -> Result<Option<Base>, Stop> {
    let files = store.files(name).map_err(Stop::usage)?;
    let machine = &ready.header.machine.name;
    let own = files
        .iter()
        .find(|path| path.file_stem().is_some_and(|stem| *stem == **machine));
    // One of another machine is read too, so that what differs can be said.
    let Some(path) = own.or(files.first()) else {
        return Ok(None);
    };
    let id = BaseId {
        name: name.to_owned(),
        sum: checksum(path),
    };
    let side = baseline::read(path).map_err(Stop::usage)?;
    if !side.damage.is_empty() {
        return Err(Stop::Usage(anyhow!(
            "{} is damaged, and a part of a baseline is none:\n  {}\n\
             restore it from version control, or save it anew with --replace",
            path.display(),
            side.damage.join("\n  ")
        )));
    }
    Ok(Some(Base { id, side }))
}

/// A comparison that will be refused need not be measured for.
fn refuse_before_measuring(
    ready: &Ready,
    base: &Side,
    options: &Options,
    store: &Store,
) -> Result<(), Stop> {
    let head = Side {
        label: String::new(),
        header: ready.header.clone(),
        cases: Default::default(),
        damage: Vec::new(),
    };
    let differs = judge::judge(&head, Some(base), options).incomparable;
    if differs.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = differs
        .iter()
        .map(|d| format!("  {}: {} there, {} here", d.field, d.base, d.head))
        .collect();
    Err(Stop::NotJudged(anyhow!(
        "baseline `{}` cannot be compared with this machine and suite (nothing was measured):\n{}\n\
         make one here:\n  {}",
        base.label,
        lines.join("\n"),
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
    let root = store.root().display().to_string();
    let directory = ready.directory.display().to_string();
    let mut save = words(&["regatta", "baseline"]);
    if root != "baselines" {
        save.extend(words(&["--baselines", &root]));
    }
    save.extend(words(&["save", name, &directory]));
    format!("{}\n  {}", shell_command(&run), shell_command(&save))
}
