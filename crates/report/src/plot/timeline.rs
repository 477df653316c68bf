//! What ran when: a row a stream, kernels coloured by name, idle time below.
//!
//! It is thousands of rectangles, and each says what it is when pointed at. Operations
//! narrower than a pixel are drawn as one with their neighbours.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::scale::{Scale, time_labels};
use super::{Ink, opening};
use crate::text::{escaped, one_line, shorten};
use regatta_core::machine::{Recorded, Recording, Work, short};
use regatta_worker::units::{Bytes, NONE, Nanoseconds};

const WIDTH: i32 = 1140;
const LEFT: i32 = 150;
const RIGHT: i32 = 1124;
const TOP: i32 = 8;
const ROW: i32 = 26;
const BAR: i32 = 18;

/// Rows that are drawn; the busiest streams, where there are more.
const ROWS: usize = 20;

/// Operations that are drawn.
pub(crate) const DRAWN: usize = 4_000;

/// A stretch of a recording to draw.
pub(crate) struct Timeline<'a> {
    /// Its operations and gaps.
    pub recording: &'a Recording,
    /// What it shows, in a few words.
    pub title: &'a str,
    /// Kernels with a colour, in the order of the colours.
    pub coloured: &'a [String],
    /// Its start, in nanoseconds.
    pub from: u64,
    /// Its end.
    pub to: u64,
    /// A part of it to mark.
    pub marked: Option<(u64, u64)>,
}

type Lane = (u32, u32, Option<u32>);

/// Draws it; `None` when nothing ran in it.
pub(crate) fn timeline(of: &Timeline) -> Option<String> {
    let mut lanes: BTreeMap<Lane, Vec<&Recorded>> = BTreeMap::new();
    for operation in &of.recording.operations {
        if operation.start_ns < of.to && operation.end_ns > of.from {
            let lane = (operation.process, operation.device, operation.stream);
            lanes.entry(lane).or_default().push(operation);
        }
    }
    if lanes.is_empty() || of.to <= of.from {
        return None;
    }
    let hidden = lanes.len().saturating_sub(ROWS);
    if hidden > 0 {
        let mut counts: Vec<usize> = lanes.values().map(Vec::len).collect();
        counts.sort_unstable();
        let least = counts[hidden];
        lanes.retain(|_, operations| operations.len() >= least);
        while lanes.len() > ROWS {
            lanes.pop_last();
        }
    }
    let bottom = TOP + ROW * (lanes.len() as i32 + 1);
    let height = bottom + 30;
    let mut svg = Svg {
        of,
        out: opening("plot timeline", (WIDTH, height), of.title),
    };
    svg.axis(bottom);
    for (row, (lane, operations)) in lanes.iter().enumerate() {
        let y = TOP + ROW * row as i32;
        svg.label(&name(of.recording, *lane, &lanes), y);
        svg.lane(operations, y);
    }
    svg.label("idle", bottom - ROW);
    svg.gaps(bottom - ROW);
    if hidden > 0 {
        let words = format!("{hidden} less busy streams are not drawn");
        let _ = write!(
            svg.out,
            r#"<text class="f-muted" x="{RIGHT}" y="{}" font-size="11" text-anchor="end">{words}</text>"#,
            height - 2
        );
    }
    svg.out.push_str("</svg>");
    Some(svg.out)
}

/// `GPU 0 stream 7`, with the process where there are several.
fn name(recording: &Recording, lane: Lane, lanes: &BTreeMap<Lane, Vec<&Recorded>>) -> String {
    let (process, device, stream) = lane;
    let stream = stream.map_or(NONE.to_owned(), |stream| stream.to_string());
    let alone = lanes.keys().all(|(other, ..)| *other == process);
    let pid = recording
        .processes
        .get(process as usize)
        .map_or(0, |process| process.pid);
    match alone {
        true => format!("GPU {device} stream {stream}"),
        false => format!("{pid}: GPU {device} stream {stream}"),
    }
}

struct Svg<'a> {
    of: &'a Timeline<'a>,
    out: String,
}

impl Svg<'_> {
    /// Pixels of a time, within the plot.
    fn x(&self, at: u64) -> f64 {
        let share = (at.clamp(self.of.from, self.of.to) - self.of.from) as f64
            / (self.of.to - self.of.from) as f64;
        f64::from(LEFT) + share * f64::from(RIGHT - LEFT)
    }

    fn axis(&mut self, bottom: i32) {
        if let Some((from, to)) = self.of.marked {
            let (x, end) = (self.x(from), self.x(to));
            let _ = write!(
                self.out,
                r#"<rect class="f-band" x="{x:.1}" y="{}" width="{:.1}" height="{}"><title>steady state</title></rect>"#,
                TOP - 6,
                (end - x).max(1.0),
                bottom - TOP + 6
            );
        }
        let span = (self.of.to - self.of.from) as f64;
        let ticks = Scale::linear_between(0.0, span, LEFT, RIGHT).ticks(7);
        for (tick, label) in ticks.iter().zip(time_labels(&ticks)) {
            let x = self.x(self.of.from + *tick as u64).round();
            let _ = write!(
                self.out,
                r#"<path class="s-grid" d="M{x} {TOP}V{bottom}"/><text class="f-muted" x="{x}" y="{}" font-size="11" text-anchor="middle">{}</text>"#,
                bottom + 16,
                escaped(&label)
            );
        }
    }

    fn label(&mut self, text: &str, y: i32) {
        let _ = write!(
            self.out,
            r#"<text class="f-text" x="{}" y="{}" font-size="12" text-anchor="end">{}</text>"#,
            LEFT - 10,
            y + BAR - 5,
            escaped(&shorten(text, 24))
        );
    }

    fn lane(&mut self, operations: &[&Recorded], y: i32) {
        let mut drawn = 0;
        let mut until = f64::NEG_INFINITY;
        for operation in operations {
            let (x, end) = (self.x(operation.start_ns), self.x(operation.end_ns));
            // Within the pixel of the one before nothing could be told apart.
            if end < until + 0.5 || drawn > DRAWN {
                continue;
            }
            let x = x.max(until.min(end - 0.3));
            until = end.max(x + 0.6);
            drawn += 1;
            let _ = write!(
                self.out,
                r#"<rect class="{}" x="{x:.2}" y="{y}" width="{:.2}" height="{BAR}"><title>{}</title></rect>"#,
                self.class(operation),
                until - x,
                escaped(&self.told(operation))
            );
        }
    }

    fn class(&self, operation: &Recorded) -> &'static str {
        match &operation.work {
            Work::Kernel(kernel) => {
                let name = self.of.recording.name(kernel);
                match self.of.coloured.iter().position(|known| known == name) {
                    Some(number) => Ink::Kind(number as u8).class(),
                    None => "kx",
                }
            }
            Work::Copy { .. } => "kcopy",
            Work::Set { .. } => "kset",
        }
    }

    fn told(&self, operation: &Recorded) -> String {
        let size = |bytes: Option<u64>| bytes.map_or(NONE.to_owned(), |b| Bytes(b).to_string());
        let time = Nanoseconds(operation.ns() as f64);
        match &operation.work {
            Work::Kernel(kernel) => {
                let [x, y, z] = kernel.grid;
                let name = short(self.of.recording.name(kernel));
                format!("{} {x}x{y}x{z}: {time}", one_line(&name))
            }
            Work::Copy { direction, bytes } => {
                format!("copy {} {}: {time}", one_line(direction), size(*bytes))
            }
            Work::Set { bytes } => format!("set {}: {time}", size(*bytes)),
        }
    }

    /// Of each gap, first what the host is waited for, then the rest.
    fn gaps(&mut self, y: i32) {
        for gap in self.of.recording.gaps() {
            let launched = gap.start_ns + gap.host_ns.unwrap_or(0);
            self.gap(
                (gap.start_ns, launched),
                "khost",
                "idle, waiting for the host",
                y,
            );
            self.gap((launched, gap.end_ns), "kidle", "idle", y);
        }
    }

    fn gap(&mut self, (from, to): (u64, u64), class: &str, why: &str, y: i32) {
        let (x, end) = (self.x(from), self.x(to));
        if end - x < 0.5 {
            return;
        }
        let _ = write!(
            self.out,
            r#"<rect class="{class}" x="{x:.2}" y="{}" width="{:.2}" height="8"><title>{why}: {}</title></rect>"#,
            y + 5,
            end - x,
            Nanoseconds((to - from) as f64)
        );
    }
}

/// The stretch to draw of a recording: all of it, or where most operations fall into so
/// small a part that [`DRAWN`] can be drawn.
pub(crate) fn busiest(recording: &Recording) -> Option<(u64, u64)> {
    let operations = &recording.operations;
    let (first, last) = (operations.first()?, operations.last()?);
    if operations.len() <= DRAWN {
        let end = operations.iter().map(|operation| operation.end_ns).max();
        return Some((
            first.start_ns,
            end.unwrap_or(last.end_ns).max(first.start_ns + 1),
        ));
    }
    let spans = operations
        .windows(DRAWN)
        .map(|w| (w[0].start_ns, w[DRAWN - 1].start_ns));
    let (from, to) = spans.min_by_key(|(from, to)| to - from)?;
    Some((from, to.max(from + 1)))
}
