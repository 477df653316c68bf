//! The answer in a sentence.

use super::Bisect;
use regatta_judge::judgement::Word;
use regatta_measure::versions::hunt::{CaseReading, Ending, Tried};
use regatta_measure::versions::search::Towards;
use regatta_worker::units::counted;

impl Bisect<'_> {
    /// Of a version that gave something back: how it stands against the good end.
    pub(super) fn left(&self) -> Option<&CaseReading> {
        let found = self.found()?;
        let good = &self.row.first()?.spec;
        let of = |tried: &&Tried| tried.base == *good && tried.head == found.after.spec;
        let tried = self.tried.iter().find(of)?;
        let fixed = self.question.towards == Towards::Fixed;
        tried.reading(&found.case.case).filter(|_| fixed)
    }

    /// What was tried, and by what versions were told apart.
    pub(super) fn effort(&self) -> String {
        let by = match self.question.processor {
            true => ", by processor time",
            false => "",
        };
        let comparisons = counted(self.tried.len(), "comparison");
        format!(
            "{comparisons} of {}{by}",
            counted(self.row.len(), "version")
        )
    }

    /// The verdict in a word or two, and in a sentence.
    pub(super) fn headline(&self) -> (&'static str, String) {
        let ends = match (self.row.first(), self.row.last()) {
            (Some(good), Some(bad)) => format!("{} and {}", good.name, bad.name),
            _ => "its ends".to_owned(),
        };
        let what = match self.question.towards {
            Towards::Bad => "the first bad version",
            Towards::Fixed => "the first version that is good again",
        };
        match self.ending {
            Ending::Found(found) if found.suspects.is_empty() => {
                let name = &found.after.name;
                let good = self.row.first().map_or("the good end", |good| &good.name);
                match self.left().and_then(|left| left.reading) {
                    Some(left) if left.word == Word::Regressed => (
                        "PARTLY BETTER",
                        format!(
                            "{name} gives back the most, and is still {} than {good}",
                            left.ratio.told()
                        ),
                    ),
                    Some(left) if left.word == Word::Inconclusive => (
                        "FOUND",
                        format!(
                            "{name} gives back the most; whether it is as good as {good} again is \
                             not decided"
                        ),
                    ),
                    _ => ("FOUND", format!("{name} is {what}")),
                }
            }
            Ending::Found(found) => {
                let names: Vec<&str> = found.suspects.iter().map(|v| v.name.as_str()).collect();
                (
                    "ONE OF THESE",
                    format!("{what} is one of {}", names.join(", ")),
                )
            }
            Ending::NoDifference { looked_at, .. } => {
                let between = looked_at.iter().rev().skip(1).next_back();
                let between =
                    between.map(|version| format!(", nor does {} between them", version.name));
                let change = match self.question.towards {
                    Towards::Bad => "no change for the worse",
                    Towards::Fixed => "no change for the better",
                };
                (
                    "NO DIFFERENCE",
                    format!("{ends} show {change}{}", between.unwrap_or_default()),
                )
            }
            Ending::Spread { .. } => (
                "NO ONE STEP",
                format!("the change between {ends} is spread over several versions"),
            ),
            Ending::NoEnd { end, .. } => ("NOT JUDGED", format!("{} cannot be measured", end.name)),
        }
    }
}
