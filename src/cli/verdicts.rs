//! `regatta verdicts`: how often this gate's rule is wrong, beside the rules of others.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;

use super::sides;
use super::{Ended, Stop, print};
use regatta::record::baseline::Store;
use regatta::suite::rules::Policy;
use regatta::units::Share;
use regatta::verdicts::draw::{Recorded, World};
use regatta::verdicts::history;
use regatta::verdicts::noise::MODELS;
use regatta::verdicts::pairs::{Deal, dealt};
use regatta::verdicts::rules::{RULES, Rule};
use regatta::verdicts::show;
use regatta::verdicts::sweep::Design;
use regatta::verdicts::table::{Evidence, Plan, Replayed, models, table};

/// Print how often verdicts are wrong: this gate's rule and those of other tools
///
/// Noise, made up or recorded, is replayed without a change and with known ones. Nothing is
/// measured, and the same seed gives the same table.
#[derive(Args, Debug)]
#[command(hide = true)]
pub struct VerdictsArgs {
    /// The gate's floor, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = percent)]
    floor: f64,

    /// Unchanged sweeps of each noise, and changed cases of each size
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    sweeps: u32,

    /// What all draws follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Only this noise, by name; may be given several times
    #[arg(long, value_name = "NAME")]
    noise: Vec<String>,

    /// Draw from the invocations and samples of a recorded run in place of models; may be
    /// given several times
    #[arg(long, value_name = "DIR", conflicts_with = "noise")]
    run: Vec<String>,

    /// Deal comparisons from a long one of the same code, whose folder this is, in place of
    /// the table
    #[arg(long, value_name = "DIR", conflicts_with_all = ["noise", "run"])]
    pairs: Option<PathBuf>,

    /// What is planted in one case of each comparison that is dealt, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 4.0, value_parser = percent, requires = "pairs")]
    planted: f64,

    /// Give every rule the medians of five invocations, in place of what its tool measures
    #[arg(long)]
    medians: bool,

    /// Print in place of that how often so many histories in which nothing changed show a
    /// change, and how soon one that did shows it
    #[arg(long, value_name = "N", conflicts_with_all = ["run", "noise", "medians", "rules"])]
    histories: Option<u32>,

    /// Print where each rule is defined, and what is simplified
    #[arg(long, conflicts_with_all = ["json", "markdown"])]
    rules: bool,

    /// Machine-readable output, with the interval of each rate
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Tables in Markdown
    #[arg(long)]
    markdown: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let floor: f64 = text.parse().map_err(|_| "it is no number".to_owned())?;
    match (0.0..=100.0).contains(&floor) {
        true => Ok(floor),
        false => Err("it is not between 0 and 100".to_owned()),
    }
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &VerdictsArgs) -> Ended {
    if args.rules {
        print(sources())?;
        return Ok(0);
    }
    if let Some(folder) = &args.pairs {
        return pairs(folder, args);
    }
    if let Some(number) = args.histories {
        let rows = history::table(number as usize, args.seed);
        let json = || serde_json::to_string_pretty(&rows).map_err(Stop::not_judged);
        print(match args.json {
            true => json()? + "\n",
            false => history::text(&rows, args.markdown),
        })?;
        return Ok(0);
    }
    let noises = match args.run.is_empty() {
        true => chosen(&args.noise)?,
        false => vec![recorded(&args.run)?],
    };
    let plan = Plan {
        design: Design::DEFAULT,
        floor: Share(args.floor / 100.0),
        evidence: match args.medians {
            true => Evidence::Medians,
            false => Evidence::Own,
        },
        sweeps: args.sweeps as usize,
        seed: args.seed,
    };
    let table = table(&noises, &plan);
    if args.json {
        let json = serde_json::to_string_pretty(&table).map_err(Stop::not_judged)?;
        print(format!("{json}\n"))?;
    } else if args.markdown {
        print(show::markdown(&table))?;
    } else {
        print(show::text(&table))?;
    }
    Ok(0)
}

/// Deals comparisons from the two runs of a long one.
fn pairs(folder: &Path, args: &VerdictsArgs) -> Ended {
    let store = Store::new("baselines");
    let side = |name: &str| {
        let path = folder.join(name).display().to_string();
        sides::find(&path, &store, None).map(|found| found.side)
    };
    let (base, head) = (side("base")?, side("head")?);
    let base = base.as_base_of(&head.header);
    let deal = Deal {
        pairs: 5,
        fresh: Policy::default().confirm,
        floor: Share(args.floor / 100.0),
        planted: Share(args.planted / 100.0),
        comparisons: args.sweeps,
    };
    let dealt = dealt(&base, &head, &deal).ok_or_else(|| {
        Stop::Usage(anyhow!(
            "{}: comparisons are dealt from {} pairs at least; measure them with \
             `regatta compare SUITE --base here --invocations {}`",
            folder.display(),
            deal.pairs + deal.fresh as usize,
            deal.pairs + deal.fresh as usize,
        ))
    })?;
    let mut text = format!(
        "{} comparisons of the same code, floor {}: {} called worse, {} could not say\n",
        args.sweeps, deal.floor, dealt.red.hits, dealt.unsaid.hits,
    );
    for (case, count) in &dealt.wrong {
        text += &format!("  {count} of them for {case}\n");
    }
    text += &format!(
        "{} planted in one case of each; called worse:\n",
        deal.planted
    );
    for (case, (time, rate)) in &dealt.seen {
        text += &format!("  {time:>9}  {:>4} of {:<4}  {case}\n", rate.hits, rate.of);
    }
    print(text)?;
    Ok(0)
}

fn chosen(names: &[String]) -> Result<Vec<Replayed>, Stop> {
    let known = |name: &String| MODELS.iter().any(|noise| noise.name == *name);
    if let Some(name) = names.iter().find(|name| !known(name)) {
        let all: Vec<&str> = MODELS.iter().map(|noise| noise.name).collect();
        return Err(Stop::Usage(anyhow!(
            "--noise {name}: there are {}",
            all.join(", ")
        )));
    }
    let wanted = |name: &str| names.is_empty() || names.iter().any(|asked| asked == name);
    Ok(models(wanted))
}

fn recorded(names: &[String]) -> Result<Replayed, Stop> {
    let store = Store::new("baselines");
    let mut runs = Vec::new();
    for name in names {
        let stored = sides::find(name, &store, None)?;
        runs.push(match stored.is_baseline {
            true => stored.run,
            false => stored.whole()?,
        });
    }
    let recorded = Recorded::of(&runs).ok_or_else(|| {
        Stop::Usage(anyhow!(
            "--run {}: no case has two invocations with samples to draw from",
            names.join(" --run ")
        ))
    })?;
    let (cases, invocations) = recorded.sizes();
    let about =
        format!("{cases} cases, {invocations} invocations and their samples, with replacement");
    Ok(Replayed {
        name: "recorded".to_owned(),
        about,
        number: 0,
        world: World::Recorded(recorded),
    })
}

/// Where each rule is defined, and what is simplified.
fn sources() -> String {
    let rule = |rule: &Rule| {
        format!(
            "{}\n  defined    {}\n  simplified {}\n",
            rule.name, rule.source, rule.simplified
        )
    };
    RULES.iter().map(rule).collect()
}
