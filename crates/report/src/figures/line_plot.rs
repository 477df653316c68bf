//! Line plots: times over an axis, a parameter or the runs of a history, and rates under the roof
//! of a device.

use plotters::style::text_anchor::HPos;

use super::paint::{fitted, width};
use super::scale::{Scale, is_drawable, short, time_labels};
use super::{At, Figure, LABEL, Letters, NAME, Sheet};
use regatta_worker::units::{Rate, Ratio};

/// The unit of the vertical axis.
#[derive(Clone, Copy, Default)]
pub(crate) enum AxisUnit {
    /// Nanoseconds.
    #[default]
    Time,
    /// Operations a second.
    Flops,
    /// A ratio of times.
    Factor,
}

/// Lines and points on logarithmic axes.
#[derive(Clone, Default)]
pub(crate) struct LinePlot {
    /// The name of the horizontal axis; empty if the labels make it clear.
    pub across: String,
    /// The labels of the horizontal axis, each with its value; if empty, round values are labelled.
    pub labels: Vec<(f64, String)>,
    /// True if the horizontal axis is logarithmic too.
    pub logarithmic: bool,
    /// The unit of the vertical axis.
    pub unit: AxisUnit,
    /// The lines; if there are several, their names are drawn.
    pub lines: Vec<PlotLine>,
    /// Horizontal lines through the plot: the value, the word beside it, and the colour.
    pub levels: Vec<(f64, &'static str, &'static str)>,
    /// The changes of level: the place, and the values before and after it.
    pub steps: Vec<(f64, f64, f64)>,
    /// A single point with its name.
    pub mark: Option<(f64, f64, String)>,
    /// Height of the plot in pixels.
    pub tall: f64,
}

/// A line.
#[derive(Clone, Default)]
pub(crate) struct PlotLine {
    pub name: String,
    /// The colour, as the style sheet names it.
    pub ink: &'static str,
    /// The points: x, y and the text shown under a pointer.
    pub points: Vec<(f64, f64, String)>,
    pub kind: PlotLineKind,
}

/// The way in which a line is drawn.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum PlotLineKind {
    /// A line with a dot at each point.
    #[default]
    Dotted,
    /// A dashed line with smaller dots, for a base.
    Dashed,
    /// Dots without a line.
    Apart,
    /// A line without dots, for a roof.
    Bare,
}

/// The largest number of points of a line with dots.
const MAX_DOTTED: usize = 40;

/// The approximate number of dots of a line that has only dots.
const MAX_DOTS: usize = 150;

impl LinePlot {
    /// The figure of it.
    pub(crate) fn figure(self, kind: &'static str, title: String, about: String) -> Figure {
        Figure::new(kind, title, about, move |wide| self.draw(wide))
    }

    /// Draws it at a width in pixels.
    pub(crate) fn draw(&self, wide: f64) -> Sheet {
        let mut sheet = Sheet::default();
        let narrow = wide < 600.0;
        let named = self.lines.iter().filter(|line| !line.name.is_empty());
        let named: Vec<&PlotLine> = named.collect();
        let mut top = if self.mark.is_some() { 40.0 } else { 12.0 };
        if narrow {
            key(&mut sheet, &named, (4.0, 10.0), wide);
            top += 18.0 * named.len() as f64;
        }
        let beside = self.room_beside(wide, if narrow { &[] } else { &named });
        let bottom = top + self.tall - if self.across.is_empty() { 28.0 } else { 48.0 };
        let axes = self.axes((top, bottom), wide - beside);
        sheet.height = top + self.tall;
        self.draw_axes(&mut sheet, &axes);
        self.draw_levels(&mut sheet, &axes);
        let ends: Vec<(At, &PlotLine)> = (self.lines.iter())
            .filter_map(|line| Some((line.draw(&mut sheet, &axes)?, line)))
            .filter(|(_, line)| !line.name.is_empty())
            .collect();
        // Lines have their names at their ends if there is room; dots have a key.
        let has_dots = (self.lines.iter()).any(|line| line.kind == PlotLineKind::Apart);
        if !narrow && has_dots {
            key(&mut sheet, &named, (axes.right + 16.0, top + 8.0), wide);
        } else if !narrow {
            name_ends(&mut sheet, ends, beside - 16.0, bottom);
        }
        self.draw_steps(&mut sheet, &axes);
        self.draw_mark(&mut sheet, &axes);
        sheet
    }

    /// The width of the words of levels and of these names to the right of the plot.
    fn room_beside(&self, wide: f64, named: &[&PlotLine]) -> f64 {
        let names = named.iter().map(|line| width(&line.name, 12.0, true));
        let levels = self.levels.iter();
        let words = levels.map(|(_, word, _)| width(word, 11.0, false));
        let beside = words.chain(names).fold(0.0, f64::max);
        beside.min(0.35 * wide) + if beside > 0.0 { 26.0 } else { 8.0 }
    }

    /// The axes between these heights, up to the right end.
    fn axes(&self, (top, bottom): (f64, f64), right: f64) -> PlotAxes {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let drawable = points.filter(|(_, value, _)| is_drawable(*value));
        let marked: Vec<_> = drawable.chain(&self.mark).collect();
        let levels = self.levels.iter().map(|(value, ..)| *value);
        let upwards = marked.iter().map(|(_, value, _)| *value).chain(levels);
        let up = Scale::log(upwards, bottom..top);
        let print = self.unit.labels(&up.ticks(5));
        let widest = up.ticks(5).into_iter();
        let widest = widest.map(|tick| width(&print(&tick), 11.0, false));
        let left = widest.fold(0.0, f64::max) + 10.0;
        let across = marked.iter().map(|(at, ..)| *at);
        let across = if self.logarithmic {
            Scale::log(across, left..right)
        } else {
            let (from, to) = across.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| {
                (low.min(at), high.max(at))
            });
            let (from, to) = if from <= to { (from, to) } else { (0.0, 1.0) };
            let room = ((to - from) / 24.0).max(1e-3);
            Scale {
                values: from - room..to + room,
                pixels: left..right,
                logarithmic: false,
            }
        };
        PlotAxes {
            left,
            right,
            bottom,
            across,
            up,
            print,
        }
    }

    fn draw_axes(&self, sheet: &mut Sheet, axes: &PlotAxes) {
        for tick in axes.up.ticks(5) {
            let y = axes.up.at(tick);
            sheet.line([(axes.left, y), (axes.right, y)], 1.0, "line");
            let text = (axes.print)(&tick);
            sheet.text((axes.left - 8.0, y), text, LABEL, HPos::Right);
        }
        let labels = if self.labels.is_empty() {
            let ticks = axes.across.ticks(6).into_iter();
            ticks.map(|tick| (tick, short(tick))).collect()
        } else {
            self.labels.clone()
        };
        let mut last = f64::NEG_INFINITY;
        for (at, label) in &labels {
            let (x, half) = (axes.across.at(*at), width(label, 11.0, false) / 2.0);
            if x - half > last {
                last = x + half + 8.0;
                sheet.text((x, axes.bottom + 14.0), label, LABEL, HPos::Center);
            }
        }
        let middle = (axes.middle(), axes.bottom + 36.0);
        sheet.text(middle, &self.across, NAME, HPos::Center);
    }

    fn draw_levels(&self, sheet: &mut Sheet, axes: &PlotAxes) {
        for (value, word, ink) in &self.levels {
            let y = axes.up.at(*value);
            sheet.dashed(&[(axes.left, y), (axes.right, y)], 1.0, ink);
            let letters = Letters(11.0, ink, false);
            sheet.text((axes.right + 8.0, y), *word, letters, HPos::Left);
        }
    }

    fn draw_steps(&self, sheet: &mut Sheet, axes: &PlotAxes) {
        let (from, to) = (axes.across.values.start, axes.across.values.end);
        for (place, (at, before, after)) in self.steps.iter().enumerate() {
            let last = place.checked_sub(1).map(|last| self.steps[last].0);
            let next = self.steps.get(place + 1).map(|next| next.0);
            let (from, to) = (last.unwrap_or(from), next.unwrap_or(to));
            if is_drawable(*before) && is_drawable(*after) {
                let level = [(from, *before), (*at, *before), (*at, *after), (to, *after)];
                sheet.line(level.map(|(x, y)| axes.at(x, y)), 2.0, "slow");
            }
        }
    }

    fn draw_mark(&self, sheet: &mut Sheet, axes: &PlotAxes) {
        let Some((at, value, name)) = &self.mark else {
            return;
        };
        let (x, y) = axes.at(*at, *value);
        let text = format!("{name}: {}", (axes.print)(value));
        sheet.diamond((x, y), 8.0, "auto", text);
        // The name is above the mark's line, where the curve never is, and inside the figure.
        let (anchor, x) = if x > axes.middle() {
            (HPos::Right, x + 8.0)
        } else {
            (HPos::Left, x - 8.0)
        };
        sheet.text((x, y - 18.0), name, Letters(12.0, "auto", true), anchor);
    }
}

/// The axes of a plot in its figure, in pixels.
struct PlotAxes {
    left: f64,
    right: f64,
    bottom: f64,
    across: Scale,
    up: Scale,
    /// Prints a value upwards.
    print: Box<dyn Fn(&f64) -> String>,
}

impl PlotAxes {
    fn at(&self, across: f64, up: f64) -> At {
        (self.across.at(across), self.up.at(up))
    }

    fn middle(&self) -> f64 {
        f64::midpoint(self.left, self.right)
    }
}

impl PlotLine {
    /// Draws it and returns its end, if it has a point.
    fn draw(&self, sheet: &mut Sheet, axes: &PlotAxes) -> Option<At> {
        let points = self.points.iter();
        let points: Vec<_> = points.filter(|(_, value, _)| is_drawable(*value)).collect();
        let places: Vec<At> = points.iter().map(|(x, y, _)| axes.at(*x, *y)).collect();
        let radius = match self.kind {
            PlotLineKind::Dotted => {
                sheet.line(places.clone(), 2.0, self.ink);
                3.5
            }
            PlotLineKind::Dashed => {
                sheet.dashed(&places, 1.5, self.ink);
                2.5
            }
            PlotLineKind::Apart => 4.0,
            PlotLineKind::Bare => {
                sheet.line(places.clone(), 1.5, self.ink);
                0.0
            }
        };
        let is_dotted = self.kind == PlotLineKind::Apart || points.len() <= MAX_DOTTED;
        let every = points.len().div_ceil(MAX_DOTS).max(1);
        let dots = points.iter().zip(&places).step_by(every);
        for ((_, value, name), place) in dots.filter(|_| radius > 0.0 && is_dotted) {
            let text = format!("{name}: {}", (axes.print)(value));
            sheet.dot(*place, radius, self.ink, text);
        }
        places.last().copied()
    }
}

/// Writes the name of each line beside its colour.
fn key(sheet: &mut Sheet, lines: &[&PlotLine], (x, y): At, right: f64) {
    for (place, line) in lines.iter().enumerate() {
        let y = y + 18.0 * place as f64;
        if line.kind == PlotLineKind::Bare {
            sheet.line([(x - 4.0, y), (x + 4.0, y)], 2.0, line.ink);
        } else {
            sheet.dot((x, y), 4.0, line.ink, String::new());
        }
        let name = fitted(&line.name, 12.0, right - x - 10.0);
        sheet.text((x + 10.0, y), name, NAME, HPos::Left);
    }
}

/// Writes the names of lines beside their ends, none over another.
fn name_ends(sheet: &mut Sheet, mut ends: Vec<(At, &PlotLine)>, room: f64, bottom: f64) {
    const LINE: f64 = 15.0;
    ends.sort_by(|a, b| a.0.1.total_cmp(&b.0.1));
    for place in 1..ends.len() {
        ends[place].0.1 = ends[place].0.1.max(ends[place - 1].0.1 + LINE);
    }
    let mut limit = bottom;
    for ((x, y), line) in ends.iter_mut().rev() {
        *y = y.min(limit);
        limit = *y - LINE;
        let name = fitted(&line.name, 12.0, room);
        let letters = Letters(12.0, line.ink, true);
        sheet.text((*x + 10.0, *y), name, letters, HPos::Left);
    }
}

impl AxisUnit {
    /// Prints the values of an axis, and those beside it.
    fn labels(self, ticks: &[f64]) -> Box<dyn Fn(&f64) -> String> {
        match self {
            AxisUnit::Time => Box::new(time_labels(ticks)),
            AxisUnit::Flops => Box::new(|flops| format!("{}FLOP/s", Rate(flops / 1e12))),
            AxisUnit::Factor => Box::new(|factor| Ratio(*factor).factor()),
        }
    }
}
