//! The answer of a bisect: a text for the terminal, one document of JSON, a page.

mod shown;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use super::text::shell_quoted;
use regatta_core::record::SCHEMA_VERSION;
use regatta_judge::judgement::Word;
use regatta_measure::versions::Version;
use regatta_measure::versions::bisect::{CaseReading, Ending, FoundStep, Tried, skipped};
use regatta_measure::versions::journal::BisectQuestion;
use regatta_measure::versions::releases::MovedPackage;
use regatta_measure::versions::search::Towards;
use regatta_worker::attention::CaseId;
use regatta_worker::units::{Ratio, counted};

pub use shown::{page, reading, text};

/// All that is known of a bisect.
#[derive(Clone, Debug)]
pub struct Bisect<'a> {
    /// The question.
    pub question: &'a BisectQuestion,
    /// The versions between the ends, both included.
    pub row: &'a [Version],
    /// Comparisons, in order.
    pub tried: &'a [Tried],
    /// What it came to.
    pub ending: &'a Ending,
    /// What moved from the environment before the step to that after it.
    pub moved: &'a [MovedPackage],
    /// The suite, and what of it, as `regatta compare` takes it: `quick`, `--filter`, `cpu`.
    pub suite: &'a [String],
}

impl Bisect<'_> {
    /// The whole answer as JSON.
    ///
    /// # Errors
    /// None that its values could bring about.
    pub fn json(&self) -> serde_json::Result<String> {
        let skipped = self.skipped().into_iter();
        let mut answer = json!({
            "schema": SCHEMA_VERSION,
            "suite": self.question.suite,
            "good": self.question.good,
            "bad": self.question.bad,
            "towards": self.question.towards,
            "versions": self.row.len(),
            "left": self.left(),
            "moved": self.moved,
            "skipped": skipped
                .map(|(version, reason)| json!({ "version": version, "reason": reason }))
                .collect::<Vec<_>>(),
            "again": self.again().map(|words| words.join(" ")),
            "tried": self.tried,
        });
        if let (Some(members), Value::Object(ending)) =
            (answer.as_object_mut(), serde_json::to_value(self.ending)?)
        {
            members.extend(ending);
            members.retain(|_, value| !value.is_null());
        }
        serde_json::to_string_pretty(&answer)
    }

    /// The case that was followed.
    fn case(&self) -> Option<&CaseId> {
        match self.ending {
            Ending::Found(found) => Some(&found.case.case),
            Ending::NoDifference { case, .. } => case.as_ref().map(|of| &of.case),
            Ending::Spread { case, .. } => case.as_ref(),
            Ending::NoEnd { .. } => None,
        }
    }

    /// Versions that were tried and passed over, with the reason of each.
    fn skipped(&self) -> Vec<(Version, String)> {
        skipped(self.row, self.tried, self.case())
    }

    fn found(&self) -> Option<&FoundStep> {
        match self.ending {
            Ending::Found(found) => Some(found),
            _ => None,
        }
    }

    /// The words of the command that shows the step again.
    fn again(&self) -> Option<Vec<String>> {
        let found = self.found()?;
        let suite = self.suite.iter().map(|word| shell_quoted(word));
        let first = std::iter::once("regatta compare".to_owned()).chain(suite);
        let mut words = vec![first.collect::<Vec<_>>().join(" ")];
        for (option, version) in [("--base", &found.before), ("--head", &found.after)] {
            words.push(format!("{option} {}", shell_quoted(&version.spec)));
        }
        Some(words)
    }
}

/// The version of a comparison, by its spec.
fn named<'a>(bisect: &'a Bisect, spec: &'a str) -> &'a str {
    let found = bisect.row.iter().find(|version| version.spec == spec);
    found.map_or(spec, |version| &version.name)
}

/// True for a ratio that prints.
fn is_printable(ratio: Ratio) -> bool {
    ratio.is_finite() && ratio.0 > 0.0
}

impl Bisect<'_> {
    /// The comparison with the good end of a version that is faster again.
    fn left(&self) -> Option<&CaseReading> {
        let found = self.found()?;
        let good = &self.row.first()?.spec;
        let of = |tried: &&Tried| tried.base == *good && tried.head == found.after.spec;
        let tried = self.tried.iter().find(of)?;
        let fixed = self.question.towards == Towards::Fixed;
        tried.reading(&found.case.case).filter(|_| fixed)
    }

    /// The number of comparisons, and the time that decided.
    fn effort(&self) -> String {
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
    fn headline(&self) -> (&'static str, String) {
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
                            left.ratio.in_words()
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
            Ending::NoEnd { end, .. } => {
                ("INCONCLUSIVE", format!("{} cannot be measured", end.name))
            }
        }
    }
}
