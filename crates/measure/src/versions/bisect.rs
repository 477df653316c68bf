//! Bisection of releases: makes one comparison after the other, and says what came of them.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::journal::Journal;
use super::search::{BisectHistory, NextStep, RatioReading, Segment, Towards};
use super::{Spec, Version};
use crate::environments::PythonEnvironment;
use crate::experiment::{Experiment, ExperimentError, MeasureOptions, Setup, VersionComparison};
use regatta_core::record::header::TurnSide;
use regatta_core::suite::rules::Metric;
use regatta_core::text::{one_line, plain_name};
use regatta_judge::judgement::{Judgement, MetricRow, Row, Word};
use regatta_worker::attention::CaseId;
use regatta_worker::units::{Nanoseconds, Ratio, Share};

/// A comparison that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// What was compared with, as `regatta compare` takes it.
    pub base: String,
    /// What was tried.
    pub head: String,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: TriedOutcome,
}

/// What came of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum TriedOutcome {
    /// Both sides were measured.
    Measured {
        /// One a case.
        cases: Vec<CaseReading>,
    },
    /// One side cannot be made, built or run.
    Unusable {
        /// Which.
        side: TurnSide,
        /// Why, in a line.
        reason: String,
    },
}

/// One case of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseReading {
    /// Which.
    pub case: CaseId,
    /// Head against base; `None` where it was not measured on both sides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<RatioReading>,
    /// The base's median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_ns: Option<Nanoseconds>,
    /// The head's median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_ns: Option<Nanoseconds>,
    /// The change that this comparison would have called in 95 of 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sees: Option<Share>,
    /// Its first cause, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Why it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl CaseReading {
    fn usable(&self) -> Option<RatioReading> {
        self.reading.filter(RatioReading::is_usable)
    }

    /// How large its change is either way, as a logarithm; 0 without one.
    fn size(&self) -> f64 {
        self.usable()
            .map_or(0.0, |reading| reading.ratio.0.ln().abs())
    }

    fn has_word(&self, word: Word) -> bool {
        self.reading.is_some_and(|reading| reading.word == word)
    }
}

/// The case whose change is largest.
fn largest<'a>(cases: impl Iterator<Item = &'a CaseReading>) -> Option<&'a CaseReading> {
    cases.max_by(|a, b| a.size().total_cmp(&b.size()))
}

impl TriedOutcome {
    /// Its cases; none where a side is unusable.
    pub fn cases(&self) -> &[CaseReading] {
        match self {
            TriedOutcome::Measured { cases } => cases,
            TriedOutcome::Unusable { .. } => &[],
        }
    }

    /// Why the first case that has no time has none.
    pub fn first_reason(&self) -> Option<&str> {
        self.cases().iter().find_map(|of| of.reason.as_deref())
    }

    /// Its case with the largest change.
    pub fn largest(&self) -> Option<&CaseReading> {
        largest(self.cases().iter().filter(|of| of.reading.is_some()))
    }
}

impl Tried {
    /// Its cases; none where a side is unusable.
    pub fn cases(&self) -> &[CaseReading] {
        self.outcome.cases()
    }

    /// What it says of a case.
    pub fn reading(&self, case: &CaseId) -> Option<&CaseReading> {
        self.cases().iter().find(|of| of.case == *case)
    }

    /// Why the version that was tried is passed over; `None` where it is not.
    fn why_skipped(&self, case: Option<&CaseId>) -> Option<String> {
        if let TriedOutcome::Unusable { reason, .. } = &self.outcome {
            return Some(reason.clone());
        }
        let Some(case) = case else {
            let why = self.outcome.first_reason().unwrap_or("it has no case");
            return Some(format!("no case was measured: {why}"));
        };
        match self.reading(case) {
            Some(of) if of.usable().is_some() => None,
            Some(CaseReading {
                reason: Some(reason),
                ..
            }) => Some(reason.clone()),
            Some(_) => Some(format!("{} has no time that can be compared", case.0)),
            None => Some(format!("it has no case {}", case.0)),
        }
    }
}

/// What a judgement says of each case by a metric.
pub fn readings(judgement: &Judgement, metric: Metric) -> Vec<CaseReading> {
    let ratio = |of: &MetricRow| {
        let change = &of.change;
        let reading = RatioReading {
            ratio: change.ratio,
            low: change.low?,
            high: change.high?,
            word: of.word,
        };
        (reading.ratio > Ratio(0.0)).then_some(reading)
    };
    let reading = |row: &Row| {
        let of = row.metric(metric);
        let none = || format!("no {} of {} is known", metric.text(), row.case.0);
        CaseReading {
            case: row.case.clone(),
            reading: of.and_then(ratio),
            base_ns: of.map(|of| Nanoseconds(of.base)),
            head_ns: of.map(|of| Nanoseconds(of.head)),
            sees: of.and_then(|of| of.change.detectable),
            cause: row.findings.first().map(ToString::to_string),
            reason: match of {
                Some(of) => of.reason.clone(),
                None => Some(row.reason.clone().unwrap_or_else(none)),
            },
        }
    };
    judgement.rows.iter().map(reading).collect()
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Ending {
    /// The step is where `after` begins, or in one of `suspects`.
    Found(Box<FoundStep>),
    /// There is no change that way to be searched for.
    NoDifference {
        /// The case with the largest change seen.
        case: Option<CaseReading>,
        /// Versions that were compared with the good end.
        looked_at: Vec<Version>,
    },
    /// There is a change, and no two neighbours between which enough of it lies.
    Spread {
        /// The case that was followed.
        case: Option<CaseId>,
        /// Where it lies, the largest part first.
        parts: Vec<Stretch>,
    },
    /// An end cannot be measured.
    NoEnd {
        /// Which.
        end: Version,
        /// Why.
        reason: String,
    },
}

impl Ending {
    /// True where one version is named.
    pub fn names_one(&self) -> bool {
        matches!(self, Ending::Found(found) if found.suspects.is_empty())
    }
}

/// A step between two versions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundStep {
    /// The last one measured before it.
    pub before: Version,
    /// The first one measured after it.
    pub after: Version,
    /// Where those between could not be measured: they, and `after`. Else none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suspects: Vec<Version>,
    /// The case, `after` against `before`.
    pub case: CaseReading,
    /// Other cases that changed the same way there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<CaseReading>,
}

/// A part of a row that was not split further.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stretch {
    /// Its older end.
    pub low: Version,
    /// Its newer end.
    pub high: Version,
    /// `high` against `low`.
    pub ratio: Ratio,
}

/// A comparison of a row that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct BisectStep {
    /// The older version: the good end, or the lower one of two neighbours.
    pub low: usize,
    /// The version that is tried.
    pub high: usize,
    /// About how many comparisons there are still to come, this one included.
    pub left: usize,
    /// The case that is followed, once there is one.
    pub case: Option<CaseId>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum BisectNext {
    /// Compare two versions.
    Compare(BisectStep),
    /// Nothing.
    Ended(Ending),
}

/// What to do next in a row of which these comparisons were made.
pub fn next(row: &[Version], towards: Towards, tried: &[Tried]) -> BisectNext {
    let case = followed(row, tried);
    let history = history(row, case.as_ref(), tried, towards);
    BisectNext::Ended(match history.next() {
        NextStep::Compare { low, high, left } => {
            return BisectNext::Compare(BisectStep {
                low,
                high,
                // Those between are tried, and then the two are compared.
                left: left + usize::from(low == 0),
                case,
            });
        }
        NextStep::Found { low, high } => {
            let cases = find(tried, &row[low], &row[high]).map_or(&[][..], Tried::cases);
            let changed = cases.iter().filter(|of| of.has_word(towards.word()));
            let (own, mut others): (Vec<_>, Vec<_>) = changed
                .cloned()
                .partition(|of| Some(&of.case) == case.as_ref());
            others.sort_by(|a, b| b.size().total_cmp(&a.size()));
            match own.into_iter().next() {
                Some(case) => Ending::Found(Box::new(FoundStep {
                    before: row[low].clone(),
                    after: row[high].clone(),
                    suspects: match high - low {
                        1 => Vec::new(),
                        _ => row[low + 1..=high].to_vec(),
                    },
                    case,
                    others,
                })),
                // The search names no pair whose comparison did not decide it.
                None => Ending::NoDifference {
                    case: None,
                    looked_at: vec![row[low].clone(), row[high].clone()],
                },
            }
        }
        NextStep::NoDifference => {
            let seen = |head: &Version| find(tried, row.first()?, head);
            let reading = |tried: &Tried| tried.reading(case.as_ref()?).cloned();
            let looked_at = row.iter().filter(|version| seen(version).is_some());
            Ending::NoDifference {
                case: row.last().and_then(|last| reading(seen(last)?)),
                looked_at: looked_at.cloned().collect(),
            }
        }
        NextStep::Spread(segments) => {
            let stretch = |of: Segment| Stretch {
                low: row[of.low].clone(),
                high: row[of.high].clone(),
                ratio: of.ratio(towards),
            };
            let parts = segments.into_iter().map(stretch).collect();
            Ending::Spread { case, parts }
        }
        NextStep::NoEnd => {
            let end = row[history.last].clone();
            let tried = find(tried, &row[0], &end);
            let why = tried.and_then(|tried| tried.why_skipped(case.as_ref()));
            let reason = why.unwrap_or_else(|| "it gave no time".to_owned());
            Ending::NoEnd { end, reason }
        }
    })
}

/// The end of a row that a comparison shows to be unusable.
fn unusable_end(row: &[Version], step: &BisectStep, outcome: &TriedOutcome) -> Option<Ending> {
    let TriedOutcome::Unusable { side, reason } = outcome else {
        return None;
    };
    let end = match side {
        TurnSide::Base if step.low == 0 => row.first()?,
        TurnSide::Head if step.low == 0 && step.high + 1 == row.len() => row.last()?,
        _ => return None,
    };
    Some(Ending::NoEnd {
        end: end.clone(),
        reason: reason.clone(),
    })
}

/// Where the runs of the comparisons lie, in the report directory.
const COMPARED: &str = "compared";

/// The search of a row, each of whose comparisons is an experiment.
pub struct Bisection<'a> {
    /// The versions between the ends, both included.
    pub row: &'a [Version],
    /// Which change is looked for.
    pub towards: Towards,
    /// By what versions are told apart.
    pub metric: Metric,
    /// The smallest change that counts, where that is not the suite's.
    pub threshold: Option<Share>,
    /// What is measured, and how.
    pub measure: &'a MeasureOptions,
    /// The report directory.
    pub directory: &'a Path,
}

impl Bisection<'_> {
    /// Searches on from what the journal has, which gets each comparison; `tell` is told of each,
    /// and how long the others take.
    ///
    /// # Errors
    /// What ends the search, and is no property of a version: a full disk.
    pub fn search(
        &self,
        journal: &mut Journal,
        tell: &dyn Fn(&BisectStep, &Tried, Duration),
    ) -> Result<Ending, ExperimentError> {
        let (began, mut made) = (Instant::now(), 0);
        loop {
            let step = match next(self.row, self.towards, journal.tried()) {
                BisectNext::Compare(step) => step,
                BisectNext::Ended(ending) => return Ok(ending),
            };
            let (base, head) = (&self.row[step.low], &self.row[step.high]);
            let outcome = self.compare(base, head)?;
            // Not kept: whoever asks again has done something about it.
            if let Some(ending) = unusable_end(self.row, &step, &outcome) {
                return Ok(ending);
            }
            let tried = Tried {
                base: base.spec.clone(),
                head: head.spec.clone(),
                outcome,
            };
            journal.keep(&tried).map_err(ExperimentError::not_judged)?;
            made += 1;
            let left = u32::try_from(step.left - 1).unwrap_or(u32::MAX);
            tell(&step, &tried, (began.elapsed() / made).saturating_mul(left));
        }
    }

    fn compare(&self, base: &Version, head: &Version) -> Result<TriedOutcome, ExperimentError> {
        let specs = ([spec(base)?], [spec(head)?]);
        let mut comparison = VersionComparison::new(self.measure, &specs.0, &specs.1);
        let names = [&head.name, &base.name].map(|name| plain_name(name));
        let folder = self.directory.join(COMPARED);
        comparison.folder = Some(folder.join(names.join("-against-")));
        comparison.threshold = self.threshold;
        let experiment = match Experiment::compare(&comparison) {
            Ok(experiment) => experiment,
            Err(error) => {
                let (side, version) = match error {
                    ExperimentError::Unusable {
                        side: TurnSide::Base,
                        ..
                    } => (TurnSide::Base, base),
                    _ => (TurnSide::Head, head),
                };
                let said = one_line(&error.to_string());
                let reason = said.strip_prefix(&format!("{}: ", version.spec));
                let reason = reason.unwrap_or(&said).to_owned();
                return Ok(TriedOutcome::Unusable { side, reason });
            }
        };
        let mut measured = experiment.run()?;
        measured.files.close()?;
        Ok(TriedOutcome::Measured {
            cases: readings(&measured.judgement, self.metric),
        })
    }

    /// What is installed in the environment of a version, which was made for a comparison.
    ///
    /// # Errors
    /// When its spec cannot be read again, which it was.
    pub fn lock(&self, version: &Version) -> Result<Option<String>, ExperimentError> {
        let side = Setup::make(&[spec(version)?], self.measure);
        let lock = |side: Setup| {
            let name = side.environment.as_ref()?;
            let environment = side.suite.environments.get(name)?;
            PythonEnvironment::locate(name, environment).ok()??.lock()
        };
        Ok(side.ok().and_then(lock))
    }
}

fn spec(version: &Version) -> Result<Spec, ExperimentError> {
    version.spec.parse().map_err(ExperimentError::usage)
}

fn find<'a>(tried: &'a [Tried], base: &Version, head: &Version) -> Option<&'a Tried> {
    let mut tried = tried.iter();
    tried.find(|tried| tried.base == base.spec && tried.head == head.spec)
}

/// The case that is followed: of the first comparison that decided that one is slower the one
/// that is slowest; else the first that decided anything, else the largest change.
fn followed(row: &[Version], tried: &[Tried]) -> Option<CaseId> {
    let good = &row.first()?.spec;
    let of_row = |tried: &&Tried| {
        tried.base == *good && row.iter().any(|version| version.spec == tried.head)
    };
    let tried: Vec<&Tried> = tried.iter().filter(of_row).collect();
    let with = |word: Word| {
        let mut tried = tried.iter();
        tried.find_map(|of| largest(of.cases().iter().filter(|of| of.has_word(word))))
    };
    let found = with(Word::Regressed).or_else(|| with(Word::Improved));
    let found = found.or_else(|| tried.iter().find_map(|tried| tried.outcome.largest()));
    found.map(|of| of.case.clone())
}

/// What is known of a row, by the case that is followed.
fn history(
    row: &[Version],
    case: Option<&CaseId>,
    tried: &[Tried],
    towards: Towards,
) -> BisectHistory {
    let place = |spec: &str| row.iter().position(|version| version.spec == spec);
    let compared = tried.iter().filter_map(|tried| {
        let pair = (place(&tried.base)?, place(&tried.head)?);
        Some((pair, case.and_then(|case| tried.reading(case)?.usable())))
    });
    BisectHistory {
        last: row.len().saturating_sub(1),
        towards,
        compared: compared.collect(),
    }
}

/// Versions that were tried and could not be measured, with the reason, in the order tried.
pub fn skipped(row: &[Version], tried: &[Tried], case: Option<&CaseId>) -> Vec<(Version, String)> {
    let mut found: Vec<(Version, String)> = Vec::new();
    for tried in tried {
        let version = row.iter().find(|version| version.spec == tried.head);
        if let (Some(version), Some(reason)) = (version, tried.why_skipped(case))
            && found.iter().all(|(other, _)| other.spec != version.spec)
        {
            found.push((version.clone(), reason));
        }
    }
    found
}

#[cfg(test)]
mod tests;
