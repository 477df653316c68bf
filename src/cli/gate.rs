//! `regatta gate`: measure, hold against a baseline, confirm, report.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;

use super::calibrate;
use super::history::{Keep, kept};
use super::measure_args::MeasureArgs;
use super::measuring::Ready;
use super::reporting::{self, Base, Show};
use super::{Ended, Stop, sides};
use regatta::judge::{self, Options};
use regatta::measure::identity::checksum;
use regatta::measure::laps::Laps;
use regatta::record::baseline::Store;
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
/// cases that could not be measured, something looks worse and was not decided, or the
/// machine was in the times (others on its cores, steal, throttling). A gate that was stopped
/// goes on where it was.
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

    /// Take no batch of fresh invocations that would end later than this after the start:
    /// `90s`, `15m`. What is not decided by then is said
    #[arg(long, value_name = "TIME", value_parser = duration)]
    budget: Option<Duration>,

    /// Call an inconclusive result not judged (exit code 3)
    #[arg(long)]
    strict: bool,

    #[command(flatten)]
    keep: Keep,

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
        batches: true,
        beside: false,
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
    // Floors are a part of the rules that a run carries.
    let machine = ready.header.machine.clone();
    let mut policy = ready.suite.rules.policy.clone();
    let sight = calibrate::consulted(store.root(), &name, &machine, &mut policy)?;
    ready.suite.rules.policy = policy.clone();
    ready.header.rules.policy = policy;
    let mut writer = ready.measure(base.as_ref().map(|base| base.id.clone()))?;
    if let Some(base) = &base {
        decide(&mut ready, &mut writer, base, &options, args.budget)?;
    }
    let ended = reporting::conclude(&ready, writer, base.as_ref(), &options, &args.show);
    if !args.measure.structure_only {
        ready.say(sight);
    }
    kept(ended, &args.keep, &ready.directory, ready.quiet())
}

/// Takes fresh invocations, batch after batch, of what is not decided: those that were owed
/// when the gate was stopped first.
fn decide(
    ready: &mut Ready,
    writer: &mut RunWriter,
    base: &Base,
    options: &Options,
    budget: Option<Duration>,
) -> Result<(), Stop> {
    let policy = ready.suite.rules.policy.clone();
    let seed = ready.suite.settings.seed;
    if let Some(owed) = writer.owed.last().cloned() {
        ready.take(writer, &owed)?;
    }
    let mut dearest = Duration::ZERO;
    loop {
        let mut laps = Laps::begin(&ready.clock);
        let label = ready.directory.display().to_string();
        let read = Side::read(writer.path(), &label, &mut Known::default());
        let (_, so_far) = read.map_err(Stop::not_judged)?;
        let judgement = judge::judge(&so_far, Some(&base.side), options);
        let fresh = writer.owed.last().map_or(0, |owed| owed.fresh);
        let batch = judge::next_batch(&judgement, &policy, fresh, seed);
        laps.end(Phase::Judging);
        ready.judging.extend(laps.stretch());
        let Some(batch) = batch else {
            return Ok(());
        };
        let more = batch.fresh - fresh;
        if let Some(budget) = budget
            && ready.began.elapsed() + dearest * more > budget
        {
            ready.say(format!(
                "{} of {} cases are not decided, and --budget leaves no time for {more} fresh \
                 invocations of them",
                batch.undecided.len(),
                ready.header.plan.len(),
            ));
            return Ok(());
        }
        ready.say(format!(
            "{} of {} cases are not decided; taking {more} fresh invocations of them{}",
            batch.undecided.len(),
            ready.header.plan.len(),
            match batch.company.len() {
                0 => String::new(),
                others => format!(", and of {others} others for company"),
            },
        ));
        let owed = Owed {
            base: base.id.clone(),
            cases: [batch.undecided, batch.company].concat(),
            fresh: batch.fresh,
        };
        writer.owe(owed.clone()).map_err(Stop::not_judged)?;
        let since = Instant::now();
        ready.take(writer, &owed)?;
        dearest = dearest.max(since.elapsed() / more.max(1));
    }
}

/// A span of time: a number with `s`, `m` or `h`; seconds without.
///
/// # Errors
/// What to write instead.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (number, text.as_bytes()[text.len() - 1]),
        None => (text, b's'),
    };
    let each = match unit {
        b'h' => 3600.0,
        b'm' => 60.0,
        _ => 1.0,
    };
    let seconds = number.trim().parse::<f64>().map(|number| number * each);
    match seconds {
        Ok(seconds) if (0.0..=1e7).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("use a time such as 90s, 15m or 2h".to_owned()),
    }
}

/// The baseline of this name for this machine, or else for another; `None` where there is
/// none at all.
fn find(store: &Store, name: &str, ready: &Ready) -> Result<Option<Base>, Stop> {
    let own = store.of_machine(name, &ready.header.machine.name);
    // One of another machine is read too, so that what differs can be said.
    let path = match own.map_err(Stop::usage)? {
        Some(path) => Some(path),
        None => store.files(name).map_err(Stop::usage)?.into_iter().next(),
    };
    let Some(path) = path else {
        return Ok(None);
    };
    let id = BaseId {
        name: name.to_owned(),
        sum: checksum(&path),
    };
    let side = sides::whole_baseline(&path)?;
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
