//! What figures are drawn on.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::ink::Ink;
use super::svg;
use crate::report::exporter::RenderError;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub type Drawn = Result<(), Box<dyn std::error::Error>>;

/// What a figure is called and how large it is.
pub struct Frame<'a> {
    /// Its name in errors.
    pub figure: &'static str,
    /// What it shows, in a few words.
    pub title: &'a str,
    /// What can be read from it, for those who cannot see it.
    pub description: &'a str,
    /// Pixels.
    pub size: (u32, u32),
}

impl Frame<'_> {
    /// Draws on an empty canvas and makes the result fit for the page.
    pub fn draw(&self, draw: impl FnOnce(&Canvas) -> Drawn) -> Result<String, RenderError> {
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
pub struct Canvas<'a> {
    area: Area<'a>,
}

pub type Point = (i32, i32);

impl Canvas<'_> {
    pub fn line(&self, from: Point, to: Point, ink: Ink, width: u32) -> Drawn {
        self.path(vec![from, to], ink, width)
    }

    pub fn path(&self, points: Vec<Point>, ink: Ink, width: u32) -> Drawn {
        let style = ink.code().stroke_width(width);
        Ok(self.area.draw(&PathElement::new(points, style))?)
    }

    pub fn dashed(&self, from: Point, to: Point, ink: Ink) -> Drawn {
        let (dash, gap) = (5, 4);
        let mut x = from.0;
        while x < to.0 {
            let end = (x + dash).min(to.0);
            self.line((x, from.1), (end, to.1), ink, 1)?;
            x = end + gap;
        }
        Ok(())
    }

    pub fn dot(&self, at: Point, radius: i32, ink: Ink) -> Drawn {
        Ok(self
            .area
            .draw(&Circle::new(at, radius, ink.code().filled()))?)
    }

    pub fn diamond(&self, (x, y): Point, radius: i32, ink: Ink) -> Drawn {
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
    pub fn triangle(&self, (x, y): Point, length: i32, ink: Ink) -> Drawn {
        let half = length.abs() / 2 + 1;
        let corners = vec![(x, y), (x - length, y - half), (x - length, y + half)];
        Ok(self
            .area
            .draw(&Polygon::new(corners, ink.code().filled()))?)
    }

    pub fn block(&self, corner: Point, opposite: Point, ink: Ink, opacity: f64) -> Drawn {
        let style = ink.code().mix(opacity).filled();
        Ok(self.area.draw(&Rectangle::new([corner, opposite], style))?)
    }

    /// Text of a size in pixels, its middle at the height of `at`.
    pub fn text(&self, text: &str, at: Point, anchor: HPos, pixels: f64, ink: Ink) -> Drawn {
        // The backend divides sizes by 1.24, as if they were heights of a line.
        let colour = ink.code();
        let style = TextStyle::from(("sans-serif", pixels * 1.24).into_font())
            .color(&colour)
            .pos(Pos::new(anchor, VPos::Center));
        Ok(self.area.draw_text(text, &style, at)?)
    }
}
