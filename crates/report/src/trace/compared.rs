//! The difference of two traces as one self-contained page: the verdict, why, figures and
//! kernels of both sides, and both timelines.

use serde::Serialize;

use super::difference::{
    FigureRow, alike, became, changed, count, figures, growth, incomparable, mean, scope, word,
};
use super::table::short;
use super::{coloured, last_repetitions, timeline};
use crate::RenderError;
use crate::account::AccountView;
use crate::account::{FindingView, findings};
use crate::exporter::{STYLE, rendered};
use crate::figures::{LegendView, Timeline, busiest, legend};
use crate::text::{one_line, shell_command};
use regatta_core::machine::{KernelChange, Scope, Summary};
use regatta_core::record::trace::Trace;
use regatta_judge::judgement::VerdictOutcome;
use regatta_judge::trace::{Analysis, Comparison, analyse};
use regatta_worker::units::counted;

/// Kernels that are listed.
const LISTED: usize = 60;

#[derive(Serialize)]
struct PageView {
    style: &'static str,
    word: &'static str,
    tone: &'static str,
    reasons: Vec<String>,
    base: SideView,
    head: SideView,
    findings: Vec<FindingView>,
    account: Option<AccountView>,
    scope: &'static str,
    figures: Vec<FigureRow>,
    kernels: Vec<KernelView>,
    alike: Option<String>,
    legend: Vec<LegendView>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct SideView {
    label: String,
    command: String,
    machine: String,
    started: String,
    said: String,
    figure: Option<String>,
}

#[derive(Serialize)]
struct KernelView {
    name: String,
    became: Vec<String>,
    count: String,
    base: String,
    head: String,
    growth: String,
}

/// The page of a comparison and the traces it was made of.
///
/// # Errors
/// When the template does not fit its data.
pub fn compared(of: &Comparison, base: &Trace, head: &Trace) -> Result<String, RenderError> {
    let analyses = [base, head].map(|trace| analyse(&trace.recording));
    let summaries = analyses.each_ref().map(|found| summary(found, of.scope));
    let coloured = coloured(summaries);
    let kernels = summaries.map(|summary| summary.kernels.len());
    let [before, after] = &analyses;
    let side = |label: &str, trace: &Trace, analysis| {
        let (said, figure) = drawn(trace, analysis, of.scope, &coloured)?;
        Ok::<_, RenderError>(SideView {
            label: one_line(label),
            command: shell_command(&trace.header.command),
            machine: one_line(&trace.header.machine.name),
            started: trace
                .header
                .started
                .strftime("%Y-%m-%dT%H:%M:%SZ")
                .to_string(),
            said,
            figure,
        })
    };
    let reasons = of.verdict.reasons.iter().cloned();
    let lines = |lines: &[String]| lines.iter().map(|line| one_line(line)).collect();
    rendered(
        include_str!("compared.html"),
        PageView {
            style: STYLE,
            word: word(of),
            tone: match of.verdict.outcome {
                VerdictOutcome::Passed => "good",
                VerdictOutcome::Failed => "bad",
                VerdictOutcome::Inconclusive => "doubtful",
            },
            reasons: lines(&reasons.chain(incomparable(of)).collect::<Vec<_>>()),
            base: side(&of.sides.base.label, base, before)?,
            head: side(&of.sides.head.label, head, after)?,
            findings: findings(&of.findings),
            account: of.account.as_ref().map(AccountView::of),
            scope: scope(of),
            figures: figures(of),
            kernels: changed(of).into_iter().take(LISTED).map(kernel).collect(),
            alike: alike(of),
            legend: legend(&coloured, kernels.into_iter().max().unwrap_or(0)),
            notes: lines(&of.notes),
        },
    )
}

fn summary(of: &Analysis, scope: Scope) -> &Summary {
    match (&of.steady, scope) {
        (Some(part), Scope::Repetition) => &part.summary,
        _ => &of.whole,
    }
}

fn kernel(of: &KernelChange) -> KernelView {
    KernelView {
        name: one_line(&short(of.called())),
        became: became(of).iter().map(|told| one_line(told)).collect(),
        count: count(of),
        base: mean(of.mean_ns.base),
        head: mean(of.mean_ns.head),
        growth: growth(of),
    }
}

/// What is drawn of a side, in words and as a timeline.
fn drawn(
    trace: &Trace,
    analysis: &Analysis,
    scope: Scope,
    coloured: &[String],
) -> Result<(String, Option<String>), RenderError> {
    let recording = &trace.recording;
    if let (Some(part), Scope::Repetition) = (&analysis.steady, scope) {
        let at = &part.steady;
        let said = format!(
            "The last of {} of {}, {} each.",
            counted(at.repeats, "repetition"),
            counted(at.period, "operation"),
            at.period_time()
        );
        let figure = last_repetitions(recording, at, coloured, "The last repetitions")?;
        return Ok((said, figure));
    }
    let said = counted(recording.operations.len(), "operation");
    let figure = timeline(busiest(recording).map(|(from, to)| Timeline {
        recording,
        title: "The whole recording, or its busiest stretch",
        coloured,
        from,
        to,
        marked: None,
    }))?;
    let said = format!("The whole recording, or its busiest stretch: {said}.");
    Ok((said, figure))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::stands_alone;
    use regatta_core::record::trace::testing;
    use regatta_judge::trace::compare;

    fn page_of(base: &Trace, head: &Trace) -> String {
        let comparison = compare(("a <1>.trace", base), ("b.trace", head), None);
        let page = compared(&comparison, base, head).unwrap();
        stands_alone(&page);
        page
    }

    #[test]
    fn verdict_findings_figures_and_both_timelines_are_on_one_page() {
        let page = page_of(&testing::training(157), &testing::training(1));
        for words in [
            "<h1>Worse</h1>",
            "<b>less-parallel</b>: fmha_cutlassB_f32_aligned_64x64_k32_sm80: grid 157x1x1",
            "grid 157x1x1 → 1x1x1</span>",
            "2 of 3 kernels as before",
            "a &lt;1&gt;.trace",
        ] {
            assert!(page.contains(words), "{words}");
        }
        assert_eq!(page.matches("<svg").count(), 2);
        // The backward kernel is drawn in one colour on both sides.
        let of = |words| page.match_indices(words);
        let drawn = of("_sm80 1x1x1:").chain(of("_k32_sm80 157x1x1:"));
        let colour = |(at, _)| &page[page[..at].rfind("fill=").unwrap()..][..15];
        let mut colours: Vec<&str> = drawn.map(colour).collect();
        assert!(colours.len() >= 4, "two repetitions of each side");
        colours.dedup();
        assert_eq!(colours.len(), 1, "{colours:?}");
    }

    #[test]
    fn what_comes_from_outside_is_text_and_nothing_is_no_reason_to_fail() {
        let mut head = testing::training(1);
        head.recording.names[1] = "<script>alert(1)</script>\u{202e}(int)".to_owned();
        head.header.command = vec!["<b>'id'".to_owned()];
        page_of(&testing::training(157), &head);
        head.recording = Default::default();
        let page = page_of(&head, &testing::training(1));
        assert!(page.contains("<h1>Inconclusive</h1>"));
        assert_eq!(page.matches("<svg").count(), 1);
    }
}
