//! A history as JSON: what it says, with the names of cases and the times of runs.

use serde::Serialize;
use serde_json::{Value, json};

use super::{Shown, changed};
use regatta_judge::history::{Step, Trend};

/// One document, without a line feed.
///
/// # Errors
/// None that values can bring about.
pub fn json(shown: &Shown) -> serde_json::Result<String> {
    let history = shown.history;
    let events = shown.events(true).map(|event| {
        let mut value = with_times(shown, event, event.run, event.before)?;
        let cases = event.cases.iter().filter(|case| shown.wants(**case));
        value["cases"] = cases.map(|case| shown.id(*case)).collect();
        value["most"] = stepped(shown, &event.most)?;
        value["told"] = json!({
            "who": shown.who(&event.who, &event.cases),
            "changed": changed(event),
        });
        Ok(value)
    });
    let events = events.collect::<serde_json::Result<Vec<Value>>>()?;
    let crept = shown.crept().into_iter().map(|(crept, cases)| {
        json!({
            "who": shown.who(&crept.who, &crept.cases),
            "ratio": crept.ratio,
            "cases": cases.iter().map(|case| shown.id(*case)).collect::<Vec<_>>(),
        })
    });
    let cases = (0..history.cases.len()).filter(|case| shown.wants(*case));
    let cases = cases.map(|case| {
        let trend = &shown.trends.cases[case];
        let mut value = trended(shown, trend)?;
        value["case"] = shown.id(case).into();
        if let Some(lost) = &shown.trends.lost[case] {
            value["lost"] = with_times(shown, lost, lost.run, lost.run)?;
        }
        Ok(value)
    });
    let cases = cases.collect::<serde_json::Result<Vec<Value>>>()?;
    let shared = shown.trends.shared.as_ref();
    let shared = shared.map(|trend| trended(shown, trend)).transpose()?;
    let at = |run: usize| shown.at(run);
    let mut document = json!({
        "suite": history.suite,
        "machine": history.machine,
        "clock": shown.options.clock,
        "runs": history.runs.len(),
        "from": at(0),
        "to": at(history.runs.len().saturating_sub(1)),
        "since": shown.since,
        "said": shown.said(),
        "events": events,
        "crept": crept.collect::<Vec<_>>(),
        "cases": cases,
        "damage": history.damage,
    });
    if let Some(mut shared) = shared {
        // Its level is a factor, not a time.
        for key in ["level_ns", "reference_ns"] {
            shared.as_object_mut().map(|fields| fields.remove(key));
        }
        document["shared"] = shared;
    }
    serde_json::to_string(&document)
}

/// A value with the times and labels of the runs that it names by their places.
fn with_times(
    shown: &Shown,
    of: &impl Serialize,
    run: usize,
    before: usize,
) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(of)?;
    for (name, place) in [("run", run), ("before", before)] {
        if let Some(kept) = shown.history.runs.get(place) {
            value[name] = json!({
                "at": kept.about.at,
                "label": kept.about.label,
                "git": kept.about.git,
            });
        }
    }
    Ok(value)
}

fn stepped(shown: &Shown, step: &Step) -> serde_json::Result<Value> {
    with_times(shown, step, step.run, step.before)
}

fn trended(shown: &Shown, trend: &Trend) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(trend)?;
    let steps = trend.steps.iter().map(|step| stepped(shown, step));
    value["steps"] = steps.collect::<serde_json::Result<Vec<Value>>>()?.into();
    if let Some(ratio) = trend.since_reference() {
        value["since_reference"] = json!(ratio);
    }
    Ok(value)
}
