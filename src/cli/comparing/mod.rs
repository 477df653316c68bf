//! Two versions measured in turn: from their names to a judgement.

mod pairs;
mod taking;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use jiff::Timestamp;

use super::calibrate;
use super::deciding::decide;
use super::measure_args::MeasureArgs;
use super::measuring::{Asked, Ready};
use super::reporting::{self, Base, Show};
use super::versions::Version;
use super::{Ended, Stop, interrupt};
use regatta::attention::{Case, VariantId};
use regatta::judge::judgement::Judgement;
use regatta::judge::{self, Options};
use regatta::measure::identity::checksum;
use regatta::measure::laps::Monotonic;
use regatta::record::baseline::Store;
use regatta::record::header::{Turn, TurnSide};
use regatta::record::run_file::{Known, RunWriter};
use regatta::record::side::Side;
use regatta::record::types::{BaseId, RunEnd};
use regatta::suite;
use regatta::suite::rules::Rules;
use regatta::units::Share;
use regatta::versions::spec::Spec;

/// What is to be compared, and how.
pub struct Question<'a> {
    /// The suite, and what of it.
    pub measure: &'a MeasureArgs,
    /// What was.
    pub base: &'a [Spec],
    /// What is.
    pub head: &'a [Spec],
    /// Where both runs and the reports go.
    pub directory: PathBuf,
    /// The smallest change that counts, where that is not the suite's.
    pub floor: Option<Share>,
    /// Take no batch that would end later than this after the start.
    pub budget: Option<Duration>,
    /// True where the expectations and limits of the suite are held against the head as well.
    pub demands: bool,
    /// How to judge.
    pub options: Options,
}

/// Where a comparison goes: both runs below it, and the reports into it.
///
/// # Errors
/// When there is no such suite: exit code 2.
pub fn directory(args: &MeasureArgs) -> Result<PathBuf, Stop> {
    if let Some(out) = &args.out {
        return Ok(out.clone());
    }
    let name = suite::load(&args.suite).map_err(Stop::usage)?.name;
    let kind = match args.structure_only {
        true => "compare-structure",
        false => "compare",
    };
    Ok(Path::new("reports").join(format!("{name}-{kind}")))
}

/// Two sides that are ready to be measured, or one and a run that is stored.
pub struct Comparison {
    directory: PathBuf,
    base: Before,
    head: Ready,
    /// Cases of both sides, each beside the other.
    cases: Vec<(Case, Case)>,
    budget: Option<Duration>,
    options: Options,
    began: Instant,
}

/// What was.
enum Before {
    Measured(Box<Ready>),
    Stored(Box<Base>),
}

/// Why there is no comparison.
pub struct Refused {
    /// The side that cannot be had, where it is one of them.
    pub side: Option<TurnSide>,
    /// Why.
    pub stop: Stop,
}

impl From<Stop> for Refused {
    fn from(stop: Stop) -> Refused {
        Refused { side: None, stop }
    }
}

fn of(side: TurnSide) -> impl Fn(Stop) -> Refused {
    move |stop| Refused {
        side: Some(side),
        stop,
    }
}

impl Comparison {
    /// Makes both versions, and has their workers introduce themselves. Nothing is measured.
    ///
    /// # Errors
    /// Whatever is wrong with a version, the suite or a worker: exit code 2; sides that cannot
    /// be compared: 3.
    pub fn prepare(question: &Question<'_>) -> Result<Comparison, Stop> {
        Comparison::of(question).map_err(|refused| refused.stop)
    }

    /// The same for whoever goes on where one side cannot be had.
    ///
    /// # Errors
    /// As [`prepare`](Comparison::prepare), and of which side.
    pub fn of(question: &Question<'_>) -> Result<Comparison, Refused> {
        interrupt::watch();
        let began = Instant::now();
        let clock = Monotonic::begin();
        let args = question.measure;
        let mut base = Version::of(question.base, args).map_err(of(TurnSide::Base))?;
        let mut head = Version::of(question.head, args).map_err(of(TurnSide::Head))?;
        if head.stored.is_some() {
            return Err(Stop::Usage(anyhow!(
                "--head {} is stored: name it as --base, and what is to be measured as --head; \
                 two stored runs are judged by `regatta diff`",
                head.asked.join(" ")
            ))
            .into());
        }
        let stands_in = pairs::variants(&mut base, &mut head)?;
        for version in [&mut base, &mut head] {
            let rules = &mut version.suite.rules;
            if !question.demands {
                *rules = Rules {
                    policy: rules.policy.clone(),
                    ..Rules::default()
                };
            }
            if let Some(floor) = question.floor {
                rules.policy.floor = floor;
                rules.policy.calibrated = false;
                rules.policy.floors.clear();
            }
        }
        let cases = pairs::beside(&base, &head);
        let pair = pairs::pair(&base, &head);
        let ready = |version: Version, side: TurnSide, stands_in: &[(VariantId, VariantId)]| {
            let (name, turn) = match side {
                TurnSide::Base => ("base", stands_in.iter().cloned().collect()),
                TurnSide::Head => ("head", Default::default()),
            };
            let asked = Asked {
                suite: version.suite,
                directory: question.directory.join(name),
                environment: version.environment,
                revision: version.revision,
                turn: Some(Turn {
                    pair: pair.clone(),
                    side,
                    of: version.asked,
                    stands_in: turn,
                }),
            };
            Ready::of(asked, args, clock).map_err(of(side))
        };
        let base = match base.stored.take() {
            Some(path) => Before::Stored(Box::new(stored(&path)?)),
            None => Before::Measured(Box::new(ready(base, TurnSide::Base, &stands_in)?)),
        };
        let mut head = ready(head, TurnSide::Head, &[])?;
        if matches!(base, Before::Stored(_)) {
            head.header.turn = None;
        }
        // Floors are a part of the rules that a run carries.
        let policy = &mut head.suite.rules.policy;
        if policy.calibrated {
            let name = head.suite.name.as_str();
            let machine = &head.header.machine;
            let sight = calibrate::consulted(Path::new("baselines"), name, machine, policy)?;
            head.header.rules.policy = policy.clone();
            head.say(sight);
        }
        let comparison = Comparison {
            directory: question.directory.clone(),
            base,
            head,
            cases,
            budget: question.budget,
            options: question.options,
            began,
        };
        comparison.refuse_what_cannot_be_compared()?;
        Ok(comparison)
    }

    /// A comparison that will be refused need not be measured for.
    fn refuse_what_cannot_be_compared(&self) -> Result<(), Stop> {
        let empty = |ready: &Ready| Side {
            label: ready.label(),
            header: ready.header.clone(),
            cases: Default::default(),
            damage: Vec::new(),
        };
        let base = match &self.base {
            Before::Measured(ready) => empty(ready),
            Before::Stored(base) => base.side.clone(),
        };
        let judged = judge::judge(&empty(&self.head), Some(&base), &self.options);
        if judged.incomparable.is_empty() {
            return Ok(());
        }
        let lines = judged.incomparable.iter().map(|of| {
            format!(
                "  {}: {} in the base, {} in the head",
                of.field, of.base, of.head
            )
        });
        Err(Stop::NotJudged(anyhow!(
            "these cannot be compared (nothing was measured):\n{}",
            lines.collect::<Vec<_>>().join("\n")
        )))
    }

    /// Measures both sides in turn until everything is decided that can be, and tells.
    ///
    /// # Errors
    /// When a run cannot be written or read back: exit code 3.
    pub fn conclude(mut self, show: &Show) -> Ended {
        let directory = self.directory.clone();
        let (writer, ended) = match self.base {
            Before::Stored(base) => {
                let mut writer = self.head.measure(Some(base.id.clone()))?;
                decide(
                    &mut self.head,
                    &mut writer,
                    &base,
                    &self.options,
                    self.budget,
                )?;
                return reporting::conclude(
                    &self.head,
                    &directory,
                    writer,
                    Some(&base),
                    &self.options,
                    show,
                );
            }
            Before::Measured(_) => {
                let (writers, base, _) = self.measure()?;
                let told = reporting::conclude(
                    &self.head,
                    &directory,
                    writers.head,
                    Some(&base),
                    &self.options,
                    show,
                );
                (writers.base, told)
            }
        };
        finish(writer)?;
        ended
    }

    /// The same for a step of something larger: no report is written, and nothing is printed.
    /// Gives the base, the head's run and side, and the judgement.
    ///
    /// # Errors
    /// As [`conclude`](Comparison::conclude).
    pub fn judged(mut self) -> Result<Judgement, Stop> {
        if let Before::Stored(base) = &self.base {
            return Err(Stop::Usage(anyhow!("run:{} is stored", base.id.name)));
        }
        let (writers, _, judgement) = self.measure()?;
        finish(writers.head)?;
        finish(writers.base)?;
        Ok(judgement)
    }
}

/// Ends a run that nothing was said of.
fn finish(mut writer: RunWriter) -> Result<(), Stop> {
    let end = RunEnd {
        finished: Timestamp::now(),
        judged: None,
        spent: Vec::new(),
    };
    writer.finish(end).map_err(Stop::not_judged)
}

/// A run or a baseline that is stored.
fn stored(path: &str) -> Result<Base, Stop> {
    let store = Store::new(Path::new("baselines"));
    let found = super::sides::find(path, &store, None, &mut Known::default())?;
    Ok(Base {
        id: BaseId {
            name: path.to_owned(),
            sum: checksum(&found.path),
        },
        side: found.side,
    })
}
