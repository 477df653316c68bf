//! The figure of pages, drawn through plotters as SVG: times over a parameter's values, or over
//! the runs of a history.

use std::ops::Range;

use plotters::backend::SVGBackend;
use plotters::coord::ranged1d::Ranged;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::TextStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::RenderError;
use crate::text::{escaped, one_line};

/// Times over something, on a logarithmic axis. Places across are whole numbers, on any scale of
/// some hundreds.
#[derive(Default)]
pub(crate) struct TimePlot {
    /// The title, in a few words.
    pub title: String,
    /// The description for screen readers.
    pub description: String,
    /// Width and height in pixels.
    pub size: (u32, u32),
    /// The quantity across; empty if the labels say it.
    pub across: String,
    /// The labels across, each at its place.
    pub labels: Vec<(i32, String)>,
    /// Each place with its time in nanoseconds, and its name.
    pub points: Vec<(i32, f64, String)>,
    /// Lines from end to end: a time, the word beside it, and their colour.
    pub levels: Vec<(f64, &'static str, RGBColor)>,
    /// The changes of level: the place, and the times before and after it.
    pub steps: Vec<(i32, f64, f64)>,
    /// A single point with its name.
    pub mark: Option<(i32, f64, String)>,
}

/// Up to so many points each is a dot with its name.
const DOTS: usize = 100;

impl TimePlot {
    /// Draws it. Each filled shape pushes its tooltip, in the order of drawing.
    fn draw(
        &self,
        area: &DrawingArea<SVGBackend, plotters::coord::Shift>,
        tooltips: &mut Vec<String>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let points = self.points.iter().filter(|(_, ns, _)| is_drawable(*ns));
        let points: Vec<_> = points.collect();
        let marked = || points.iter().copied().chain(&self.mark);
        let across = || marked().map(|(at, ..)| *at);
        let (from, to) = (across().min().unwrap_or(0), across().max().unwrap_or(0));
        let room = ((to - from) / 16).max(100);
        let (start, end) = (from - room, to + room);
        let levels = self.levels.iter().map(|(ns, ..)| *ns);
        let up = log_range(marked().map(|(_, ns, _)| *ns).chain(levels));
        let ticks = log_ticks(&up, 5);
        let time = time_labels(&ticks);
        let label = |at: &i32| {
            let label = self.labels.iter().find(|(place, _)| place == at);
            label.map_or(String::new(), |(_, label)| label.clone())
        };
        let places = self.labels.iter().map(|(at, _)| *at).collect();
        let mut chart = ChartBuilder::on(area)
            .margin_top(if self.mark.is_some() { 40 } else { 12 })
            .margin_right(if self.levels.is_empty() { 24 } else { 80 })
            .y_label_area_size(80)
            .x_label_area_size(if self.across.is_empty() { 28 } else { 46 })
            .build_cartesian_2d(
                (start..end).with_key_points(places),
                up.log_scale().with_key_points(ticks),
            )?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .max_light_lines(0)
            .bold_line_style(GRID)
            .axis_style(TRANSPARENT)
            .x_label_style(letters(11, MUTED, HPos::Center))
            .y_label_style(letters(11, MUTED, HPos::Right))
            .x_label_formatter(&label)
            .y_label_formatter(&time)
            .x_desc(&self.across)
            .axis_desc_style(letters(12, TEXT, HPos::Center))
            .draw()?;
        for (ns, word, ink) in &self.levels {
            let line = DashedLineSeries::new([(start, *ns), (end, *ns)], 5, 4, ink.stroke_width(1));
            chart.draw_series(line)?;
            let text = Text::new(*word, (8, 0), letters(11, *ink, HPos::Left));
            chart.draw_series([EmptyElement::at((end, *ns)) + text])?;
        }
        let line = points.iter().map(|(at, ns, _)| (*at, *ns));
        chart.draw_series(LineSeries::new(line, HEAD.stroke_width(1)))?;
        for (at, ns, name) in points.iter().filter(|_| points.len() <= DOTS) {
            tooltips.push(format!("{name}: {}", time(ns)));
            chart.draw_series([Circle::new((*at, *ns), 3, HEAD.filled())])?;
        }
        for (place, (at, before, after)) in self.steps.iter().enumerate() {
            let last = place.checked_sub(1).map(|last| self.steps[last].0);
            let next = self.steps.get(place + 1).map(|next| next.0);
            let (from, to) = (last.unwrap_or(from), next.unwrap_or(to));
            if is_drawable(*before) && is_drawable(*after) {
                let level = [(from, *before), (*at, *before), (*at, *after), (to, *after)];
                let level = PathElement::new(level.to_vec(), SLOW.stroke_width(2));
                chart.draw_series([level])?;
            }
        }
        if let Some((at, ns, name)) = &self.mark {
            let diamond = Polygon::new(vec![(0, -8), (8, 0), (0, 8), (-8, 0)], AUTO.filled());
            chart.draw_series([EmptyElement::at((*at, *ns)) + diamond])?;
            tooltips.push(format!("{name}: {}", time(ns)));
            // Above its line, where the curve never is, and within the figure.
            let (x, anchor) = if at - from > to - at {
                (8, HPos::Right)
            } else {
                (-8, HPos::Left)
            };
            let text = Text::new(name.clone(), (x, -18), letters(12, AUTO, anchor));
            chart.draw_series([EmptyElement::at((*at, *ns)) + text])?;
        }
        Ok(())
    }
}

/// The figure as an inline `<svg>` whose colours are variables of the page's style sheet.
///
/// # Errors
/// When the figure does not fit its own data.
pub(super) fn svg(figure: &TimePlot) -> Result<String, RenderError> {
    let (width, height) = figure.size;
    let (mut drawn, mut tooltips) = (String::new(), Vec::new());
    let area = SVGBackend::with_string(&mut drawn, (width, height)).into_drawing_area();
    let done = figure.draw(&area, &mut tooltips);
    let done = done.and_then(|()| Ok(area.present()?));
    done.map_err(|problem| RenderError::Figure(problem.to_string()))?;
    drop(area);
    // Letters stay large enough to be read.
    let least = (2 * width / 3).clamp(600, 860);
    let mut out = format!(
        r#"<svg class="plot" style="min-width:{least}px" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"><title>{}</title><desc>{}</desc>"#,
        escaped(&figure.title),
        escaped(&figure.description)
    );
    let mut tooltips = tooltips.iter();
    // The backend writes a tag a line, its own `<svg>` first.
    for line in drawn.lines().skip(1) {
        let shape = ["rect", "circle", "polygon"]
            .into_iter()
            .find(|shape| line.strip_prefix('<').is_some_and(|l| l.starts_with(shape)));
        match (shape, shape.and_then(|_| tooltips.next())) {
            (Some(shape), Some(tooltip)) => {
                let tooltip = escaped(&one_line(tooltip));
                out.push_str(line.trim_end_matches("/>"));
                out.push_str(&format!("><title>{tooltip}</title></{shape}>"));
            }
            _ => out.push_str(line),
        }
    }
    for (RGBColor(r, g, b), variable) in VARIABLES {
        let code = format!("#{r:02X}{g:02X}{b:02X}");
        out = out.replace(&code, &format!("var(--{variable})"));
    }
    // Attributes that are the default.
    for label in [
        r#" opacity="1""#,
        r#" stroke="none""#,
        r#" font-family="sans-serif""#,
    ] {
        out = out.replace(label, "");
    }
    Ok(out)
}

const TEXT: RGBColor = RGBColor(0x16, 0x19, 0x1d);
pub(crate) const MUTED: RGBColor = RGBColor(0x59, 0x61, 0x6c);
const GRID: RGBColor = RGBColor(0xd9, 0xdd, 0xe3);
const HEAD: RGBColor = RGBColor(0x00, 0x72, 0xb2);
const SLOW: RGBColor = RGBColor(0xb8, 0x40, 0x0a);
/// The implementation's own choice.
pub(crate) const AUTO: RGBColor = RGBColor(0xa3, 0x35, 0x6f);
/// Each colour's name in the style sheet, which has a light and a dark value of it.
const VARIABLES: [(RGBColor, &str); 6] = [
    (TEXT, "text"),
    (MUTED, "muted"),
    (GRID, "line"),
    (HEAD, "head"),
    (SLOW, "slow"),
    (AUTO, "auto"),
];

/// Letters of a size in pixels, their middle at the height of where they are put.
fn letters(pixels: u32, ink: RGBColor, at: HPos) -> TextStyle<'static> {
    // plotters counts the line, not the letter.
    TextStyle {
        font: ("sans-serif", 1.24 * f64::from(pixels)).into_font(),
        color: ink.to_backend_color(),
        pos: Pos::new(at, VPos::Center),
    }
}

/// True for what has a place on a logarithmic axis.
pub(super) fn is_drawable(value: f64) -> bool {
    (1e-12..1e21).contains(&value)
}

/// A range that holds all values, with a little room at its ends, by logarithms.
fn log_range(values: impl IntoIterator<Item = f64>) -> Range<f64> {
    let values = values.into_iter().filter(|value| is_drawable(*value));
    let (low, high) = values.fold((f64::INFINITY, 0_f64), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low > high {
        return 1.0..10.0;
    }
    let room = (high / low).powf(0.06).max(1.1);
    low / room..high * room
}

/// Round values within a range of a logarithmic axis, about as many as asked for.
fn log_ticks(range: &Range<f64>, about: usize) -> Vec<f64> {
    if range.end / range.start <= 4.0 {
        return RangedCoordf64::from(range.clone()).key_points(about);
    }
    let decades = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
    let within = |factors: &[f64]| -> Vec<f64> {
        let decades = decades.clone().map(|decade| 10f64.powi(decade));
        let ticks = decades.flat_map(|decade| factors.iter().map(move |f| f * decade));
        ticks.filter(|tick| range.contains(tick)).collect()
    };
    let fine = within(&[1.0, 2.0, 5.0]);
    if fine.len() <= 2 * about {
        return fine;
    }
    let coarse = within(&[1.0]);
    let every = coarse.len().div_ceil(2 * about).max(1);
    coarse.into_iter().step_by(every).collect()
}

/// Labels of times in nanoseconds: one unit, and as many digits as keep neighbours apart.
fn time_labels(ticks: &[f64]) -> impl Fn(&f64) -> String + use<> {
    let (scale, unit) = match ticks.iter().copied().fold(0.0, f64::max) {
        ns if ns < 1e3 => (1.0, "ns"),
        ns if ns < 1e6 => (1e3, "µs"),
        ns if ns < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let steps = ticks.windows(2).map(|pair| (pair[1] - pair[0]) / scale);
    let digits = steps.map(|step| -(step * 1.0001).log10().floor());
    let digits = digits.fold(0.0, f64::max).min(6.0) as usize;
    move |tick| format!("{:.digits$} {unit}", tick / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_times_can_be_drawn() {
        let odd = [f64::NAN, 0.0, -1.0, f64::INFINITY, 1e-9, 1.0, 1e9];
        for count in [0, 1, 7, 300] {
            let points = odd.into_iter().cycle().take(count).zip(0..);
            let points = points.map(|(ns, at)| (1000 * at, ns, format!("<{at}>")));
            let figure = TimePlot {
                title: "<x>".to_owned(),
                size: (900, 240),
                points: points.collect(),
                steps: vec![(2_500, 1.0, 2.0), (9_000, f64::NAN, 1.0)],
                levels: vec![(1e6, "allowed", MUTED)],
                mark: (count > 1).then(|| (500, 2.0, "auto became 1".to_owned())),
                ..TimePlot::default()
            };
            let drawn = svg(&figure).unwrap();
            assert!(!drawn.contains("<x>") && !drawn.contains("NaN"), "{drawn}");
            assert!(drawn.contains(">allowed</text>"));
            assert_eq!(drawn.contains("auto became 1</text>"), count > 1);
        }
    }

    #[test]
    fn ticks_are_round_and_differ() {
        let labels = |range: Range<f64>| -> Vec<String> {
            let ticks = log_ticks(&range, 4);
            ticks.iter().map(time_labels(&ticks)).collect()
        };
        let narrow = labels(1.02985e6..1.03445e6);
        assert_eq!(narrow, ["1.030 ms", "1.032 ms", "1.034 ms"]);
        let wide = ["1 ms", "2 ms", "5 ms", "10 ms", "20 ms", "50 ms", "100 ms"];
        assert_eq!(labels(log_range([1.04e6, 105.2e6])), wide);
        assert!(log_ticks(&log_range([1e-300, 1e300, f64::NAN]), 5).len() < 50);
        assert!(log_ticks(&log_range([1e-11, 1e20]), 5).len() < 50);
    }
}
