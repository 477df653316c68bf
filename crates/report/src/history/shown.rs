//! A history as a document.

use super::{Shown, changed, day, tone};
use crate::RenderError;
use crate::document::{Block, Document, Table, TableRow, Tone};
use crate::figures::{Figure, LinePlot, PlotLine, Sheet};
use crate::judgement::Lists;
use regatta_core::record::median;
use regatta_judge::history::{Event, Series, Step};
use regatta_judge::revision_text;
use regatta_worker::units::{ARROW, Nanoseconds, Ratio, Share, counted, from_to};

/// The width of a series drawn in block characters, in columns.
const SPARK: usize = 24;

/// The largest number of entries in a list, without `--all`.
const MAX_ENTRIES: usize = 20;

/// The largest number of entries in a list of a page.
const MAX_PAGE_ENTRIES: usize = 100;

/// The number of cases up to which all are listed.
const FEW: usize = 12;

/// The number of days that are labelled in a figure.
const LABELS: usize = 7;

/// The largest number of cases that have a figure on a page.
const DRAWN: usize = 24;

/// The largest number of cases in a picture.
const PANELS: usize = 4;

/// The answer for a terminal, ending in a line feed.
pub fn text(shown: &Shown, colour: bool, all: bool) -> String {
    let most = if all { usize::MAX } else { MAX_ENTRIES };
    document(shown, most, all).text(colour)
}

/// One self-contained page, with figures of the cases that changed most.
///
/// # Errors
/// When a figure or the template does not fit its data.
pub fn page(shown: &Shown) -> Result<String, RenderError> {
    let mut document = document(shown, MAX_PAGE_ENTRIES, true);
    for case in drawn(shown).into_iter().take(DRAWN) {
        let figure = trend(shown, case);
        document.body.push(Block::heading(shown.id(case)));
        document.body.push(Block::Figure(figure.inline()?));
    }
    let runs = shown.history.runs.iter().map(|run| &run.about);
    let last = runs.enumerate().rev().take(MAX_PAGE_ENTRIES);
    let runs = last.map(|(place, about)| {
        let revision = about.git.as_ref().map_or_else(String::new, revision_text);
        TableRow {
            link: link(shown, place),
            ..TableRow::new(&about.label, vec![about.at.to_string(), revision])
        }
    });
    let runs = Block::Table(Table::new("run", vec!["measured", "revision"], runs));
    let title = "The latest runs".to_owned();
    document.body.push(Block::Details(title, vec![runs]));
    document.page()
}

/// The cases that changed, each once, those with the largest changes first.
fn drawn(shown: &Shown) -> Vec<usize> {
    let events = heaviest(shown).into_iter();
    let events = events.filter_map(|event| event.cases.first());
    let crept = shown.crept().into_iter().map(|(_, cases)| cases[0]);
    let mut drawn: Vec<usize> = Vec::new();
    for case in events.copied().chain(crept) {
        if !drawn.contains(&case) {
            drawn.push(case);
        }
    }
    drawn
}

/// The times of a case by run, with its changes of level.
fn trend(shown: &Shown, case: usize) -> Figure {
    let series = &shown.series[case];
    let runs = series.runs.iter().map(|run| *run as usize);
    let points = runs.zip(&series.times);
    let points: Vec<(f64, f64, String)> = points
        .map(|(run, time)| (run as f64, time.0, shown.day(run)))
        .collect();
    let steps = shown.trends.cases[case].steps.iter();
    let steps: Vec<(f64, f64, f64)> = steps
        .map(|step| (step.run as f64 - 0.5, step.from_ns.0, step.to_ns.0))
        .collect();
    let labels = points.iter().step_by(points.len().div_ceil(LABELS).max(1));
    let about = format!("{} runs, {} changes of level", points.len(), steps.len());
    let plot = LinePlot {
        labels: labels.map(|(at, _, day)| (*at, day.clone())).collect(),
        steps,
        lines: vec![PlotLine {
            ink: "head",
            points,
            ..PlotLine::default()
        }],
        tall: 200.0,
        ..LinePlot::default()
    };
    let title = format!("Times of {} by run", shown.id(case));
    plot.figure("history", title, about)
}

/// The picture of a history: the cases that changed most or, if none did, the first ones.
pub fn figures(shown: &Shown) -> Vec<Figure> {
    let mut cases = drawn(shown);
    if cases.is_empty() {
        let all = 0..shown.history.cases.len();
        cases = all
            .filter(|case| shown.wants(*case) && !shown.series[*case].runs.is_empty())
            .collect();
    }
    cases.truncate(PANELS);
    let panel = |case| (shown.id(case), trend(shown, case));
    let panels: Vec<(String, Figure)> = cases.into_iter().map(panel).collect();
    if panels.is_empty() {
        return Vec::new();
    }
    let title = shown.sentence().trim_end_matches('.').to_owned();
    let about = "Median time of each run, and its changes of level";
    let about = format!("{about}; {}", shown.title());
    let draw = move |wide| {
        let mut sheet = Sheet::default();
        for (name, figure) in &panels {
            sheet.stack(name, figure.sheet(wide));
        }
        sheet
    };
    vec![Figure::new("history", title, about, draw)]
}

/// The selected changes, the largest first.
fn heaviest<'a>(shown: &Shown<'a>) -> Vec<&'a Event> {
    let mut events: Vec<&Event> = shown.events(true).collect();
    events.sort_by(|a, b| b.ratio.0.ln().abs().total_cmp(&a.ratio.0.ln().abs()));
    events
}

/// The address of a run's page; empty if the page was removed.
fn link(shown: &Shown, run: usize) -> String {
    shown.links.get(run).cloned().flatten().unwrap_or_default()
}

fn document(shown: &Shown, most: usize, all: bool) -> Document {
    let history = shown.history;
    let events = heaviest(shown);
    let with_tone = |wanted: Tone| -> Vec<TableRow> {
        let is_wanted = |event: &&&Event| tone(&event.who, event.ratio) == wanted;
        let events = events.iter().filter(is_wanted);
        events.map(|event| changed_row(shown, event)).collect()
    };
    let [slower, beside, faster] = [Tone::Bad, Tone::Doubtful, Tone::Good].map(with_tone);
    let (crept, lost) = (crept(shown), lost(shown));
    let wanted = (0..history.cases.len()).filter(|case| shown.wants(*case));
    let wanted: Vec<usize> = wanted.collect();
    let listed = all || !shown.patterns.is_empty() || wanted.len() <= FEW;
    let cases = if listed {
        cases(shown, wanted)
    } else {
        Vec::new()
    };
    let tone = match () {
        () if !slower.is_empty() || !lost.is_empty() => Tone::Bad,
        () if !beside.is_empty() || !crept.is_empty() => Tone::Doubtful,
        () => Tone::Good,
    };
    let changes = vec!["runs", "time", "change", "day"];
    let lists = [
        ("Slower", Tone::Bad, changes.clone(), slower),
        ("Drifts", Tone::Doubtful, changes.clone(), crept),
        ("Not the code", Tone::Doubtful, changes.clone(), beside),
        ("Faster", Tone::Good, changes, faster),
        ("Without a time now", Tone::Bad, Vec::new(), lost),
        (
            "Cases, now and since the reference",
            Tone::Calm,
            vec!["runs", "time", "change", "last changed"],
            cases,
        ),
    ];
    let mut body = Vec::new();
    let listed = Lists {
        most,
        elsewhere: ", which --all prints",
    };
    for (name, tone, heads, mut rows) in lists {
        if rows.is_empty() {
            continue;
        }
        let count = rows.len();
        rows.truncate(most);
        body.push(Block::counted(name, count, tone));
        let table = Table::new("case", heads, rows);
        body.push(Block::Table(table.with_rest(listed.rest(count))));
    }
    let mut notes = Vec::new();
    let earlier = shown.events(false).count();
    if earlier > 0 {
        let changes = counted(earlier, "earlier change");
        let first = shown.at(0).map_or_else(String::new, day);
        notes.push(format!("{changes}: --since {first} shows them all"));
    }
    let damage = history.damage.iter().take(most);
    notes.extend(damage.map(|with_tone| format!("line {}: {}", with_tone.line, with_tone.problem)));
    body.extend((!notes.is_empty()).then_some(Block::Text(notes)));
    Document {
        title: format!("History of {} on {}", history.suite, history.machine),
        kicker: "regatta history".to_owned(),
        tone,
        subject: format!("{} on {}", history.suite, history.machine),
        sentence: shown.title(),
        summary: vec![Block::Text(vec![shown.sentence()])],
        body,
        ..Document::default()
    }
}

/// The row of a change: the cases, the times of the one that changed most, and the facts that
/// changed with it.
fn changed_row(shown: &Shown, event: &Event) -> TableRow {
    let most = event.cases.first().copied().unwrap_or_default();
    let steps = &shown.trends.cases[most].steps;
    let own = steps.iter().min_by_key(|step| step.run.abs_diff(event.run));
    // A shared change has no time of its own.
    let times = steps.contains(&event.most);
    let times = times.then(|| from_to(event.most.from_ns, event.most.to_ns));
    let ratio = own.map(|step: &Step| step.change.ratio);
    let mut below = most_changed(shown, &event.cases, ratio);
    let changed = changed(event);
    below.push(if changed.is_empty() {
        unchanged(shown, event)
    } else {
        changed.join("; ")
    });
    TableRow {
        label: shown.who(&event.who, &event.cases),
        link: link(shown, event.run),
        cells: vec![
            spark(&shown.series[most], shown.history.runs.len(), SPARK),
            times.unwrap_or_default(),
            event.ratio.to_string(),
            shown.day(event.run),
        ],
        below,
        ..TableRow::default()
    }
}

/// The case that changed most among several, to which the times belong.
fn most_changed(shown: &Shown, cases: &[usize], ratio: Option<Ratio>) -> Vec<String> {
    let ratio = ratio.map_or_else(String::new, |ratio| format!(", {ratio}"));
    match cases {
        [most, _, ..] => vec![format!("most: {}{ratio}", shown.id(*most))],
        _ => Vec::new(),
    }
}

/// The two runs around a change with which no known fact changed.
fn unchanged(shown: &Shown, event: &Event) -> String {
    let label = |run: usize| {
        let kept = shown.history.runs.get(run);
        kept.map_or_else(String::new, |kept| kept.about.label.clone())
    };
    let (before, after) = (label(event.before), label(event.run));
    let unchanged = "no revision, version or fact that is kept changed with it";
    if before == after {
        unchanged.to_owned()
    } else {
        format!("{unchanged}: {before} {ARROW} {after}")
    }
}

fn crept(shown: &Shown) -> Vec<TableRow> {
    let each = shown.crept().into_iter().map(|(crept, cases)| {
        let most = cases[0];
        let own = shown.trends.cases[most].creep.as_ref();
        let mut below = most_changed(shown, &crept.cases, own.map(|own| own.change.ratio));
        below.push(format!("since {}, without one step", shown.reference()));
        let cells = vec![
            spark(&shown.series[most], shown.history.runs.len(), SPARK),
            own.map_or_else(String::new, |own| from_to(own.from_ns, own.to_ns)),
            crept.ratio.to_string(),
            String::new(),
        ];
        TableRow::new(shown.who(&crept.who, &crept.cases), cells).with_below(below)
    });
    each.collect()
}

fn lost(shown: &Shown) -> Vec<TableRow> {
    let lost = shown.lost().into_iter().map(|(case, lost)| {
        let below = vec![format!("since {}: {}", shown.day(lost.run), lost.reason)];
        TableRow::new(shown.id(case), Vec::new()).with_below(below)
    });
    lost.collect()
}

/// Every case: its series, its newest time, and the change since the reference.
fn cases(shown: &Shown, mut wanted: Vec<usize>) -> Vec<TableRow> {
    let since = |case: usize| {
        let ratio = shown.trends.cases[case].newest_ratio();
        ratio.map_or(f64::NEG_INFINITY, |ratio| ratio.0)
    };
    wanted.sort_by(|a, b| since(*b).total_cmp(&since(*a)));
    let rows = wanted.into_iter().map(|case| {
        let trend = &shown.trends.cases[case];
        let newest = trend.newest_ns.map(|time| time.to_string());
        let ratio = trend.newest_ratio().map(|ratio| ratio.to_string());
        let last = trend.steps.last().map(|step| shown.day(step.run));
        let spark = spark(&shown.series[case], shown.history.runs.len(), SPARK);
        let facts = [newest, ratio, last].map(Option::unwrap_or_default);
        let cells = [spark].into_iter().chain(facts).collect();
        TableRow::new(shown.id(case), cells)
    });
    rows.collect()
}

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The smallest range, as a share of the median, that fills the height of a series, so that noise
/// stays flat.
const MIN_RANGE: Share = Share(0.04);

/// Draws a history of `runs` runs in at most `columns` columns. Runs that share a column are drawn
/// by their median; a column without a time is blank.
fn spark(series: &Series, runs: usize, columns: usize) -> String {
    let columns = columns.min(runs);
    let mut times: Vec<Vec<Nanoseconds>> = vec![Vec::new(); columns];
    for (run, time) in series.runs.iter().zip(&series.times) {
        if let Some(column) = times.get_mut(*run as usize * columns / runs.max(1)) {
            column.push(*time);
        }
    }
    let levels = times.iter().map(|times| Some(median(times)?.0.ln()));
    let levels: Vec<Option<f64>> = levels.collect();
    let known = || levels.iter().flatten().copied();
    let low = known().fold(f64::INFINITY, f64::min);
    let high = known().fold(f64::NEG_INFINITY, f64::max);
    let spread = MIN_RANGE.0.max(high - low);
    let floor = (low + high - spread) / 2.0;
    let block = |level: &Option<f64>| match level {
        Some(level) => {
            let height = (level - floor) / spread * (BLOCKS.len() - 1) as f64;
            BLOCKS[(height.round().max(0.0) as usize).min(BLOCKS.len() - 1)]
        }
        None => '·',
    };
    levels.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_worker::units::quantities;

    fn series(times: &[f64]) -> Series {
        Series {
            runs: (0..times.len() as u32).collect(),
            times: quantities(times.iter().copied()),
            values: Vec::new(),
        }
    }

    #[test]
    fn a_step_is_seen_and_noise_is_flat() {
        let step = series(&[1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        assert_eq!(spark(&step, 6, 6), "▁▁▁███");
        assert_eq!(spark(&step, 6, 2), "▁█");
        let noise = series(&[1.0, 1.004, 1.0, 0.998]);
        assert!(spark(&noise, 4, 8).chars().all(|c| "▄▅▆".contains(c)));
        let mut gap = series(&[1.0, 1.0, 3.0]);
        gap.runs = vec![0, 1, 3];
        assert_eq!(spark(&gap, 4, 4), "▁▁·█");
        assert_eq!(spark(&Series::default(), 4, 4), "····");
        assert_eq!(spark(&Series::default(), 0, 4), "");
    }
}
