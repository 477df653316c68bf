//! Figures. A function for each kind draws plain data as marks on a `Sheet`, and plotters paints
//! the marks: as SVG in a page, and as SVG and PNG in files.

mod curves;
mod distributions;
mod forest;
mod line_plot;
mod matrix;
mod paint;
mod scale;
mod slice;

pub(crate) use line_plot::{AxisUnit, LinePlot, PlotLine};
pub(crate) use matrix::TimesMatrix;
pub(crate) use scale::is_drawable;

use crate::summary::SortedRows;
use crate::{RenderError, Report};
use plotters::style::text_anchor::HPos;
use slice::Slice;

/// A place on a sheet, in pixels from its upper left corner.
type At = (f64, f64);

/// The kinds of figure, in the order of [`of_run`], then those of other commands.
pub const KINDS: [&str; 7] = [
    "forest",
    "matrix",
    "curves",
    "ratio",
    "roofline",
    "distributions",
    "history",
];

/// The width of a picture in pixels; a PNG has two pixels for each.
const WIDTH: f64 = 960.0;

/// A figure that is drawn at any width.
pub struct Figure {
    /// One of [`KINDS`].
    pub kind: &'static str,
    /// The result, as a sentence without its full stop.
    pub title: String,
    /// The quantity, and the conditions that the whole figure shares.
    pub about: String,
    /// Draws the marks for a width in pixels.
    draw: Box<dyn Fn(f64) -> Sheet>,
}

impl Figure {
    pub(crate) fn new(
        kind: &'static str,
        title: impl Into<String>,
        about: impl Into<String>,
        draw: impl Fn(f64) -> Sheet + 'static,
    ) -> Figure {
        Figure {
            kind,
            title: title.into(),
            about: about.into(),
            draw: Box::new(draw),
        }
    }

    /// The figure as two inline `<svg>` elements, one for wide screens and one for phones. The
    /// style sheet shows one of them, and has their colours.
    ///
    /// # Errors
    /// When the backend fails.
    pub(crate) fn inline(&self) -> Result<String, RenderError> {
        let [wide, narrow] = [1140.0, 366.0].map(|width| {
            let sheet = self.sheet(width);
            paint::inline(&sheet, width, &self.title, &self.about)
        });
        Ok(format!(
            r#"<div class="desk">{}</div><div class="telephone">{}</div>"#,
            wide?, narrow?
        ))
    }

    /// The marks at a width in pixels.
    pub(crate) fn sheet(&self, wide: f64) -> Sheet {
        (self.draw)(wide)
    }

    /// The files of the figure: SVG and PNG, light and dark.
    ///
    /// # Errors
    /// When a backend fails.
    pub fn files(&self) -> Result<Vec<(String, Vec<u8>)>, RenderError> {
        let sheet = self.titled();
        let mut files = Vec::new();
        for (theme, dark) in [("light", false), ("dark", true)] {
            let svg = paint::svg(&sheet, WIDTH, &self.title, &self.about, dark)?;
            files.push((format!("{}-{theme}.svg", self.kind), svg.into_bytes()));
            let png = paint::png(&sheet, WIDTH, dark)?;
            files.push((format!("{}-{theme}.png", self.kind), png));
        }
        Ok(files)
    }

    /// The figure below its title, with a margin.
    fn titled(&self) -> Sheet {
        const MARGIN: f64 = 28.0;
        let room = WIDTH - 2.0 * MARGIN;
        let mut sheet = Sheet::default();
        let mut y = MARGIN + 8.0;
        for (text, size, ink, bold) in [
            (&self.title, 19.0, "text", true),
            (&self.about, 13.0, "muted", false),
        ] {
            for line in paint::wrapped(text, size, bold, room) {
                sheet.text((MARGIN, y), line, Letters(size, ink, bold), HPos::Left);
                y += size * 1.4;
            }
        }
        let figure = self.sheet(room);
        sheet.put(figure, MARGIN, y + 6.0);
        sheet.height += MARGIN;
        sheet
    }
}

/// The names of all files that the pictures of a kind may have.
pub fn file_names() -> impl Iterator<Item = String> {
    KINDS.iter().flat_map(|kind| {
        let themes = ["light", "dark"].into_iter();
        themes
            .flat_map(move |theme| ["svg", "png"].map(|format| format!("{kind}-{theme}.{format}")))
    })
}

/// The figures that a run or a comparison has data for.
///
/// # Errors
/// When the samples cannot be read again.
pub fn of_run(report: &Report) -> Result<Vec<Figure>, RenderError> {
    let summary = SortedRows::new(report.judgement);
    let slice = Slice::new(&report.judgement.rows);
    let figures = [
        forest::figure(report, &summary),
        TimesMatrix::new(report).map(TimesMatrix::figure),
        slice.as_ref().and_then(curves::times),
        slice.as_ref().and_then(curves::ratios),
        curves::roofline(report),
        distributions::figure(report, &summary)?,
    ];
    Ok(figures.into_iter().flatten().collect())
}

/// The first figure on the page of a comparison.
pub(crate) fn changes(report: &Report, summary: &SortedRows) -> Option<Figure> {
    forest::figure(report, summary)
}

/// The figures of a page that explain a run: its times along an axis, and its rates under a roof.
pub(crate) fn along_axes(report: &Report) -> Vec<Figure> {
    let times = Slice::new(&report.judgement.rows).and_then(|slice| curves::times(&slice));
    times.into_iter().chain(curves::roofline(report)).collect()
}

/// Letters: size in pixels, colour as the style sheet names it, and true if they are bold.
#[derive(Clone, Copy)]
struct Letters(f64, &'static str, bool);

/// The letters of axes, of names, and of the text beside names.
const LABEL: Letters = Letters(11.0, "muted", false);
const NAME: Letters = Letters(12.0, "text", false);
const ASIDE: Letters = Letters(12.0, "muted", false);

/// Marks, and the height that they take.
#[derive(Default)]
pub(crate) struct Sheet {
    pub height: f64,
    marks: Vec<InkedShape>,
}

/// A shape with its colour, named as in the style sheet, and the text shown under a pointer.
struct InkedShape {
    shape: Drawn,
    ink: &'static str,
    tip: String,
}

enum Drawn {
    Line(Vec<At>, f64),
    /// A filled polygon, and its opacity.
    Area(Vec<At>, f64),
    Dot(At, f64),
    /// A text with its size, its alignment, and true if it is bold.
    Text(At, String, f64, HPos, bool),
}

impl Sheet {
    fn mark(&mut self, shape: Drawn, ink: &'static str, tip: String) {
        self.marks.push(InkedShape { shape, ink, tip });
    }

    pub(crate) fn line(&mut self, points: impl Into<Vec<At>>, width: f64, ink: &'static str) {
        self.mark(Drawn::Line(points.into(), width), ink, String::new());
    }

    /// A line of dashes, six pixels each.
    pub(crate) fn dashed(&mut self, points: &[At], width: f64, ink: &'static str) {
        let mut left = 0.0;
        for pair in points.windows(2) {
            let [(x, y), (x2, y2)] = [pair[0], pair[1]];
            let length = (x2 - x).hypot(y2 - y);
            let at = |way: f64| {
                let part = (way / length.max(1e-9)).min(1.0);
                (x + part * (x2 - x), y + part * (y2 - y))
            };
            let mut way = -left;
            while way < length {
                if way + 6.0 > 0.0 {
                    self.line([at(way.max(0.0)), at(way + 6.0)], width, ink);
                }
                way += 11.0;
            }
            left = length - (way - 11.0);
        }
    }

    /// A rectangle of this opacity, from corner to corner.
    pub(crate) fn area(&mut self, from: At, to: At, opacity: f64, ink: &'static str) {
        let corners = vec![from, (to.0, from.1), to, (from.0, to.1)];
        self.mark(Drawn::Area(corners, opacity), ink, String::new());
    }

    pub(crate) fn dot(&mut self, at: At, radius: f64, ink: &'static str, tip: String) {
        self.mark(Drawn::Dot(at, radius), ink, tip);
    }

    /// A diamond, half as wide as this.
    pub(crate) fn diamond(&mut self, (x, y): At, half: f64, ink: &'static str, tip: String) {
        let corners = vec![(x, y - half), (x + half, y), (x, y + half), (x - half, y)];
        self.mark(Drawn::Area(corners, 1.0), ink, tip);
    }

    /// Text, its middle at the height of `at`.
    fn text(&mut self, at: At, text: impl Into<String>, letters: Letters, anchor: HPos) {
        let text = crate::text::one_line(&text.into());
        let Letters(size, ink, bold) = letters;
        let shape = Drawn::Text(at, text, size, anchor, bold);
        self.mark(shape, ink, String::new());
    }

    /// Puts another sheet below this one, with its name above.
    pub(crate) fn stack(&mut self, name: &str, other: Sheet) {
        let top = self.height + 14.0;
        self.text((0.0, top), name, Letters(13.0, "text", true), HPos::Left);
        self.put(other, 0.0, top + 10.0);
    }

    /// Puts another sheet onto this one at an offset, and extends the height if needed.
    pub(crate) fn put(&mut self, other: Sheet, x: f64, y: f64) {
        let moved = |at: &mut At| *at = (at.0 + x, at.1 + y);
        for mut mark in other.marks {
            match &mut mark.shape {
                Drawn::Line(points, _) | Drawn::Area(points, _) => {
                    points.iter_mut().for_each(moved)
                }
                Drawn::Dot(at, _) | Drawn::Text(at, ..) => moved(at),
            }
            self.marks.push(mark);
        }
        self.height = self.height.max(y + other.height);
    }
}

#[cfg(test)]
mod tests;
