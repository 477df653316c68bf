//! Variants side by side, a group for each problem: who is fastest where?

use super::canvas::{Anchor, Canvas, Frame};
use super::ink::Ink;
use crate::text::shorten_middle;
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

const WIDTH: i32 = 900;
const LEFT: i32 = 330;
const RIGHT: i32 = 800;
const ROW: i32 = 18;
const HEAD: i32 = 30;

/// Draws the problems that several variants solve, the first ones where there are
/// many; `None` when there is none. Each problem has its own scale: what is
/// compared is its variants.
pub(crate) fn throughput(bars: &[Bar]) -> Option<String> {
    let mut groups: Vec<(&str, Vec<&Bar>)> = Vec::new();
    for bar in bars
        .iter()
        .filter(|bar| bar.tflops.is_finite() && bar.tflops > 0.0)
    {
        match groups
            .iter_mut()
            .find(|(problem, _)| *problem == bar.problem)
        {
            Some((_, group)) => group.push(bar),
            None => groups.push((&bar.problem, vec![bar])),
        }
    }
    groups.retain(|(_, group)| group.len() > 1);
    groups.truncate(MOST_PROBLEMS);
    if groups.is_empty() {
        return None;
    }
    for (_, group) in &mut groups {
        group.sort_by(|a, b| b.tflops.total_cmp(&a.tflops));
    }
    let rows: usize = groups.iter().map(|(_, group)| group.len()).sum();
    let height = HEAD * groups.len() as i32 + ROW * rows as i32 + 8;
    let frame = Frame {
        title: "FLOP/s by problem and variant",
        description: &format!(
            "{rows} cases of {} problems, the fastest first",
            groups.len()
        ),
        size: (WIDTH, height),
    };
    Some(frame.draw(|canvas| {
        let mut y = 0;
        for (problem, group) in &groups {
            canvas.text(
                &shorten_middle(problem, 90),
                (8, y + 18),
                Anchor::Start,
                12,
                Ink::Text,
            );
            y += HEAD;
            let best = group.first().map_or(1.0, |bar| bar.tflops);
            for bar in group {
                row(canvas, bar, bar.tflops / best, y);
                y += ROW;
            }
        }
    }))
}

fn row(canvas: &mut Canvas, bar: &Bar, share: f64, y: i32) {
    let middle = y + ROW / 2;
    let name = shorten_middle(&bar.variant, 48);
    canvas.text(&name, (LEFT - 10, middle), Anchor::End, 11, Ink::Muted);
    let end = LEFT + (share.clamp(0.0, 1.0) * f64::from(RIGHT - LEFT)).round() as i32;
    canvas.block((LEFT, y + 3), (end.max(LEFT + 1), y + ROW - 3), Ink::Head);
    let label = Rate(bar.tflops).to_string();
    canvas.text(&label, (end + 8, middle), Anchor::Start, 11, Ink::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_problems_with_something_to_compare_are_drawn() {
        let bar = |problem: &str, tflops| Bar {
            problem: problem.to_owned(),
            variant: "cpu/flash".to_owned(),
            tflops,
        };
        assert_eq!(throughput(&[]), None);
        assert_eq!(throughput(&[bar("s1,d1", 1.0), bar("s2,d1", 1.0)]), None);
        let bars = [
            bar("s1,d1", 1.0),
            bar("s1,d1", f64::NAN),
            bar("s1,d1", 1e-9),
        ];
        assert!(throughput(&bars).is_some());
    }
}
