//! `regatta next`: what is left to measure of a suite that is measured in parts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;

use super::parts::{Gap, Whole, gather};
use super::{Ended, Stop, note, print};
use regatta::attention::CaseId;
use regatta::record::baseline::Store;
use regatta::record::run_file::RunWriter;
use regatta::record::shard::Asked;
use regatta::record::shards::Part;
use regatta::record::types::{BaseId, Owed, RunHeader};
use regatta::units::counted;

/// Print the numbers of the shards that have something left to measure
///
/// One a line: shards that were never begun or were stopped; and, where all are there, those
/// with cases that are not decided, and that fresh invocations may decide: they are judged
/// together, and what a shard owes is written into its run. The same command that measured a
/// shard takes it. Nothing is printed when all is there and decided: `regatta merge` tells. A
/// suite bounds its fresh invocations; a shard that cannot be measured is named each time.
#[derive(Args, Debug)]
#[command(after_help = "As a loop:\n  \
    for round in 1 2 3 4 5 6; do\n    \
      left=$(regatta next reports/s/shards) && [ -n \"$left\" ] || break\n    \
      for i in $left; do regatta gate s --shard $i/8; done\n  \
    done\n  \
    regatta merge reports/s/shards")]
pub struct NextArgs {
    /// Shards, or folders of them
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,

    /// The folder of baselines
    #[arg(long, value_name = "DIR", default_value = "baselines")]
    baselines: PathBuf,

    /// No notes on standard error but of what went wrong
    #[arg(long, short)]
    quiet: bool,
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &NextArgs) -> Ended {
    let say = |text: String| {
        if !args.quiet {
            note(text);
        }
    };
    let wholes = match gather(&args.runs, false) {
        Ok(wholes) => wholes,
        Err(Gap::Problems(problems)) if problems.is_left_alone() => {
            let mut left = BTreeSet::new();
            for problem in problems.0 {
                say(problem.said);
                left.insert(problem.place.index);
            }
            return tell(&left);
        }
        Err(gap) => return Err(gap.told()),
    };
    let [whole] = wholes.as_slice() else {
        return Err(Stop::Usage(anyhow!(
            "the shards are of {} kinds of machine, and each goes on by itself; name those of one",
            wholes.len()
        )));
    };
    let (Asked::Gate { base: Some(_) } | Asked::Compare { .. }) = whole.asked() else {
        return tell(&BTreeSet::new());
    };
    let store = Store::new(&args.baselines);
    let judged = whole.judged(&whole.headers(), &store, false, "all shards")?;
    let Some(batch) = whole.next_batch(&judged) else {
        return tell(&BTreeSet::new());
    };
    say(format!(
        "{} of {} are not decided; {} more of them",
        batch.undecided.len(),
        counted(whole.cases(), "case"),
        counted((batch.fresh - whole.fresh()) as usize, "fresh invocation"),
    ));
    let cases: BTreeSet<CaseId> = [batch.undecided, batch.company]
        .concat()
        .into_iter()
        .collect();
    let base = match &judged.base {
        Some(base) => base.id.clone(),
        None => return tell(&BTreeSet::new()),
    };
    tell(&owe(whole, &cases, &base, batch.fresh)?)
}

/// Writes into the runs of parts what they owe, and gives the numbers of those.
fn owe(
    whole: &Whole,
    cases: &BTreeSet<CaseId>,
    base: &BaseId,
    fresh: u32,
) -> Result<BTreeSet<u32>, Stop> {
    let mut left = BTreeSet::new();
    for (place, part) in whole.head.iter().enumerate() {
        let owed: Vec<CaseId> = own(part, cases);
        if owed.is_empty() {
            continue;
        }
        // The base's first: a pair of which one side alone owes is measured by neither.
        if let Some(of_base) = whole.base.as_ref().and_then(|parts| parts.get(place)) {
            let names = &part.run.header;
            let theirs = of_base_names(&of_base.run.header, names, &owed);
            add(of_base, theirs, base, fresh)?;
        }
        add(part, owed, base, fresh)?;
        left.insert(part.place().index);
    }
    Ok(left)
}

/// The cases of a part that are wanted.
fn own(part: &Part, wanted: &BTreeSet<CaseId>) -> Vec<CaseId> {
    let plan = part.run.header.plan.iter();
    plan.filter(|case| wanted.contains(*case))
        .cloned()
        .collect()
}

/// The same cases by the names they have in the base, whose variants may have stood in.
fn of_base_names(base: &RunHeader, head: &RunHeader, cases: &[CaseId]) -> Vec<CaseId> {
    let by_name: BTreeMap<CaseId, CaseId> = base
        .plan
        .iter()
        .map(|case| (base.named_in(head, case), case.clone()))
        .collect();
    let found = cases.iter().filter_map(|case| by_name.get(case).cloned());
    found.collect()
}

fn add(part: &Part, cases: Vec<CaseId>, base: &BaseId, fresh: u32) -> Result<(), Stop> {
    let mut writer = RunWriter::adding(&part.path).map_err(Stop::not_judged)?;
    let base = base.clone();
    let owed = Owed { base, cases, fresh };
    writer.owe(owed).map_err(Stop::not_judged)
}

fn tell(left: &BTreeSet<u32>) -> Ended {
    for index in left {
        print(format!("{index}\n"))?;
    }
    Ok(0)
}
