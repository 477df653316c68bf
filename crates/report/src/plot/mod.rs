//! Figures, and the canvas that they are drawn on: each mark is written as SVG the moment it is
//! drawn, neighbouring lines or dots of one kind as a single path.
//!
//! A figure is an inline `<svg>` without a background, whose colours are classes
//! (`f-head` fills, `s-head` strokes) that the page's style sheet gives a light
//! and a dark value. Label extents are guessed by whoever draws without fonts,
//! so margins are wide and labels too close to each other are left out.

mod ratios;
mod scale;
mod timeline;
mod variants;

pub(super) use ratios::{NAMED, Stop, Whisker, forest, versions};
pub(super) use timeline::{DRAWN, Timeline, busiest, timeline};
pub(super) use variants::{Bar, Splits, splits, throughput};

use std::fmt::Write as _;

use crate::text::escaped;

/// What a figure is called and how large it is.
pub struct Frame<'a> {
    /// What it shows, in a few words.
    pub title: &'a str,
    /// What can be read from it, for those who cannot see it.
    pub description: &'a str,
    /// Pixels.
    pub size: (i32, i32),
}

impl Frame<'_> {
    /// Draws on an empty canvas.
    pub fn draw(&self, draw: impl FnOnce(&mut Canvas)) -> String {
        let mut canvas = Canvas {
            svg: opening("plot", self.size, self.title),
            open: None,
        };
        canvas.write(format_args!("<desc>{}</desc>", escaped(self.description)));
        draw(&mut canvas);
        canvas.close();
        canvas.svg + "</svg>"
    }
}

/// How the SVG of a figure begins: its classes, its size, and its name for screen readers.
pub fn opening(class: &str, (width, height): (i32, i32), title: &str) -> String {
    format!(
        r#"<svg class="{class}" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"><title>{}</title>"#,
        escaped(title)
    )
}

/// Where a text's own point is.
#[derive(Clone, Copy)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// What a path is drawn with; marks of one pen share a path.
#[derive(Clone, Copy, PartialEq)]
enum Pen {
    Line { ink: Ink, width: u32 },
    Dot { ink: Ink, radius: i32 },
}

/// Marks in pixels; the few kinds that figures here are made of.
pub struct Canvas {
    svg: String,
    /// Of the path that is being written, for the next mark to join.
    open: Option<Pen>,
}

pub type Point = (i32, i32);

impl Canvas {
    pub fn line(&mut self, from: Point, to: Point, ink: Ink, width: u32) {
        self.path(&[from, to], ink, width);
    }

    pub fn path(&mut self, points: &[Point], ink: Ink, width: u32) {
        self.take(Pen::Line { ink, width });
        for (number, (x, y)) in points.iter().enumerate() {
            let step = if number == 0 { 'M' } else { 'L' };
            self.write(format_args!("{step}{x} {y}"));
        }
    }

    pub fn dashed(&mut self, from: Point, to: Point, ink: Ink) {
        let (dash, gap) = (5, 4);
        for x in (from.0..to.0).step_by(dash + gap) {
            let end = (x + dash as i32).min(to.0);
            self.line((x, from.1), (end, to.1), ink, 1);
        }
    }

    pub fn dot(&mut self, (x, y): Point, radius: i32, ink: Ink) {
        self.take(Pen::Dot { ink, radius });
        self.write(format_args!("M{x} {y}h0"));
    }

    pub fn diamond(&mut self, (x, y): Point, radius: i32, ink: Ink) {
        let corners = [
            (x, y - radius),
            (x + radius, y),
            (x, y + radius),
            (x - radius, y),
        ];
        self.polygon(&corners, ink);
    }

    /// An arrow head at a point; it is `length` long, to the left when negative.
    pub fn triangle(&mut self, (x, y): Point, length: i32, ink: Ink) {
        let half = length.abs() / 2 + 1;
        self.polygon(
            &[(x, y), (x - length, y - half), (x - length, y + half)],
            ink,
        );
    }

    fn polygon(&mut self, corners: &[Point], ink: Ink) {
        self.close();
        let corners: Vec<String> = corners.iter().map(|(x, y)| format!("{x},{y}")).collect();
        self.write(format_args!(
            r#"<polygon class="f-{}" points="{}"/>"#,
            ink.class(),
            corners.join(" ")
        ));
    }

    pub fn block(&mut self, (left, top): Point, (right, bottom): Point, ink: Ink) {
        self.close();
        self.write(format_args!(
            r#"<rect class="f-{}" x="{left}" y="{top}" width="{}" height="{}"/>"#,
            ink.class(),
            right - left,
            bottom - top
        ));
    }

    /// Text of a size in pixels, its middle at the height of `at`.
    pub fn text(&mut self, text: &str, (x, y): Point, anchor: Anchor, pixels: u32, ink: Ink) {
        self.close();
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        self.write(format_args!(
            r#"<text class="f-{}" x="{x}" y="{y}" dy=".35em" font-size="{pixels}"{anchor}>{}</text>"#,
            ink.class(),
            escaped(text)
        ));
    }

    /// Goes on with the open path when it is of this pen, or opens one.
    fn take(&mut self, pen: Pen) {
        if self.open == Some(pen) {
            return;
        }
        self.close();
        let (ink, dots, width) = match pen {
            Pen::Line { ink, width } => (ink, "", width.cast_signed()),
            // A line of no length with round ends is a dot.
            Pen::Dot { ink, radius } => (ink, " dots", 2 * radius),
        };
        let class = ink.class();
        self.write(format_args!(
            r#"<path class="s-{class}{dots}" stroke-width="{width}" d=""#
        ));
        self.open = Some(pen);
    }

    fn close(&mut self) {
        if self.open.take().is_some() {
            self.svg.push_str("\"/>");
        }
    }

    fn write(&mut self, svg: std::fmt::Arguments) {
        // A string takes whatever is written.
        let _ = self.svg.write_fmt(svg);
    }
}

/// Kinds that have a colour of their own.
pub(crate) const COLOURS: usize = 7;

/// What a mark means; the page decides what colour that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Labels.
    Text,
    /// Labels of less weight.
    Muted,
    /// Grid lines and axes.
    Grid,
    /// The band of changes too small to count.
    Band,
    /// The base.
    Base,
    /// The head.
    Head,
    /// Slower than it should be.
    Slow,
    /// Faster.
    Fast,
    /// What the implementation chose by itself.
    Auto,
    /// One of several kinds that are told apart by colour, from 0; all beyond the last
    /// colour look alike.
    Kind(u8),
}

impl Ink {
    /// The name in the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Ink::Text => "text",
            Ink::Muted => "muted",
            Ink::Grid => "grid",
            Ink::Band => "band",
            Ink::Base => "base",
            Ink::Head => "head",
            Ink::Slow => "slow",
            Ink::Fast => "fast",
            Ink::Auto => "auto",
            Ink::Kind(number) => {
                const KINDS: [&str; COLOURS] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6"];
                KINDS.get(usize::from(number)).unwrap_or(&"kx")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_a_kind_become_one_path() {
        let frame = Frame {
            title: "<t>",
            description: "d",
            size: (9, 9),
        };
        let svg = frame.draw(|canvas| {
            canvas.dot((1, 2), 3, Ink::Head);
            canvas.dot((4, 5), 3, Ink::Head);
            canvas.line((1, 2), (4, 5), Ink::Head, 6);
            canvas.text("a < b", (1, 2), Anchor::End, 11, Ink::Muted);
        });
        insta::assert_snapshot!(svg);
    }
}
