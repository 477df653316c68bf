//! What was done when: a row a worker's invocation, its steps coloured by what they are.
//!
//! Of thousands of steps most are narrower than a pixel. Each pixel has the colour of what
//! took most of its time, so that a figure has a bounded size and hides no long step.

use super::canvas::{Anchor, Canvas, Frame};
use super::ink::{COLOURS, Ink};
use super::scale::{Scale, time_labels};
use crate::report::text::{one_line, shorten};
use crate::units::{Elapsed, Nanoseconds, counted};

const WIDTH: i32 = 1140;
const LEFT: i32 = 150;
const RIGHT: i32 = 1070;
const TOP: i32 = 8;
const ROW: i32 = 20;
const BAR: i32 = 14;

/// Rows that are drawn; the longest, where there are more.
const ROWS: usize = 80;

/// A step.
pub(in crate::report) struct Stage {
    /// Which kind it is of.
    pub kind: u8,
    /// When it began.
    pub from: Nanoseconds,
    /// How long it was.
    pub took: Nanoseconds,
}

/// A row: steps that one process did, one after the other.
pub(in crate::report) struct Track {
    /// What to call it.
    pub name: String,
    /// Its steps.
    pub stages: Vec<Stage>,
}

impl Track {
    fn took(&self) -> Nanoseconds {
        self.stages.iter().map(|stage| stage.took).sum()
    }
}

/// Draws them on an axis from 0 to `until`; `None` where there is nothing to draw.
pub(in crate::report) fn gantt(tracks: &[Track], until: Nanoseconds) -> Option<String> {
    let axis = Scale::linear_between(0.0, until.0, LEFT, RIGHT);
    if tracks.is_empty() || until <= Nanoseconds::ZERO {
        return None;
    }
    let mut longest: Vec<usize> = (0..tracks.len()).collect();
    longest.sort_by(|a, b| tracks[*b].took().total_cmp(&tracks[*a].took()));
    longest.truncate(ROWS);
    longest.sort_unstable();
    let hidden = tracks.len() - longest.len();
    let bottom = TOP + ROW * longest.len() as i32;
    let description = format!("{} over {}", counted(longest.len(), "row"), Elapsed(until));
    let frame = Frame {
        title: "What was done when",
        description: &description,
        size: (WIDTH, bottom + 42),
    };
    Some(frame.draw(|canvas| {
        let ticks = axis.ticks(7);
        for tick in &ticks {
            canvas.line(
                (axis.at(*tick), TOP),
                (axis.at(*tick), bottom),
                Ink::Grid,
                1,
            );
        }
        for (tick, label) in ticks.iter().zip(time_labels(&ticks)) {
            let at = (axis.at(*tick), bottom + 14);
            canvas.text(&label, at, Anchor::Middle, 11, Ink::Muted);
        }
        for (row, track) in longest.iter().enumerate() {
            draw(
                canvas,
                &tracks[*track],
                &axis,
                TOP + ROW * row as i32 + ROW / 2,
            );
        }
        if hidden > 0 {
            let words = format!("{} more, all of them shorter", counted(hidden, "row"));
            canvas.text(&words, (RIGHT, bottom + 32), Anchor::End, 11, Ink::Muted);
        }
    }))
}

/// A row, its middle at the height `y`.
fn draw(canvas: &mut Canvas, track: &Track, axis: &Scale, y: i32) {
    let name = shorten(&one_line(&track.name), 22);
    canvas.text(&name, (LEFT - 10, y), Anchor::End, 12, Ink::Text);
    let kinds = kinds(track, axis);
    let mut runs: Vec<(u8, usize, usize)> = Vec::new();
    for (column, kind) in kinds.iter().enumerate() {
        match (runs.last_mut(), *kind) {
            (_, None) => {}
            (Some((same, _, to)), Some(kind)) if *same == kind && *to == column => *to += 1,
            (_, Some(kind)) => runs.push((kind, column, column + 1)),
        }
    }
    // By kind, so that those of one share a path.
    runs.sort_unstable();
    for (kind, from, to) in runs {
        let x = |column: usize| LEFT + column as i32;
        canvas.line((x(from), y), (x(to), y), Ink::Kind(kind), BAR as u32);
    }
    if let Some(last) = kinds.iter().rposition(Option::is_some) {
        let at = (LEFT + last as i32 + 7, y);
        let took = Elapsed(track.took()).to_string();
        canvas.text(&took, at, Anchor::Start, 11, Ink::Muted);
    }
}

/// The kind that took most of each pixel.
fn kinds(track: &Track, axis: &Scale) -> Vec<Option<u8>> {
    let width = (RIGHT - LEFT) as usize;
    let mut time = vec![[0.0; COLOURS + 1]; width];
    let pixel = |at: Nanoseconds| axis.share(at.0) * width as f64;
    for stage in &track.stages {
        let (from, to) = (pixel(stage.from), pixel(stage.from + stage.took));
        let kind = usize::from(stage.kind).min(COLOURS);
        let first = (from as usize).min(width - 1);
        let columns = time.iter_mut().enumerate().skip(first);
        for (column, time) in columns.take_while(|(column, _)| (*column as f64) < to) {
            let left = from.max(column as f64);
            time[kind] += (to.min(column as f64 + 1.0) - left).max(0.0);
        }
    }
    let most = |time: &[f64; COLOURS + 1]| {
        let kinds = time.iter().enumerate().filter(|(_, time)| **time > 0.0);
        let most = kinds.max_by(|(_, a), (_, b)| a.total_cmp(b));
        most.map(|(kind, _)| kind as u8)
    };
    time.iter().map(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(kind: u8, from: f64, took: f64) -> Stage {
        Stage {
            kind,
            from: Nanoseconds(from),
            took: Nanoseconds(took),
        }
    }

    fn track(stages: Vec<Stage>) -> Track {
        Track {
            name: "<cpu>".to_owned(),
            stages,
        }
    }

    #[test]
    fn a_pixel_is_of_what_took_most_of_it_and_what_was_not_timed_is_left_empty() {
        let width = f64::from(RIGHT - LEFT);
        let axis = Scale::linear_between(0.0, width, LEFT, RIGHT);
        // Ten pixels of one, then within one pixel less of it than of another.
        let stages = vec![
            stage(1, 0.0, 10.3),
            stage(2, 10.3, 0.7),
            stage(9, 20.0, 0.01),
        ];
        let found = kinds(&track(stages), &axis);
        assert_eq!(found[..12], [&[Some(1); 10][..], &[Some(2), None]].concat());
        assert_eq!(found[20], Some(7), "beyond the colours");
        assert!(found[21..].iter().all(Option::is_none));
    }

    #[test]
    fn a_figure_of_anything_has_a_bounded_size() {
        let many = |n: usize| -> Vec<Track> {
            let stages = || {
                (0..1_000)
                    .map(|i| stage(i as u8 % 9, f64::from(i), 0.9))
                    .collect()
            };
            (0..n).map(|_| track(stages())).collect()
        };
        let drawn = gantt(&many(200), Nanoseconds(1e3)).unwrap();
        assert!(drawn.contains("120 rows more") && drawn.contains("&lt;cpu&gt;"));
        assert!(drawn.len() < 2_000_000, "{}", drawn.len());
        assert_eq!(gantt(&[], Nanoseconds(1.0)), None);
        assert_eq!(gantt(&many(1), Nanoseconds::ZERO), None);
        let odd = [f64::NAN, f64::INFINITY, -1.0, 1e300];
        for number in odd {
            let stages = vec![stage(0, number, 1.0), stage(1, 0.0, number)];
            gantt(&[track(stages)], Nanoseconds(10.0));
        }
    }
}
