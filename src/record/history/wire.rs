//! The lines of a history's file.
//!
//! A run's results stand in columns, a place for each case that was timed. A history of a
//! thousand runs of a thousand cases is read in a second and is no larger than a picture.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize, Serializer};

use super::{About, Came, Figures};
use crate::attention::CaseId;
use crate::record::side::is_time;
use crate::units::{Nanoseconds, Share};

/// Most cases of a run that were not timed: a few letters could otherwise stand for billions.
const MOST_CASES: u64 = 1_000_000;

/// Which line it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    History,
    Run,
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct First {
    /// `history`.
    pub(super) kind: Kind,
    /// Version of the format.
    pub(super) schema: u32,
    /// The suite.
    pub(super) suite: String,
    /// The machine.
    pub(super) machine: String,
}

/// Cases that a line is the first to have, numbered on from a number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct New {
    /// The number of the first of them.
    pub(super) from: u32,
    /// Their ids, in the order of their numbers.
    pub(super) ids: Vec<CaseId>,
}

/// The line of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunLine {
    /// `run`.
    pub(super) kind: Kind,
    /// What is kept of the run itself.
    pub(super) run: About,
    /// Cases that it is the first to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) new: Option<New>,
    /// Numbers of the cases of the columns: the first of a row of them, and how many.
    #[serde(default)]
    pub(super) timed: Vec<(u32, u32)>,
    /// Median device times, in nanoseconds, in the order of `timed`.
    #[serde(default)]
    device_ns: Vec<Option<Short>>,
    /// In parts of ten thousand.
    #[serde(default, skip_serializing_if = "none")]
    spread: Vec<Option<Short>>,
    /// Medians of the host's times, in nanoseconds; empty where none is known.
    #[serde(default, skip_serializing_if = "none")]
    host_ns: Vec<Option<Short>>,
    /// Medians of the processor's times, in nanoseconds; empty where none is known.
    #[serde(default, skip_serializing_if = "none")]
    cpu_ns: Vec<Option<Short>>,
    /// Cases that their variant does not do, as `timed` counts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unsupported: Vec<(u32, u32)>,
    /// Cases of which the machine was in all times, as `timed` counts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    disturbed: Vec<(u32, u32)>,
    /// Cases that failed, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    failed: Vec<(u32, String)>,
    /// Cases whose time is missing, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing: Vec<(u32, String)>,
}

/// As much of a run's line as adding another needs to know.
#[derive(Debug, Deserialize)]
pub(super) struct Brief {
    pub(super) kind: Kind,
    pub(super) run: Id,
    #[serde(default)]
    pub(super) new: Option<New>,
    #[serde(default)]
    pub(super) timed: Vec<(u32, u32)>,
    /// Told apart from what an edit may have left.
    #[serde(default)]
    #[expect(dead_code, reason = "passed over without being read")]
    device_ns: IgnoredAny,
}

#[derive(Debug, Deserialize)]
pub(super) struct Id {
    pub(super) id: String,
}

fn none(column: &[Option<Short>]) -> bool {
    column.iter().all(Option::is_none)
}

/// A number of six digits: no clock tells more.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
struct Short(f64);

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number = self.0;
        if number == 0.0 || !number.is_finite() {
            return serializer.serialize_u64(0);
        }
        let places = 5 - number.abs().log10().floor() as i32;
        let scale = 10f64.powi(places.abs());
        let rounded = match places >= 0 {
            true => (number * scale).round() / scale,
            false => (number / scale).round() * scale,
        };
        match rounded.fract() == 0.0 && (0.0..1e15).contains(&rounded) {
            true => serializer.serialize_u64(rounded as u64),
            false => serializer.serialize_f64(rounded),
        }
    }
}

/// Numbers as rows of neighbours.
fn rows(numbers: impl Iterator<Item = u32>) -> Vec<(u32, u32)> {
    let mut rows: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match rows.last_mut() {
            Some((first, count)) if *first + *count == number => *count += 1,
            _ => rows.push((number, 1)),
        }
    }
    rows
}

fn numbers(rows: &[(u32, u32)]) -> impl Iterator<Item = u32> + '_ {
    let each = rows.iter();
    each.flat_map(|(first, count)| *first..first.saturating_add(*count))
}

impl RunLine {
    /// The line of a run whose results are sorted by their numbers.
    pub(super) fn of(run: About, new: Option<New>, results: &[(u32, Came)]) -> RunLine {
        let timed = || {
            results.iter().filter_map(|(number, came)| match came {
                Came::Timed(figures) => Some((*number, figures)),
                _ => None,
            })
        };
        let with = |wanted: &Came| {
            let same = results.iter().filter(|(_, came)| came == wanted);
            rows(same.map(|(number, _)| *number))
        };
        let time = |of: fn(&Figures) -> Option<Nanoseconds>| -> Vec<Option<Short>> {
            let each = timed().map(|(_, figures)| Some(Short(of(figures)?.0)));
            each.collect()
        };
        let told = |reason: fn(&Came) -> Option<&String>| -> Vec<(u32, String)> {
            let each = results.iter();
            each.filter_map(|(number, came)| Some((*number, reason(came)?.clone())))
                .collect()
        };
        RunLine {
            kind: Kind::Run,
            run,
            new,
            timed: rows(timed().map(|(number, _)| number)),
            device_ns: time(|figures| Some(figures.device_ns)),
            spread: timed()
                .map(|(_, figures)| Some(Short((figures.spread?.0 * 1e4).round())))
                .collect(),
            host_ns: time(|figures| figures.host_ns),
            cpu_ns: time(|figures| figures.cpu_ns),
            unsupported: with(&Came::Unsupported),
            disturbed: with(&Came::Disturbed),
            failed: told(|came| match came {
                Came::Failed(reason) => Some(reason),
                _ => None,
            }),
            missing: told(|came| match came {
                Came::Missing(reason) => Some(reason),
                _ => None,
            }),
        }
    }

    /// What in it cannot be, as a sentence: sizes that contradict each other would give a time
    /// to another case, and no clock shows less than nothing.
    pub(super) fn objection(&self) -> Option<String> {
        let timed = count(&self.timed);
        let columns = [
            ("device_ns", &self.device_ns, false),
            ("spread", &self.spread, true),
            ("host_ns", &self.host_ns, true),
            ("cpu_ns", &self.cpu_ns, true),
        ];
        for (name, column, optional) in columns {
            if column.len() as u64 != timed && !(optional && column.is_empty()) {
                return Some(format!(
                    "{timed} cases are timed, but {} values of {name} are there",
                    column.len()
                ));
            }
        }
        if count(&self.unsupported).max(count(&self.disturbed)) > MOST_CASES {
            return Some(format!("it has more than {MOST_CASES} cases"));
        }
        let times = self.device_ns.iter().chain(&self.host_ns);
        let mut times = times.chain(&self.cpu_ns).flatten();
        let odd = times.find(|time| !is_time(Nanoseconds(time.0)) && time.0 != 0.0);
        odd.map(|time| format!("it has a time of {} ns, which no clock shows", time.0))
    }

    /// What came of its cases, sorted by their numbers, of those that are known; and how many
    /// are not.
    pub(super) fn results(&self, known: impl Fn(u32) -> bool) -> (Vec<(u32, Came)>, usize) {
        let at = |column: &[Option<Short>], place: usize| -> Option<f64> {
            Some(column.get(place).copied()??.0)
        };
        let time = |column: &[Option<Short>], place| {
            let time = Nanoseconds(at(column, place)?);
            is_time(time).then_some(time)
        };
        let timed = numbers(&self.timed).enumerate().map(|(place, number)| {
            let came = match time(&self.device_ns, place) {
                Some(device_ns) => Came::Timed(Figures {
                    device_ns,
                    spread: at(&self.spread, place).map(|spread| Share(spread / 1e4)),
                    host_ns: time(&self.host_ns, place),
                    cpu_ns: time(&self.cpu_ns, place),
                }),
                None => Came::Missing("its time is not in the line".to_owned()),
            };
            (number, came)
        });
        let failed = self.failed.iter();
        let failed = failed.map(|(number, reason)| (*number, Came::Failed(reason.clone())));
        let missing = self.missing.iter();
        let missing = missing.map(|(number, reason)| (*number, Came::Missing(reason.clone())));
        let unsupported = numbers(&self.unsupported).map(|number| (number, Came::Unsupported));
        let disturbed = numbers(&self.disturbed).map(|number| (number, Came::Disturbed));
        let all = timed.chain(failed).chain(missing);
        let all = all.chain(unsupported).chain(disturbed);
        let mut lost = 0;
        let mut results: Vec<(u32, Came)> = all
            .filter(|(number, _)| {
                let known = known(*number);
                lost += usize::from(!known);
                known
            })
            .collect();
        results.sort_by_key(|(number, _)| *number);
        results.dedup_by_key(|(number, _)| *number);
        (results, lost)
    }
}

/// How many cases these rows have.
fn count(rows: &[(u32, u32)]) -> u64 {
    rows.iter().map(|(_, count)| u64::from(*count)).sum()
}

/// A number above all of these.
pub(super) fn beyond(timed: &[(u32, u32)], new: Option<&New>) -> u32 {
    let timed = timed.iter();
    let timed = timed.map(|(first, count)| first.saturating_add(*count));
    let new = new.map(|new| new.from.saturating_add(new.ids.len() as u32));
    timed.chain(new).max().unwrap_or(0)
}
