//! Time against a parameter such as `num_splits_key`, and the implementation's own choice.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::{
    AUTO, Drawn, GRID, HEAD, MUTED, Plot, TEXT, is_drawable, letters, log_range, log_ticks,
    time_labels,
};
use regatta_worker::units::Nanoseconds;

/// The figure.
pub(crate) struct Splits {
    /// Name of the parameter.
    pub parameter: String,
    /// Its explicit values and their times in nanoseconds.
    pub points: Vec<(i64, f64)>,
    /// The automatic one's time in nanoseconds, and the value it became, if known.
    pub auto: Option<(f64, Option<i64>)>,
    /// Largest time the expectation allows, in nanoseconds.
    pub limit_ns: Option<f64>,
}

impl Splits {
    /// Without what cannot be drawn; `None` with fewer than two points, which show no dependence.
    pub(crate) fn drawable(mut self) -> Option<Self> {
        self.points
            .retain(|(value, ns)| *value > 0 && is_drawable(*ns));
        self.points.sort_by_key(|(value, _)| *value);
        let auto = self.auto.filter(|(ns, _)| is_drawable(*ns));
        self.auto = auto.map(|(ns, became)| (ns, became.filter(|became| *became > 0)));
        self.limit_ns = self.limit_ns.filter(|ns| is_drawable(*ns));
        (self.points.len() > 1).then_some(self)
    }

    /// Values that have a label, none over another on an axis of so many pixels.
    fn labelled(&self, pixels: f64, range: &std::ops::Range<f64>) -> Vec<f64> {
        let scale = pixels / (range.end / range.start).ln();
        let mut kept: Vec<f64> = Vec::new();
        for (value, _) in &self.points {
            let value = *value as f64;
            let before = kept.last().copied().unwrap_or(0.0);
            if (value / before).ln() * scale >= 30.0 {
                kept.push(value);
            }
        }
        kept
    }
}

impl Plot for Splits {
    fn title(&self) -> String {
        format!("Time against {}", self.parameter)
    }

    fn description(&self) -> String {
        let auto = self.auto.map(|(ns, _)| Nanoseconds(ns).to_string());
        let became = self.auto.and_then(|(_, became)| became);
        format!(
            "{} explicit values of {}; automatic takes {}{}",
            self.points.len(),
            self.parameter,
            auto.as_deref().unwrap_or("an unknown time"),
            became.map_or(String::new(), |value| format!(" and became {value}")),
        )
    }

    fn size(&self) -> (u32, u32) {
        (640, 302)
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        tooltips: &mut Vec<String>,
    ) -> Drawn<B> {
        let became = self.auto.and_then(|(_, became)| became);
        let values = self.points.iter().map(|(value, _)| *value).chain(became);
        let across = log_range(values.map(|value| value as f64));
        let times = self.points.iter().map(|(_, ns)| *ns);
        let times = times
            .chain(self.auto.map(|(ns, _)| ns))
            .chain(self.limit_ns);
        let up = log_range(times);
        let ticks = log_ticks(&up, 5);
        let time_label = time_labels(&ticks);
        let mut chart = ChartBuilder::on(area)
            .margin_top(40)
            .margin_right(80)
            .y_label_area_size(88)
            .x_label_area_size(46)
            .build_cartesian_2d(
                across
                    .clone()
                    .log_scale()
                    .with_key_points(self.labelled(472.0, &across)),
                up.clone().log_scale().with_key_points(ticks),
            )?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .max_light_lines(0)
            .bold_line_style(GRID)
            .axis_style(TRANSPARENT)
            .label_style(letters(11, MUTED, HPos::Center))
            .x_label_formatter(&|value| format!("{value:.0}"))
            .y_label_formatter(&time_label)
            .x_desc(&self.parameter)
            .axis_desc_style(letters(12, TEXT, HPos::Center))
            .draw()?;
        let auto = self.auto.map(|(ns, _)| (ns, "auto", AUTO));
        let limit = self.limit_ns.map(|ns| (ns, "allowed", MUTED));
        for (ns, word, ink) in limit.into_iter().chain(auto) {
            let ends = [(across.start, ns), (across.end, ns)];
            chart.draw_series(DashedLineSeries::new(ends, 5, 4, ink.stroke_width(1)))?;
            let text = Text::new(word, (8, 0), letters(11, ink, HPos::Left));
            chart.draw_series([EmptyElement::at((across.end, ns)) + text])?;
        }
        let points = self.points.iter().map(|(value, ns)| (*value as f64, *ns));
        chart.draw_series(LineSeries::new(points.clone(), HEAD.stroke_width(2)))?;
        for (value, ns) in points {
            chart.draw_series([Circle::new((value, ns), 4, HEAD.filled())])?;
            tooltips.push(format!(
                "{} {value:.0}: {}",
                self.parameter,
                Nanoseconds(ns)
            ));
        }
        let Some((ns, Some(became))) = self.auto else {
            return Ok(());
        };
        let value = became as f64;
        let diamond = Polygon::new(vec![(0, -8), (8, 0), (0, 8), (-8, 0)], AUTO.filled());
        chart.draw_series([EmptyElement::at((value, ns)) + diamond])?;
        let told = format!("auto became {became}");
        tooltips.push(format!("{told}: {}", Nanoseconds(ns)));
        // Above its line, where the curve of the explicit values never is.
        let right = value / across.start > across.end / value;
        let (x, anchor) = if right {
            (8, HPos::Right)
        } else {
            (-8, HPos::Left)
        };
        let text = Text::new(told, (x, -18), letters(12, AUTO, anchor));
        chart.draw_series([EmptyElement::at((value, ns)) + text])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::*;

    #[test]
    fn any_times_can_be_drawn() {
        let figure = |auto, points: &[(i64, f64)]| {
            let figure = Splits {
                parameter: "num_splits_key".to_owned(),
                points: points.to_vec(),
                auto: Some(auto),
                limit_ns: Some(1e6),
            };
            figure.drawable().map(|figure| svg(&figure).unwrap())
        };
        let points = [(64, f64::NAN), (4, 2.7e7), (0, 1.0), (1, 1e8)];
        let drawn = figure((1.01e8, Some(1)), &points).unwrap();
        assert!(drawn.contains("auto became 1</text>") && drawn.contains(">allowed</text>"));
        let odd = figure((f64::NAN, Some(-1)), &points).unwrap();
        assert!(!odd.contains(">auto</text>"));
        assert!(figure((1.01e8, None), &[(4, 2.7e7), (0, 1.0)]).is_none());
    }
}
