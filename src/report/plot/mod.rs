//! Figures, one file each, drawn by plotters and made fit for a page by [`svg`].
//!
//! A figure is an inline `<svg>` without a background, whose colours are classes
//! (`f-head` fills, `s-head` strokes) that the page's style sheet gives a light
//! and a dark value. Label extents are guessed by whoever draws without fonts,
//! so margins are wide and labels too close to each other are left out.

mod forest;
mod ruler;
mod samples;
mod scale;
mod splits;
mod svg;
mod throughput;
mod timeline;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(super) use forest::{NAMED, Whisker, forest};
pub(super) use ruler::ruler;
pub(super) use samples::{Invocation, Strip, strip};
pub(super) use splits::{Splits, splits};
pub(super) use throughput::{Bar, throughput};
pub(super) use timeline::{COLOURS, DRAWN, Timeline, busiest, timeline};

use super::RenderError;

/// What a mark means; the page decides what colour that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
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
}

impl Ink {
    const ALL: [Ink; 9] = [
        Ink::Text,
        Ink::Muted,
        Ink::Grid,
        Ink::Band,
        Ink::Base,
        Ink::Head,
        Ink::Slow,
        Ink::Fast,
        Ink::Auto,
    ];

    /// The name in the style sheet.
    fn class(self) -> &'static str {
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
        }
    }

    /// A colour that stands for the ink between plotters and [`svg`]; never seen.
    fn code(self) -> RGBColor {
        RGBColor(0, 0, self as u8)
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// What a figure is called and how large it is.
struct Frame<'a> {
    /// Its name in errors.
    figure: &'static str,
    /// What it shows, in a few words.
    title: &'a str,
    /// What can be read from it, for those who cannot see it.
    description: &'a str,
    /// Pixels.
    size: (u32, u32),
}

impl Frame<'_> {
    /// Draws on an empty canvas and makes the result fit for the page.
    fn draw(&self, draw: impl FnOnce(&Canvas) -> Drawn) -> Result<String, RenderError> {
        let mut raw = String::new();
        let drawn = {
            let area = SVGBackend::with_string(&mut raw, self.size).into_drawing_area();
            let canvas = Canvas { area };
            draw(&canvas).and_then(|()| canvas.area.present().map_err(Into::into))
        };
        drawn.map_err(|problem| RenderError::Figure {
            figure: self.figure,
            problem: problem.to_string(),
        })?;
        Ok(svg::themed(&raw, self.size, self.title, self.description))
    }
}

/// Marks in pixels; the few kinds that figures here are made of.
struct Canvas<'a> {
    area: Area<'a>,
}

type Point = (i32, i32);

impl Canvas<'_> {
    fn line(&self, from: Point, to: Point, ink: Ink, width: u32) -> Drawn {
        self.path(vec![from, to], ink, width)
    }

    fn path(&self, points: Vec<Point>, ink: Ink, width: u32) -> Drawn {
        let style = ink.code().stroke_width(width);
        Ok(self.area.draw(&PathElement::new(points, style))?)
    }

    fn dashed(&self, from: Point, to: Point, ink: Ink) -> Drawn {
        let (dash, gap) = (5, 4);
        let mut x = from.0;
        while x < to.0 {
            let end = (x + dash).min(to.0);
            self.line((x, from.1), (end, to.1), ink, 1)?;
            x = end + gap;
        }
        Ok(())
    }

    fn dot(&self, at: Point, radius: i32, ink: Ink) -> Drawn {
        Ok(self
            .area
            .draw(&Circle::new(at, radius, ink.code().filled()))?)
    }

    fn diamond(&self, (x, y): Point, radius: i32, ink: Ink) -> Drawn {
        let corners = vec![
            (x, y - radius),
            (x + radius, y),
            (x, y + radius),
            (x - radius, y),
        ];
        Ok(self
            .area
            .draw(&Polygon::new(corners, ink.code().filled()))?)
    }

    /// An arrow head at a point; it is `length` long, to the left when negative.
    fn triangle(&self, (x, y): Point, length: i32, ink: Ink) -> Drawn {
        let half = length.abs() / 2 + 1;
        let corners = vec![(x, y), (x - length, y - half), (x - length, y + half)];
        Ok(self
            .area
            .draw(&Polygon::new(corners, ink.code().filled()))?)
    }

    fn block(&self, corner: Point, opposite: Point, ink: Ink, opacity: f64) -> Drawn {
        let style = ink.code().mix(opacity).filled();
        Ok(self.area.draw(&Rectangle::new([corner, opposite], style))?)
    }

    /// Text of a size in pixels, its middle at the height of `at`.
    fn text(&self, text: &str, at: Point, anchor: HPos, pixels: f64, ink: Ink) -> Drawn {
        // The backend divides sizes by 1.24, as if they were heights of a line.
        let colour = ink.code();
        let style = TextStyle::from(("sans-serif", pixels * 1.24).into_font())
            .color(&colour)
            .pos(Pos::new(anchor, VPos::Center));
        Ok(self.area.draw_text(text, &style, at)?)
    }
}
