//! The samples of one case, by invocation: is the level the same in each
//! process, is there drift within one, how far away is the base?

use super::canvas::{Anchor, Canvas, Frame};
use super::ink::Ink;
use super::scale::{Scale, time_labels};
use crate::record::side::median;
use crate::units::Nanoseconds;

/// One invocation's samples.
pub(in crate::report) struct Invocation<'a> {
    /// In nanoseconds, in the order taken.
    pub device_ns: &'a [f64],
    /// True for one that confirms a suspicion.
    pub confirms: bool,
}

/// What is drawn.
pub(in crate::report) struct Strip<'a> {
    /// Names the figure for screen readers.
    pub case: &'a str,
    /// The base's medians of invocations, in nanoseconds.
    pub base_ns: &'a [f64],
    /// The head's samples.
    pub head: Vec<Invocation<'a>>,
    /// Samples drawn at the most, over all invocations.
    pub most: usize,
}

const SIZE: (i32, i32) = (720, 190);
const LEFT: i32 = 88;
const RIGHT: i32 = 704;
const TOP: i32 = 16;
const BOTTOM: i32 = 148;

/// Draws it; `None` when there is not one finite sample.
pub(in crate::report) fn strip(strip: &Strip) -> Option<String> {
    let samples = strip.head.iter().flat_map(|i| i.device_ns).copied();
    let mut finite: Vec<f64> = samples.filter(|ns| ns.is_finite()).collect();
    if finite.is_empty() {
        return None;
    }
    finite.sort_by(f64::total_cmp);
    let scale = axis(&finite, strip.base_ns);
    let beyond = finite.iter().filter(|ns| !scale.holds(**ns)).count();
    let description = format!(
        "{} samples in {} invocations, median {}, from {} to {}; {beyond} beyond the axis",
        finite.len(),
        strip.head.len(),
        Nanoseconds(median(&finite).unwrap_or(f64::NAN)),
        Nanoseconds(finite[0]),
        Nanoseconds(finite[finite.len() - 1]),
    );
    let frame = Frame {
        title: &format!("Samples of {}", strip.case),
        description: &description,
        size: SIZE,
    };
    Some(frame.draw(|canvas| {
        time_axis(canvas, &scale);
        columns(canvas, strip, &scale);
        if beyond > 0 {
            let note = format!("{beyond} beyond the axis, drawn at its edge");
            canvas.text(&note, (RIGHT, 8), Anchor::End, 10, Ink::Muted);
        }
    }))
}

/// Logarithmic when the base is far away; cut off far above most samples, so
/// that one hiccup does not flatten all others.
fn axis(sorted: &[f64], base_ns: &[f64]) -> Scale {
    let most = sorted[(sorted.len() - 1) * 95 / 100];
    let limit = if sorted[sorted.len() - 1] > 2.0 * most {
        1.25 * most
    } else {
        f64::INFINITY
    };
    let shown = sorted.iter().chain(base_ns).copied();
    let shown: Vec<f64> = shown
        .filter(|ns| *ns <= limit || base_ns.contains(ns))
        .collect();
    let largest = shown.iter().copied().fold(0.0, f64::max);
    let smallest = shown.iter().copied().fold(f64::INFINITY, f64::min);
    if smallest > 0.0 && largest > 4.0 * smallest {
        Scale::log(shown, BOTTOM, TOP)
    } else {
        Scale::linear(shown, BOTTOM, TOP)
    }
}

fn time_axis(canvas: &mut Canvas, scale: &Scale) {
    let ticks = scale.ticks(4);
    // All lines before all labels: so the lines become one path.
    for tick in &ticks {
        let y = scale.at(*tick);
        canvas.line((LEFT, y), (RIGHT, y), Ink::Grid, 1);
    }
    for (tick, label) in ticks.iter().zip(time_labels(&ticks)) {
        canvas.text(
            &label,
            (LEFT - 8, scale.at(*tick)),
            Anchor::End,
            11,
            Ink::Muted,
        );
    }
}

fn columns(canvas: &mut Canvas, strip: &Strip, scale: &Scale) {
    let has_base = !strip.base_ns.is_empty();
    let count = strip.head.len() + usize::from(has_base);
    let column = f64::from(RIGHT - LEFT) / count.max(1) as f64;
    let left_of = |i: usize| LEFT + (i as f64 * column).round() as i32;
    let offset = usize::from(has_base);

    if has_base {
        if let Some(base) = median(strip.base_ns) {
            let y = scale.at(base);
            canvas.dashed((LEFT, y), (RIGHT, y), Ink::Base);
        }
        for (i, ns) in strip.base_ns.iter().enumerate() {
            let x = within(left_of(0), column, i, strip.base_ns.len());
            canvas.dot((x, scale.at(*ns)), 3, Ink::Base);
        }
    }
    let share = (strip.most / strip.head.len().max(1)).max(2);
    for (i, invocation) in strip.head.iter().enumerate() {
        let samples = invocation.device_ns;
        // Every n-th, where there are too many to draw.
        let every = samples.len().div_ceil(share).max(1);
        for (k, ns) in samples.iter().enumerate().step_by(every) {
            if ns.is_finite() {
                let x = within(left_of(i + offset), column, k, samples.len());
                canvas.dot((x, scale.at(*ns)), 2, Ink::Head);
            }
        }
    }
    for (i, invocation) in strip.head.iter().enumerate() {
        if let Some(ns) = median(invocation.device_ns).filter(|ns| ns.is_finite()) {
            let (x, y) = (left_of(i + offset), scale.at(ns));
            let end = left_of(i + offset + 1);
            canvas.line((x + 3, y), (end - 3, y), Ink::Text, 2);
        }
    }
    names(canvas, strip, column, offset)
}

/// Under each column its number, as far as there is room; confirming ones are
/// `+1`, `+2`, ....
fn names(canvas: &mut Canvas, strip: &Strip, column: f64, offset: usize) {
    let middle = |i: usize| LEFT + ((i as f64 + 0.5) * column).round() as i32;
    let y = BOTTOM + 14;
    if offset > 0 {
        canvas.text("base", (middle(0), y), Anchor::Middle, 11, Ink::Base);
    }
    let planned = strip.head.iter().filter(|i| !i.confirms).count();
    let every = (26.0 / column).ceil().max(1.0) as usize;
    for (i, invocation) in strip.head.iter().enumerate().step_by(every) {
        let name = if invocation.confirms {
            format!("+{}", i + 1 - planned.min(i))
        } else {
            (i + 1).to_string()
        };
        canvas.text(
            &name,
            (middle(i + offset), y),
            Anchor::Middle,
            11,
            Ink::Muted,
        );
    }
    let legend = "invocation (each a process of its own); + confirms a suspicion; bar: median";
    canvas.text(
        legend,
        ((LEFT + RIGHT) / 2, BOTTOM + 32),
        Anchor::Middle,
        11,
        Ink::Muted,
    )
}

/// Where the k-th of n marks of a column lies: in the order taken, so that drift
/// within an invocation is a slope.
fn within(left: i32, column: f64, k: usize, n: usize) -> i32 {
    let share = (k as f64 + 0.5) / n.max(1) as f64;
    left + (column * (0.12 + 0.76 * share)).round() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(samples: &[f64], base_ns: &[f64]) -> Option<String> {
        let head = [false, false, true].map(|confirms| Invocation {
            device_ns: samples,
            confirms,
        });
        strip(&Strip {
            case: "a<b",
            base_ns,
            head: head.into(),
            most: 200,
        })
    }

    #[test]
    fn any_samples_can_be_drawn() {
        assert_eq!(drawn(&[], &[]), None);
        assert_eq!(drawn(&[f64::NAN], &[1.0]), None);
        for samples in [
            &[0.0, 0.0][..],
            &[1e9; 3],
            &[1.0, f64::NAN, f64::INFINITY, 1e12],
        ] {
            assert!(drawn(samples, &[f64::NAN, 0.0, 5.0]).is_some());
        }
    }

    #[test]
    fn a_figure_is_small_whatever_the_number_of_samples() {
        let many: Vec<f64> = (0..10_000).map(|i| 1e6 + f64::from(i)).collect();
        let svg = drawn(&many, &[1e6; 10]).unwrap();
        assert!(svg.len() < 6000, "{}", svg.len());
        assert!(!svg.contains("http"));
        assert!(svg.contains("<title>Samples of a&lt;b</title>"));
    }
}
