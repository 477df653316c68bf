//! Times of a case over the runs of a history.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::{
    Drawn, GRID, HEAD, MUTED, Plot, SLOW, is_drawable, letters, log_range, log_ticks, time_labels,
};

/// The figure.
pub(crate) struct TrendPlot<'a> {
    pub title: String,
    /// The place of a run, and nanoseconds.
    pub points: Vec<(usize, f64)>,
    /// The first place of a change, with the levels before and after it.
    pub steps: Vec<(usize, f64, f64)>,
    /// The day of a run.
    pub name: &'a dyn Fn(usize) -> String,
}

const SIZE: (u32, u32) = (900, 240);
const LEFT: u32 = 72;
const BOTTOM: u32 = 28;

/// Up to so many points each is a dot with its name.
const DOTS: usize = 100;

impl Plot for TrendPlot<'_> {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn description(&self) -> String {
        let (points, steps) = (self.points.len(), self.steps.len());
        format!("{points} points, {steps} changes of level")
    }

    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        tooltips: &mut Vec<String>,
    ) -> Drawn<B> {
        let points = self.points.iter().filter(|(_, value)| is_drawable(*value));
        let points: Vec<(f64, f64)> = points.map(|(at, value)| (*at as f64, *value)).collect();
        let [first, last] = [points.first(), points.last()].map(|end| end.map_or(0.0, |of| of.0));
        let up = log_range(points.iter().map(|(_, value)| *value));
        let ticks = log_ticks(&up, 4);
        let value = time_labels(&ticks);
        // Between two places there is none.
        let name = |at: &f64| match (at - at.round()).abs() < 1e-9 && *at >= 0.0 {
            true => (self.name)(*at as usize),
            false => String::new(),
        };
        let logarithmic = up.log_scale().with_key_points(ticks.clone());
        let mut chart = ChartBuilder::on(area)
            .margin_top(12)
            .margin_right(20)
            .y_label_area_size(LEFT)
            .x_label_area_size(BOTTOM)
            .build_cartesian_2d(first - 0.5..last + 0.5, logarithmic)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(6)
            .x_label_formatter(&name)
            .x_label_style(letters(11, MUTED, HPos::Center))
            .max_light_lines(0)
            .bold_line_style(GRID)
            .axis_style(TRANSPARENT)
            .y_label_style(letters(11, MUTED, HPos::Right))
            .y_label_formatter(&value)
            .draw()?;
        let line = LineSeries::new(points.iter().copied(), HEAD.stroke_width(1));
        chart.draw_series(line)?;
        for point in points.iter().filter(|_| points.len() <= DOTS) {
            tooltips.push(format!("{}: {}", name(&point.0), value(&point.1)));
            chart.draw_series([Circle::new(*point, 3, HEAD.filled())])?;
        }
        for (place, &(at, from, to)) in self.steps.iter().enumerate() {
            let before = place
                .checked_sub(1)
                .and_then(|before| self.steps.get(before));
            let start = before.map_or(first, |before| before.0 as f64);
            let end = self.steps.get(place + 1).map_or(last, |next| next.0 as f64);
            let at = at as f64 - 0.5;
            if is_drawable(from) && is_drawable(to) {
                let level = vec![(start, from), (at, from), (at, to), (end, to)];
                chart.draw_series([PathElement::new(level, SLOW.stroke_width(2))])?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::*;

    #[test]
    fn any_points_can_be_drawn() {
        let odd = [f64::NAN, 0.0, -1.0, f64::INFINITY, 1e-9, 1.0, 1e9];
        for count in [0, 1, 7, 300] {
            let points = odd.into_iter().cycle().take(count).enumerate();
            let trend = TrendPlot {
                title: "<x>".to_owned(),
                points: points.collect(),
                steps: vec![(3, 1.0, 2.0), (9, f64::NAN, 1.0)],
                name: &|at| format!("<{at}>"),
            };
            let drawn = svg(&trend).unwrap();
            assert!(!drawn.contains("<x>") && !drawn.contains("NaN"), "{drawn}");
        }
    }
}
