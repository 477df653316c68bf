//! The answer on standard output.

use super::{Bisect, is_printable, told};
use crate::screen::{COLUMNS, Screen, laid_out};
use crate::text::{one_line, shorten};
use regatta_judge::judgement::Word;
use regatta_measure::versions::apart::Moved;
use regatta_measure::versions::hunt::{CaseReading, Ending, Found};
use regatta_measure::versions::search::Towards;
use regatta_worker::units::{ARROW, RatioInterval, counted, from_to};

/// Parts and skipped versions that are listed.
const MOST: usize = 8;

/// What a comparison says of a case: `1.74x slower [1.70x, 1.78x]`.
pub fn reading(of: &CaseReading) -> Option<String> {
    let reading = of.reading.filter(|reading| is_printable(reading.ratio))?;
    let interval = RatioInterval {
        ratio: reading.ratio,
        low: reading.low,
        high: reading.high,
    };
    Some(format!("{} {interval}", reading.ratio.told()))
}

/// The answer, at most [`COLUMNS`] wide, but for a command, which is never cut.
pub fn text(bisect: &Bisect) -> String {
    laid_out(false, usize::MAX, |screen| write(screen, bisect))
}

fn write(screen: &mut Screen, bisect: &Bisect) {
    let (word, sentence) = bisect.headline();
    let suite = shorten(&one_line(&bisect.question.suite), 40);
    screen.line(format!("{word}  {suite}"));
    screen.wrapped(2, &sentence);
    match bisect.ending {
        Ending::Found(found) => step(screen, bisect, found),
        Ending::NoDifference { case, .. } => no_difference(screen, bisect, case.as_ref()),
        Ending::Spread { case, parts } => {
            if let Some(case) = case {
                screen.case(2, &case.0);
            }
            for part in parts.iter().take(MOST) {
                let change = part.ratio.told();
                screen.wrapped(
                    4,
                    &format!("{} {ARROW} {}: {change}", part.low.name, part.high.name),
                );
            }
            screen.wrapped(
                2,
                "no two neighbours differ by more than what chance does: more invocations in the \
                 suite's [measure], or a smaller range, may tell",
            );
        }
        Ending::NoEnd { reason, .. } => screen.wrapped(2, reason),
    }
    let skipped = bisect.skipped();
    for skipped in skipped.iter().take(MOST) {
        screen.wrapped(
            2,
            &format!("skipped: {}: {}", skipped.version.name, skipped.reason),
        );
    }
    if skipped.len() > MOST {
        screen.wrapped(
            2,
            &format!("and {} more (--json has all)", skipped.len() - MOST),
        );
    }
    screen.wrapped(2, &bisect.effort());
    if let Some(words) = bisect.again() {
        screen.wrapped(2, "to see it again:");
        screen.line(format!("    {}", command(&words)));
    }
}

/// A command, broken between its words where it is too long for a line.
fn command(words: &[String]) -> String {
    let whole = words.join(" ");
    match whole.len() + 4 <= COLUMNS {
        true => whole,
        false => words.join(" \\\n      "),
    }
}

fn step(screen: &mut Screen, bisect: &Bisect, found: &Found) {
    let (before, after) = (&found.before, &found.after);
    if after.subject.is_some() {
        screen.wrapped(2, &told(after));
    }
    if let Some(merge) = &found.merged_by {
        screen.wrapped(2, &format!("merged by {}", told(merge)));
    }
    if found.by_merging {
        screen.wrapped(2, "a merge, and none of what it brought shows it alone");
    }
    case(screen, &found.case, &format!("against {}", before.name));
    if !found.others.is_empty() {
        let others = counted(found.others.len(), "other case");
        screen.wrapped(2, &format!("{others} changed there as well"));
    }
    if !bisect.moved.is_empty() {
        let moved: Vec<String> = bisect.moved.iter().map(Moved::told).collect();
        screen.wrapped(2, &format!("moved: {}", moved.join(", ")));
    }
    for verdict in bisect.apart {
        screen.wrapped(4, &verdict.told());
    }
    if let Some(said) = bisect.concluded() {
        screen.wrapped(4, &said);
    }
}

fn case(screen: &mut Screen, of: &CaseReading, against: &str) {
    screen.case(2, &of.case.0);
    let mut said = Vec::new();
    if let (Some(base), Some(head)) = (of.base_ns, of.head_ns) {
        said.push(from_to(base, head));
    }
    said.extend(reading(of));
    said.push(against.to_owned());
    screen.wrapped(4, &said.join(", "));
    if let Some(cause) = &of.cause {
        screen.wrapped(4, cause);
    }
}

fn no_difference(screen: &mut Screen, bisect: &Bisect, largest: Option<&CaseReading>) {
    if let Some(largest) = largest {
        let word = largest.reading.map_or(Word::Missing, |of| of.word);
        case(screen, largest, &format!("{} (the ends)", word.text()));
        if let Some(sees) = largest.sees {
            screen.wrapped(
                4,
                &format!("a change of less than {sees} could have hidden in this comparison"),
            );
        }
    }
    let hidden = match bisect.question.towards {
        Towards::Bad => "what came and went between the versions that were compared is not seen",
        Towards::Fixed => "only what is good again after it was bad in the same range is found",
    };
    screen.wrapped(
        2,
        &format!("{hidden}: name as --bad a version that is known to be slow"),
    );
}
