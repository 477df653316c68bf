//! `regatta gate`: measure, hold against a baseline, confirm, report.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;

use super::measuring::{MeasureArgs, Ready, finish, read};
use super::reporting::{self, Show};
use super::{Ended, Stop, note};
use crate::judge::{self, Options};
use crate::record::baseline::{self, Store};
use crate::record::side::Side;
use crate::report::Report;
use crate::report::text::shell_command;

/// Measure a suite and hold it against a baseline
///
/// Exits 0 when nothing got slower and every expectation holds, 1 on a confirmed
/// regression or a broken expectation, 3 when it cannot be judged: no baseline,
/// another machine, cases that could not be measured. A case whose structure got worse
/// (fewer blocks, added copies, spills; [policy.structure] says which) fails as well.
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
        if ready.filtered {
            // A part of the suite is held against the same part of the baseline.
            base.cases
                .retain(|case, _| ready.header.plan.contains(case));
        }
        refuse_before_measuring(&ready, base, &options, &store)?;
    }
    let mut writer = ready.measure()?;
    let label = ready.directory.display().to_string();
    let judged = |run: &_| judge::judge(&Side::from_run(&label, run), base.as_ref(), &options);
    let policy = &ready.suite.rules.policy;
    let suspects = judge::suspects(&judged(&read(writer.path())?), policy);
    if let (false, Some(base)) = (suspects.is_empty() || policy.confirm == 0, &base) {
        let invocations = base.header.settings.invocations as usize;
        let fresh = judge::fresh_needed(suspects.len(), invocations, policy.confirm);
        note(format!(
            "{} of {} cases look different; measuring them again on {fresh} fresh invocations",
            suspects.len(),
            ready.header.plan.len(),
        ));
        ready.confirm(&mut writer, &suspects, fresh)?;
    }
    let run = finish(writer)?;
    let judgement = judged(&run);
    let report = Report {
        judgement: &judgement,
        head: &run,
        base: base.as_ref(),
    };
    reporting::write(&ready.directory, &report)?;
    reporting::show(&report, &args.show, Some(&ready.directory))
}

/// The baseline of this name for this machine, or else for another; `None` where there is
/// none at all.
fn find(store: &Store, name: &str, ready: &Ready) -> Result<Option<Side>, Stop> {
    let files = store.files(name).map_err(Stop::usage)?;
    let machine = &ready.header.machine.name;
    let own = files
        .iter()
        .find(|path| path.file_stem().is_some_and(|stem| *stem == **machine));
    // One of another machine is read too, so that what differs can be said.
    let Some(path) = own.or(files.first()) else {
        return Ok(None);
    };
    let base = baseline::read(path).map_err(Stop::usage)?;
    if !base.damage.is_empty() {
        return Err(Stop::Usage(anyhow!(
            "{} is damaged, and a part of a baseline is none:\n  {}\n\
             restore it from version control, or save it anew with --replace",
            path.display(),
            base.damage.join("\n  ")
        )));
    }
    Ok(Some(base))
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
