//! A history on standard output, in lines of at most [`COLUMNS`] columns.

use owo_colors::Style;

use super::{Shown, changed, day};
use crate::screen::{COLUMNS, Screen, Tone, laid_out};
use crate::text::{one_line, shorten_middle};
use regatta_core::record::side::median;
use regatta_judge::history::{Event, Series};
use regatta_worker::units::{ARROW, NONE, Nanoseconds, Share, counted, from_to};

/// Columns of a series in blocks.
const SPARK: usize = 24;

/// Entries of a list, where not all were asked for.
const MOST: usize = 20;

/// Up to so many cases all are listed.
const FEW: usize = 12;

/// The answer, ending in a line feed.
pub fn text(shown: &Shown, colour: bool, all: bool) -> String {
    let most = if all { usize::MAX } else { MOST };
    laid_out(colour, most, |screen| write(screen, shown, all))
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
    screen.wrapped(0, &shown.sentence());
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
    list(screen, shown, "Slower", &slower, Tone::Bad);
    creeping(screen, shown);
    list(
        screen,
        shown,
        "Beside the code",
        &of(|event| event.who.is_beside_the_code()),
        Tone::Doubtful,
    );
    list(screen, shown, "Faster", &faster, Tone::Good);
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

fn list(screen: &mut Screen, shown: &Shown, name: &str, events: &[&Event], tone: Tone) {
    if events.is_empty() {
        return;
    }
    screen.heading(name, events.len(), tone.strong());
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
    screen.heading("Creeping", crept.len(), Tone::Doubtful.strong());
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
    screen.heading("Without a time now", lost.len(), Tone::Bad.strong());
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

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Ranges smaller than this part of the middle do not fill the height: noise is no mountain.
const LEAST: Share = Share(0.04);

/// The times of a history of so many runs in so many columns or fewer, runs that share a
/// column by their median; a gap where none of them has a time.
pub(super) fn spark(series: &Series, runs: usize, columns: usize) -> String {
    let columns = columns.min(runs);
    let mut of: Vec<Vec<Nanoseconds>> = vec![Vec::new(); columns];
    for (run, time) in series.runs.iter().zip(&series.times) {
        if let Some(column) = of.get_mut(*run as usize * columns / runs.max(1)) {
            column.push(*time);
        }
    }
    let levels: Vec<Option<f64>> = of.iter().map(|times| Some(median(times)?.0.ln())).collect();
    let found = || levels.iter().flatten().copied();
    let (low, high) = (
        found().fold(f64::INFINITY, f64::min),
        found().fold(f64::NEG_INFINITY, f64::max),
    );
    let spread = LEAST.0.max(high - low);
    let floor = (low + high - spread) / 2.0;
    let block = |level: &Option<f64>| match level {
        Some(level) => {
            let height = (level - floor) / spread * (BLOCKS.len() - 1) as f64;
            BLOCKS[(height.round().max(0.0) as usize).min(BLOCKS.len() - 1)]
        }
        None => ' ',
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
        assert_eq!(spark(&gap, 4, 4), "▁▁ █");
        assert_eq!(spark(&Series::default(), 4, 4), "    ");
        assert_eq!(spark(&Series::default(), 0, 4), "");
    }
}
