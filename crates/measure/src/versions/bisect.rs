//! Bisection of releases: makes comparisons until one answers the search.

use std::collections::BTreeSet;
use std::path::Path;
use std::slice;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Version;
use super::search::{BisectHistory, NextStep, RatioReading, Segment, Towards};
use crate::experiment::{Experiment, ExperimentError, MeasureOptions};
use regatta_core::record::PairSide;
use regatta_core::suite::Metric;
use regatta_core::text::{one_line, plain_name};
use regatta_judge::judgement::{Judgement, MetricRow, Row, Word};
use regatta_worker::case::CaseId;
use regatta_worker::units::{ARROW, Ratio, counted};

/// A comparison that was made. Versions are numbered from the good end, 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tried {
    /// The older version.
    pub low: usize,
    /// The newer version, which was tried.
    pub high: usize,
    /// The readings of its cases; empty if a side is not usable.
    pub cases: Vec<CaseReading>,
    /// Packages whose release differs in the newer version: `jaxlib 0.5.0 → 0.5.1`.
    pub moved: Vec<String>,
    /// The side that cannot be made, built or run, and the reason in a line.
    pub unusable: Option<(PairSide, String)>,
}

/// The reading of one case in a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseReading {
    /// The case.
    pub case: CaseId,
    /// Head against base; `None` if it was not measured on both sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<MetricRow>,
    /// The same by CPU time, which decides if load hides the wall time.
    #[serde(skip)]
    pub cpu_time: Option<Box<MetricRow>>,
    /// The first cause, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The reason for which it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl CaseReading {
    fn usable(&self) -> Option<RatioReading> {
        RatioReading::usable(&self.metric.as_ref()?.change)
    }

    /// The absolute size of the change, as a logarithm; 0 if it is unknown.
    fn size(&self) -> f64 {
        self.usable().map_or(0.0, |reading| reading.level.abs())
    }

    /// The verdict's word.
    pub fn word(&self) -> Option<Word> {
        self.usable().map(|reading| reading.word)
    }

    /// The same case compared by CPU time.
    fn by_cpu_time(&self) -> CaseReading {
        let cpu_time = self.cpu_time.as_deref();
        CaseReading {
            metric: cpu_time.cloned(),
            reason: cpu_time.map_or(self.reason.clone(), |row| row.reason.clone()),
            ..self.clone()
        }
    }
}

/// The case with the largest change.
fn largest<'a>(cases: impl Iterator<Item = &'a CaseReading>) -> Option<&'a CaseReading> {
    cases.max_by(|a, b| a.size().total_cmp(&b.size()))
}

impl Tried {
    /// The same comparison by CPU time.
    fn by_cpu_time(&self) -> Tried {
        Tried {
            cases: self.cases.iter().map(CaseReading::by_cpu_time).collect(),
            ..self.clone()
        }
    }

    /// The reading of a case.
    pub fn reading(&self, case: &CaseId) -> Option<&CaseReading> {
        self.cases.iter().find(|reading| reading.case == *case)
    }

    /// The case with the largest change.
    pub fn largest(&self) -> Option<&CaseReading> {
        largest(
            self.cases
                .iter()
                .filter(|reading| reading.usable().is_some()),
        )
    }

    /// The reason for which the newer version is skipped; `None` if it is not.
    pub fn why_skipped(&self, case: Option<&CaseId>) -> Option<String> {
        if let Some((_, reason)) = &self.unusable {
            return Some(reason.clone());
        }
        let Some(case) = case else {
            let mut reasons = self
                .cases
                .iter()
                .filter_map(|reading| reading.reason.as_deref());
            let why = reasons.next().unwrap_or("it has no case");
            return Some(format!("no case was measured: {why}"));
        };
        match self.reading(case) {
            Some(of) if of.usable().is_some() => None,
            Some(of) => Some(match &of.reason {
                Some(reason) => reason.clone(),
                None => format!("{} has no time that can be compared", case.0),
            }),
            None => Some(format!("it has no case {}", case.0)),
        }
    }
}

/// The reading of each case of a judgement.
fn readings(judgement: &Judgement) -> Vec<CaseReading> {
    let reading = |row: &Row| {
        let wall = row.metric(Metric::Device);
        let unknown = || format!("no {} of {} is known", Metric::Device.text(), row.case.0);
        CaseReading {
            case: row.case.clone(),
            metric: wall.cloned(),
            cpu_time: row.metric(Metric::CpuTime).cloned().map(Box::new),
            cause: row.findings.first().map(ToString::to_string),
            reason: match wall {
                Some(wall) => wall.reason.clone(),
                None => Some(row.reason.clone().unwrap_or_else(unknown)),
            },
        }
    };
    judgement.rows.iter().map(reading).collect()
}

/// The packages in which two versions differ.
fn moved(judgement: &Judgement) -> Vec<String> {
    let differ = judgement.differences.iter();
    let moved = differ.filter_map(|difference| {
        let (_, package) = difference.field.split_once(".packages.")?;
        Some(format!(
            "{package} {} {ARROW} {}",
            difference.base, difference.head
        ))
    });
    // Several workers may share an environment.
    moved.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Ending {
    /// The step is at `after`, or at one of `suspects`.
    Found(Box<FoundStep>),
    /// No change in the direction of the search was found.
    NoDifference {
        /// The case with the largest change seen.
        case: Option<CaseReading>,
        /// Versions that were compared with the good end.
        looked_at: Vec<Version>,
    },
    /// There is a change, but no two neighbours differ by enough of it.
    Spread {
        /// The case that the search followed.
        case: Option<CaseId>,
        /// The stretches that contribute to the change, the largest part first.
        parts: Vec<Stretch>,
    },
    /// An end cannot be measured.
    NoEnd {
        /// The end.
        end: Version,
        /// The reason.
        reason: String,
    },
}

/// A step between two versions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundStep {
    /// The last version that was measured before the step.
    pub before: Version,
    /// The first version that was measured after the step.
    pub after: Version,
    /// If versions between could not be measured: these, and `after`. Otherwise empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suspects: Vec<Version>,
    /// The reading of the case, `after` against `before`.
    pub case: CaseReading,
    /// Other cases that changed in the same direction.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<CaseReading>,
    /// Packages whose release changed.
    pub moved: Vec<String>,
}

/// A part of the row that was not split further.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stretch {
    /// The older end.
    pub low: Version,
    /// The newer end.
    pub high: Version,
    /// `high` against `low`.
    pub ratio: Ratio,
}

/// The result of a search that has nothing more to compare.
fn ending(
    row: &[Version],
    towards: Towards,
    tried: &[Tried],
    case: Option<CaseId>,
    last: NextStep,
) -> Ending {
    let find = |low, high| {
        tried
            .iter()
            .find(|pair| (pair.low, pair.high) == (low, high))
    };
    let bad = row.len() - 1;
    match last {
        NextStep::Found { low, high } => {
            let (before, after) = (row[low].clone(), row[high].clone());
            let pair = find(low, high);
            let cases = pair.map_or(&[][..], |tried| &tried.cases);
            let changed = cases
                .iter()
                .filter(|reading| reading.word() == Some(towards.word()));
            let (own, mut others): (Vec<_>, Vec<_>) = changed
                .cloned()
                .partition(|reading| Some(&reading.case) == case.as_ref());
            others.sort_by(|a, b| b.size().total_cmp(&a.size()));
            match own.into_iter().next() {
                Some(case) => Ending::Found(Box::new(FoundStep {
                    before,
                    after,
                    suspects: match high - low {
                        1 => Vec::new(),
                        _ => row[low + 1..=high].to_vec(),
                    },
                    case,
                    others,
                    moved: pair.map_or_else(Vec::new, |tried| tried.moved.clone()),
                })),
                // The search only names pairs whose comparison decided it, so this cannot happen.
                None => Ending::NoDifference {
                    case: None,
                    looked_at: vec![before, after],
                },
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
            let why = find(0, bad).and_then(|tried| tried.why_skipped(case.as_ref()));
            Ending::NoEnd {
                end: row[bad].clone(),
                reason: why.unwrap_or_else(|| "it gave no time".to_owned()),
            }
        }
        NextStep::NoDifference | NextStep::Compare { .. } => {
            let ends = || find(0, bad)?.reading(case.as_ref()?).cloned();
            let looked_at = (0..row.len()).filter(|at| find(0, *at).is_some());
            Ending::NoDifference {
                case: ends(),
                looked_at: looked_at.map(|at| row[at].clone()).collect(),
            }
        }
    }
}

/// The case that the search follows: the slowest one of the first comparison that decided that a
/// case is slower. Without one, the most improved case of the first comparison that decided an
/// improvement, or else the case with the largest change.
fn followed(tried: &[Tried]) -> Option<CaseId> {
    let probes = || tried.iter().filter(|tried| tried.low == 0);
    let with = |word: Word| {
        probes()
            .find_map(|tried| largest(tried.cases.iter().filter(|case| case.word() == Some(word))))
    };
    let largest_changed = with(Word::Regressed).or_else(|| with(Word::Improved));
    let largest_changed = largest_changed.or_else(|| probes().find_map(Tried::largest));
    largest_changed.map(|reading| reading.case.clone())
}

/// The word of the followed case in each comparison that has it.
fn words(tried: &[Tried]) -> Vec<Word> {
    let case = followed(tried);
    let readings = tried.iter();
    let words = readings.filter_map(|tried| tried.reading(case.as_ref()?)?.word());
    words.collect()
}

/// The comparisons by CPU time, if load hides the wall time: the wall time is inconclusive in one
/// of them, while CPU time is decided in at least as many comparisons and shows a change.
fn by_cpu_time(tried: &[Tried]) -> Option<Vec<Tried>> {
    let wall = words(tried);
    if !wall.contains(&Word::Inconclusive) {
        return None;
    }
    let by_cpu: Vec<Tried> = tried.iter().map(Tried::by_cpu_time).collect();
    let cpu = words(&by_cpu);
    let moved = |word: &Word| matches!(word, Word::Regressed | Word::Improved);
    let decided = cpu.len() >= wall.len() && !cpu.contains(&Word::Inconclusive);
    (decided && cpu.iter().any(moved)).then_some(by_cpu)
}

/// Reports a comparison: the comparison, the followed case, the approximate number of comparisons
/// to come, and their time.
pub type Tell<'a> = &'a dyn Fn(&Tried, Option<&CaseId>, usize, Duration);

/// The result of a search.
#[derive(Debug)]
pub struct Searched {
    /// All comparisons, in order.
    pub tried: Vec<Tried>,
    /// The version that was found, or the reason for not finding one.
    pub ending: Ending,
    /// The metric that decided.
    pub metric: Metric,
}

/// Searches a row with comparisons of two of its versions, by `metric`. Switches to CPU time once
/// load hides the wall time.
fn search<E>(
    row: &[Version],
    towards: Towards,
    mut metric: Metric,
    compare: &mut dyn FnMut(usize, usize) -> Result<Tried, E>,
    tell: Tell<'_>,
) -> Result<Searched, E> {
    let began = Instant::now();
    let bad = row.len() - 1;
    let mut all: Vec<Tried> = Vec::new();
    loop {
        let case = followed(&all);
        let compared = all.iter().map(|tried| {
            let reading = case.as_ref().and_then(|case| tried.reading(case)?.usable());
            ((tried.low, tried.high), reading)
        });
        let history = BisectHistory {
            last: bad,
            towards,
            compared: compared.collect(),
        };
        let (low, high, left) = match history.next() {
            NextStep::Compare { low, high, left } => (low, high, left),
            last => {
                return Ok(Searched {
                    ending: ending(row, towards, &all, case, last),
                    tried: all,
                    metric,
                });
            }
        };
        let tried = compare(low, high)?;
        let end = match &tried.unusable {
            Some((PairSide::Base, reason)) if low == 0 => Some((0, reason)),
            Some((PairSide::Head, reason)) if low == 0 && high == bad => Some((bad, reason)),
            _ => None,
        };
        if let Some((end, reason)) = end {
            let (end, reason) = (row[end].clone(), reason.clone());
            return Ok(Searched {
                tried: all,
                ending: Ending::NoEnd { end, reason },
                metric,
            });
        }
        // Versions in between are compared first, and then the two ends of the step.
        let more = left - usize::from(low != 0);
        let each = began.elapsed() / (all.len() as u32 + 1);
        let time = each.saturating_mul(u32::try_from(more).unwrap_or(u32::MAX));
        let by_cpu = metric == Metric::CpuTime;
        all.push(if by_cpu { tried.by_cpu_time() } else { tried });
        if let Some(by_cpu) = by_cpu_time(&all).filter(|_| !by_cpu) {
            (all, metric) = (by_cpu, Metric::CpuTime);
        }
        // The case that was followed when the versions were chosen; none for the first comparison.
        tell(&all[all.len() - 1], case.as_ref(), more, time);
    }
}

/// The folder of the comparisons' runs, in the report folder.
const COMPARED: &str = "compared";

/// Searches a row of versions. Each comparison is an experiment whose runs are in the report
/// folder; existing ones are judged again, not measured.
///
/// # Errors
/// An error that ends the search and is not caused by a version, such as a full disk.
pub fn bisect(
    row: &[Version],
    towards: Towards,
    metric: Metric,
    measure: &MeasureOptions,
    directory: &Path,
    tell: Tell<'_>,
) -> Result<Searched, ExperimentError> {
    let deciding = match metric {
        Metric::Device => vec![metric, Metric::CpuTime],
        metric => vec![metric],
    };
    let measure = MeasureOptions {
        deciding,
        ..measure.clone()
    };
    let began = Instant::now();
    let mut compared = 0;
    let mut compare = |low, high| {
        let left = measure
            .limit
            .map(|limit| limit.saturating_sub(began.elapsed()));
        if compared > 0 && left.is_some_and(|left| left.is_zero()) {
            let number = counted(compared, "comparison");
            return Err(ExperimentError::NotJudged(format!(
                "--time-limit ends the search after {number}; they are kept, and the same command \
                 with a longer limit resumes"
            )));
        }
        compared += 1;
        let measure = MeasureOptions {
            limit: left,
            ..measure.clone()
        };
        compare(row, [low, high], &measure, directory)
    };
    search(row, towards, metric, &mut compare, tell)
}

fn compare(
    row: &[Version],
    [low, high]: [usize; 2],
    measure: &MeasureOptions,
    directory: &Path,
) -> Result<Tried, ExperimentError> {
    let [base, head] = [low, high].map(|at| &row[at]);
    let specs = [base, head].map(|version| slice::from_ref(&version.spec));
    let names = [&head.name, &base.name].map(|name| plain_name(name));
    let folder = directory.join(COMPARED);
    let request = MeasureOptions {
        out: Some(folder.join(names.join("-against-"))),
        ..measure.clone()
    };
    let tried = Tried {
        low,
        high,
        ..Tried::default()
    };
    match Experiment::compare(&request, specs[0], specs[1], false) {
        // The files stay open for resuming, so the same comparison is not measured twice.
        Ok(experiment) => {
            let judgement = experiment.run()?.judgement;
            Ok(Tried {
                cases: readings(&judgement),
                moved: moved(&judgement),
                ..tried
            })
        }
        Err(error) => {
            let (side, version, error) = match error {
                ExperimentError::Unusable {
                    side: side @ PairSide::Base,
                    error,
                    ..
                } => (side, base, *error),
                ExperimentError::Unusable { error, .. } => (PairSide::Head, head, *error),
                error => (PairSide::Head, head, error),
            };
            let message = one_line(&error.to_string());
            let reason = message.strip_prefix(&format!("{}: ", version.spec));
            let reason = reason.unwrap_or(&message).to_owned();
            Ok(Tried {
                unusable: Some((side, reason)),
                ..tried
            })
        }
    }
}

/// Versions that could not be measured, with the reasons, in the order in which they were tried.
pub fn skipped(tried: &[Tried], case: Option<&CaseId>) -> Vec<(usize, String)> {
    let mut skipped: Vec<(usize, String)> = Vec::new();
    for tried in tried {
        if let Some(reason) = tried.why_skipped(case)
            && skipped.iter().all(|(other, _)| *other != tried.high)
        {
            skipped.push((tried.high, reason));
        }
    }
    skipped
}

#[cfg(test)]
mod tests;
