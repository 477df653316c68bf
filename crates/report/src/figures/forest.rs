//! Every ratio with its interval, sorted, over the band of changes too small to count: which
//! ones stick out, and does everything lean to one side?

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::{BAND, Drawn, FAST, GRID, MUTED, Plot, SLOW, TEXT, is_drawable, letters};
use crate::text::{one_line, shorten_middle};
use regatta_judge::judgement::Word;
use regatta_worker::units::Ratio;

/// One case.
pub(crate) struct Whisker<'a> {
    /// Its id.
    pub case: &'a str,
    /// Head over base.
    pub ratio: f64,
    /// Ends of the interval; not finite where it has none.
    pub interval: (f64, f64),
    /// What the judge says of it.
    pub word: Word,
}

impl Whisker<'_> {
    fn ink(&self) -> RGBColor {
        match self.word {
            Word::Regressed => SLOW,
            Word::Improved => FAST,
            _ => MUTED,
        }
    }
}

/// Cases that there is room to name.
pub(crate) const NAMED: usize = 90;

const WIDTH: u32 = 900;
const LEFT: u32 = 372;
const RIGHT: u32 = 120;
const TOP: u32 = 34;
const BOTTOM: u32 = 26;
const ROW: u32 = 18;

/// The figure: ratios, the slowest first, and the threshold.
pub(crate) struct Forest<'a> {
    whiskers: Vec<Whisker<'a>>,
    threshold: f64,
}

impl<'a> Forest<'a> {
    /// `None` when there is no ratio.
    pub(crate) fn new(mut whiskers: Vec<Whisker<'a>>, threshold: f64) -> Option<Forest<'a>> {
        whiskers.retain(|whisker| is_drawable(whisker.ratio));
        whiskers.sort_by(|a, b| b.ratio.total_cmp(&a.ratio).then(a.case.cmp(b.case)));
        // No suite may have a threshold of NaN, but no figure may fall over one.
        let threshold = match threshold.is_finite() {
            true => threshold.clamp(0.01, 1.0),
            false => 0.05,
        };
        (!whiskers.is_empty()).then_some(Forest {
            whiskers,
            threshold,
        })
    }

    /// The largest ratio of the axis: three in four intervals fit, the threshold is seen, and
    /// one hundredfold slowdown does not flatten the rest.
    fn reach(&self) -> f64 {
        let ends = self.whiskers.iter().map(|whisker| whisker.interval);
        let reach = ends.map(|(low, high)| low.ln().abs().max(high.ln().abs()));
        let mut reach: Vec<f64> = reach.filter(|reach| reach.is_finite()).collect();
        reach.sort_by(f64::total_cmp);
        let most = reach.get(reach.len() * 3 / 4).copied().unwrap_or(0.0);
        let least = 2.5 * (1.0 + self.threshold).ln();
        (1.2 * most).min(4f64.ln()).max(least).exp()
    }
}

/// Ratios worth a line, the most telling first, none closer than its label is wide.
fn ticks(reach: f64) -> Vec<f64> {
    const BY_WORTH: [f64; 17] = [
        1.0, 0.5, 2.0, 0.8, 1.25, 0.9, 1.1, 0.95, 1.05, 0.98, 1.02, 0.99, 1.01, 0.25, 4.0, 0.67,
        1.5,
    ];
    let pixels = f64::from(WIDTH - LEFT - RIGHT) / (2.0 * reach.ln());
    let mut kept: Vec<f64> = Vec::new();
    for tick in BY_WORTH {
        let on_axis = tick.ln().abs() <= reach.ln();
        let apart = |other: &f64| (other / tick).ln().abs() * pixels >= 58.0;
        if on_axis && kept.iter().all(apart) {
            kept.push(tick);
        }
    }
    kept
}

fn label(tick: &f64) -> String {
    match *tick {
        1.0 => "same".to_owned(),
        tick if tick > 0.5 && tick < 2.0 => format!("{:+.0} %", 100.0 * (tick - 1.0)),
        // Whole factors.
        tick => Ratio(tick)
            .to_string()
            .replace(".00x", "x")
            .replace(".0x", "x"),
    }
}

impl Plot for Forest<'_> {
    fn title(&self) -> String {
        "Head over base, every case, the slowest first".to_owned()
    }

    fn description(&self) -> String {
        format!(
            "{} cases, from {} to {}; the band is a change of {:.0} % either way",
            self.whiskers.len(),
            Ratio(self.whiskers.last().map_or(1.0, |whisker| whisker.ratio)),
            Ratio(self.whiskers.first().map_or(1.0, |whisker| whisker.ratio)),
            100.0 * self.threshold
        )
    }

    fn size(&self) -> (u32, u32) {
        (WIDTH, TOP + ROW * self.whiskers.len() as u32 + BOTTOM)
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        tooltips: &mut Vec<String>,
    ) -> Drawn<B> {
        // Two steps a row: its edge and its middle.
        let (reach, rows) = (self.reach(), 2 * self.whiskers.len() as i32);
        let middles = (1..rows).step_by(2);
        let mut chart = ChartBuilder::on(area)
            .margin_right(RIGHT)
            .margin_bottom(BOTTOM)
            .top_x_label_area_size(TOP)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(
                (1.0 / reach..reach)
                    .log_scale()
                    .with_key_points(ticks(reach)),
                (rows..0).with_key_points(middles.collect()),
            )?;
        let band = 1.0 + self.threshold;
        let band = [(1.0 / band, 0), (band, rows)];
        chart.draw_series([Rectangle::new(band, BAND.filled())])?;
        tooltips.push(format!(
            "below the threshold of {:.0} %",
            100.0 * self.threshold
        ));
        let name = |middle: &i32| {
            let whisker = self.whiskers.get(*middle as usize / 2);
            whisker.map_or(String::new(), |w| shorten_middle(&one_line(w.case), 56))
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            // Names leave room for an arrow.
            .set_tick_mark_size(LabelAreaPosition::Left, 9)
            .max_light_lines(0)
            .bold_line_style(GRID)
            .axis_style(TRANSPARENT)
            .x_label_style(letters(11, MUTED, HPos::Center))
            .y_label_style(letters(11, TEXT, HPos::Right))
            .x_label_formatter(&label)
            .y_label_formatter(&name)
            .draw()?;
        chart.draw_series([PathElement::new([(1.0, 0), (1.0, rows)], MUTED)])?;
        let on_axis = |ratio: f64| ratio.clamp(1.0 / reach, reach);
        for (row, whisker) in self.whiskers.iter().enumerate() {
            let (y, ink, (low, high)) = (2 * row as i32 + 1, whisker.ink(), whisker.interval);
            let ratio = Ratio(whisker.ratio).to_string();
            tooltips.push(format!("{}: {ratio}", whisker.case));
            if is_drawable(low) && is_drawable(high) {
                let ends = [(on_axis(low), y), (on_axis(high), y)];
                chart.draw_series([PathElement::new(ends, ink.stroke_width(2))])?;
            }
            let at = (on_axis(whisker.ratio), y);
            match whisker.ratio / at.0 {
                1.0 => chart.draw_series([Circle::new(at, 4, ink.filled())])?,
                // Beyond the axis an arrow points to where it is.
                beyond => {
                    let way = if beyond > 1.0 { 1 } else { -1 };
                    let corners = vec![(10 * way, 0), (2 * way, -5), (2 * way, 5)];
                    let arrow = Polygon::new(corners, ink.filled());
                    chart.draw_series([EmptyElement::at(at) + arrow])?
                }
            };
            let text = Text::new(ratio, (16, 0), letters(11, ink, HPos::Left));
            chart.draw_series([EmptyElement::at((reach, y)) + text])?;
        }
        let bottom = |text, at, ink, anchor| {
            let text = Text::new(text, (0, 14), letters(11, ink, anchor));
            [EmptyElement::at((at, rows)) + text]
        };
        chart.draw_series(bottom("← faster", 1.0 / reach, FAST, HPos::Left))?;
        chart.draw_series(bottom("slower →", reach, SLOW, HPos::Right))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg;
    use super::*;

    #[test]
    fn any_ratios_can_be_drawn() {
        let odd = [f64::NAN, 0.0, -1.0, f64::INFINITY, 1e-9, 1.0, 1e9];
        for (count, threshold) in [(1, 0.05), (7, 0.0), (300, f64::NAN)] {
            let whisker = |ratio| Whisker {
                case: "<x>",
                ratio,
                interval: (0.9 * ratio, 1.1 * ratio),
                word: Word::Regressed,
            };
            let whiskers = odd.into_iter().cycle().take(count).map(whisker);
            let forest = Forest::new(whiskers.collect(), threshold);
            assert_eq!(forest.is_some(), count > 1);
            let drawn = forest.map(|forest| svg(&forest).unwrap());
            let drawn = drawn.unwrap_or_default();
            assert!(!drawn.contains("<x>") && !drawn.contains("NaN"), "{drawn}");
            if count == 7 {
                // One within the axis; one beyond each end.
                assert_eq!(drawn.matches("<circle").count(), 1, "{drawn}");
                assert_eq!(drawn.matches("<polygon").count(), 2, "{drawn}");
                assert!(
                    drawn.contains("<title>&lt;x&gt;: 0.0 %</title></circle>"),
                    "{drawn}"
                );
            }
        }
    }
}
