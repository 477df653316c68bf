//! Searches a row of versions: asks for one comparison after the other, and says what came of
//! them.

mod outcome;

pub use outcome::{CaseReading, Outcome, Side, Tried, readings};

use serde::Serialize;

use super::search::{self, Answer, Known, Next, Probe, Towards};
use super::span::Version;
use regatta_judge::judgement::Word;
use regatta_worker::attention::CaseId;

/// Whoever measures, keeps and tells.
pub trait Edge {
    /// Why it stops.
    type Stop;

    /// Compares two versions.
    ///
    /// # Errors
    /// What ends the search, and is no property of a version: a full disk.
    fn compare(&mut self, base: &Version, head: &Version) -> Result<Outcome, Self::Stop>;

    /// What a merge brought: rows as the one that is searched. None where merges are taken as
    /// they are.
    ///
    /// # Errors
    /// What ends the search.
    fn brought(&mut self, low: &Version, merge: &Version) -> Result<Vec<Vec<Version>>, Self::Stop>;

    /// Keeps what came of a comparison, so that it need not be made again.
    ///
    /// # Errors
    /// When it cannot be kept.
    fn keep(&mut self, tried: &Tried) -> Result<(), Self::Stop>;

    /// Tells what came of a comparison, that was made or found again.
    fn tell(&mut self, step: &Step);
}

/// A comparison that was made, for whoever watches.
#[derive(Clone, Debug, PartialEq)]
pub struct Step<'a> {
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
    pub outcome: &'a Outcome,
    /// True where the pair is compared for the last word.
    pub direct: bool,
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Ending {
    /// The step is where `after` begins, or in one of `suspects`.
    Found(Box<Found>),
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
pub struct Found {
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
    pub ratio: regatta_worker::units::Ratio,
}

/// Searches a row. `tried` is what is known already, and gets what is tried.
///
/// # Errors
/// What the edge stops for.
pub fn hunt<E: Edge>(
    row: &[Version],
    towards: Towards,
    tried: &mut Vec<Tried>,
    edge: &mut E,
) -> Result<Ending, E::Stop> {
    let mut hunt = Hunt {
        towards,
        tried,
        edge,
    };
    let ending = hunt.search(row, None)?;
    match ending {
        Ending::Found(found) if found.suspects.is_empty() && found.after.parents.len() > 1 => {
            hunt.within_merge(*found)
        }
        ending => Ok(ending),
    }
}

struct Hunt<'a, E> {
    towards: Towards,
    tried: &'a mut Vec<Tried>,
    edge: &'a mut E,
}

impl<E: Edge> Hunt<'_, E> {
    /// Searches what a merge brought, and what that brought.
    fn within_merge(&mut self, found: Found) -> Result<Ending, E::Stop> {
        let rows = self.edge.brought(&found.before, &found.after)?;
        let searched = !rows.is_empty();
        for row in rows {
            let inner = self.search(&row, Some(&found.case.case))?;
            let Ending::Found(mut inner) = inner else {
                continue;
            };
            inner.merged_by = Some(found.after.clone());
            return match inner.suspects.is_empty() && inner.after.parents.len() > 1 {
                true => self.within_merge(*inner),
                false => Ok(Ending::Found(inner)),
            };
        }
        Ok(Ending::Found(Box::new(Found {
            by_merging: searched,
            ..found
        })))
    }

    fn search(&mut self, row: &[Version], case: Option<&CaseId>) -> Result<Ending, E::Stop> {
        let (Some(good), Some(last)) = (row.first(), row.len().checked_sub(1)) else {
            return Ok(Ending::NoDifference {
                case: None,
                looked_at: Vec::new(),
            });
        };
        loop {
            let case = case.cloned().or_else(|| followed(row, self.tried));
            let known = known(row, case.as_ref(), self.tried);
            match search::next(row.len(), self.towards, &known) {
                Next::Probe { at, left } => {
                    // Those between are tried, and then the two are compared.
                    let outcome = self.edge.compare(good, &row[at])?;
                    // Not kept: whoever asks again has done something about it.
                    match outcome {
                        Outcome::Unusable { side, reason } if side == Side::Base || at == last => {
                            let end = if side == Side::Base { good } else { &row[at] };
                            return Ok(Ending::NoEnd {
                                end: end.clone(),
                                reason,
                            });
                        }
                        outcome => {
                            let pair = (good, &row[at]);
                            self.keep(pair, outcome, case.as_ref(), left + 1, false)?;
                        }
                    }
                }
                Next::Direct { low, high } => {
                    let pair = (&row[low], &row[high]);
                    let outcome = self.edge.compare(pair.0, pair.1)?;
                    self.keep(pair, outcome, case.as_ref(), 1, true)?;
                }
                Next::Done(Answer::Found {
                    low, high, skipped, ..
                }) => {
                    let after = row[high].clone();
                    let between = skipped.iter().map(|&at| row[at].clone());
                    let mut suspects: Vec<Version> = between.collect();
                    if !suspects.is_empty() {
                        suspects.push(after.clone());
                    }
                    return Ok(self.found(&row[low], after, suspects, case));
                }
                Next::Done(Answer::NoDifference) => {
                    let seen = self.tried.iter().filter(|tried| tried.base == good.spec);
                    let reading = |tried: &Tried| tried.reading(case.as_ref()?).cloned();
                    return Ok(Ending::NoDifference {
                        case: seen.clone().filter_map(reading).next(),
                        looked_at: row
                            .iter()
                            .filter(|version| seen.clone().any(|t| t.head == version.spec))
                            .cloned()
                            .collect(),
                    });
                }
                Next::Done(Answer::Spread(parts)) => {
                    let stretch = |part: search::Part| Stretch {
                        low: row[part.low].clone(),
                        high: row[part.high].clone(),
                        ratio: part.ratio,
                    };
                    return Ok(Ending::Spread {
                        case,
                        parts: parts.into_iter().map(stretch).collect(),
                    });
                }
                Next::Done(Answer::NoEnd) => {
                    let end = row[last].clone();
                    let tried = self.known_of(good, &end);
                    let why = tried.and_then(|tried| tried.why_skipped(case.as_ref()));
                    return Ok(Ending::NoEnd {
                        reason: why.unwrap_or_else(|| "it gave no time".to_owned()),
                        end,
                    });
                }
            }
        }
    }

    fn known_of(&self, base: &Version, head: &Version) -> Option<&Tried> {
        let mut tried = self.tried.iter();
        tried.find(|tried| tried.base == base.spec && tried.head == head.spec)
    }

    fn found(
        &self,
        before: &Version,
        after: Version,
        suspects: Vec<Version>,
        case: Option<CaseId>,
    ) -> Ending {
        let direct = self.known_of(before, &after);
        let cases = direct.map_or(&[][..], Tried::cases);
        let word = self.towards.word();
        let (own, mut others): (Vec<_>, Vec<_>) = cases
            .iter()
            .filter(|of| of.reading.is_some_and(|reading| reading.word == word))
            .cloned()
            .partition(|of| Some(&of.case) == case.as_ref());
        others.sort_by(|a, b| b.size().total_cmp(&a.size()));
        match own.into_iter().next() {
            Some(case) => Ending::Found(Box::new(Found {
                before: before.clone(),
                after,
                suspects,
                case,
                others,
                merged_by: None,
                by_merging: false,
            })),
            // The search names no pair whose comparison did not decide it.
            None => Ending::NoDifference {
                case: None,
                looked_at: vec![before.clone(), after],
            },
        }
    }

    /// Keeps what came of a comparison, and tells it.
    fn keep(
        &mut self,
        (base, head): (&Version, &Version),
        outcome: Outcome,
        case: Option<&CaseId>,
        left: usize,
        direct: bool,
    ) -> Result<(), E::Stop> {
        let tried = Tried {
            base: base.spec.clone(),
            head: head.spec.clone(),
            outcome,
        };
        self.edge.keep(&tried)?;
        let number = self.tried.len() + 1;
        self.edge.tell(&Step {
            number,
            about: number - 1 + left,
            base,
            head,
            case: case.or_else(|| tried.outcome.largest().map(|of| &of.case)),
            outcome: &tried.outcome,
            direct,
        });
        self.tried.push(tried);
        Ok(())
    }
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
        let mut found = tried.iter().filter_map(|tried| {
            let cases = tried.cases().iter();
            let cases = cases.filter(|of| of.reading.is_some_and(|reading| reading.word == word));
            cases.max_by(|a, b| a.size().total_cmp(&b.size()))
        });
        found.next()
    };
    let largest = || tried.iter().find_map(|tried| tried.outcome.largest());
    let found = with(Word::Regressed).or_else(|| with(Word::Improved));
    found.or_else(largest).map(|of| of.case.clone())
}

/// What is known of a row, by the case that is followed.
fn known(row: &[Version], case: Option<&CaseId>, tried: &[Tried]) -> Known {
    let place = |spec: &str| row.iter().position(|version| version.spec == spec);
    let mut known = Known::default();
    for tried in tried {
        let (Some(base), Some(head)) = (place(&tried.base), place(&tried.head)) else {
            continue;
        };
        let reading = case.and_then(|case| tried.reading(case));
        let reading = reading
            .and_then(|of| of.reading)
            .filter(|of| of.is_usable());
        let probe = reading.map_or(Probe::Skipped, Probe::Read);
        match base {
            0 => known.probes.insert(head, probe),
            _ => known.direct.insert((base, head), probe),
        };
    }
    known
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
