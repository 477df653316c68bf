//! What ran when: a row a stream, kernels coloured by name, idle time below.
//!
//! It is thousands of rectangles, and each says what it is when pointed at. Operations
//! narrower than half a pixel are drawn as one with their neighbours.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use serde::Serialize;

use super::{AUTO, Drawn, GRID, KINDS, MUTED, Plot, SET, TEXT, letters, time_labels, variable};
use crate::text::{one_line, shorten};
use regatta_core::machine::{Recorded, Recording, Work, short};
use regatta_worker::units::{Bytes, NONE, Nanoseconds, counted};

// Twice as large as it is shown, for operations of half a pixel.
const WIDTH: u32 = 2280;
const LEFT: u32 = 300;
const RIGHT: u32 = 32;
const TOP: u32 = 16;
const BOTTOM: u32 = 60;
const ROW: u32 = 52;
const LETTERS: u32 = 23;
const TICKS: usize = 7;

/// Rows that are drawn; the busiest streams, where there are more.
const ROWS: usize = 20;

/// Operations that are drawn.
pub(crate) const DRAWN: usize = 4_000;

const OTHER: RGBColor = MUTED;
const COPY: RGBColor = AUTO;
const WAITING: RGBColor = TEXT;
const IDLE: RGBColor = GRID;

/// An entry of a timeline's legend: a variable of the style sheet, and what has its colour.
#[derive(Serialize)]
pub struct LegendView {
    colour: &'static str,
    name: String,
}

/// The legend of timelines that draw so many kernels.
pub(crate) fn legend(coloured: &[String], kernels: usize) -> Vec<LegendView> {
    let named = coloured.iter().zip(KINDS);
    let named = named.map(|(name, ink)| (ink, short(name)));
    let other = (kernels > coloured.len()).then_some((OTHER, "other kernels"));
    let rest = [
        (COPY, "copies"),
        (SET, "sets"),
        (WAITING, "idle, waiting for the host"),
        (IDLE, "idle otherwise"),
    ];
    let rest = other.into_iter().chain(rest);
    let entries = named.chain(rest.map(|(ink, name)| (ink, name.to_owned())));
    entries
        .map(|(ink, name)| LegendView {
            colour: variable(ink),
            name: shorten(&one_line(&name), 60),
        })
        .collect()
}

/// A stretch of a recording, its busiest streams.
pub(crate) struct Timeline<'a> {
    recording: &'a Recording,
    /// Kernels with a colour, in the order of the colours.
    coloured: &'a [String],
    /// Its start and its end, in nanoseconds.
    from: u64,
    to: u64,
    /// Operations by stream.
    lanes: Vec<(Lane, Vec<&'a Recorded>)>,
    /// Streams that are not drawn.
    hidden: usize,
}

/// Process, device and stream.
type Lane = (u32, u32, Option<u32>);

impl<'a> Timeline<'a> {
    /// A stretch by its start and its end; `None` where nothing ran in it.
    pub(crate) fn new(
        recording: &'a Recording,
        coloured: &'a [String],
        (from, to): (u64, u64),
    ) -> Option<Timeline<'a>> {
        let mut lanes: BTreeMap<Lane, Vec<&Recorded>> = BTreeMap::new();
        for operation in &recording.operations {
            if operation.start_ns < to && operation.end_ns > from {
                let lane = (operation.process, operation.device, operation.stream);
                lanes.entry(lane).or_default().push(operation);
            }
        }
        let mut lanes: Vec<_> = lanes.into_iter().collect();
        lanes.sort_by_key(|(_, operations)| Reverse(operations.len()));
        let hidden = lanes.len().saturating_sub(ROWS);
        lanes.truncate(ROWS);
        lanes.sort_by_key(|(lane, _)| *lane);
        (to > from && !lanes.is_empty()).then_some(Timeline {
            recording,
            coloured,
            from,
            to,
            lanes,
            hidden,
        })
    }

    fn ink(&self, operation: &Recorded) -> RGBColor {
        match &operation.work {
            Work::Kernel(kernel) => {
                let name = self.recording.name(kernel);
                let mut known = self.coloured.iter().zip(KINDS);
                let ink = known.find(|(known, _)| *known == name);
                ink.map_or(OTHER, |(_, ink)| ink)
            }
            Work::Copy { .. } => COPY,
            Work::Set { .. } => SET,
        }
    }

    fn tooltip(&self, operation: &Recorded) -> String {
        let size = |bytes: Option<u64>| bytes.map_or(NONE.to_owned(), |b| Bytes(b).to_string());
        let time = Nanoseconds(operation.ns() as f64);
        match &operation.work {
            Work::Kernel(kernel) => {
                let [x, y, z] = kernel.grid;
                let name = short(self.recording.name(kernel));
                format!("{name} {x}x{y}x{z}: {time}")
            }
            Work::Copy { direction, bytes } => format!("copy {direction} {}: {time}", size(*bytes)),
            Work::Set { bytes } => format!("set {}: {time}", size(*bytes)),
        }
    }

    /// `GPU 0 stream 7`, with the process where there are several.
    fn lane_name(&self, (process, device, stream): Lane, alone: bool) -> String {
        let stream = stream.map_or(NONE.to_owned(), |stream| stream.to_string());
        let known = self.recording.processes.get(process as usize);
        match (alone, known) {
            (true, _) => format!("GPU {device} stream {stream}"),
            (false, known) => {
                let pid = known.map_or(NONE.to_owned(), |process| process.pid.to_string());
                format!("{pid}: GPU {device} stream {stream}")
            }
        }
    }
}

impl Plot for Timeline<'_> {
    fn title(&self) -> String {
        "Operations by stream".to_owned()
    }

    fn description(&self) -> String {
        let operations = self.lanes.iter().map(|(_, operations)| operations.len());
        let operations = counted(operations.sum(), "operation");
        let time = Nanoseconds((self.to - self.from) as f64);
        let streams = counted(self.lanes.len(), "stream");
        format!("{operations} of {streams} in {time}")
    }

    fn size(&self) -> (u32, u32) {
        let rows = self.lanes.len() as u32 + 1;
        (WIDTH, TOP + ROW * rows + BOTTOM)
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        tooltips: &mut Vec<String>,
    ) -> Drawn<B> {
        let span = (self.to - self.from) as f64;
        let rows = 100 * (self.lanes.len() as i32 + 1);
        let ticks = RangedCoordf64::from(0.0..span).key_points(TICKS);
        let time_label = time_labels(&ticks);
        let alone = self.lanes.windows(2).all(|pair| pair[0].0.0 == pair[1].0.0);
        let names = self
            .lanes
            .iter()
            .map(|(lane, _)| self.lane_name(*lane, alone));
        let mut names: Vec<String> = names.collect();
        names.push("idle".to_owned());
        let middles = (50..rows).step_by(100).collect();
        let mut chart = ChartBuilder::on(area)
            .margin_top(TOP)
            .margin_right(RIGHT)
            .y_label_area_size(LEFT)
            .x_label_area_size(BOTTOM)
            .build_cartesian_2d(0.0..span, (rows..0).with_key_points(middles))?;
        let x = |at: u64| at.clamp(self.from, self.to) as f64 - self.from as f64;
        let name = |middle: &i32| {
            names
                .get(*middle as usize / 100)
                .map_or(String::new(), |n| shorten(n, 24))
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .x_labels(TICKS)
            .max_light_lines(0)
            .bold_line_style(GRID)
            .axis_style(TRANSPARENT)
            .x_label_style(letters(LETTERS - 1, MUTED, HPos::Center))
            .y_label_style(letters(LETTERS, TEXT, HPos::Right))
            .x_label_formatter(&time_label)
            .y_label_formatter(&name)
            .draw()?;
        let pixel = |at: u64, row: i32| chart.backend_coord(&(x(at), row));
        for (row, (_, operations)) in (0..rows).step_by(100).zip(&self.lanes) {
            let (mut until, mut drawn) = (i32::MIN, 0);
            for operation in operations {
                let (left, top) = pixel(operation.start_ns, row + 14);
                let (right, bottom) = pixel(operation.end_ns, row + 86);
                // Within the pixel of the one before nothing could be told apart.
                if right <= until || drawn > DRAWN {
                    continue;
                }
                let left = left.max(until);
                until = right.max(left + 1);
                drawn += 1;
                let corners = [(left, top), (until, bottom)];
                area.draw(&Rectangle::new(corners, self.ink(operation).filled()))?;
                tooltips.push(self.tooltip(operation));
            }
        }
        // Of each gap, first what the host is waited for, then the rest.
        for gap in self.recording.gaps() {
            let launched = gap.start_ns + gap.host_ns.unwrap_or(0);
            let waiting = (
                gap.start_ns,
                launched,
                WAITING,
                "idle, waiting for the host",
            );
            for (from, to, ink, why) in [waiting, (launched, gap.end_ns, IDLE, "idle")] {
                let (left, top) = pixel(from, rows - 65);
                let (right, bottom) = pixel(to, rows - 35);
                if right > left {
                    let corners = [(left, top), (right, bottom)];
                    area.draw(&Rectangle::new(corners, ink.filled()))?;
                    tooltips.push(format!("{why}: {}", Nanoseconds((to - from) as f64)));
                }
            }
        }
        if self.hidden > 0 {
            let words = format!("{} less busy streams are not drawn", self.hidden);
            let (width, height) = area.dim_in_pixel();
            let at = ((width - RIGHT) as i32, height as i32 - 12);
            area.draw(&Text::new(
                words,
                at,
                letters(LETTERS - 1, MUTED, HPos::Right),
            ))?;
        }
        Ok(())
    }
}

/// The stretch to draw of a recording: all of it, or where most operations fall into so
/// small a part that [`DRAWN`] can be drawn.
pub(crate) fn busiest(recording: &Recording) -> Option<(u64, u64)> {
    let operations = &recording.operations;
    let (first, last) = (operations.first()?, operations.last()?);
    if operations.len() <= DRAWN {
        let end = operations.iter().map(|operation| operation.end_ns).max();
        let end = end.unwrap_or(last.end_ns).max(first.start_ns + 1);
        return Some((first.start_ns, end));
    }
    let spans = operations
        .windows(DRAWN)
        .map(|w| (w[0].start_ns, w[DRAWN - 1].start_ns));
    let (from, to) = spans.min_by_key(|(from, to)| to - from)?;
    Some((from, to.max(from + 1)))
}
