//! Time against a number that a caller may choose, such as `num_splits_key`, and
//! what the implementation makes of it when nobody does.

use super::scale::{Scale, time_labels};
use super::{Anchor, Canvas, Frame, Ink, Point};
use crate::text::shorten_middle;
use regatta_worker::units::{Nanoseconds, Rate};

/// What is drawn.
pub(crate) struct Splits<'a> {
    /// Name of the parameter.
    pub parameter: &'a str,
    /// Its explicit values and their times in nanoseconds.
    pub points: Vec<(i64, f64)>,
    /// The automatic one's time in nanoseconds, and the value it became, if known.
    pub auto: Option<(f64, Option<i64>)>,
    /// Largest time the expectation allows, in nanoseconds.
    pub limit_ns: Option<f64>,
}

const SIZE: (i32, i32) = (640, 320);
const LEFT: i32 = 88;
const RIGHT: i32 = 560;
const TOP: i32 = 40;
const BOTTOM: i32 = 256;

/// Draws it; `None` with fewer than two points, which show no dependence.
pub(crate) fn splits(splits: &Splits) -> Option<String> {
    let usable = |(value, ns): &(i64, f64)| *value > 0 && ns.is_finite() && *ns > 0.0;
    let mut points: Vec<(i64, f64)> = splits.points.iter().copied().filter(usable).collect();
    if points.len() < 2 {
        return None;
    }
    points.sort_by_key(|(value, _)| *value);
    let auto = splits.auto.filter(|(ns, _)| ns.is_finite() && *ns > 0.0);
    let became = auto.and_then(|(_, value)| value).filter(|value| *value > 0);
    let times = points
        .iter()
        .map(|(_, ns)| *ns)
        .chain(auto.map(|(ns, _)| ns));
    let time = Scale::log(times.chain(splits.limit_ns), BOTTOM, TOP);
    let values = points.iter().map(|(value, _)| *value).chain(became);
    let value = Scale::log(values.map(|value| value as f64), LEFT, RIGHT);
    let description = format!(
        "{} explicit values of {}; automatic takes {}{}",
        points.len(),
        splits.parameter,
        auto.map_or("an unknown time".to_owned(), |(ns, _)| Nanoseconds(ns)
            .to_string()),
        became.map_or(String::new(), |value| format!(" and became {value}")),
    );
    let frame = Frame {
        title: &format!("Time against {}", splits.parameter),
        description: &description,
        size: SIZE,
    };
    Some(frame.draw(|canvas| {
        axes(canvas, splits.parameter, &points, &time, &value);
        if let Some(limit) = splits.limit_ns.filter(|ns| ns.is_finite()) {
            let y = time.at(limit);
            canvas.dashed((LEFT, y), (RIGHT, y), Ink::Muted);
            canvas.text("allowed", (RIGHT + 8, y), Anchor::Start, 11, Ink::Muted);
        }
        let at = |(split, ns): &(i64, f64)| (value.at(*split as f64), time.at(*ns));
        let points: Vec<Point> = points.iter().map(at).collect();
        canvas.path(&points, Ink::Head, 2);
        for point in points {
            canvas.dot(point, 4, Ink::Head);
        }
        automatic(canvas, auto, became, &time, &value)
    }))
}

fn axes(canvas: &mut Canvas, parameter: &str, points: &[(i64, f64)], time: &Scale, value: &Scale) {
    let ticks = time.ticks(5);
    for tick in &ticks {
        let y = time.at(*tick);
        canvas.line((LEFT, y), (RIGHT, y), Ink::Grid, 1);
    }
    for (tick, label) in ticks.iter().zip(time_labels(&ticks)) {
        canvas.text(
            &label,
            (LEFT - 8, time.at(*tick)),
            Anchor::End,
            11,
            Ink::Muted,
        );
    }
    let mut free = i32::MIN;
    for (split, _) in points {
        let x = value.at(*split as f64);
        if x >= free {
            canvas.text(
                &split.to_string(),
                (x, BOTTOM + 16),
                Anchor::Middle,
                11,
                Ink::Muted,
            );
            free = x + 30;
        }
    }
    let middle = (LEFT + RIGHT) / 2;
    canvas.text(
        parameter,
        (middle, BOTTOM + 40),
        Anchor::Middle,
        12,
        Ink::Text,
    )
}

/// A diamond where the automatic choice lies; a line where it is not known what
/// it became.
fn automatic(
    canvas: &mut Canvas,
    auto: Option<(f64, Option<i64>)>,
    became: Option<i64>,
    time: &Scale,
    value: &Scale,
) {
    let Some((ns, _)) = auto else { return };
    let y = time.at(ns);
    canvas.dashed((LEFT, y), (RIGHT, y), Ink::Auto);
    canvas.text("auto", (RIGHT + 8, y), Anchor::Start, 12, Ink::Auto);
    let Some(became) = became else { return };
    let x = value.at(became as f64);
    canvas.diamond((x, y), 8, Ink::Auto);
    let label = format!("auto became {became}");
    // Above its line, where the curve of the explicit values never is.
    let (x, anchor) = if x > (LEFT + RIGHT) / 2 {
        (x + 8, Anchor::End)
    } else {
        (x - 8, Anchor::Start)
    };
    let y = y - 18;
    canvas.text(&label, (x, y), anchor, 12, Ink::Auto)
}

/// One case.
pub(crate) struct Bar {
    /// What is computed; bars of one problem stand together.
    pub problem: String,
    /// Who computes it, with parameters.
    pub variant: String,
    /// TFLOP/s.
    pub tflops: f64,
}

/// Problems drawn at the most.
const MOST_PROBLEMS: usize = 24;

const WIDTH: i32 = 900;
const BARS_LEFT: i32 = 330;
const BARS_RIGHT: i32 = 800;
const ROW: i32 = 18;
const HEAD: i32 = 30;

/// Draws the problems that several variants solve, the first ones where there are
/// many; `None` when there is none. Each problem has its own scale: what is
/// compared is its variants.
pub(crate) fn throughput(bars: &[Bar]) -> Option<String> {
    let mut groups: Vec<(&str, Vec<&Bar>)> = Vec::new();
    for bar in bars
        .iter()
        .filter(|bar| bar.tflops.is_finite() && bar.tflops > 0.0)
    {
        match groups
            .iter_mut()
            .find(|(problem, _)| *problem == bar.problem)
        {
            Some((_, group)) => group.push(bar),
            None => groups.push((&bar.problem, vec![bar])),
        }
    }
    groups.retain(|(_, group)| group.len() > 1);
    groups.truncate(MOST_PROBLEMS);
    if groups.is_empty() {
        return None;
    }
    for (_, group) in &mut groups {
        group.sort_by(|a, b| b.tflops.total_cmp(&a.tflops));
    }
    let rows: usize = groups.iter().map(|(_, group)| group.len()).sum();
    let height = HEAD * groups.len() as i32 + ROW * rows as i32 + 8;
    let frame = Frame {
        title: "FLOP/s by problem and variant",
        description: &format!(
            "{rows} cases of {} problems, the fastest first",
            groups.len()
        ),
        size: (WIDTH, height),
    };
    Some(frame.draw(|canvas| {
        let mut y = 0;
        for (problem, group) in &groups {
            canvas.text(
                &shorten_middle(problem, 90),
                (8, y + 18),
                Anchor::Start,
                12,
                Ink::Text,
            );
            y += HEAD;
            let best = group.first().map_or(1.0, |bar| bar.tflops);
            for bar in group {
                row(canvas, bar, bar.tflops / best, y);
                y += ROW;
            }
        }
    }))
}

fn row(canvas: &mut Canvas, bar: &Bar, share: f64, y: i32) {
    let middle = y + ROW / 2;
    let name = shorten_middle(&bar.variant, 48);
    canvas.text(&name, (BARS_LEFT - 10, middle), Anchor::End, 11, Ink::Muted);
    let end =
        BARS_LEFT + (share.clamp(0.0, 1.0) * f64::from(BARS_RIGHT - BARS_LEFT)).round() as i32;
    canvas.block(
        (BARS_LEFT, y + 3),
        (end.max(BARS_LEFT + 1), y + ROW - 3),
        Ink::Head,
    );
    let label = Rate(bar.tflops).to_string();
    canvas.text(&label, (end + 8, middle), Anchor::Start, 11, Ink::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_times_can_be_drawn() {
        let mut figure = Splits {
            parameter: "num_splits_key",
            points: vec![(1, 1e8), (4, 2.7e7), (64, f64::NAN), (0, 1.0)],
            auto: Some((1.01e8, Some(1))),
            limit_ns: Some(1e6),
        };
        assert!(splits(&figure).unwrap().contains("auto became 1"));
        figure.auto = Some((f64::NAN, Some(-1)));
        assert!(splits(&figure).is_some());
        figure.points.truncate(1);
        assert_eq!(splits(&figure), None);
    }

    #[test]
    fn only_problems_with_something_to_compare_are_drawn() {
        let bar = |problem: &str, tflops| Bar {
            problem: problem.to_owned(),
            variant: "cpu/flash".to_owned(),
            tflops,
        };
        assert_eq!(throughput(&[]), None);
        assert_eq!(throughput(&[bar("s1,d1", 1.0), bar("s2,d1", 1.0)]), None);
        let bars = [1.0, f64::NAN, 1e-9].map(|tflops| bar("s1,d1", tflops));
        assert!(throughput(&bars).is_some());
    }
}
