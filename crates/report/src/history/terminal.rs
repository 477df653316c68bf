//! A history on standard output, in lines of at most [`COLUMNS`] columns.

use super::spark::spark;
use super::{Shown, changed, day};
use crate::terminal::COLUMNS;
use crate::terminal::screen::{Screen, bad, doubtful, good};
use crate::text::{one_line, shorten_middle};
use owo_colors::Style;
use regatta_judge::history::Event;
use regatta_worker::units::{ARROW, NONE, counted, from_to};

/// Columns of a series in blocks.
const SPARK: usize = 24;

/// Entries of a list, where not all were asked for.
const MOST: usize = 20;

/// Up to so many cases all are listed.
const FEW: usize = 12;

/// The answer, ending in a line feed.
pub fn text(shown: &Shown, colour: bool, all: bool) -> String {
    let mut bytes = Vec::new();
    let mut screen = Screen {
        out: &mut bytes,
        written: Ok(()),
        colour,
        most: if all { usize::MAX } else { MOST },
    };
    write(&mut screen, shown, all);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn write(screen: &mut Screen, shown: &Shown, all: bool) {
    let history = shown.history;
    let name = format!(
        "{} on {}",
        one_line(&history.suite),
        one_line(&history.machine)
    );
    let name = screen.paint(name, Style::new().bold());
    screen.line(format!("{name}: {}", shown.title()));
    screen.wrapped(0, &shown.said());
    let mut events: Vec<&Event> = shown.events(true).collect();
    events.sort_by(|a, b| b.ratio.0.ln().abs().total_cmp(&a.ratio.0.ln().abs()));
    let of = |wanted: fn(&Event) -> bool| -> Vec<&Event> {
        events
            .iter()
            .copied()
            .filter(|event| wanted(event))
            .collect()
    };
    let slower = of(|event| !event.who.is_beside_the_code() && event.is_slower());
    let faster = of(|event| !event.who.is_beside_the_code() && !event.is_slower());
    list(screen, shown, "Slower", &slower, bad());
    creeping(screen, shown);
    list(
        screen,
        shown,
        "Beside the code",
        &of(|event| event.who.is_beside_the_code()),
        doubtful(),
    );
    list(screen, shown, "Faster", &faster, good());
    lost(screen, shown);
    let wanted: Vec<usize> = (0..history.cases.len())
        .filter(|case| shown.wants(*case))
        .collect();
    if all || !shown.patterns.is_empty() || wanted.len() <= FEW {
        cases(screen, shown, &wanted);
    }
    let earlier = shown.events(false).count();
    if earlier > 0 {
        screen.line("");
        let changes = counted(earlier, "earlier change");
        let first = shown.at(0).map_or_else(String::new, day);
        screen.line(format!("{changes}: --since {first} tells them all"));
    }
}

fn list(screen: &mut Screen, shown: &Shown, name: &str, events: &[&Event], style: Style) {
    if events.is_empty() {
        return;
    }
    screen.heading(name, events.len(), style);
    for event in events.iter().take(screen.most) {
        let most = event.cases.first().copied().unwrap_or_default();
        screen.case(2, &shown.who(&event.who, &event.cases));
        let step = &event.most;
        let spark = match event.cases.len() {
            1 => spark(&shown.series[most], shown.history.runs.len(), SPARK),
            _ => {
                let middle = format!("{} in the median, most:", event.ratio);
                screen.line(format!("    {middle}"));
                screen.case(4, &shown.id(most));
                spark(&shown.series[most], shown.history.runs.len(), SPARK)
            }
        };
        let ratio = match event.cases.len() {
            1 => event.ratio,
            _ => own(shown, most, event),
        };
        let times = from_to(step.from_ns, step.to_ns);
        // What a history shares has no time of its own.
        let times = match shown.trends.cases[most].steps.iter().any(|own| own == step) {
            true => format!("{times}   "),
            false => String::new(),
        };
        screen.line(format!(
            "    {spark}  {times}{ratio}   {}",
            shown.day(event.run)
        ));
        let changed = changed(event);
        match changed.is_empty() {
            true => screen.wrapped(4, &unchanged(shown, event)),
            false => screen.wrapped(4, &changed.join("; ")),
        }
    }
    screen.left_out(events.len());
}

/// The change of one case of an event.
fn own(shown: &Shown, case: usize, event: &Event) -> regatta_worker::units::Ratio {
    let steps = shown.trends.cases[case].steps.iter();
    let own = steps.min_by_key(|step| step.run.abs_diff(event.run));
    own.map_or(event.most.ratio, |step| step.ratio)
}

/// Between which runs it was, where nothing that is known changed with it.
fn unchanged(shown: &Shown, event: &Event) -> String {
    let label = |run: usize| {
        let kept = shown.history.runs.get(run);
        kept.map_or_else(String::new, |kept| one_line(&kept.about.label))
    };
    let (before, after) = (label(event.before), label(event.run));
    match before == after {
        true => "no revision, version or fact that is kept changed with it".to_owned(),
        false => format!(
            "no revision, version or fact that is kept changed with it: {before} {ARROW} {after}"
        ),
    }
}

fn creeping(screen: &mut Screen, shown: &Shown) {
    let crept = shown.crept();
    if crept.is_empty() {
        return;
    }
    screen.heading("Creeping", crept.len(), doubtful());
    for (crept, cases) in crept {
        let most = cases[0];
        screen.case(2, &shown.who(&crept.who, &crept.cases));
        let spark = spark(&shown.series[most], shown.history.runs.len(), SPARK);
        let told = match &shown.trends.cases[most].creep {
            Some(creep) => format!("{}   {}", from_to(creep.from_ns, creep.to_ns), creep.ratio),
            None => crept.ratio.to_string(),
        };
        if crept.cases.len() > 1 {
            screen.line(format!("    {} in the median, most:", crept.ratio));
            screen.case(4, &shown.id(most));
        }
        screen.line(format!("    {spark}  {told}"));
        screen.wrapped(
            4,
            &format!("since {}, in no step that stands out", shown.reference()),
        );
    }
}

fn lost(screen: &mut Screen, shown: &Shown) {
    let lost = shown.lost();
    if lost.is_empty() {
        return;
    }
    screen.heading("Without a time now", lost.len(), bad());
    for (case, lost) in lost.iter().take(screen.most) {
        screen.case(2, &shown.id(*case));
        screen.wrapped(
            4,
            &format!("since {}: {}", shown.day(lost.run), lost.reason),
        );
    }
    screen.left_out(lost.len());
}

/// Every case: its series, its level now, and how far that is from the reference.
fn cases(screen: &mut Screen, shown: &Shown, wanted: &[usize]) {
    let mut wanted = wanted.to_vec();
    let since = |case: usize| {
        let ratio = shown.trends.cases[case].since_reference();
        ratio.map_or(f64::NEG_INFINITY, |ratio| ratio.0)
    };
    wanted.sort_by(|a, b| since(*b).total_cmp(&since(*a)));
    screen.heading(
        "Cases, now and since the reference",
        wanted.len(),
        Style::new().bold(),
    );
    for case in wanted.iter().take(screen.most) {
        let trend = &shown.trends.cases[*case];
        let id = shorten_middle(&shown.id(*case), COLUMNS - 2);
        screen.line(format!("  {id}"));
        let spark = spark(&shown.series[*case], shown.history.runs.len(), SPARK);
        let level = trend
            .level_ns
            .map_or(NONE.to_owned(), |level| level.to_string());
        let ratio = trend.since_reference();
        let ratio = ratio.map_or(NONE.to_owned(), |ratio| ratio.to_string());
        let last = trend.steps.last();
        let last = last.map_or_else(String::new, |step| {
            format!("   last changed {}", shown.day(step.run))
        });
        screen.line(format!("    {spark}  {level:>9}  {ratio:>13}{last}"));
    }
    screen.left_out(wanted.len());
}
