//! A comment for a pull request: verdict, what changed, the rest folded away.
//!
//! GitHub refuses comments of more than 65,536 characters, so lists end at
//! [`MOST_ROWS`] and say how many they left out.

use std::fmt::Write;
use std::io;

use super::by_axes::by_axes;
use super::exporter::{RenderError, Report};
use super::summary::{SortedRows, beside, factors, interval, reproduce};
use super::text::{one_line, shorten};
use regatta_core::names::plain_name;
use regatta_core::suite::rules::Metric;
use regatta_judge::judgement::{
    ExpectationResult, Judgement, LimitResult, Row, Timing, Uncounted, VerdictOutcome,
};
use regatta_worker::units::{NONE, Ratio};

/// Writes `report.md`.
pub(super) fn write(report: &Report, _: &str, out: &mut dyn io::Write) -> Result<(), RenderError> {
    Ok(out.write_all(document(report).as_bytes())?)
}

/// Rows of one table at the most.
const MOST_ROWS: usize = 40;

/// Columns of one reason at the most.
const REASON: usize = 240;

fn document(report: &Report) -> String {
    let judgement = report.judgement;
    let summary = SortedRows::new(judgement);
    // Whoever keeps one comment a suite finds its own by this line, which nobody sees.
    let mut out = format!("<!-- regatta: {} -->\n", plain_name(&judgement.suite));
    verdict(&mut out, judgement);
    let by_axes = by_axes(judgement);
    if !by_axes.is_empty() {
        let _ = writeln!(out, "\n{}", escaped(&one_line(&by_axes)));
    }
    for (name, against, rows) in summary.lists() {
        if against <= 0 {
            continue;
        }
        changes(&mut out, name, rows);
    }
    violated(&mut out, &summary.violated);
    limits(&mut out, &summary.limits);
    for (name, against, rows) in summary.lists() {
        if against <= 0 {
            changes(&mut out, name, rows);
        }
    }
    let rest = summary.rest_line();
    if !rest.is_empty() {
        let _ = writeln!(out, "\nThe rest: {rest}.");
    }
    details(&mut out, report, &summary);
    out
}

fn verdict(out: &mut String, judgement: &Judgement) {
    let word = match judgement.verdict.outcome {
        VerdictOutcome::Passed => "✅ Passed",
        VerdictOutcome::Failed => "❌ Failed",
        VerdictOutcome::Inconclusive => "⚠️ Inconclusive",
    };
    let _ = writeln!(out, "### {word}: {}", prose(&judgement.suite));
    if !judgement.verdict.shown.is_empty() {
        let _ = writeln!(out, "\n{}", prose(&judgement.verdict.shown));
    }
    if !judgement.verdict.reasons.is_empty() {
        out.push('\n');
    }
    for reason in &judgement.verdict.reasons {
        let _ = writeln!(out, "- {}", prose(reason));
    }
    for difference in &judgement.incomparable {
        let _ = writeln!(
            out,
            "- not comparable: {} {} → {}",
            prose(&difference.field),
            code(&difference.base),
            code(&difference.head)
        );
    }
}

fn changes(out: &mut String, name: &str, rows: &[&Row]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n#### {name} ({})\n", rows.len());
    out.push_str("| case | base | head | change | 90 % interval |\n|---|--:|--:|--:|--:|\n");
    for row in rows.iter().take(MOST_ROWS) {
        let _ = write!(out, "| {}", code(&row.case.0));
        let first = row.first_metric();
        if let Some(of) = first.filter(|of| of.metric != Metric::Device) {
            let _ = write!(out, "<br>{}", of.metric.text());
        }
        if let Some(reason) = &row.reason {
            let _ = write!(out, "<br>{}", prose(reason));
        }
        if let Some(uncounted) = Uncounted::sentence(&row.uncounted) {
            let _ = write!(out, "<br>{}", prose(&uncounted));
        }
        for change in beside(row) {
            let _ = write!(out, "<br>{}", prose(&change));
        }
        if let Some(account) = row.account_told() {
            let _ = write!(out, "<br>{}", prose(&account));
        }
        for finding in &row.findings {
            let _ = write!(out, "<br>{}: {}", finding.cause, prose(&finding.evidence));
        }
        let known = |figure: Option<String>| figure.unwrap_or_else(|| NONE.to_owned());
        let time =
            |timing: &Option<Timing>| known(timing.as_ref().map(|of| of.median_ns.to_string()));
        let [base, head, change] = match first {
            None => [time(&row.base), time(&row.head), NONE.to_owned()],
            Some(of) => [
                of.metric.value(of.base),
                of.metric.value(of.head),
                format!("**{}**", of.change.ratio),
            ],
        };
        let interval = known(first.and_then(|of| interval(&of.change)));
        let _ = writeln!(out, " | {base} | {head} | {change} | {interval} |");
    }
    left_out(out, rows.len());
}

fn violated(out: &mut String, violated: &[&ExpectationResult]) {
    if violated.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n#### Violated expectations ({})\n", violated.len());
    out.push_str("| expectation | case | against | ratio | 90 % interval | allowed |\n");
    out.push_str("|---|---|---|--:|--:|--:|\n");
    for expectation in violated.iter().take(MOST_ROWS) {
        let against = expectation.against.as_ref();
        let _ = writeln!(
            out,
            "| {} | {} | {} | **{}** | {} | {} |",
            prose(&expectation.name),
            code(&expectation.case.0),
            against.map_or(String::new(), |case| code(&case.0)),
            expectation.ratio.unwrap_or(Ratio(f64::NAN)).factor(),
            factors(expectation).unwrap_or_else(|| NONE.to_owned()),
            expectation.within.factor()
        );
    }
    left_out(out, violated.len());
}

fn limits(out: &mut String, violated: &[&LimitResult]) {
    if violated.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n#### Violated limits ({})\n", violated.len());
    for limit in violated.iter().take(MOST_ROWS) {
        let reason = limit.reason.as_deref().unwrap_or_default();
        let _ = writeln!(
            out,
            "- {}: {} {}<br>{}",
            prose(&limit.name),
            code(&limit.subject()),
            prose(&limit.sentence()),
            prose(reason)
        );
    }
    left_out(out, violated.len());
}

fn left_out(out: &mut String, count: usize) {
    if count > MOST_ROWS {
        let _ = writeln!(out, "\nand {} more", count - MOST_ROWS);
    }
}

fn details(out: &mut String, report: &Report, summary: &SortedRows) {
    let judgement = report.judgement;
    out.push_str("\n<details><summary>How it was measured</summary>\n\n");
    let sides = [
        ("head", Some(&judgement.head)),
        ("base", judgement.base.as_ref()),
    ];
    for (name, side) in sides {
        let Some(side) = side else { continue };
        let _ = writeln!(
            out,
            "- {name}: {} on {}, revision {}, {} invocations, {}",
            code(&side.label),
            code(&side.machine),
            code(side.revision.as_deref().unwrap_or("none")),
            side.invocations,
            prose(&side.started)
        );
    }
    for difference in judgement.differences.iter().take(MOST_ROWS) {
        let _ = writeln!(
            out,
            "- differs: {} {} → {}",
            prose(&difference.field),
            code(&difference.base),
            code(&difference.head)
        );
    }
    let untold = judgement.differences.len().saturating_sub(MOST_ROWS);
    if untold > 0 {
        let _ = writeln!(out, "- and {untold} more differ");
    }
    for note in judgement.notes.iter().take(MOST_ROWS) {
        let _ = writeln!(out, "- note: {}", prose(note));
    }
    if let Some(row) = summary.regressed.first() {
        let _ = writeln!(
            out,
            "\nMeasure the slowest one again:\n\n```sh\n{}\n```",
            reproduce(report, &row.case.0)
        );
    }
    out.push_str("\n</details>\n");
}

/// Text from outside as Markdown prose, on one line, also inside a table.
fn prose(text: &str) -> String {
    escaped(&shorten(&one_line(text), REASON))
}

/// The same of a line that is not cut.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // An invisible comment keeps people and issues from being called.
            '@' | '#' => {
                out.push(c);
                out.push_str("<!---->");
            }
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '~' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

/// Text from outside as a code span, on one line, also inside a table.
fn code(text: &str) -> String {
    let text = shorten(&one_line(text), REASON);
    // A code span cannot hold a backtick, nor a table's cell a bar.
    format!("`{}`", text.replace('`', "'").replace('|', "¦"))
}

#[cfg(test)]
mod tests {
    use crate::Format;
    use crate::fixture::{self, difference};

    #[test]
    fn comments_read_well() {
        let shown = |scene: fixture::Scene| scene.shown(Format::Markdown);
        insta::assert_snapshot!("a_failed_gate", shown(fixture::failed()));
        insta::assert_snapshot!("hostile_reasons_stay_text", shown(fixture::incomplete()));
        insta::assert_snapshot!("a_refused_comparison", shown(fixture::refused()));
    }

    #[test]
    fn differences_that_are_not_shown_are_counted() {
        let mut scene = fixture::failed();
        let one = difference("torch.packages.numpy", "1", "2");
        scene.judgement.differences = vec![one; super::MOST_ROWS + 3];
        assert!(
            scene
                .shown(Format::Markdown)
                .contains("- and 3 more differ\n")
        );
        scene.judgement.differences.truncate(super::MOST_ROWS);
        assert!(!scene.shown(Format::Markdown).contains("more differ"));
    }

    #[test]
    fn a_comment_has_a_largest_size() {
        let mut scene = fixture::large(4);
        let row = scene.judgement.rows.iter();
        let row = row.max_by_key(|row| row.word).unwrap().clone();
        scene.judgement.rows = vec![row; 2000];
        assert!(scene.shown(Format::Markdown).len() < 65_536);
    }
}
