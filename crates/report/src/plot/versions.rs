//! Versions in their order against how many times as long they take: where is the step?

use super::canvas::{Anchor, Canvas, Frame};
use super::ink::Ink;
use super::scale::Scale;
use crate::text::shorten;
use regatta_judge::judgement::Word;
use regatta_worker::units::Ratio;

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
const TOP: i32 = 24;
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
    let up = Scale::log(ratios, BOTTOM, TOP);
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
            canvas.block((x(before), TOP), (x(after), BOTTOM), Ink::Band);
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
            mark(canvas, stop, x(stop.at), &up);
        }
        names(canvas, stops, step, x);
    }))
}

fn mark(canvas: &mut Canvas, stop: &Stop, x: i32, up: &Scale) {
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
            let stops: Vec<Stop> = (0..count)
                .map(|at| Stop {
                    at,
                    number: (at > 0).then_some(at),
                    name: "<x>",
                    ratio: (at % 5 != 4).then(|| [0.9, 1.0, 1.1].map(|r| r * odd[at % 7])),
                    word: Word::Regressed,
                })
                .collect();
            let figure = versions(&stops, Some((1, 2)));
            assert_eq!(figure.is_some(), count >= 7);
            assert!(!figure.unwrap_or_default().contains("<x>"));
        }
    }
}
