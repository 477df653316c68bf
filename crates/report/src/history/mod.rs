//! Shows a history: on a terminal, as a page, as JSON.

mod shown;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::document::Tone;
use super::text::one_line;
use regatta_core::record::history::{History, HistoryRun};
use regatta_judge::history::{Event, Lost, Options, REFERENCE, Series, Trend, Trends, Who};
use regatta_judge::judgement::Mismatch;
use regatta_worker::joined::Joined;
use regatta_worker::units::{Ratio, counted};

pub use shown::{figures, page, text};

/// A history, and the selection of changes that is shown.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The history.
    pub history: &'a History,
    /// The analysed times, by case.
    pub series: &'a [Series],
    /// The changes found in them.
    pub trends: &'a Trends,
    /// The options of the analysis.
    pub options: &'a Options,
    /// Changes before this time are counted, not listed.
    pub since: Timestamp,
    /// Patterns of case ids; empty for all cases.
    pub patterns: &'a [String],
    /// For each run, the link to its page, relative to the history's page.
    pub links: &'a [Option<String>],
}

impl<'a> Shown<'a> {
    /// True for a case that the patterns select.
    fn wants(&self, case: usize) -> bool {
        let id = |case: usize| self.history.cases.get(case);
        let matches = |pattern: &String| {
            id(case).is_some_and(|id| regatta_core::suite::matches_id(pattern, &id.0))
        };
        self.patterns.is_empty() || self.patterns.iter().any(matches)
    }

    fn wants_any(&self, cases: &[usize]) -> bool {
        self.patterns.is_empty() || cases.iter().any(|case| self.wants(*case))
    }

    /// The time of a run.
    fn at(&self, run: usize) -> Option<Timestamp> {
        Some(self.history.runs.get(run)?.about.at)
    }

    /// The day of a run.
    fn day(&self, run: usize) -> String {
        self.at(run).map_or_else(String::new, day)
    }

    /// The selected events, since [`Shown::since`] if `within`, else before.
    fn events(&self, within: bool) -> impl Iterator<Item = &'a Event> {
        let shown = *self;
        let trends = self.trends;
        trends.events.iter().filter(move |event| {
            let at = shown.at(event.run);
            shown.wants_any(&event.cases) && at.is_some_and(|at| (at >= shown.since) == within)
        })
    }

    /// Cases without a time in their latest run, except those that a variant never supported.
    fn lost(&self) -> Vec<(usize, &'a Lost)> {
        let trends = self.trends;
        let lost = trends.lost.iter().enumerate();
        let lost = lost.filter_map(|(case, lost)| Some((case, lost.as_ref()?)));
        lost.filter(|(case, _)| self.wants(*case) && trends.cases[*case].runs > 0)
            .collect()
    }

    /// The id of a case, as text.
    fn id(&self, case: usize) -> String {
        let id = self.history.cases.get(case);
        id.map_or_else(String::new, |id| one_line(&id.0))
    }

    /// The cases that changed, as text.
    fn who(&self, who: &Who, cases: &[usize]) -> String {
        let number = counted(cases.len(), "case");
        let subject = match cases {
            [case] => self.id(*case),
            _ => number.clone(),
        };
        match (who, cases) {
            (Who::Case, [case, ..]) => self.id(*case),
            (Who::Family(family), _) => family.clone(),
            (Who::Suite, _) => format!("the suite: {number}"),
            (Who::Machine, _) => format!("the machine: {subject}"),
            (Who::Method, _) => format!("the way of measuring: {subject}"),
            _ => format!("{number} with nothing in common"),
        }
    }

    /// The title: suite, machine and the range of runs.
    fn title(&self) -> String {
        let runs = &self.history.runs;
        let days = runs.first().zip(runs.last());
        let days = days.map(|(first, last)| [first, last].map(|run| day(run.about.at)));
        let from_to = days.map(|[first, last]| format!(", {first} to {last}"));
        let cases = counted(self.history.cases.len(), "case");
        let from_to = from_to.unwrap_or_default();
        format!("{} of {cases}{from_to}", counted(runs.len(), "run"))
    }

    /// The number of changes, as a sentence.
    fn sentence(&self) -> String {
        let since = day(self.since);
        let (mut slower, mut faster, mut machine) = (0, 0, 0);
        for event in self.events(true) {
            match (event.who.is_beside_the_code(), event.is_slower()) {
                (true, _) => machine += 1,
                (_, true) => slower += 1,
                (_, false) => faster += 1,
            }
        }
        let parts = [
            (slower, "slower"),
            (faster, "faster"),
            (machine, "beside the code"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts = parts.map(|(count, what)| format!("{count} {what}"));
        let parts = parts.joined(", ");
        let changes = match slower + faster + machine {
            0 => format!("No change since {since}"),
            all => format!("{} since {since}: {parts}", counted(all, "change")),
        };
        let crept = self.crept();
        let crept = match crept.iter().map(|(_, cases)| cases.len()).max() {
            None | Some(0) => String::new(),
            Some(1) => "; 1 case drifts".to_owned(),
            Some(crept) => format!("; {crept} cases drift"),
        };
        let lost = match self.lost().len() {
            0 => String::new(),
            lost => format!("; {} without a time now", counted(lost, "case")),
        };
        format!("{changes}{crept}{lost}.")
    }

    /// The drifts of the selected cases.
    fn crept(&self) -> Vec<(&'a regatta_judge::history::Crept, Vec<usize>)> {
        let trends = self.trends;
        let each = trends.crept.iter().map(|crept| {
            let cases = crept.cases.iter().copied();
            (crept, cases.filter(|case| self.wants(*case)).collect())
        });
        let each = each.filter(|(_, cases): &(_, Vec<usize>)| !cases.is_empty());
        each.collect()
    }

    /// The reference in words.
    fn reference(&self) -> String {
        let from = self.options.reference_from;
        let there = self.history.runs.len().saturating_sub(from);
        let runs = counted(there.min(REFERENCE), "run");
        format!("the {runs} from {} on", self.day(from))
    }
}

/// The day of a time in UTC, since a history may come from anywhere.
pub(super) fn day(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d").to_string()
}

/// The facts that changed with an event, as text.
fn changed(event: &Event) -> Vec<String> {
    let mut changed = differences(&event.machine);
    changed.extend(differences(&event.code));
    let nearby = differences(&event.nearby).into_iter();
    changed.extend(nearby.map(|change| format!("within two runs of it {change}")));
    changed
}

/// Differences in words: `torch.torch 2.10.0 → 2.11.0`.
fn differences(all: &[Mismatch]) -> Vec<String> {
    all.iter()
        .map(|mismatch| one_line(&mismatch.to_string()))
        .collect()
}

/// The tone of a change.
fn tone(who: &Who, ratio: Ratio) -> Tone {
    match ratio > Ratio::ONE {
        _ if who.is_beside_the_code() => Tone::Doubtful,
        true => Tone::Bad,
        false => Tone::Good,
    }
}

/// One document, without a line feed.
///
/// # Errors
/// None for any values.
pub fn json(shown: &Shown) -> serde_json::Result<String> {
    let (history, trends) = (shown.history, shown.trends);
    let ids = |cases: &[usize]| -> Vec<String> {
        let cases = cases.iter().filter(|case| shown.wants(**case));
        cases.map(|case| shown.id(*case)).collect()
    };
    let events = shown.events(true).map(|event| {
        let mut value = serde_json::to_value(event)?;
        value["cases"] = json!(ids(&event.cases));
        value["text"] = json!({
            "who": shown.who(&event.who, &event.cases),
            "changed": changed(event),
        });
        Ok(value)
    });
    let crept = shown.crept().into_iter().map(|(crept, cases)| {
        json!({
            "who": shown.who(&crept.who, &crept.cases),
            "ratio": crept.ratio,
            "cases": ids(&cases),
        })
    });
    let trend = |trend: &Trend| -> serde_json::Result<Value> {
        let mut value = serde_json::to_value(trend)?;
        if let Some(ratio) = trend.since_reference() {
            value["since_reference"] = json!(ratio);
        }
        Ok(value)
    };
    let cases = (0..history.cases.len()).filter(|case| shown.wants(*case));
    let cases = cases.map(|case| {
        let mut value = trend(&trends.cases[case])?;
        value["case"] = shown.id(case).into();
        if let Some(lost) = &trends.lost[case] {
            value["lost"] = serde_json::to_value(lost)?;
        }
        Ok(value)
    });
    let at = |run: usize| shown.at(run);
    let mut document = json!({
        "suite": history.suite,
        "machine": history.machine,
        "metric": shown.options.metric,
        "runs": history.runs.len(),
        "from": at(0),
        "to": at(history.runs.len().saturating_sub(1)),
        "since": shown.since,
        "sentence": shown.sentence(),
        "events": events.collect::<serde_json::Result<Vec<Value>>>()?,
        "drifts": crept.collect::<Vec<_>>(),
        "cases": cases.collect::<serde_json::Result<Vec<Value>>>()?,
        "damage": history.damage,
    });
    if let Some(shared) = &trends.shared {
        document["shared"] = trend(shared)?;
        // The shared level is a factor, not a time.
        if let Some(members) = document["shared"].as_object_mut() {
            members.retain(|key, _| !key.ends_with("_ns"));
        }
    }
    name_runs(shown, &mut document);
    serde_json::to_string(&document)
}

/// Replaces the index of each run by its time, label and revision.
fn name_runs(shown: &Shown, value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|item| name_runs(shown, item)),
        Value::Object(members) => {
            for (key, value) in members {
                let place = value.as_u64().filter(|_| key == "run" || key == "before");
                match place.and_then(|place| shown.history.runs.get(place as usize)) {
                    Some(HistoryRun { about, .. }) => {
                        *value = json!({ "at": about.at, "label": about.label, "git": about.git });
                    }
                    None => name_runs(shown, value),
                }
            }
        }
        _ => {}
    }
}
