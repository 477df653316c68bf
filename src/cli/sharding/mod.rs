//! A part of a suite, measured on one machine of several: which it is, and what falls to it.

mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;

use super::{Stop, sides};
use regatta::attention::CaseId;
use regatta::record::baseline::{self, Store};
use regatta::record::shard::{Asked, Portion, Shard};
use regatta::record::shards::SHARDS;
use regatta::suite::Suite;
use regatta::suite::shard::{Costs, Dealt, deal};
use regatta::units::Nanoseconds;

/// Where `--help` lists what is asked of one machine of several.
const OF_SEVERAL: &str = "One of several machines";

/// Which part of a suite is measured.
#[derive(Args, Clone, Debug, Default)]
pub struct ShardArgs {
    /// Measure one of N parts: `3/8`. `env` takes the numbers from a Slurm array or GitLab's
    /// `parallel`, `env/8` also from an indexed Job of Kubernetes. `regatta merge` judges all
    /// parts together
    #[arg(long, value_name = "I/N", help_heading = OF_SEVERAL)]
    pub shard: Option<String>,

    /// A run or baseline whose times tell what each case costs, so that parts take alike
    /// [default: the baseline of the suite]
    #[arg(long, value_name = "RUN", help_heading = OF_SEVERAL)]
    pub costs: Option<String>,
}

/// A part of a suite.
#[derive(Clone, Debug)]
pub struct Part {
    /// What the run's header says of it.
    pub shard: Shard,
    /// Its cases.
    pub cases: BTreeSet<CaseId>,
}

impl Part {
    /// The same part of the other side of a comparison, whose cases have other names.
    pub fn renamed(&self, dealt: &[Vec<CaseId>], name: impl Fn(&CaseId) -> CaseId) -> Part {
        let parts = dealt.iter().map(|part| {
            let mut cases: Vec<CaseId> = part.iter().map(&name).collect();
            cases.sort();
            Portion::of(&cases)
        });
        Part {
            shard: Shard {
                parts: parts.collect(),
                ..self.shard.clone()
            },
            cases: self.cases.iter().map(name).collect(),
        }
    }
}

impl ShardArgs {
    /// Refuses a part of what cannot be split.
    ///
    /// # Errors
    /// Where one was asked for: exit code 2.
    pub fn refuse(&self, what: &str) -> Result<(), Stop> {
        match &self.shard {
            None => self.refuse_costs(),
            Some(shard) => Err(Stop::Usage(anyhow!(
                "--shard {shard}: {what}; run, gate, compare and calibrate are split"
            ))),
        }
    }

    /// Refuses costs of which nothing is made.
    fn refuse_costs(&self) -> Result<(), Stop> {
        match &self.costs {
            None => Ok(()),
            Some(costs) => Err(Stop::Usage(anyhow!(
                "--costs {costs} says how a suite is dealt to shards, and no shard is asked for: \
                 --shard I/N"
            ))),
        }
    }
}

/// The part of a suite that the command line asks for, with what falls to the others; `None`
/// where it asks for the whole.
///
/// # Errors
/// A place that there is not, or costs that cannot be read: exit code 2.
pub fn part(
    args: &ShardArgs,
    suite: &Suite,
    store: &Store,
    baseline: &str,
    asked: Asked,
) -> Result<Option<(Part, Dealt)>, Stop> {
    let Some(text) = &args.shard else {
        args.refuse_costs()?;
        return Ok(None);
    };
    let place = place::wanted(text, |name| std::env::var(name).ok()).map_err(Stop::Usage)?;
    let dealt = dealt(suite, args.costs.as_deref(), store, baseline, place.of)?;
    let index = place.index as usize - 1;
    let part = Part {
        shard: Shard {
            place,
            parts: dealt.parts.iter().map(|part| Portion::of(part)).collect(),
            asked,
        },
        cases: dealt.parts[index].iter().cloned().collect(),
    };
    Ok(Some((part, dealt)))
}

/// Deals a suite to so many shards, by the costs of this run, or else of this baseline.
///
/// # Errors
/// When what is named has no costs, or a baseline cannot be read: exit code 2.
pub fn dealt(
    suite: &Suite,
    run: Option<&str>,
    store: &Store,
    baseline: &str,
    of: u32,
) -> Result<Dealt, Stop> {
    let costs = match run {
        Some(run) => costs_of(run, store)?,
        None => costs_of_baseline(store, baseline)?,
    };
    Ok(deal(&suite.cases, &suite.rules.expectations, &costs, of))
}

/// What each case of a run or a baseline took.
///
/// # Errors
/// When there is none, or it does not say: exit code 2.
fn costs_of(run: &str, store: &Store) -> Result<Costs, Stop> {
    let found = sides::find(run, store, None)?;
    let costs = found.side.costs();
    match costs.is_empty() {
        false => Ok(costs),
        true => Err(Stop::Usage(anyhow!(
            "--costs {run}: it does not say what its cases took; name a run or baseline that \
             this version of regatta measured"
        ))),
    }
}

/// What the cases of a baseline took, over all machines that have one: whichever machine asks
/// comes to the same parts. Empty where there is none.
fn costs_of_baseline(store: &Store, name: &str) -> Result<Costs, Stop> {
    let mut sums: BTreeMap<CaseId, (f64, u32)> = Default::default();
    for path in store.files(name).unwrap_or_default() {
        let side = baseline::read(&path).map_err(Stop::usage)?;
        for (case, cost) in side.costs() {
            let sum = sums.entry(case).or_default();
            *sum = (sum.0 + cost.0, sum.1 + 1);
        }
    }
    let means = sums.into_iter();
    Ok(means
        .map(|(case, (sum, number))| (case, Nanoseconds(sum / f64::from(number))))
        .collect())
}

/// The folder of the whole that a part goes into; where there is no part, the folder itself.
pub fn whole<'f>(folder: &'f Path, shard: Option<&Shard>) -> &'f Path {
    let mut above = folder.ancestors();
    let shards = above.find(|above| above.file_name().is_some_and(|name| name == SHARDS));
    let whole = shards.filter(|_| shard.is_some()).and_then(Path::parent);
    whole.unwrap_or(folder)
}

/// Where a part of what goes into a folder goes.
pub fn folder(whole: PathBuf, part: Option<&Part>) -> PathBuf {
    match part {
        None => whole,
        Some(part) => whole.join(SHARDS).join(part.shard.place.folder()),
    }
}
