//! The answer on standard output: verdict, reasons, what changed, the rest.
//!
//! At most [`COLUMNS`] columns. Colour is asked for by [`TerminalOptions::colour`] and
//! printed through `anstream`, which drops it in pipes and under `NO_COLOR`.

mod cases;

use std::io::{self, Write};

use self::cases::{list, table, table_alone};
use super::by_axes::by_axes;
pub use super::screen::COLUMNS;
use super::screen::{Screen, Tone, laid_out};
use super::summary::{SortedRows, tally_of};
use super::text::{one_line, shorten};
use regatta_judge::judgement::{
    ExpectationResult, Judgement, LimitResult, SideSummary, VerdictOutcome, Word,
};
use regatta_judge::spread::Spread;
use regatta_worker::units::counted;

/// Cases of one list, where not all were asked for.
const MOST_ROWS: usize = 20;

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
    let mut bytes = Vec::new();
    // Memory takes whatever is written.
    let _ = write(judgement, options, &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
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
    let mut screen = Screen {
        out,
        written: Ok(()),
        colour: options.colour,
        most: match options.all {
            true => usize::MAX,
            false => MOST_ROWS,
        },
    };
    let summary = SortedRows::new(judgement);
    verdict(&mut screen, judgement);
    let out = &mut screen;
    let (first, others): (Vec<_>, Vec<_>) = summary
        .lists()
        .into_iter()
        .partition(|(_, against, _)| *against > 0);
    for (name, _, rows) in first {
        list(out, name, rows, Tone::Bad);
    }
    expectations(out, &summary.violated);
    limits(out, &summary.limits);
    for (name, against, rows) in others {
        let tone = if against < 0 {
            Tone::Good
        } else {
            Tone::Doubtful
        };
        list(out, name, rows, tone);
    }
    if judgement.structure_only {
        // No case has a time, and the lists above have what is to be said of a structure.
    } else if judgement.base.is_none() && !judgement.rows.is_empty() {
        table_alone(out, &judgement.rows);
    } else if options.all {
        table(out, &judgement.rows);
    }
    closing(&mut screen, judgement, &summary);
    screen.written
}

fn verdict(screen: &mut Screen, judgement: &Judgement) {
    let verdict = &judgement.verdict;
    let style = match verdict.outcome {
        VerdictOutcome::Passed => Tone::Good.strong(),
        VerdictOutcome::Failed => Tone::Bad.strong(),
        VerdictOutcome::Inconclusive => Tone::Doubtful.strong(),
    };
    let mut text = shorten(&one_line(&judgement.suite), 40);
    if !verdict.shown.is_empty() {
        text += &format!(": {}", verdict.shown);
    }
    screen.painted_word(verdict.outcome.text(), style, &text);
    for reason in &verdict.reasons {
        screen.wrapped(2, reason);
    }
    let summary = by_axes(judgement);
    if !summary.is_empty() {
        screen.whole(2, &summary);
    }
    let side = |name: &str, side: &SideSummary| {
        let revision = side.revision.as_deref().unwrap_or("no revision");
        format!(
            "{name} {} ({}, {}, {})",
            side.label,
            side.machine,
            shorten(revision, 13),
            counted(side.invocations as usize, "invocation")
        )
    };
    screen.line("");
    screen.wrapped(2, &side("head", &judgement.head));
    if let Some(base) = &judgement.base {
        screen.wrapped(2, &side("base", base));
    }
    for difference in &judgement.incomparable {
        screen.wrapped(
            2,
            &format!(
                "not comparable: {} {} → {}",
                difference.field, difference.base, difference.head
            ),
        );
    }
}

fn expectations(screen: &mut Screen, violated: &[&ExpectationResult]) {
    if violated.is_empty() {
        return;
    }
    screen.heading("Violated expectations", violated.len(), Tone::Bad.strong());
    // The worst first, and with it all others of the same name.
    let mut left: Vec<&ExpectationResult> = violated.iter().take(screen.most).copied().collect();
    while let Some(first) = left.first().copied() {
        let (same, others): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|one| one.name == first.name);
        screen.wrapped(2, &first.name);
        cases::violated(screen, &same);
        left = others;
    }
    screen.left_out(violated.len());
}

fn limits(screen: &mut Screen, violated: &[&LimitResult]) {
    if violated.is_empty() {
        return;
    }
    screen.heading("Violated limits", violated.len(), Tone::Bad.strong());
    for limit in violated.iter().take(screen.most) {
        screen.wrapped(2, &limit.name);
        screen.case(4, &limit.subject());
        screen.wrapped(4, &limit.sentence());
        if let Some(reason) = &limit.reason {
            screen.wrapped(4, reason);
        }
    }
    screen.left_out(violated.len());
}

fn closing(screen: &mut Screen, judgement: &Judgement, summary: &SortedRows) {
    screen.line("");
    let rest = summary.rest_line();
    if !rest.is_empty() {
        screen.wrapped(0, &format!("the rest: {rest}"));
    }
    let expectations = judgement.expectations.iter().map(|of| of.word);
    let limits = judgement.limits.iter().map(|of| of.word);
    counts(screen, "expectations", expectations);
    counts(screen, "limits", limits);
    for note in &judgement.notes {
        screen.wrapped(0, &format!("note: {note}"));
    }
}

/// How many of all are met, and what is with the others.
fn counts(screen: &mut Screen, name: &str, words: impl Iterator<Item = Word>) {
    let parts = tally_of(words).into_iter().map(|(word, count)| match word {
        Word::Same => format!("{count} met"),
        Word::Regressed => format!("{count} violated"),
        word => format!("{count} {}", word.text()),
    });
    let parts: Vec<String> = parts.collect();
    if !parts.is_empty() {
        screen.wrapped(0, &format!("{name}: {}", parts.join(", ")));
    }
}

/// How well a run knows its times, in a table.
pub fn spread(suite: &str, spreads: &[Spread]) -> String {
    laid_out(false, usize::MAX, |screen| {
        screen.line(one_line(suite));
        screen.line("");
        screen.line(format!(
            "{:>12} {:>12} {:>10} {:>10} {:>10}",
            "median", "invocations", "samples", "within", "between"
        ));
        for spread in spreads {
            screen.case(0, &spread.case.0);
            screen.line(format!(
                "{:>12} {:>12} {:>10} {:>10.2} {:>10.2}",
                spread.median_ns, spread.invocations, spread.samples, spread.within, spread.between
            ));
        }
        screen.line("");
        screen.wrapped(
            0,
            "within: coefficient of variation of the samples of one invocation, the median over \
             the invocations. between: that of the invocations' medians, which are what is judged.",
        );
    })
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
    fn what_is_told_of_each_case_of_a_list_is_said_once() {
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
    fn causes_stand_below_the_worst_and_below_whoever_has_a_new_one() {
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
        let told = count(&plain(&scene));
        assert!((5..=6).contains(&told), "{told}");
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
