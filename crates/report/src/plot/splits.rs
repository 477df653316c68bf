//! Time against a number that a caller may choose, such as `num_splits_key`, and
//! what the implementation makes of it when nobody does.

use super::canvas::{Anchor, Canvas, Frame, Point};
use super::ink::Ink;
use super::scale::{Scale, time_labels};
use regatta_worker::units::Nanoseconds;

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
}
