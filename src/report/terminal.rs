//! The answer on standard output: verdict, reasons, what changed, the rest.
//!
//! At most [`COLUMNS`] columns. Colour is asked for by [`Options::colour`] and
//! printed through `anstream`, which drops it in pipes and under `NO_COLOR`.

mod cases;
pub(super) mod screen;

use std::io::{self, Write};

use self::cases::{table, table_alone};
pub use self::screen::COLUMNS;
use self::screen::{Screen, bad, doubtful, good};
use super::by_axes::by_axes;
use super::summary::{METRICS, Summary};
use super::text::{one_line, shorten};
use crate::judge::judgement::{
    ExpectationResult, Held, Judgement, LimitResult, SideSummary, VerdictOutcome,
};
use crate::units::counted;

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

/// The answer, ending in a newline.
pub fn render(judgement: &Judgement, options: Options) -> String {
    let mut bytes = Vec::new();
    // Memory takes whatever is written.
    let _ = write(judgement, options, &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
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
    screen.rows("Regressed", &summary.regressed, bad());
    screen.rows(METRICS, &summary.metrics, bad());
    screen.rows("Structure got worse", &summary.structure, bad());
    expectations(&mut screen, &summary.broken);
    limits(&mut screen, &summary.limits);
    screen.rows("Not measured", &summary.not_measured, doubtful());
    screen.rows("Structure not judged", &summary.uncounted, doubtful());
    for (name, rows) in &summary.restructured {
        screen.rows(name, rows, doubtful());
    }
    screen.rows("Improved", &summary.improved, good());
    let few = (1..=FEW).contains(&judgement.rows.len());
    if judgement.base.is_none() && (options.all || few) {
        table_alone(&mut screen, &judgement.rows);
    } else if options.all {
        table(&mut screen, &judgement.rows);
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
    for expectation in broken.iter().take(screen.most) {
        screen.wrapped(2, &expectation.name);
        screen.case(4, &expectation.case.0);
        let told = expectation.told();
        match &expectation.against {
            Some(against) => {
                screen.line(format!("    {told}, of"));
                screen.case(4, &against.0);
            }
            None => screen.line(format!("    {told}")),
        }
        if let Some(reason) = &expectation.reason {
            screen.wrapped(4, reason);
        }
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

/// Cases of a run without a base that are printed unasked.
const FEW: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{fixture, text};

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
