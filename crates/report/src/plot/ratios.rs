//! Every ratio with its interval, sorted, over the band of changes too small to
//! count: which ones stick out, and does everything lean to one side?

use super::scale::Scale;
use super::{Anchor, Canvas, Frame, Ink};
use crate::text::{shorten, shorten_middle};
use regatta_judge::judgement::Word;
use regatta_worker::units::Ratio;

/// One case.
pub(crate) struct Whisker<'a> {
    /// Its id.
    pub case: &'a str,
    /// Head over base.
    pub ratio: f64,
    /// Ends of the interval.
    pub interval: (f64, f64),
    /// What it is drawn in.
    pub ink: Ink,
}

/// Beyond these many rows there is no room for names.
pub(crate) const NAMED: usize = 90;

const WIDTH: i32 = 900;
const TOP: i32 = 34;

/// Where things go: with names beside the whiskers, or dense without.
struct Layout {
    left: i32,
    right: i32,
    row: i32,
    named: bool,
}

/// Draws it, the slowest on top; `None` when there is no ratio.
pub(crate) fn forest(whiskers: &[Whisker], threshold: f64) -> Option<String> {
    // No suite may have a threshold of NaN, but no figure may fall over one.
    let threshold = if threshold.is_finite() {
        threshold.clamp(0.01, 1.0)
    } else {
        0.05
    };
    let usable = |w: &&Whisker| w.ratio.is_finite() && w.ratio > 0.0;
    let mut sorted: Vec<&Whisker> = whiskers.iter().filter(usable).collect();
    if sorted.is_empty() {
        return None;
    }
    sorted.sort_by(|a, b| b.ratio.total_cmp(&a.ratio).then(a.case.cmp(b.case)));
    let layout = if sorted.len() <= NAMED {
        Layout {
            left: 372,
            right: 780,
            row: 18,
            named: true,
        }
    } else {
        Layout {
            left: 40,
            right: 860,
            row: (1200 / sorted.len() as i32).clamp(2, 6),
            named: false,
        }
    };
    let height = TOP + layout.row * sorted.len() as i32 + 26;
    let half = half_range(&sorted, threshold);
    let scale = Scale::log_between((-half).exp(), half.exp(), layout.left, layout.right);
    let description = format!(
        "{} cases, from {} to {}; the band is a change of {:.0} % either way",
        sorted.len(),
        Ratio(sorted[sorted.len() - 1].ratio),
        Ratio(sorted[0].ratio),
        100.0 * threshold
    );
    let frame = Frame {
        title: "Head over base, every case, the slowest first",
        description: &description,
        size: (WIDTH, height),
    };
    Some(frame.draw(|canvas| {
        backdrop(canvas, &scale, &layout, threshold, height);
        for (i, whisker) in sorted.iter().enumerate() {
            let y = TOP + layout.row * i as i32 + layout.row / 2;
            mark(canvas, whisker, &scale, &layout, y);
        }
        if layout.named {
            for (i, whisker) in sorted.iter().enumerate() {
                let y = TOP + layout.row * i as i32 + layout.row / 2;
                name(canvas, whisker, &layout, y);
            }
        }
    }))
}

/// Half the axis as a logarithm: three in four intervals fit, the threshold is seen,
/// and one hundredfold slowdown does not flatten the rest.
fn half_range(sorted: &[&Whisker], threshold: f64) -> f64 {
    let mut reach: Vec<f64> = sorted
        .iter()
        .map(|w| w.interval.0.ln().abs().max(w.interval.1.ln().abs()))
        .filter(|reach| reach.is_finite())
        .collect();
    reach.sort_by(f64::total_cmp);
    let most = reach.get(reach.len() * 3 / 4).or(reach.last());
    let least = 2.5 * (1.0 + threshold).ln();
    let wanted = (1.2 * most.copied().unwrap_or(0.0)).min(4f64.ln());
    wanted.max(least)
}

fn backdrop(canvas: &mut Canvas, scale: &Scale, layout: &Layout, threshold: f64, height: i32) {
    let bottom = height - 20;
    let band = [1.0 / (1.0 + threshold), 1.0 + threshold].map(|ratio| scale.at(ratio));
    canvas.block((band[0], TOP - 6), (band[1], bottom), Ink::Band);
    let ticks = ticks(scale);
    for tick in &ticks {
        let x = scale.at(*tick);
        canvas.line((x, TOP - 6), (x, bottom), Ink::Grid, 1);
    }
    let one = scale.at(1.0);
    canvas.line((one, TOP - 6), (one, bottom), Ink::Muted, 1);
    for tick in ticks {
        let label = if tick == 1.0 {
            "same".to_owned()
        } else if (0.5..2.0).contains(&tick) && tick > 0.5 {
            format!("{:+.0} %", 100.0 * (tick - 1.0))
        } else {
            // Ticks are whole factors.
            Ratio(tick)
                .to_string()
                .replace(".00x", "x")
                .replace(".0x", "x")
        };
        canvas.text(
            &label,
            (scale.at(tick), TOP - 16),
            Anchor::Middle,
            11,
            Ink::Muted,
        );
    }
    let y = height - 8;
    canvas.text("← faster", (layout.left, y), Anchor::Start, 11, Ink::Fast);
    canvas.text("slower →", (layout.right, y), Anchor::End, 11, Ink::Slow)
}

/// Ratios worth a line, the most telling first, none closer than its label is
/// wide.
fn ticks(scale: &Scale) -> Vec<f64> {
    const BY_WORTH: [f64; 17] = [
        1.0, 0.5, 2.0, 0.8, 1.25, 0.9, 1.1, 0.95, 1.05, 0.98, 1.02, 0.99, 1.01, 0.25, 4.0, 0.67,
        1.5,
    ];
    let mut kept: Vec<f64> = Vec::new();
    for tick in BY_WORTH.into_iter().filter(|tick| scale.holds(*tick)) {
        let apart = |other: &f64| (scale.at(*other) - scale.at(tick)).abs() >= 58;
        if kept.iter().all(apart) {
            kept.push(tick);
        }
    }
    kept
}

fn mark(canvas: &mut Canvas, whisker: &Whisker, scale: &Scale, layout: &Layout, y: i32) {
    let (low, high) = whisker.interval;
    let (radius, width) = if layout.named { (4, 2) } else { (2, 1) };
    if low.is_finite() && high.is_finite() {
        let (from, to) = (scale.at(low), scale.at(high));
        canvas.line((from, y), (to, y), whisker.ink, width);
    }
    if scale.holds(whisker.ratio) {
        canvas.dot((scale.at(whisker.ratio), y), radius, whisker.ink)
    } else if whisker.ratio > 1.0 {
        canvas.triangle((layout.right + 2 + 2 * radius, y), 2 * radius, whisker.ink)
    } else {
        canvas.triangle((layout.left - 2 - 2 * radius, y), -2 * radius, whisker.ink)
    }
}

fn name(canvas: &mut Canvas, whisker: &Whisker, layout: &Layout, y: i32) {
    let case = shorten_middle(whisker.case, 56);
    let at = (layout.left - 18, y);
    canvas.text(&case, at, Anchor::End, 11, Ink::Text);
    let change = Ratio(whisker.ratio).to_string();
    canvas.text(
        &change,
        (layout.right + 16, y),
        Anchor::Start,
        11,
        whisker.ink,
    )
}

/// A version that was tried.
pub(crate) struct Stop<'a> {
    /// Its place in the order of versions.
    pub at: usize,
    /// When it was tried, from 1; `None`: it is what the others are compared with.
    pub number: Option<usize>,
    /// What it is called.
    pub name: &'a str,
    /// Lower end, estimate and upper end of the ratio; `None`: it was skipped.
    pub ratio: Option<[f64; 3]>,
    /// What the judge says.
    pub word: Word,
}

const SIZE: (i32, i32) = (900, 350);
const LEFT: i32 = 72;
const RIGHT: i32 = 880;
const ROW_TOP: i32 = 24;
const BOTTOM: i32 = 270;
/// Where those that were skipped are marked.
const SKIPPED: i32 = BOTTOM + 14;
/// Where names stand, in as few rows as keep them apart.
const NAMES: [i32; 3] = [BOTTOM + 32, BOTTOM + 49, BOTTOM + 66];
/// Columns of a name.
const NAME: usize = 14;

/// Draws it; `None` where no version has a ratio but the one that all are compared with.
pub(crate) fn versions(stops: &[Stop], step: Option<(usize, usize)>) -> Option<String> {
    let drawn = |stop: &&Stop| {
        stop.ratio
            .is_some_and(|[low, _, high]| low > 0.0 && high.is_finite())
    };
    let read: Vec<&Stop> = stops.iter().filter(drawn).collect();
    if read.len() < 2 {
        return None;
    }
    let last = stops.iter().map(|stop| stop.at).max().unwrap_or(1).max(1);
    let across = Scale::linear_between(-0.5, last as f64 + 0.5, LEFT, RIGHT);
    let x = |at: usize| across.at(at as f64);
    let ratios = read
        .iter()
        .flat_map(|stop| stop.ratio.into_iter().flatten());
    let up = Scale::log(ratios, BOTTOM, ROW_TOP);
    let description = read
        .iter()
        .filter_map(|stop| Some(format!("{}: {}", stop.name, Ratio(stop.ratio?[1]))))
        .collect::<Vec<_>>()
        .join("; ");
    let frame = Frame {
        title: "Versions against how many times as long they take",
        description: &description,
        size: SIZE,
    };
    Some(frame.draw(|canvas| {
        if let Some((before, after)) = step {
            canvas.block((x(before), ROW_TOP), (x(after), BOTTOM), Ink::Band);
        }
        for tick in up.ticks(5) {
            let y = up.at(tick);
            canvas.line((LEFT, y), (RIGHT, y), Ink::Grid, 1);
            let label = Ratio(tick).factor().to_string();
            canvas.text(&label, (LEFT - 8, y), Anchor::End, 11, Ink::Muted);
        }
        canvas.line((LEFT, up.at(1.0)), (RIGHT, up.at(1.0)), Ink::Muted, 1);
        let level: Vec<(i32, i32)> = read
            .iter()
            .filter_map(|stop| Some((x(stop.at), up.at(stop.ratio?[1]))))
            .collect();
        canvas.path(&level, Ink::Grid, 2);
        for stop in stops {
            stop_mark(canvas, stop, x(stop.at), &up);
        }
        names(canvas, stops, step, x);
    }))
}

fn stop_mark(canvas: &mut Canvas, stop: &Stop, x: i32, up: &Scale) {
    let Some([low, ratio, high]) = stop.ratio else {
        for (from, to) in [((-4, -4), (4, 4)), ((-4, 4), (4, -4))] {
            canvas.line(
                (x + from.0, SKIPPED + from.1),
                (x + to.0, SKIPPED + to.1),
                Ink::Muted,
                2,
            );
        }
        return;
    };
    let ink = match stop.word {
        Word::Regressed => Ink::Slow,
        Word::Improved => Ink::Fast,
        Word::Same => Ink::Base,
        _ => Ink::Muted,
    };
    canvas.line((x, up.at(low)), (x, up.at(high)), ink, 2);
    match stop.number {
        Some(number) => {
            canvas.dot((x, up.at(ratio)), 5, ink);
            let at = (x, up.at(high) - 10);
            canvas.text(&number.to_string(), at, Anchor::Middle, 11, Ink::Text);
        }
        None => canvas.diamond((x, up.at(ratio)), 6, Ink::Base),
    }
}

/// Names, those of the step and of the ends first, none over another.
fn names(
    canvas: &mut Canvas,
    stops: &[Stop],
    step: Option<(usize, usize)>,
    x: impl Fn(usize) -> i32,
) {
    let (first, last) = (stops.first().map(|s| s.at), stops.last().map(|s| s.at));
    let worth = |stop: &&Stop| {
        let of_step = step.is_some_and(|(before, after)| [before, after].contains(&stop.at));
        let end = Some(stop.at) == first || Some(stop.at) == last;
        (!of_step, !end, stop.ratio.is_none())
    };
    let mut sorted: Vec<&Stop> = stops.iter().collect();
    sorted.sort_by_key(worth);
    // About seven pixels a letter.
    let half = |name: &str| 7 * name.chars().count() as i32 / 2 + 4;
    let mut taken: Vec<(usize, i32, i32)> = Vec::new();
    for stop in sorted {
        let name = shorten(stop.name, NAME);
        let half = half(&name);
        let middle = x(stop.at).clamp(half, SIZE.0 - half);
        let free = |row: &usize| {
            let mut others = taken.iter().filter(|other| other.0 == *row);
            others.all(|(_, at, width)| (at - middle).abs() > width + half)
        };
        let Some(row) = (0..NAMES.len()).find(free) else {
            continue;
        };
        taken.push((row, middle, half));
        let ink = match stop.ratio {
            Some(_) => Ink::Text,
            None => Ink::Muted,
        };
        canvas.text(&name, (middle, NAMES[row]), Anchor::Middle, 11, ink);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_ratios_can_be_drawn() {
        let odd = [f64::NAN, 0.0, -1.0, f64::INFINITY, 1e-9, 1.0, 1e9];
        for count in [0, 1, 7, 300] {
            let ratios = odd.into_iter().cycle().take(count);
            let whisker = |ratio| Whisker {
                case: "<x>",
                ratio,
                interval: (0.9 * ratio, 1.1 * ratio),
                ink: Ink::Head,
            };
            let whiskers: Vec<Whisker> = ratios.clone().map(whisker).collect();
            for threshold in [0.0, 0.05, f64::NAN] {
                let figure = forest(&whiskers, threshold);
                assert!(!figure.unwrap_or_default().contains("<x>"));
            }
            let stop = |(at, ratio): (usize, f64)| Stop {
                at,
                number: (at > 0).then_some(at),
                name: "<x>",
                ratio: (at % 5 != 4).then(|| [0.9, 1.0, 1.1].map(|r| r * ratio)),
                word: Word::Regressed,
            };
            let stops: Vec<Stop> = ratios.enumerate().map(stop).collect();
            let figure = versions(&stops, Some((1, 2)));
            assert_eq!(figure.is_some(), count >= 7);
            assert!(!figure.unwrap_or_default().contains("<x>"));
        }
    }
}
