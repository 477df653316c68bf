//! FLOP/s of the problems that several variants solve, side by side.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::{Drawn, HEAD, MUTED, Plot, TEXT, letters};
use crate::text::{one_line, shorten_middle};
use regatta_worker::units::Rate;

/// One case.
pub(crate) struct Bar {
    /// What is computed; bars of one problem stand together.
    pub problem: String,
    /// Who computes it, with parameters.
    pub variant: String,
    /// TFLOP/s.
    pub tflops: f64,
}

/// Problems drawn at the most.
const MOST_PROBLEMS: usize = 24;

const WIDTH: u32 = 900;
const LEFT: i32 = 330;
const RIGHT: i32 = 800;
const ROW: i32 = 18;
const HEADING: i32 = 30;

/// The figure: each problem with its bars, the fastest first. Each has its own scale: what is
/// compared is its variants.
pub(crate) struct Throughput(Vec<(String, Vec<Bar>)>);

impl Throughput {
    /// Of the problems that several variants solve, the first ones where there are many; `None`
    /// when there is none.
    pub(crate) fn new(bars: Vec<Bar>) -> Option<Throughput> {
        let mut groups: Vec<(String, Vec<Bar>)> = Vec::new();
        let usable = |bar: &Bar| bar.tflops.is_finite() && bar.tflops > 0.0;
        for bar in bars.into_iter().filter(usable) {
            match groups
                .iter_mut()
                .find(|(problem, _)| *problem == bar.problem)
            {
                Some((_, group)) => group.push(bar),
                None => groups.push((bar.problem.clone(), vec![bar])),
            }
        }
        groups.retain(|(_, group)| group.len() > 1);
        groups.truncate(MOST_PROBLEMS);
        for (_, group) in &mut groups {
            group.sort_by(|a, b| b.tflops.total_cmp(&a.tflops));
        }
        (!groups.is_empty()).then_some(Throughput(groups))
    }

    fn rows(&self) -> usize {
        self.0.iter().map(|(_, group)| group.len()).sum()
    }
}

impl Plot for Throughput {
    fn title(&self) -> String {
        "FLOP/s by problem and variant".to_owned()
    }

    fn description(&self) -> String {
        let (rows, problems) = (self.rows(), self.0.len());
        format!("{rows} cases of {problems} problems, the fastest first")
    }

    fn size(&self) -> (u32, u32) {
        let height = HEADING * self.0.len() as i32 + ROW * self.rows() as i32 + 8;
        (WIDTH, height as u32)
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        tooltips: &mut Vec<String>,
    ) -> Drawn<B> {
        let mut y = 0;
        let text =
            |text, at, pixels, ink, anchor| Text::new(text, at, letters(pixels, ink, anchor));
        for (problem, group) in &self.0 {
            let heading = shorten_middle(&one_line(problem), 90);
            area.draw(&text(heading, (8, y + 18), 12, TEXT, HPos::Left))?;
            y += HEADING;
            let best = group.first().map_or(1.0, |bar| bar.tflops);
            for bar in group {
                let (middle, rate) = (y + ROW / 2, Rate(bar.tflops).to_string());
                let name = shorten_middle(&one_line(&bar.variant), 48);
                area.draw(&text(name, (LEFT - 10, middle), 11, MUTED, HPos::Right))?;
                let length = bar.tflops / best * f64::from(RIGHT - LEFT);
                let end = LEFT + (length.round() as i32).max(1);
                let corners = [(LEFT, y + 3), (end, y + ROW - 3)];
                area.draw(&Rectangle::new(corners, HEAD.filled()))?;
                tooltips.push(format!("{}: {rate}", bar.variant));
                area.draw(&text(rate, (end + 8, middle), 11, TEXT, HPos::Left))?;
                y += ROW;
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
    fn only_problems_with_something_to_compare_are_drawn() {
        let bar = |problem: &str, tflops| Bar {
            problem: problem.to_owned(),
            variant: "cpu/flash".to_owned(),
            tflops,
        };
        assert!(Throughput::new(vec![bar("s1,d1", 1.0), bar("s2,d1", 1.0)]).is_none());
        let bars = [1.0, f64::NAN, 1e-9].map(|tflops| bar("s1,d1", tflops));
        let drawn = svg(&Throughput::new(bars.into()).unwrap()).unwrap();
        assert_eq!(drawn.matches("<title>cpu/flash: ").count(), 2);
    }
}
