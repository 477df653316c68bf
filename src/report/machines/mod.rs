//! One suite on several kinds of machine: a verdict each, on one page that leads to the page of
//! each.

use serde::Serialize;

use super::RenderError;
use super::summary::tally;
use super::template::{STYLE, rendered};
use super::text::one_line;
use crate::judge::judgement::{Judgement, VerdictOutcome};
use crate::units::counted;

/// The verdict on a kind of machine.
#[derive(Clone, Debug, Serialize)]
pub struct OfMachine {
    /// The machine, as its runs call it, which is also the folder of its reports.
    machine: String,
    class: &'static str,
    outcome: &'static str,
    cases: String,
    shards: String,
    words: String,
    reasons: Vec<String>,
}

impl OfMachine {
    /// What was said of the shards of a machine.
    pub fn of(machine: &str, shards: usize, judgement: &Judgement) -> OfMachine {
        let verdict = &judgement.verdict;
        let words = tally(&judgement.rows).into_iter();
        let words: Vec<String> = words
            .map(|(word, number)| format!("{number} {}", word.text()))
            .collect();
        OfMachine {
            machine: one_line(machine),
            class: class(verdict.outcome),
            outcome: verdict.outcome.text(),
            cases: counted(judgement.rows.len(), "case"),
            shards: counted(shards, "shard"),
            words: words.join(", "),
            reasons: verdict.reasons.iter().map(|of| one_line(of)).collect(),
        }
    }
}

fn class(outcome: VerdictOutcome) -> &'static str {
    match outcome {
        VerdictOutcome::Passed => "good",
        VerdictOutcome::Failed => "bad",
        VerdictOutcome::NotJudged => "doubtful",
    }
}

#[derive(Serialize)]
struct View<'v> {
    style: [&'static str; 1],
    suite: String,
    outcome: &'static str,
    class: &'static str,
    kinds: &'v [OfMachine],
}

/// The page; `outcome` is that of all of them, the gravest.
///
/// # Errors
/// When the template does not fit, which a test would have found.
pub fn page(
    suite: &str,
    outcome: VerdictOutcome,
    kinds: &[OfMachine],
) -> Result<String, RenderError> {
    let view = View {
        style: [STYLE],
        suite: one_line(suite),
        outcome: outcome.text(),
        class: class(outcome),
        kinds,
    };
    rendered(include_str!("page.html"), view)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn each_machine_has_its_verdict_and_the_way_to_its_page() {
        let failed = fixture::failed();
        let kinds = [
            OfMachine::of("h200-132sm", 8, &failed.judgement),
            OfMachine::of("a<b>", 8, &failed.judgement),
        ];
        let page = page("quick", VerdictOutcome::Failed, &kinds).unwrap();
        for needed in [
            "FAILED",
            "h200-132sm",
            "h200-132sm&#x2f;index.html",
            "a&lt;b&gt;",
            "8 shards",
        ] {
            assert!(page.contains(needed), "lacks {needed}:\n{page}");
        }
        assert_eq!(page.matches("</html>").count(), 1);
    }
}
