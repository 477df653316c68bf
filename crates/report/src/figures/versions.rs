//! Versions that a bisect tried, in their order, against how many times as long they take.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::{
    BAND, Drawn, FAST, GRID, MUTED, Plot, SLOW, TEXT, is_drawable, letters, log_range, log_ticks,
};
use crate::text::{one_line, shorten};
use regatta_judge::judgement::Word;
use regatta_worker::units::Ratio;

/// A version that was tried.
pub(crate) struct TriedVersion<'a> {
    /// Its place in the order of versions.
    pub at: usize,
    /// When it was tried, from 1; `None`: it is what the others are compared with.
    pub number: Option<usize>,
    /// What it is called.
    pub name: &'a str,
    /// Lower end, estimate and upper end of the ratio; `None`: it was skipped.
    pub ratio: Option<[f64; 3]>,
    /// What the judge says.
    pub word: Word,
}

const SIZE: (u32, u32) = (900, 350);
const LEFT: u32 = 72;
/// Room for those that were skipped, and for names in as few rows as keep them apart.
const BOTTOM: u32 = 80;
const SKIPPED: i32 = 14;
const NAMES: [i32; 3] = [32, 49, 66];
/// Columns of a name.
const NAME: usize = 14;

/// The figure.
pub(crate) struct Versions<'a> {
    stops: Vec<TriedVersion<'a>>,
    /// Places before and after the step that was found.
    step: Option<(usize, usize)>,
}

impl<'a> Versions<'a> {
    /// `None` where no version has a ratio but the one that all are compared with.
    pub(crate) fn new(
        mut stops: Vec<TriedVersion<'a>>,
        step: Option<(usize, usize)>,
    ) -> Option<Versions<'a>> {
        for stop in &mut stops {
            stop.ratio = stop
                .ratio
                .filter(|ratio| ratio.iter().all(|r| is_drawable(*r)));
        }
        let read = stops.iter().filter(|stop| stop.ratio.is_some()).count();
        (read > 1).then_some(Versions { stops, step })
    }

    /// Names that have room, with their middle and their row, those of the step and of the ends
    /// first: none over another.
    fn placed_names(
        &self,
        x: impl Fn(usize) -> i32,
    ) -> Vec<(&TriedVersion<'a>, String, (i32, i32))> {
        let ends = [self.stops.first(), self.stops.last()].map(|stop| stop.map(|stop| stop.at));
        let step = self.step.map(|(before, after)| [before, after]);
        let mut sorted: Vec<&TriedVersion> = self.stops.iter().collect();
        sorted.sort_by_key(|stop| {
            let of_step = step.is_some_and(|step| step.contains(&stop.at));
            (
                !of_step,
                !ends.contains(&Some(stop.at)),
                stop.ratio.is_none(),
            )
        });
        let mut taken: Vec<(i32, i32, i32)> = Vec::new();
        let mut placed = Vec::new();
        for stop in sorted {
            let name = shorten(&one_line(stop.name), NAME);
            // About seven pixels a letter.
            let half = 7 * name.chars().count() as i32 / 2 + 4;
            let middle = x(stop.at).clamp(half, SIZE.0 as i32 - half);
            let free = |row: &i32| {
                let mut others = taken.iter().filter(|other| other.0 == *row);
                others.all(|(_, at, width)| (at - middle).abs() > width + half)
            };
            if let Some(row) = NAMES.into_iter().find(free) {
                taken.push((row, middle, half));
                placed.push((stop, name, (middle, row)));
            }
        }
        placed
    }
}

impl Plot for Versions<'_> {
    fn title(&self) -> String {
        "Versions against how many times as long they take".to_owned()
    }

    fn description(&self) -> String {
        let read = self.stops.iter();
        let read =
            read.filter_map(|stop| Some(format!("{}: {}", stop.name, Ratio(stop.ratio?[1]))));
        read.collect::<Vec<_>>().join("; ")
    }

    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        tooltips: &mut Vec<String>,
    ) -> Drawn<B> {
        let last = self.stops.iter().map(|stop| stop.at).max().unwrap_or(1);
        let across = -0.5..last.max(1) as f64 + 0.5;
        let up = log_range(self.stops.iter().filter_map(|stop| stop.ratio).flatten());
        let mut chart = ChartBuilder::on(area)
            .margin_top(24)
            .margin_right(20)
            .y_label_area_size(LEFT)
            .x_label_area_size(BOTTOM)
            .build_cartesian_2d(
                across.clone(),
                up.clone().log_scale().with_key_points(log_ticks(&up, 5)),
            )?;
        if let Some((before, after)) = self.step {
            let step = [(before as f64, up.start), (after as f64, up.end)];
            chart.draw_series([Rectangle::new(step, BAND.filled())])?;
            tooltips.push("the step that was found".to_owned());
        }
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .max_light_lines(0)
            .bold_line_style(GRID)
            .axis_style(TRANSPARENT)
            .y_label_style(letters(11, MUTED, HPos::Right))
            .y_label_formatter(&|ratio| Ratio(*ratio).factor().to_string())
            .draw()?;
        let even = [(across.start, 1.0), (across.end, 1.0)];
        chart.draw_series([PathElement::new(even, MUTED)])?;
        let read = self.stops.iter();
        let read = read.filter_map(|stop| Some((stop.at as f64, stop.ratio?[1])));
        chart.draw_series(LineSeries::new(read, GRID.stroke_width(2)))?;
        for stop in &self.stops {
            let x = stop.at as f64;
            let Some([low, ratio, high]) = stop.ratio else {
                let cross = Cross::new((0, SKIPPED), 4, MUTED.stroke_width(2));
                chart.draw_series([EmptyElement::at((x, up.start)) + cross])?;
                continue;
            };
            let ink = match stop.word {
                Word::Regressed => SLOW,
                Word::Improved => FAST,
                _ => MUTED,
            };
            let reach = [(x, low), (x, high)];
            chart.draw_series([PathElement::new(reach, ink.stroke_width(2))])?;
            let told = format!("{}: {}", stop.name, Ratio(ratio));
            tooltips.push(told);
            match stop.number {
                Some(number) => {
                    chart.draw_series([Circle::new((x, ratio), 5, ink.filled())])?;
                    let style = letters(11, TEXT, HPos::Center);
                    let text = Text::new(number.to_string(), (0, -10), style);
                    chart.draw_series([EmptyElement::at((x, high)) + text])?;
                }
                None => {
                    let corners = vec![(0, -6), (6, 0), (0, 6), (-6, 0)];
                    let diamond = Polygon::new(corners, MUTED.filled());
                    chart.draw_series([EmptyElement::at((x, ratio)) + diamond])?;
                }
            }
        }
        let x = |at: usize| chart.backend_coord(&(at as f64, up.start)).0;
        let bottom = chart.backend_coord(&(0.0, up.start)).1;
        for (stop, name, (middle, row)) in self.placed_names(x) {
            let ink = if stop.ratio.is_some() { TEXT } else { MUTED };
            let style = letters(11, ink, HPos::Center);
            area.draw(&Text::new(name, (middle, bottom + row), style))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::*;

    #[test]
    fn any_versions_can_be_drawn() {
        let odd = [f64::NAN, 0.0, -1.0, f64::INFINITY, 1e-9, 1.0, 1e9];
        for count in [0, 1, 7, 300] {
            let stop = |(at, ratio): (usize, f64)| TriedVersion {
                at,
                number: (at > 0).then_some(at),
                name: "<x>",
                ratio: (at % 5 != 4).then(|| [0.9, 1.0, 1.1].map(|r| r * ratio)),
                word: Word::Regressed,
            };
            let stops = odd.into_iter().cycle().take(count).enumerate().map(stop);
            let versions = Versions::new(stops.collect(), Some((1, 2)));
            assert_eq!(versions.is_some(), count >= 7);
            let drawn = versions.map(|versions| svg(&versions).unwrap());
            let drawn = drawn.unwrap_or_default();
            assert!(!drawn.contains("<x>") && !drawn.contains("NaN"), "{drawn}");
        }
    }
}
