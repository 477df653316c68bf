//! A history as one page: what changed, then a chart a case, drawn when it is looked at.
//!
//! The figures are in the page as text: for each case the numbers of ten thousandths that its
//! runs are off its middle, so that a million results are a few megabytes. The page's script
//! makes a chart of them.

use serde::Serialize;
use serde_json::json;

use super::terminal::spark;
use super::{Shown, changed, tone};
use crate::RenderError;
use crate::exporter::{STYLE, rendered};
use crate::text::one_line;
use regatta_core::record::side::median;
use regatta_judge::history::{Event, Series, Step, Who};
use regatta_judge::revision_text;
use regatta_worker::units::{Nanoseconds, Ratio, from_to};

/// Events of a list, the largest first.
const MOST: usize = 100;

/// Columns of a series in blocks.
const SPARK: usize = 40;

/// The page, as the template takes it.
#[derive(Serialize)]
struct HistoryView {
    style: &'static str,
    script: &'static str,
    suite: String,
    machine: String,
    clock: &'static str,
    title: String,
    said: String,
    tone: &'static str,
    reference: String,
    since: String,
    groups: Vec<EventGroup>,
    crept: Vec<EventView>,
    lost: Vec<LostView>,
    earlier: usize,
    cases: usize,
    damage: Vec<String>,
    data: String,
}

#[derive(Serialize)]
struct EventGroup {
    name: &'static str,
    tone: &'static str,
    count: usize,
    more: usize,
    changes: Vec<EventView>,
}

#[derive(Serialize)]
struct EventView {
    who: String,
    tone: &'static str,
    /// The case that moved most, and its number: the chart to look at.
    case: String,
    number: usize,
    others: usize,
    spark: String,
    times: Option<String>,
    ratio: String,
    interval: Option<String>,
    day: Option<String>,
    link: Option<String>,
    changed: Vec<String>,
}

#[derive(Serialize)]
struct LostView {
    case: String,
    since: String,
    reason: String,
}

/// The page.
///
/// # Errors
/// When the template does not fit its data.
pub fn page(shown: &Shown) -> Result<String, RenderError> {
    let history = shown.history;
    let groups = groups(shown);
    let lost = shown.lost();
    let slower = groups.iter().any(|group| group.tone == "bad");
    let tone = match () {
        () if slower || !lost.is_empty() => "bad",
        () if groups.iter().any(|group| group.tone == "doubtful") => "doubtful",
        () if !shown.crept().is_empty() => "doubtful",
        () => "good",
    };
    let damage = history.damage.iter();
    let wanted = (0..history.cases.len()).filter(|case| shown.wants(*case));
    let view = HistoryView {
        style: STYLE,
        script: include_str!("page.js"),
        suite: one_line(&history.suite),
        machine: one_line(&history.machine),
        clock: shown.options.clock.name(),
        title: shown.title(),
        said: shown.sentence(),
        tone,
        reference: shown.reference(),
        since: super::day(shown.since),
        groups,
        crept: crept(shown),
        lost: lost
            .into_iter()
            .take(MOST)
            .map(|(case, lost)| LostView {
                case: shown.id(case),
                since: shown.day(lost.run),
                reason: one_line(&lost.reason),
            })
            .collect(),
        earlier: shown.events(false).count(),
        cases: wanted.count(),
        damage: damage
            .take(MOST)
            .map(|damage| format!("line {}: {}", damage.line, one_line(&damage.problem)))
            .collect(),
        data: data(shown)?,
    };
    rendered(include_str!("page.html"), view)
}

fn groups(shown: &Shown) -> Vec<EventGroup> {
    let mut events: Vec<&Event> = shown.events(true).collect();
    events.sort_by(|a, b| b.ratio.0.ln().abs().total_cmp(&a.ratio.0.ln().abs()));
    let kinds = [
        ("Slower", "bad"),
        ("Beside the code", "doubtful"),
        ("Faster", "good"),
    ];
    let groups = kinds.into_iter().map(|(name, wanted)| {
        let of = |event: &&&Event| tone(&event.who, event.ratio) == wanted;
        let all: Vec<&&Event> = events.iter().filter(of).collect();
        EventGroup {
            name,
            tone: wanted,
            count: all.len(),
            more: all.len().saturating_sub(MOST),
            changes: all
                .iter()
                .take(MOST)
                .map(|event| change(shown, event))
                .collect(),
        }
    });
    groups.filter(|group| group.count > 0).collect()
}

fn change(shown: &Shown, event: &Event) -> EventView {
    let most = event.cases.first().copied().unwrap_or_default();
    let trend = &shown.trends.cases[most];
    let own = trend
        .steps
        .iter()
        .find(|step| step.run.abs_diff(event.run) <= 2);
    EventView {
        who: shown.who(&event.who, &event.cases),
        tone: tone(&event.who, event.ratio),
        case: shown.id(most),
        number: most,
        others: event.cases.len().saturating_sub(1),
        spark: spark(&shown.series[most], shown.history.runs.len(), SPARK),
        times: own.map(|own| from_to(own.from_ns, own.to_ns)),
        ratio: event.ratio.to_string(),
        interval: (event.cases.len() == 1).then(|| event.interval().to_string()),
        day: Some(shown.day(event.run)),
        link: shown.links.get(event.run).cloned().flatten(),
        changed: changed(event),
    }
}

fn crept(shown: &Shown) -> Vec<EventView> {
    let each = shown.crept().into_iter().map(|(crept, cases)| {
        let most = cases[0];
        let own = shown.trends.cases[most].creep.as_ref();
        EventView {
            who: shown.who(&crept.who, &crept.cases),
            tone: tone(&Who::Case, crept.ratio),
            case: shown.id(most),
            number: most,
            others: crept.cases.len().saturating_sub(1),
            spark: spark(&shown.series[most], shown.history.runs.len(), SPARK),
            times: own.map(|own| from_to(own.from_ns, own.to_ns)),
            ratio: crept.ratio.to_string(),
            interval: None,
            day: None,
            link: None,
            changed: Vec::new(),
        }
    });
    each.collect()
}

/// What the charts are made of, as JSON: runs, and cases whose order is that of the history.
fn data(shown: &Shown) -> serde_json::Result<String> {
    let history = shown.history;
    let runs = history
        .runs
        .iter()
        .zip(0..)
        .map(|(kept, place): (_, usize)| {
            let about = &kept.about;
            let revision = about.git.as_ref().map(revision_text);
            json!([
                about.at.as_second(),
                one_line(&about.label),
                revision.unwrap_or_default(),
                shown
                    .links
                    .get(place)
                    .cloned()
                    .flatten()
                    .unwrap_or_default(),
            ])
        });
    let mut before = String::new();
    let mut cases = Vec::new();
    for (number, series) in shown.series.iter().enumerate() {
        if !shown.wants(number) {
            continue;
        }
        let id = shown.id(number);
        let same = id.chars().zip(before.chars());
        let same: usize = same
            .take_while(|(a, b)| a == b)
            .map(|(c, _)| c.len_utf16())
            .sum();
        let rest: String = {
            let units: Vec<u16> = id.encode_utf16().skip(same).collect();
            String::from_utf16_lossy(&units)
        };
        let trend = &shown.trends.cases[number];
        let ratio = |ratio: Option<Ratio>| ratio.and_then(short);
        let middle = median(&series.times);
        cases.push(json!({
            "n": number,
            "i": [same, rest],
            "m": middle.and_then(|middle| short(Ratio(middle.0))),
            "v": middle.map_or_else(String::new, |middle| values(series, middle)),
            "l": trend.level_ns.map_or_else(String::new, |level| level.to_string()),
            "r": trend.reference_ns.and_then(|level| short(Ratio(level.0))),
            "s": ratio(trend.since_reference()),
            "c": trend.creep.as_ref().and_then(|creep| short(creep.ratio)),
            "t": trend.steps.iter().map(|step| marked(shown, step)).collect::<Vec<_>>(),
            "w": shown.trends.lost[number].is_some(),
        }));
        before = id;
    }
    let data = json!({ "runs": runs.collect::<Vec<_>>(), "cases": cases, "since": shown.since.as_second() });
    // Nothing in it ends the element that it stands in.
    Ok(serde_json::to_string(&data)?.replace('<', "\\u003c"))
}

/// A change: its run, its levels, and how it is told.
fn marked(shown: &Shown, step: &Step) -> serde_json::Value {
    let told = format!(
        "{} on {}: {}",
        from_to(step.from_ns, step.to_ns),
        shown.day(step.run),
        step.ratio
    );
    json!([
        step.run,
        short(Ratio(step.from_ns.0)),
        short(Ratio(step.to_ns.0)),
        short(step.ratio),
        told
    ])
}

/// A number of six digits, where it is one.
fn short(ratio: Ratio) -> Option<f64> {
    let text = format!("{:.5e}", ratio.0);
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Ten thousandths that each run is off the middle, with a blank between two runs; nothing
/// where a run has no time.
fn values(series: &Series, middle: Nanoseconds) -> String {
    let mut text = String::with_capacity(4 * series.runs.len());
    let mut run = 0;
    for (of, time) in series.runs.iter().zip(&series.times) {
        while run < *of {
            text.push(' ');
            run += 1;
        }
        let off = ((time.0 / middle.0 - 1.0) * 1e4).round();
        text += &(off as i64).to_string();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_worker::units::quantities;

    #[test]
    fn a_run_without_a_time_is_a_gap() {
        let series = Series {
            runs: vec![1, 2, 5],
            times: quantities([100.0, 101.0, 99.5]),
            values: Vec::new(),
        };
        assert_eq!(values(&series, Nanoseconds(100.0)), " 0 100   -50");
    }
}
