//! Lines over a quantity: times over an axis, a parameter or the runs of a history, and rates under
//! the roof of a device.

use plotters::style::text_anchor::HPos;

use super::paint::{fitted, width};
use super::scale::{Scale, is_drawable, time_labels};
use super::{At, Figure, LABEL, Letters, NAME, Sheet};
use regatta_worker::units::{Rate, Ratio};

/// The quantity upwards.
#[derive(Clone, Copy, Default)]
pub(crate) enum AxisUnit {
    /// Nanoseconds.
    #[default]
    Time,
    /// Operations a second.
    Flops,
    /// Times as long.
    Factor,
}

/// Lines and points on logarithmic axes.
#[derive(Clone, Default)]
pub(crate) struct LinePlot {
    /// The quantity across; empty if the labels say it.
    pub across: String,
    /// The labels across, each at its value; without any, round values have one.
    pub labels: Vec<(f64, String)>,
    /// True where the values across are logarithmic too.
    pub logarithmic: bool,
    /// The quantity upwards.
    pub unit: AxisUnit,
    /// The lines, of which several are named.
    pub lines: Vec<PlotLine>,
    /// Values from end to end, the word beside each, and its colour.
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
    /// Each value across with its value upwards; its name is what a pointer sees.
    pub points: Vec<(f64, f64, String)>,
    pub kind: PlotLineKind,
}

/// The way in which a line is drawn.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum PlotLineKind {
    /// A line with a dot at each point.
    #[default]
    Dotted,
    /// Dashes, and smaller dots: a base.
    Dashed,
    /// Dots alone.
    Apart,
    /// A line alone: a roof.
    Bare,
}

/// A line of more points has no dots.
const MAX_DOTTED: usize = 40;

/// Dots of a line that is dots alone, about.
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
        // Lines have their names at their ends where there is room; dots have a key.
        let keyed = narrow
            || self
                .lines
                .iter()
                .any(|line| line.kind == PlotLineKind::Apart);
        if narrow {
            key(&mut sheet, &named, (4.0, 10.0), wide);
            top += 18.0 * named.len() as f64;
        }
        let names = named.iter().map(|line| width(&line.name, 12.0, true));
        let words = self
            .levels
            .iter()
            .map(|(_, word, _)| width(word, 11.0, false));
        let beside = words.chain(names.filter(|_| !narrow)).fold(0.0, f64::max);
        let beside = beside.min(0.35 * wide) + if beside > 0.0 { 26.0 } else { 8.0 };
        let bottom = top + self.tall - if self.across.is_empty() { 28.0 } else { 48.0 };

        let points = || self.lines.iter().flat_map(|line| &line.points);
        let drawable = || points().filter(|(_, value, _)| is_drawable(*value));
        let marked = || drawable().chain(&self.mark);
        let levels = self.levels.iter().map(|(value, ..)| *value);
        let upwards = marked().map(|(_, value, _)| *value).chain(levels);
        let up = Scale::log(upwards, bottom..top);
        let ticks = up.ticks(5);
        let print = self.unit.labels(&ticks);
        let widest = ticks.iter().map(|tick| width(&print(tick), 11.0, false));
        let left = widest.fold(0.0, f64::max) + 10.0;
        let right = wide - beside;
        for tick in &ticks {
            let y = up.at(*tick);
            sheet.line([(left, y), (right, y)], 1.0, "line");
            sheet.text((left - 8.0, y), print(tick), LABEL, HPos::Right);
        }
        let across = marked().map(|(at, ..)| *at);
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
        let round = || {
            across
                .ticks(6)
                .into_iter()
                .map(|tick| (tick, super::scale::short(tick)))
        };
        let labels = if self.labels.is_empty() {
            round().collect()
        } else {
            self.labels.clone()
        };
        let mut last = f64::NEG_INFINITY;
        for (at, label) in &labels {
            let (x, half) = (across.at(*at), width(label, 11.0, false) / 2.0);
            if x - half > last {
                last = x + half + 8.0;
                sheet.text((x, bottom + 14.0), label, LABEL, HPos::Center);
            }
        }
        let middle = (left + right) / 2.0;
        sheet.text((middle, bottom + 36.0), &self.across, NAME, HPos::Center);
        sheet.height = top + self.tall;

        for (value, word, ink) in &self.levels {
            let y = up.at(*value);
            sheet.dashed(&[(left, y), (right, y)], 1.0, ink);
            sheet.text(
                (right + 8.0, y),
                *word,
                Letters(11.0, ink, false),
                HPos::Left,
            );
        }
        let mut ends: Vec<(At, &PlotLine)> = Vec::new();
        for line in &self.lines {
            let points = line
                .points
                .iter()
                .filter(|(_, value, _)| is_drawable(*value));
            let points: Vec<_> = points.collect();
            let places: Vec<At> = points
                .iter()
                .map(|(x, y, _)| (across.at(*x), up.at(*y)))
                .collect();
            let is_dotted = line.kind == PlotLineKind::Apart || points.len() <= MAX_DOTTED;
            let radius = match line.kind {
                PlotLineKind::Dotted => {
                    sheet.line(places.clone(), 2.0, line.ink);
                    3.5
                }
                PlotLineKind::Dashed => {
                    sheet.dashed(&places, 1.5, line.ink);
                    2.5
                }
                PlotLineKind::Apart => 4.0,
                PlotLineKind::Bare => {
                    sheet.line(places.clone(), 1.5, line.ink);
                    0.0
                }
            };
            let every = points.len().div_ceil(MAX_DOTS).max(1);
            let dots = points.iter().zip(&places).step_by(every);
            for ((_, value, name), place) in dots.filter(|_| radius > 0.0 && is_dotted) {
                sheet.dot(
                    *place,
                    radius,
                    line.ink,
                    format!("{name}: {}", print(value)),
                );
            }
            ends.extend(
                places
                    .last()
                    .filter(|_| !line.name.is_empty())
                    .map(|end| (*end, line)),
            );
        }
        if !keyed {
            name_ends(&mut sheet, ends, beside - 16.0, bottom);
        } else if !narrow {
            key(&mut sheet, &named, (right + 16.0, top + 8.0), wide);
        }
        let (from, to) = (across.values.start, across.values.end);
        for (place, (at, before, after)) in self.steps.iter().enumerate() {
            let last = place.checked_sub(1).map(|last| self.steps[last].0);
            let next = self.steps.get(place + 1).map(|next| next.0);
            let (from, to) = (last.unwrap_or(from), next.unwrap_or(to));
            if is_drawable(*before) && is_drawable(*after) {
                let level = [(from, *before), (*at, *before), (*at, *after), (to, *after)];
                sheet.line(level.map(|(x, y)| (across.at(x), up.at(y))), 2.0, "slow");
            }
        }
        if let Some((at, value, name)) = &self.mark {
            let (x, y) = (across.at(*at), up.at(*value));
            sheet.diamond((x, y), 8.0, "auto", format!("{name}: {}", print(value)));
            // Above its line, where the curve never is, and within the figure.
            let (anchor, x) = if x > middle {
                (HPos::Right, x + 8.0)
            } else {
                (HPos::Left, x - 8.0)
            };
            sheet.text((x, y - 18.0), name, Letters(12.0, "auto", true), anchor);
        }
        sheet
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
        sheet.text(
            (*x + 10.0, *y),
            name,
            Letters(12.0, line.ink, true),
            HPos::Left,
        );
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
