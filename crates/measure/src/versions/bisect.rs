//! Bisection: asks for one comparison after the other, and says what came of them.

use serde::{Deserialize, Serialize};

use super::Version;
use super::search::{BisectHistory, NextStep, RatioReading, Towards};
use regatta_core::record::header::TurnSide;
use regatta_core::suite::rules::Metric;
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

    fn largest(&self) -> Option<&CaseReading> {
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

/// Whoever measures, and keeps what came of it.
pub trait Comparer {
    /// Why it stops.
    type Stop;

    /// Compares two versions.
    ///
    /// # Errors
    /// What ends the search, and is no property of a version: a full disk.
    fn compare(&mut self, base: &Version, head: &Version) -> Result<TriedOutcome, Self::Stop>;

    /// What a merge brought: rows as the one that is searched. None where merges are taken as
    /// they are.
    ///
    /// # Errors
    /// What ends the search.
    fn brought(&mut self, low: &Version, merge: &Version) -> Result<Vec<Vec<Version>>, Self::Stop>;

    /// Keeps what came of a comparison, so that it need not be made again, and tells it.
    ///
    /// # Errors
    /// When it cannot be kept.
    fn keep(&mut self, tried: &Tried, step: &BisectStep) -> Result<(), Self::Stop>;
}

/// A comparison that was made, for whoever watches.
#[derive(Clone, Debug, PartialEq)]
pub struct BisectStep<'a> {
    /// Counts from 1.
    pub number: usize,
    /// How many there will be, about.
    pub about: usize,
    /// What it was made with.
    pub base: &'a Version,
    /// What was tried.
    pub head: &'a Version,
    /// The case that is followed, once there is one.
    pub case: Option<&'a CaseId>,
    /// What came of it.
    pub outcome: &'a TriedOutcome,
    /// True where the pair is compared for the last word.
    pub direct: bool,
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
    /// The merge that brought `after`, where it came by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged_by: Option<Version>,
    /// True for a merge of which nothing that it brought shows the step alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_merging: bool,
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

/// Searches a row, and what a merge brought where one is named. `tried` is what is known already,
/// and gets what is tried.
///
/// # Errors
/// What the comparer stops for.
pub fn bisect<C: Comparer>(
    row: &[Version],
    towards: Towards,
    tried: &mut Vec<Tried>,
    comparer: &mut C,
) -> Result<Ending, C::Stop> {
    let mut bisection = Bisection {
        towards,
        tried,
        comparer,
    };
    match bisection.search(row, None)? {
        Ending::Found(found) => bisection.within_merge(*found),
        ending => Ok(ending),
    }
}

struct Bisection<'a, C> {
    towards: Towards,
    tried: &'a mut Vec<Tried>,
    comparer: &'a mut C,
}

impl<C: Comparer> Bisection<'_, C> {
    /// Searches what a merge brought, and what that brought.
    fn within_merge(&mut self, found: FoundStep) -> Result<Ending, C::Stop> {
        if !found.suspects.is_empty() || found.after.parents.len() < 2 {
            return Ok(Ending::Found(Box::new(found)));
        }
        let rows = self.comparer.brought(&found.before, &found.after)?;
        let searched = !rows.is_empty();
        for row in rows {
            if let Ending::Found(mut inner) = self.search(&row, Some(&found.case.case))? {
                inner.merged_by = Some(found.after);
                return self.within_merge(*inner);
            }
        }
        Ok(Ending::Found(Box::new(FoundStep {
            by_merging: searched,
            ..found
        })))
    }

    fn search(&mut self, row: &[Version], case: Option<&CaseId>) -> Result<Ending, C::Stop> {
        let (Some(good), Some(last)) = (row.first(), row.len().checked_sub(1)) else {
            return Ok(Ending::NoDifference {
                case: None,
                looked_at: Vec::new(),
            });
        };
        loop {
            let case = case.cloned().or_else(|| followed(row, self.tried));
            match history(row, case.as_ref(), self.tried, self.towards).next() {
                NextStep::Compare { low, high, left } => {
                    let (base, head) = (&row[low], &row[high]);
                    match self.comparer.compare(base, head)? {
                        // Not kept: whoever asks again has done something about it.
                        TriedOutcome::Unusable { side, reason }
                            if low == 0 && (side == TurnSide::Base || high == last) =>
                        {
                            let end = match side {
                                TurnSide::Base => good.clone(),
                                TurnSide::Head => head.clone(),
                            };
                            return Ok(Ending::NoEnd { end, reason });
                        }
                        outcome => {
                            // Those between are tried, and then the two are compared.
                            let left = if low == 0 { left + 1 } else { left };
                            self.keep((base, head), outcome, case.as_ref(), left, low > 0)?;
                        }
                    }
                }
                NextStep::Found { low, high } => return Ok(self.found(row, low, high, case)),
                NextStep::NoDifference => {
                    let seen = self.tried.iter().filter(|tried| tried.base == good.spec);
                    let reading = |tried: &Tried| tried.reading(case.as_ref()?).cloned();
                    let looked_at = row.iter().filter(|version| {
                        let mut seen = seen.clone();
                        seen.any(|tried| tried.head == version.spec)
                    });
                    return Ok(Ending::NoDifference {
                        case: seen.clone().find_map(reading),
                        looked_at: looked_at.cloned().collect(),
                    });
                }
                NextStep::Spread(segments) => {
                    let stretch = |of: super::search::Segment| Stretch {
                        low: row[of.low].clone(),
                        high: row[of.high].clone(),
                        ratio: of.ratio(self.towards),
                    };
                    let parts = segments.into_iter().map(stretch).collect();
                    return Ok(Ending::Spread { case, parts });
                }
                NextStep::NoEnd => {
                    let end = row[last].clone();
                    let tried = find(self.tried, good, &end);
                    let why = tried.and_then(|tried| tried.why_skipped(case.as_ref()));
                    let reason = why.unwrap_or_else(|| "it gave no time".to_owned());
                    return Ok(Ending::NoEnd { end, reason });
                }
            }
        }
    }

    fn found(&self, row: &[Version], low: usize, high: usize, case: Option<CaseId>) -> Ending {
        let (before, after) = (row[low].clone(), row[high].clone());
        let cases = find(self.tried, &before, &after).map_or(&[][..], Tried::cases);
        let changed = cases
            .iter()
            .filter(|of| of.has_word(self.towards.word()))
            .cloned();
        let (own, mut others): (Vec<_>, Vec<_>) =
            changed.partition(|of| Some(&of.case) == case.as_ref());
        others.sort_by(|a, b| b.size().total_cmp(&a.size()));
        match own.into_iter().next() {
            Some(case) => Ending::Found(Box::new(FoundStep {
                suspects: match high - low {
                    1 => Vec::new(),
                    _ => row[low + 1..=high].to_vec(),
                },
                before,
                after,
                case,
                others,
                merged_by: None,
                by_merging: false,
            })),
            // The search names no pair whose comparison did not decide it.
            None => Ending::NoDifference {
                case: None,
                looked_at: vec![before, after],
            },
        }
    }

    /// Keeps what came of a comparison, and tells it.
    fn keep(
        &mut self,
        (base, head): (&Version, &Version),
        outcome: TriedOutcome,
        case: Option<&CaseId>,
        left: usize,
        direct: bool,
    ) -> Result<(), C::Stop> {
        let tried = Tried {
            base: base.spec.clone(),
            head: head.spec.clone(),
            outcome,
        };
        let step = BisectStep {
            number: self.tried.len() + 1,
            about: self.tried.len() + left,
            base,
            head,
            case: case.or_else(|| tried.outcome.largest().map(|of| &of.case)),
            outcome: &tried.outcome,
            direct,
        };
        self.comparer.keep(&tried, &step)?;
        self.tried.push(tried);
        Ok(())
    }
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
