//! The answer on standard output.

use super::{Bisect, is_printable, told};
use crate::terminal::COLUMNS;
use crate::text::{one_line, shorten, shorten_middle, wrap};
use regatta_judge::judgement::Word;
use regatta_measure::versions::apart::Moved;
use regatta_measure::versions::hunt::{CaseReading, Ending, Found};
use regatta_measure::versions::search::Towards;
use regatta_worker::units::{ARROW, RatioInterval, counted, from_to};

/// Longest reason, in columns; the page and the JSON have all of it.
const REASON: usize = 320;
/// Parts and skipped versions that are listed.
const MOST: usize = 8;

struct Lines(String);

impl Lines {
    fn say(&mut self, indent: usize, text: &str) {
        let text = shorten(&one_line(text), REASON);
        for line in wrap(&text, COLUMNS - indent) {
            self.0 += &format!("{:indent$}{line}\n", "");
        }
    }
}

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
    let mut lines = Lines(String::new());
    let (word, sentence) = bisect.headline();
    let suite = shorten(&one_line(&bisect.question.suite), 40);
    lines.0 += &format!("{word}  {suite}\n");
    lines.say(2, &sentence);
    match bisect.ending {
        Ending::Found(found) => step(&mut lines, bisect, found),
        Ending::NoDifference { case, .. } => no_difference(&mut lines, bisect, case.as_ref()),
        Ending::Spread { case, parts } => {
            if let Some(case) = case {
                lines.0 += &format!("  {}\n", shorten_middle(&one_line(&case.0), COLUMNS - 2));
            }
            for part in parts.iter().take(MOST) {
                let change = part.ratio.told();
                lines.say(
                    4,
                    &format!("{} {ARROW} {}: {change}", part.low.name, part.high.name),
                );
            }
            lines.say(
                2,
                "no two neighbours differ by more than what chance does: more invocations in the \
                 suite's [measure], or a smaller range, may tell",
            );
        }
        Ending::NoEnd { reason, .. } => lines.say(2, reason),
    }
    let skipped = bisect.skipped();
    for skipped in skipped.iter().take(MOST) {
        lines.say(
            2,
            &format!("skipped: {}: {}", skipped.version.name, skipped.reason),
        );
    }
    if skipped.len() > MOST {
        lines.say(
            2,
            &format!("and {} more (--json has all)", skipped.len() - MOST),
        );
    }
    lines.say(2, &bisect.effort());
    if let Some(words) = bisect.again() {
        lines.say(2, "to see it again:");
        lines.0 += &format!("    {}\n", command(&words));
    }
    lines.0
}

/// A command, broken between its words where it is too long for a line.
fn command(words: &[String]) -> String {
    let whole = words.join(" ");
    match whole.len() + 4 <= COLUMNS {
        true => whole,
        false => words.join(" \\\n      "),
    }
}

fn step(lines: &mut Lines, bisect: &Bisect, found: &Found) {
    let (before, after) = (&found.before, &found.after);
    if after.subject.is_some() {
        lines.say(2, &told(after));
    }
    if let Some(merge) = &found.merged_by {
        lines.say(2, &format!("merged by {}", told(merge)));
    }
    if found.by_merging {
        lines.say(2, "a merge, and none of what it brought shows it alone");
    }
    case(lines, &found.case, &format!("against {}", before.name));
    if !found.others.is_empty() {
        let others = counted(found.others.len(), "other case");
        lines.say(2, &format!("{others} changed there as well"));
    }
    if !bisect.moved.is_empty() {
        let moved: Vec<String> = bisect.moved.iter().map(Moved::told).collect();
        lines.say(2, &format!("moved: {}", moved.join(", ")));
    }
    for verdict in bisect.apart {
        lines.say(4, &verdict.told());
    }
    if let Some(said) = bisect.concluded() {
        lines.say(4, &said);
    }
}

fn case(lines: &mut Lines, of: &CaseReading, against: &str) {
    lines.0 += &format!("  {}\n", shorten_middle(&one_line(&of.case.0), COLUMNS - 2));
    let mut said = Vec::new();
    if let (Some(base), Some(head)) = (of.base_ns, of.head_ns) {
        said.push(from_to(base, head));
    }
    said.extend(reading(of));
    said.push(against.to_owned());
    lines.say(4, &said.join(", "));
    if let Some(cause) = &of.cause {
        lines.say(4, cause);
    }
}

fn no_difference(lines: &mut Lines, bisect: &Bisect, largest: Option<&CaseReading>) {
    if let Some(largest) = largest {
        let word = largest.reading.map_or(Word::NotMeasured, |of| of.word);
        case(lines, largest, &format!("{} (the ends)", word.text()));
        if let Some(sees) = largest.sees {
            lines.say(
                4,
                &format!("a change of less than {sees} could have hidden in this comparison"),
            );
        }
    }
    let hidden = match bisect.question.towards {
        Towards::Bad => "what came and went between the versions that were compared is not seen",
        Towards::Fixed => "only what is good again after it was bad in the same range is found",
    };
    lines.say(
        2,
        &format!("{hidden}: name as --bad a version that is known to be slow"),
    );
}
