//! `regatta calibrate`: what a gate can tell apart on this machine.

use std::path::Path;

use anyhow::anyhow;
use clap::Args;

use super::measure_args::{MeasureArgs, in_folder};
use super::measuring::Ready;
use super::sides::{self, Stored};
use super::{Ended, Stop, in_part, note, print};
use regatta::record::baseline::Store;
use regatta::record::calibration::{Calibration, Gate};
use regatta::record::shard::Asked;
use regatta::record::side::Side;
use regatta::record::types::{RunHeader, SuiteRecord};
use regatta::report::terminal::COLUMNS;
use regatta::report::text::{shell_command, wrap};
use regatta::suite::rules::{Metric, Policy};
use regatta::units::{Share, counted};
use regatta::verdicts::calibrate::calibration;

/// Measure unchanged code, and say what a gate sees on this machine
///
/// Invocations of the same code are dealt to a base and a head a few hundred times, and judged
/// as a gate would: how often is nothing called something, and which change is seen? Kept
/// beside the baselines, for this machine. A suite with `floor = "calibrated"` takes the floor
/// of each case from it, and every gate says what it can see.
#[derive(Args, Debug)]
pub struct CalibrateArgs {
    #[command(flatten)]
    measure: MeasureArgs,

    /// The name to keep it under [default: the suite's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Measure nothing: take this run of unchanged code
    #[arg(long, value_name = "RUN")]
    run: Option<String>,

    /// Gates that are drawn
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(20..=10_000))]
    gates: u32,

    /// Invocations of the baseline that gates will be held against [default: the suite's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    base_invocations: Option<u32>,

    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

/// Invocations of a calibration, in those of a run: as many as a base and a head, and as many
/// again for the fresh ones.
const TIMES: u32 = 4;

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &CalibrateArgs) -> Ended {
    if args.measure.structure_only {
        return Err(Stop::Usage(anyhow!(
            "--structure-only takes no time, and a calibration is of nothing else"
        )));
    }
    let suite = super::measure_args::load(&args.measure)?;
    let each = match args.measure.invocations {
        // What is asked for is what is measured.
        Some(all) => (all / TIMES).max(2),
        None => suite.settings.invocations,
    };
    let gate = Gate {
        base: args.base_invocations.unwrap_or(each),
        head: each,
        fresh: suite.rules.policy.confirm,
    };
    let store = Store::new(&args.measure.baselines);
    if args.measure.shard.shard.is_some() {
        let others = args.run.is_some() || args.json;
        return in_part(args, &suite.name, each, others);
    }
    let side = match &args.run {
        Some(run) => {
            let Stored { side, .. } = sides::find(run, &store, None)?;
            side
        }
        None => measured(args, &suite.name, each)?,
    };
    let found = calibration(&side, gate, args.gates).ok_or_else(|| {
        Stop::NotJudged(anyhow!(
            "{}: no case was measured in all of {}, of which a base takes {} and a head {}",
            side.label,
            counted(side.header.settings.invocations as usize, "invocation"),
            gate.base,
            gate.head,
        ))
    })?;
    let name = args.name.as_ref().unwrap_or(&found.suite);
    let path = Calibration::path(store.root(), name, &found.machine);
    found.write(&path).map_err(Stop::not_judged)?;
    if args.json {
        let json = serde_json::to_string_pretty(&found).map_err(Stop::not_judged)?;
        print(format!("{json}\n"))?;
    } else {
        print(text(&found))?;
        note(format!("kept as {}", path.display()));
    }
    Ok(0)
}

/// Measures one of several parts of the suite, of which nothing is drawn.
fn in_part(args: &CalibrateArgs, suite: &str, each: u32, others: bool) -> Ended {
    if others {
        return Err(Stop::Usage(anyhow!(
            "--shard measures a part, of which nothing is told; merge all parts, and name the \
             whole: regatta calibrate {suite} --run RUN"
        )));
    }
    let mut ready = prepared(args, suite, each)?;
    in_part::measured(&mut ready, None)
}

/// The suite, to be measured as often as a calibration takes.
fn prepared(args: &CalibrateArgs, suite: &str, each: u32) -> Result<Ready, Stop> {
    let out = args.measure.out.clone();
    let measure = MeasureArgs {
        peak: false,
        instructions: false,
        invocations: Some(args.measure.invocations.unwrap_or(TIMES * each)),
        out: out.or_else(|| Some(Path::new("reports").join(format!("{suite}-calibration")))),
        baseline: args.name.clone(),
        ..args.measure.clone()
    };
    Ready::prepare(&measure, Asked::Calibrate)
}

fn measured(args: &CalibrateArgs, suite: &str, each: u32) -> Result<Side, Stop> {
    let mut ready = prepared(args, suite, each)?;
    let mut writer = ready.measure(None)?;
    writer.close().map_err(Stop::not_judged)?;
    let label = ready.directory.display().to_string();
    let read = Side::read(writer.path(), &label);
    let (_, side) = read.map_err(Stop::not_judged)?;
    Ok(side)
}

/// Rows of the table at the most: the noisiest.
const MOST: usize = 40;

fn text(found: &Calibration) -> String {
    let rates = &found.rates;
    let powers = rates.found.iter();
    let powers: Vec<String> = powers
        .map(|(change, share)| format!("+{change} %: {share:.0}"))
        .collect();
    let said = [
        told(found),
        format!(
            "called of {}; of twice its floor: {:.0}",
            powers.join(", "),
            rates.twice
        ),
        format!(
            "{:.0} of unchanged cases are called the same, {:.0} of clean sweeps cannot say",
            rates.same, rates.cannot_say
        ),
        format!("all cases of an invocation share {}", found.shared),
    ];
    let mut out = format!("{} on {}\n", found.suite, found.machine);
    for line in said.iter().flat_map(|said| wrap(said, COLUMNS - 2)) {
        out += &format!("  {line}\n");
    }
    out.push('\n');
    out += "  between invocations   device    host   first   floor\n";
    let mut cases: Vec<_> = found.cases.iter().collect();
    cases.sort_by(|a, b| b.1.floor.total_cmp(&a.1.floor));
    for (case, noise) in cases.iter().take(MOST) {
        let of = |metric| {
            let share = noise.between.get(&metric).copied();
            share.map_or_else(|| "-".to_owned(), |share: Share| share.to_string())
        };
        out += &format!(
            "  {case}\n  {:<20}{:>8}{:>8}{:>8}{:>8}\n",
            noise.median_ns.to_string(),
            of(Metric::Device),
            of(Metric::Host),
            of(Metric::FirstCall),
            noise.floor.to_string(),
        );
    }
    if cases.len() > MOST {
        out += &format!(
            "  and {} quieter cases (--json has all)\n",
            cases.len() - MOST
        );
    }
    out
}

/// What a gate is told of: one line.
fn told(found: &Calibration) -> String {
    let seen = match found.rates.seen {
        Some(seen) => format!("sees +{seen} in 95 of 100"),
        None => "sees no change for sure".to_owned(),
    };
    format!(
        "on this machine this gate calls {} of clean sweeps red, and {seen}",
        found.rates.red
    )
}

/// The command that measures what a suite's gate can see, where it will be looked for.
pub(super) fn measuring(root: &Path, name: &str, suite: &SuiteRecord) -> Vec<String> {
    let asked = suite.arguments.first().unwrap_or(&suite.name);
    let mut words = vec!["regatta".to_owned(), "calibrate".to_owned(), asked.clone()];
    if suite.name != name {
        words.extend(["--name".to_owned(), name.to_owned()]);
    }
    words.extend(in_folder(root));
    words
}

/// What a gate says of what it can see, and the floors of its cases where the policy takes
/// those of the calibration.
///
/// # Errors
/// When there is a calibration that cannot be read: exit code 2.
pub fn consulted(
    root: &Path,
    name: &str,
    header: &RunHeader,
    policy: &mut Policy,
) -> Result<String, Stop> {
    let machine = &header.machine;
    let anew = shell_command(&measuring(root, name, &header.suite));
    let path = Calibration::path(root, name, &machine.name);
    let found = Calibration::read(&path).map_err(Stop::usage)?;
    let differs = found.as_ref().and_then(|found| {
        let facts = found.hard.iter();
        let mut other = facts.filter_map(|(fact, then)| {
            let now = machine.hard.get(fact).filter(|now| *now != then)?;
            Some(format!("{fact} was {then} then, and is {now}"))
        });
        other.next()
    });
    if let Some(differs) = differs {
        return Ok(format!(
            "the calibration of {name} is of another machine ({differs}) and was not used: \
             `{anew}` measures it anew"
        ));
    }
    let Some(found) = found else {
        let floors = match policy.calibrated {
            true => format!("; its floors are {} until then", policy.floor),
            false => String::new(),
        };
        return Ok(format!(
            "what this gate sees here is not known: `{anew}` measures it\
             {floors}"
        ));
    };
    if policy.calibrated {
        let floors = found.cases.iter();
        policy.floors = floors
            .map(|(case, noise)| (case.clone(), noise.floor))
            .collect();
    }
    Ok(format!(
        "{} (calibrated {}, {})",
        told(&found),
        found.measured.strftime("%Y-%m-%d"),
        counted(found.invocations as usize, "invocation"),
    ))
}
