//! The answer on standard output, at most [`COLUMNS`] columns wide.
//!
//! Colour is asked for by [`TerminalOptions::colour`] and printed through `anstream`, which drops
//! it in pipes and under `NO_COLOR`.

use std::io::{self, Write};

use super::judgement;
pub use super::screen::COLUMNS;
use regatta_judge::judgement::Judgement;
use regatta_judge::spread::Spread;

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TerminalOptions {
    /// With colours.
    pub colour: bool,
    /// Every case, not only those that changed.
    pub all: bool,
}

/// The answer, ending in a newline.
pub fn render(judgement: &Judgement, options: TerminalOptions) -> String {
    judgement::terminal(judgement, options.all).text(options.colour)
}

/// Writes the answer line by line.
///
/// # Errors
/// When the writer takes no more.
pub fn write(
    judgement: &Judgement,
    options: TerminalOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    judgement::terminal(judgement, options.all).write(options.colour, out)
}

/// The variation of a run's times, in a table.
pub fn spread(suite: &str, spreads: &[Spread]) -> String {
    judgement::spread(suite, spreads).text(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, finding, fits};
    use regatta_core::suite::rules::Metric;
    use regatta_judge::judgement::{Cause, Word};
    use regatta_judge::spread::spreads;

    fn plain(scene: &fixture::Scene) -> String {
        render(&scene.judgement, TerminalOptions::default())
    }

    fn whole(scene: &fixture::Scene) -> String {
        let colour = false;
        render(&scene.judgement, TerminalOptions { colour, all: true })
    }

    #[test]
    fn answers_read_well() {
        for (name, scene) in [
            ("a_failed_gate_says_what_and_why", fixture::failed()),
            ("a_run_alone", fixture::passed()),
            (
                "hostile_reasons_stay_inside_their_lines",
                fixture::incomplete(),
            ),
            ("a_refused_comparison_says_what_differs", fixture::refused()),
            ("nothing_is_no_reason_to_fail", fixture::empty()),
        ] {
            insta::assert_snapshot!(name, plain(&scene));
        }
        insta::assert_snapshot!("every_case_on_request", whole(&fixture::failed()));
    }

    #[test]
    fn every_measured_case_is_in_the_table_of_spreads() {
        let scene = fixture::failed();
        let spreads = spreads(&scene.head, scene.report().entries).unwrap();
        let text = spread("quick", &spreads);
        fits(&text);
        insta::assert_snapshot!(text.lines().take(5).collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn a_list_of_many_says_how_many_more_there_are() {
        let mut scene = fixture::large(100);
        let text = plain(&scene);
        assert!(text.contains("Regressed (25)"), "{text}");
        assert!(text.contains("  and 5 more, which --all prints\n"));
        assert!(!whole(&scene).contains("--all prints"));
        scene.judgement.base = None;
        for row in &mut scene.judgement.rows {
            (row.word, row.metrics) = (Word::New, Vec::new());
        }
        assert!(plain(&scene).contains("  and 80 more, which --all prints\n"));
        scene.judgement.rows.truncate(60);
        assert!(!plain(&scene).contains("more, which"));
    }

    #[test]
    fn paragraphs_of_each_case_of_a_list_are_printed_once() {
        let mut scene = fixture::failed();
        let rows = &mut scene.judgement.rows;
        rows.retain(|row| row.word != Word::Regressed || row.findings.len() > 1);
        let mut row = rows
            .iter()
            .find(|row| row.findings.len() > 1)
            .unwrap()
            .clone();
        row.case.0 = "torch/efficient:s9000,d32,bwd".to_owned();
        rows.push(row);
        let text = plain(&scene);
        assert!(text.contains("  all torch/efficient, d32, bwd\n"));
        assert!(text.contains("each: less-parallel: "), "{text}");
        assert_eq!(text.matches("less-parallel").count(), 1, "{text}");
        for label in ["s10000", "s9000 "] {
            assert!(text.contains(&format!("\n  {label}  1.03 ms")), "{text}");
        }
    }

    #[test]
    fn causes_stand_below_the_worst_and_below_a_row_with_a_new_one() {
        let mut scene = fixture::large(200);
        let rows = scene.judgement.rows.iter_mut();
        let slow = rows.filter(|row| row.word == Word::Regressed);
        for (place, row) in slow.enumerate() {
            let cause = match place {
                30 => Cause::CopiesAdded,
                _ => Cause::LessParallel,
            };
            row.findings = vec![finding(cause, &format!("figure {place}"), None)];
        }
        let count = |text: &str| text.matches(": figure ").count();
        let shown = count(&plain(&scene));
        assert!((5..=6).contains(&shown), "{shown}");
        assert_eq!(count(&whole(&scene)), 50);
    }

    #[test]
    fn another_metric_has_a_line_of_its_own() {
        let mut scene = fixture::failed();
        let mut rows = scene.judgement.rows.iter_mut();
        let row = rows.find(|row| row.word == Word::Regressed).unwrap();
        row.metrics[0].word = Word::Same;
        for (of, base, head) in [
            (Metric::Host, 52_100.0, 352_400.0),
            (Metric::FirstCall, 1e6, 3e6),
        ] {
            let of = fixture::metric(of, Word::Regressed, base, head);
            row.metrics.push(of);
        }
        let case = row.case.clone();
        scene.judgement.rows.retain(|row| row.case == case);
        let text = plain(&scene);
        let (_, list) = text.split_once("Regressed (1)\n").unwrap();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = list.lines().take(4).map(words).collect();
        assert_eq!(lines[0], "case metric base head change 90 % interval");
        let host = "host time 52.1 µs 352.4 µs 6.76x [6.72x, 6.80x]";
        let first_call = "first call 1.00 ms 3.00 ms 3.00x [2.98x, 3.02x]";
        assert_eq!(lines[2..], [host, first_call], "{text}");
    }

    #[test]
    fn lines_fit_and_colour_is_all_that_colour_adds() {
        for scene in [fixture::failed(), fixture::incomplete(), fixture::refused()] {
            for all in [false, true] {
                let plain = render(&scene.judgement, TerminalOptions { colour: false, all });
                fits(&plain);
                let coloured = render(&scene.judgement, TerminalOptions { colour: true, all });
                assert_ne!(coloured, plain);
                assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
            }
        }
    }
}
