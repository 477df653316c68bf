//! The answer of a bisect: a text for the terminal, one document of JSON, a page.

mod shown;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use super::text::shell_quoted;
use regatta_core::record::SCHEMA_VERSION;
use regatta_core::suite::Metric;
use regatta_judge::judgement::Word;
use regatta_measure::versions::Version;
use regatta_measure::versions::bisect::{CaseReading, Ending, FoundStep, Searched, Tried, skipped};
use regatta_measure::versions::search::Towards;
use regatta_worker::case::CaseId;
use regatta_worker::joined::Joined;
use regatta_worker::units::counted;

pub use shown::{page, reading, text};

/// The result of a bisect.
#[derive(Clone, Debug)]
pub struct Bisect<'a> {
    /// The suite's name.
    pub suite: &'a str,
    /// The direction of the change that is searched for.
    pub towards: Towards,
    /// The versions between the ends, both included.
    pub row: &'a [Version],
    /// The comparisons, the answer, and the metric that decided.
    pub searched: &'a Searched,
    /// The arguments that select the suite and its cases for `regatta compare`: `quick`,
    /// `--filter`, `cpu`.
    pub arguments: &'a [String],
}

impl Bisect<'_> {
    /// The answer as JSON.
    ///
    /// # Errors
    /// None for any values.
    pub fn json(&self) -> serde_json::Result<String> {
        let spec = |at: usize| &self.row[at].spec;
        let skipped = self.skipped().into_iter();
        let tried = self.searched.tried.iter().map(|tried| {
            let (base, head) = (spec(tried.low), spec(tried.high));
            let reason = tried.unusable.as_ref().map(|(_, reason)| reason);
            json!({ "base": base, "head": head, "cases": tried.cases, "unusable": reason })
        });
        let mut answer = json!({
            "schema": SCHEMA_VERSION,
            "suite": self.suite,
            "towards": self.towards,
            "metric": self.searched.metric,
            "versions": self.row,
            "left": self.left(),
            "skipped": skipped
                .map(|(at, reason)| json!({ "version": self.row[at], "reason": reason }))
                .collect::<Vec<_>>(),
            "again": self.again().map(|words| words.join(" ")),
            "tried": tried.collect::<Vec<_>>(),
        });
        if let (Some(members), Value::Object(ending)) = (
            answer.as_object_mut(),
            serde_json::to_value(&self.searched.ending)?,
        ) {
            members.extend(ending);
            members.retain(|_, value| !value.is_null());
        }
        serde_json::to_string_pretty(&answer)
    }

    /// The case that was followed.
    fn case(&self) -> Option<&CaseId> {
        match &self.searched.ending {
            Ending::Found(found) => Some(&found.case.case),
            Ending::NoDifference { case, .. } => case.as_ref().map(|timing| &timing.case),
            Ending::Spread { case, .. } => case.as_ref(),
            Ending::NoEnd { .. } => None,
        }
    }

    /// Versions that were tried and skipped, with the reason for each.
    fn skipped(&self) -> Vec<(usize, String)> {
        skipped(&self.searched.tried, self.case())
    }

    fn found(&self) -> Option<&FoundStep> {
        match &self.searched.ending {
            Ending::Found(found) => Some(found),
            _ => None,
        }
    }

    /// The command that reproduces the comparison around the step.
    fn again(&self) -> Option<Vec<String>> {
        let step = self.found()?;
        let suite = self.arguments.iter().map(|word| shell_quoted(word));
        let mut words = vec![format!("regatta compare {}", suite.joined(" "))];
        for (option, version) in [("--base", &step.before), ("--head", &step.after)] {
            let spec = shell_quoted(&version.spec.to_string());
            words.push(format!("{option} {spec}"));
        }
        Some(words)
    }
    /// In a search for a fix, the comparison of the good end with the version after the step, which
    /// shows the slowdown that is left.
    fn left(&self) -> Option<&CaseReading> {
        let step = self.found()?;
        let closes_step = |tried: &&Tried| tried.low == 0 && self.row[tried.high] == step.after;
        let tried = self.searched.tried.iter().find(closes_step)?;
        let fixed = self.towards == Towards::Fixed;
        tried.reading(&step.case.case).filter(|_| fixed)
    }

    /// True if a comparison with the good end was inconclusive for the case that was followed.
    fn is_undecided(&self) -> bool {
        let case = self.case();
        let ends = self.searched.tried.iter().filter(|tried| tried.low == 0);
        let mut words = ends.filter_map(|tried| tried.reading(case?)?.word());
        words.any(|word| word == Word::Inconclusive)
    }

    /// The number of comparisons, and the time that decided.
    fn effort(&self) -> String {
        let by = match self.searched.metric {
            Metric::CpuTime => ", by processor time",
            _ => "",
        };
        let comparisons = counted(self.searched.tried.len(), "comparison");
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
        let what = match self.towards {
            Towards::Bad => "the first bad version",
            Towards::Fixed => "the first version that is good again",
        };
        match &self.searched.ending {
            Ending::Found(found) if found.suspects.is_empty() => {
                let name = &found.after.name;
                let good = self.row.first().map_or("the good end", |good| &good.name);
                let left = self.left().and_then(|left| left.metric.as_ref());
                let left = left.map(|left| (left.change.word, left.change.ratio.in_words()));
                let most = format!("{name} gives back the most");
                match left {
                    Some((Word::Regressed, slower)) => {
                        let sentence = format!("{most}, and is still {slower} than {good}");
                        ("PARTLY BETTER", sentence)
                    }
                    Some((Word::Inconclusive, _)) => {
                        let open = format!("whether it is as good as {good} again is not decided");
                        ("FOUND", format!("{most}; {open}"))
                    }
                    _ => ("FOUND", format!("{name} is {what}")),
                }
            }
            Ending::Found(found) => {
                let names = found.suspects.iter().map(|version| &version.name);
                let names = names.joined(", ");
                ("ONE OF THESE", format!("{what} is one of {names}"))
            }
            Ending::NoDifference { .. } if self.is_undecided() => {
                let change = match self.towards {
                    Towards::Bad => "got worse",
                    Towards::Fixed => "got better",
                };
                let sentence = format!("whether anything {change} between {ends} is not decided");
                ("INCONCLUSIVE", sentence)
            }
            Ending::NoDifference { looked_at, .. } => {
                let between = looked_at.iter().rev().skip(1).next_back();
                let between = between.map_or(String::new(), |version| {
                    format!(", nor does {} between them", version.name)
                });
                let change = match self.towards {
                    Towards::Bad => "no change for the worse",
                    Towards::Fixed => "no change for the better",
                };
                ("NO DIFFERENCE", format!("{ends} show {change}{between}"))
            }
            Ending::Spread { .. } => {
                let sentence = format!("the change between {ends} is spread over several versions");
                ("NO ONE STEP", sentence)
            }
            Ending::NoEnd { end, .. } => {
                ("INCONCLUSIVE", format!("{} cannot be measured", end.name))
            }
        }
    }
}
