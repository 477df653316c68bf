//! The answer on standard output: verdict, reasons, what changed, the rest.
//!
//! At most [`COLUMNS`] columns. Colour is asked for by [`Options::colour`] and
//! printed through `anstream`, which drops it in pipes and under `NO_COLOR`.

mod cases;

use std::io::{self, Write};

use self::cases::{Of, list, table, table_alone};
use super::by_axes::by_axes;
pub use super::screen::COLUMNS;
use super::screen::{Screen, bad, doubtful, good, laid_out};
use super::summary::{METRICS, SLOWER_BESIDE, Summary};
use super::text::{one_line, shorten};
use regatta_judge::judgement::{
    ExpectationResult, Held, Judgement, LimitResult, SideSummary, VerdictOutcome,
};
use regatta_judge::spread::Spread;
use regatta_worker::units::counted;

/// Cases of one list, where not all were asked for.
const MOST_ROWS: usize = 20;

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// With colours.
    pub colour: bool,
    /// Every case, not only those that changed.
    pub all: bool,
}

/// Writes the answer line by line.
///
/// # Errors
/// When the writer takes no more.
pub fn write(judgement: &Judgement, options: Options, out: &mut dyn Write) -> io::Result<()> {
    let mut screen = Screen {
        out,
        written: Ok(()),
        colour: options.colour,
        most: match options.all {
            true => usize::MAX,
            false => MOST_ROWS,
        },
    };
    let summary = Summary::of(judgement);
    verdict(&mut screen, judgement);
    let out = &mut screen;
    list(out, "Regressed", &summary.regressed, Of::Times, bad());
    list(out, METRICS, &summary.metrics, Of::Beside, bad());
    list(
        out,
        "Structure got worse",
        &summary.structure,
        Of::Times,
        bad(),
    );
    expectations(out, &summary.broken);
    limits(out, &summary.limits);
    let doubted = [
        ("Not measured", &summary.not_measured),
        ("Structure not judged", &summary.uncounted),
    ];
    for (name, rows) in doubted {
        list(out, name, rows, Of::Times, doubtful());
    }
    for (name, rows) in &summary.restructured {
        let of = match *name {
            SLOWER_BESIDE => Of::Beside,
            _ => Of::Times,
        };
        list(out, name, rows, of, doubtful());
    }
    list(out, "Improved", &summary.improved, Of::Times, good());
    if judgement.base.is_none() && !judgement.rows.is_empty() {
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
        VerdictOutcome::Passed => good(),
        VerdictOutcome::Failed => bad(),
        VerdictOutcome::NotJudged => doubtful(),
    };
    let word = screen.paint(verdict.outcome.text(), style);
    let suite = shorten(&one_line(&judgement.suite), 40);
    screen.line(format!("{word}  {suite}"));
    for reason in &verdict.reasons {
        screen.wrapped(2, reason);
    }
    let summary = by_axes(judgement);
    if !summary.is_empty() {
        screen.wrapped(2, &summary);
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

fn expectations(screen: &mut Screen, broken: &[&ExpectationResult]) {
    if broken.is_empty() {
        return;
    }
    screen.heading("Broken expectations", broken.len(), bad());
    // The worst first, and with it all others that broke the same.
    let mut left: Vec<&ExpectationResult> = broken.iter().take(screen.most).copied().collect();
    while let Some(first) = left.first().copied() {
        let (same, others): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|one| one.name == first.name);
        screen.wrapped(2, &first.name);
        cases::broken(screen, &same);
        left = others;
    }
    screen.left_out(broken.len());
}

fn limits(screen: &mut Screen, broken: &[&LimitResult]) {
    if broken.is_empty() {
        return;
    }
    screen.heading("Broken limits", broken.len(), bad());
    for limit in broken.iter().take(screen.most) {
        screen.wrapped(2, &limit.name);
        screen.case(4, &limit.subject());
        screen.wrapped(4, &limit.told());
        if let Some(reason) = &limit.reason {
            screen.wrapped(4, reason);
        }
    }
    screen.left_out(broken.len());
}

fn closing(screen: &mut Screen, judgement: &Judgement, summary: &Summary) {
    screen.line("");
    let rest = summary.rest_line();
    if !rest.is_empty() {
        let before = if summary.is_quiet() { "" } else { "the rest: " };
        screen.wrapped(0, &format!("{before}{rest}"));
    }
    let held = |held| {
        judgement
            .expectations
            .iter()
            .filter(move |e| e.held == held)
    };
    if !judgement.expectations.is_empty() {
        let mut parts = vec![format!("{} hold", held(Held::Yes).count())];
        for kind in [Held::Broken, Held::Inconclusive, Held::NotJudged] {
            match held(kind).count() {
                0 => {}
                count => parts.push(format!("{count} {}", kind.text())),
            }
        }
        screen.wrapped(0, &format!("expectations: {}", parts.join(", ")));
    }
    if !judgement.limits.is_empty() {
        let of = |held| {
            judgement
                .limits
                .iter()
                .filter(move |l| l.held == held)
                .count()
        };
        let mut parts = vec![format!("{} hold", of(Held::Yes))];
        for held in [Held::Broken, Held::NotJudged] {
            if of(held) > 0 {
                parts.push(format!("{} {}", of(held), held.text()));
            }
        }
        screen.wrapped(0, &format!("limits: {}", parts.join(", ")));
    }
    for note in &judgement.notes {
        screen.wrapped(0, &format!("note: {note}"));
    }
    if let Some(undecided) = &judgement.verdict.undecided {
        screen.wrapped(0, undecided);
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
    use crate::{fixture, text};
    use regatta_core::suite::rules::Metric;
    use regatta_core::suite::structural::Action;
    use regatta_judge::judgement::{Cause, Fact, Finding, MetricRow, Word};
    use regatta_worker::units::Nanoseconds;

    fn plain(scene: &fixture::Scene) -> String {
        render(&scene.judgement, Options::default())
    }

    #[test]
    fn a_failed_gate_says_what_and_why() {
        insta::assert_snapshot!(plain(&fixture::failed()));
    }

    #[test]
    fn a_run_alone() {
        insta::assert_snapshot!(plain(&fixture::passed()));
    }

    #[test]
    fn every_case_on_request() {
        let options = Options {
            all: true,
            ..Options::default()
        };
        insta::assert_snapshot!(render(&fixture::failed().judgement, options));
    }

    #[test]
    fn hostile_reasons_stay_inside_their_lines() {
        insta::assert_snapshot!(plain(&fixture::incomplete()));
    }

    #[test]
    fn a_refused_comparison_says_what_differs() {
        insta::assert_snapshot!(plain(&fixture::refused()));
    }

    #[test]
    fn a_list_of_many_says_how_many_more_there_are() {
        let scene = fixture::large(9_700);
        let text = plain(&scene);
        assert!(text.contains("Regressed (100)"), "{text}");
        assert!(text.contains("  and 80 more, which --all prints\n"));
        let options = Options {
            all: true,
            ..Options::default()
        };
        assert!(!render(&scene.judgement, options).contains("--all prints"));
    }

    #[test]
    fn what_is_told_of_each_case_of_a_list_is_said_once() {
        let mut scene = fixture::failed();
        let rows = &mut scene.judgement.rows;
        let why = rows.iter().find(|row| row.findings.len() > 1).unwrap();
        let mut row = why.clone();
        row.case.0 = "torch/efficient:s9000,d32,bwd".to_owned();
        rows.retain(|row| row.word != Word::Regressed || row.findings.len() > 1);
        rows.push(row);
        let text = plain(&scene);
        assert!(text.contains("  all torch/efficient, d32, bwd; p 0.0022, all confirmed\n"));
        assert_eq!(text.matches("each: less-parallel: ").count(), 1, "{text}");
        assert_eq!(text.matches("less-parallel").count(), 1, "{text}");
        for label in ["s10000", "s9000 "] {
            assert!(text.contains(&format!("\n  {label}  1.03 ms")), "{text}");
        }
    }

    #[test]
    fn causes_stand_below_the_worst_and_below_whoever_has_a_new_one() {
        let mut scene = fixture::large(9_700);
        let rows = scene.judgement.rows.iter_mut();
        let slow = rows.filter(|row| row.word == Word::Regressed);
        for (place, row) in slow.enumerate() {
            let cause = match place {
                60 => Cause::CopiesAdded,
                _ => Cause::LessParallel,
            };
            row.findings = vec![Finding {
                cause,
                facts: vec![Fact::said(&format!("figure {place}"))],
                share: None,
            }];
        }
        let count = |all| {
            let options = Options {
                all,
                ..Options::default()
            };
            let text = render(&scene.judgement, options);
            text.matches("    less-parallel: ").count() + text.matches("copies-added: ").count()
        };
        assert!((5..=6).contains(&count(false)), "{}", count(false));
        assert_eq!(count(true), 100);
    }

    #[test]
    fn many_cases_without_a_base_end_with_how_many_more_there_are() {
        let mut scene = fixture::large(9_700);
        scene.judgement.base = None;
        for row in &mut scene.judgement.rows {
            (row.word, row.change) = (Word::Measured, None);
            row.findings.clear();
        }
        let all = scene.judgement.rows.len();
        let text = plain(&scene);
        let more = format!("  and {} more, which --all prints\n", all - 20);
        assert!(text.contains(&more), "{text}");
        scene.judgement.rows.truncate(60);
        assert!(!plain(&scene).contains("more, which"));
    }

    #[test]
    fn another_metric_has_a_line_of_its_own() {
        let mut scene = fixture::failed();
        let rows = &mut scene.judgement.rows;
        let row = rows.iter_mut().find(|row| row.word == Word::Regressed);
        let row = row.unwrap();
        row.word = Word::Same;
        row.metrics = [
            (Metric::Host, 52_100.0, 352_400.0),
            (Metric::FirstCall, 1e6, 3e6),
        ]
        .map(|(metric, base, head)| MetricRow {
            metric,
            word: Word::Regressed,
            reason: None,
            action: Action::Fail,
            looks_worse: false,
            open: false,
            base_ns: Nanoseconds(base),
            head_ns: Nanoseconds(head),
            account: None,
            change: row.change.clone().unwrap(),
        })
        .to_vec();
        let text = plain(&scene);
        let heading = "Another metric regressed (1)\n";
        let list = text.split(heading).nth(1).unwrap();
        let lines: Vec<&str> = list.lines().take(3).collect();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[0]), "case metric base head change");
        assert!(
            words(lines[1]).ends_with("host time 52.1 µs 352.4 µs 6.76x"),
            "{text}"
        );
        assert_eq!(
            words(lines[2]),
            "first call 1.00 ms 3.00 ms 3.00x",
            "{text}"
        );
    }

    #[test]
    fn nothing_is_no_reason_to_fail() {
        insta::assert_snapshot!(plain(&fixture::empty()));
    }

    #[test]
    fn lines_fit_and_colour_is_all_that_colour_adds() {
        for scene in [fixture::failed(), fixture::incomplete(), fixture::refused()] {
            for all in [false, true] {
                let plain = render(&scene.judgement, Options { colour: false, all });
                for line in plain.lines() {
                    assert!(text::width(line) <= COLUMNS, "{line}");
                }
                assert!(!plain.contains('\u{1b}'));
                let coloured = render(&scene.judgement, Options { colour: true, all });
                assert!(coloured.contains('\u{1b}'));
                assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
            }
        }
    }
}
