//! Shows the difference of two traces: the verdict, its reasons, and figures and kernels of both
//! sides.

use std::collections::BTreeSet;

use super::recorded::{LISTED, figure, findings};
use crate::RenderError;
use crate::document::{Block, Document, Table, TableRow, Tone};
use crate::text::{one_line, shell_command};
use regatta_core::machine::{Became, KernelChange, Scope, SideFigures, short};
use regatta_core::record::trace::Trace;
use regatta_judge::judgement::VerdictOutcome;
use regatta_judge::trace::TraceComparison;
use regatta_worker::joined::Joined;
use regatta_worker::units::{NONE, Nanoseconds};

/// The answer, at most eighty columns wide. `colour` adds only colour.
pub fn difference(comparison: &TraceComparison, colour: bool) -> String {
    let mut document = document(comparison, Vec::new(), LISTED[0]);
    document.word = document.word.to_uppercase();
    document.text(colour)
}

/// The page of a comparison and the traces it was made of.
///
/// # Errors
/// When the template does not fit its data.
pub fn compared(
    comparison: &TraceComparison,
    base: &Trace,
    head: &Trace,
) -> Result<String, RenderError> {
    let mut sides = Vec::new();
    for (name, label, trace) in [
        ("base", &comparison.sides.base.label, base),
        ("head", &comparison.sides.head.label, head),
    ] {
        let header = &trace.header;
        let started = header.started.strftime("%Y-%m-%dT%H:%M:%SZ");
        let machine = &header.machine.name;
        sides.push(Block::Note(format!(
            "{name}: {label}, {machine}, {started}"
        )));
        sides.push(Block::Command(vec![shell_command(&header.command)]));
    }
    document(comparison, sides, LISTED[1]).page()
}

/// The document; `sides` are the blocks that a page adds for both sides.
fn document(comparison: &TraceComparison, sides: Vec<Block>, most: usize) -> Document {
    let (word, tone) = match comparison.verdict.outcome {
        VerdictOutcome::Passed => ("Nothing worse", Tone::Good),
        VerdictOutcome::Failed => ("Worse", Tone::Bad),
        VerdictOutcome::Inconclusive => ("Inconclusive", Tone::Doubtful),
    };
    let reasons = comparison.verdict.reasons.iter().cloned();
    let incomparable = comparison.incomparable.iter();
    let incomparable = incomparable.map(|mismatch| format!("{mismatch}; times are not compared"));
    let mut body = Vec::new();
    if let Some(account) = &comparison.account {
        body.push(Block::heading("Where the time went"));
        body.push(Block::list([account.to_string()]));
    }
    if !comparison.findings.is_empty() {
        body.push(Block::heading("Why"));
        body.push(findings(&comparison.findings));
    }
    body.push(Block::heading(match comparison.scope {
        Scope::Repetition => "One repetition of the steady part",
        Scope::Whole => "The whole program",
    }));
    let heads = vec!["base", "head", "change"];
    body.push(Block::Table(Table::new("", heads, figures(comparison))));
    let changed = changed(comparison);
    if !changed.is_empty() {
        let rest = match changed.len().saturating_sub(most) {
            0 => String::new(),
            more => format!("and {more} more that changed"),
        };
        let rows = changed.iter().take(most).map(|kernel| kernel_row(kernel));
        let table = Table::new("kernel", vec!["count", "mean", "mean now", "total"], rows);
        body.push(Block::Table(table.with_rest(rest)));
    }
    let all = comparison.kernels.len();
    let same = all - changed.len();
    if same > 0 {
        let words = format!("{same} of {all} kernels as before");
        body.push(Block::Text(vec![words]));
    }
    body.push(Block::Text(comparison.notes.clone()));
    Document {
        title: format!(
            "{word}: {} → {}",
            comparison.sides.base.label, comparison.sides.head.label
        ),
        tone,
        kicker: "regatta diff of two traces".to_owned(),
        word: word.to_owned(),
        summary: vec![Block::list(reasons.chain(incomparable)), Block::Page(sides)],
        body,
        ..Document::default()
    }
}

/// Times of both sides, and counts that differ.
fn figures(comparison: &TraceComparison) -> Vec<TableRow> {
    let (base, head) = (&comparison.sides.base, &comparison.sides.head);
    let waits = base.host_bound_ns.zip(head.host_bound_ns);
    let times = [
        ("elapsed", Some((base.elapsed_ns, head.elapsed_ns))),
        ("device busy", Some((base.busy_ns, head.busy_ns))),
        ("device idle", Some((base.idle_ns, head.idle_ns))),
        ("of that, host-bound", waits),
    ];
    let times = times
        .into_iter()
        .filter_map(|(name, times)| Some(time(name, times?)));
    times.chain(counts(base, head)).collect()
}

fn time(name: &str, (base, head): (Nanoseconds, Nanoseconds)) -> TableRow {
    let change = if base.0 > 0.0 && head.0 > 0.0 {
        (head / base).to_string()
    } else {
        String::new()
    };
    TableRow::new(name, vec![base.to_string(), head.to_string(), change])
}

/// Copies and calls of both sides that differ.
fn counts(base: &SideFigures, head: &SideFigures) -> Vec<TableRow> {
    let mut rows = Vec::new();
    let mut differ = |name: String, base: String, head: String| {
        if base != head {
            rows.push(TableRow::new(name, vec![base, head, String::new()]));
        }
    };
    let directions: BTreeSet<&String> = base.copies.keys().chain(head.copies.keys()).collect();
    for direction in directions {
        let number =
            |side: &SideFigures| figure(side.copies.get(direction).map_or(0.0, |(n, _)| *n));
        let name = format!("copies {}", one_line(direction));
        differ(name, number(base), number(head));
    }
    let names: BTreeSet<&String> = base.calls.keys().chain(head.calls.keys()).collect();
    for name in names {
        // A recording without single calls does not show that nothing was called.
        let number = |side: &SideFigures| match side.calls.get(name) {
            Some(count) => figure(*count),
            None => NONE.to_owned(),
        };
        let name = one_line(&name.replace('_', " "));
        differ(name, number(base), number(head));
    }
    if let (Some(before), Some(after)) = (base.overlap, head.overlap) {
        let name = "copies behind kernels".to_owned();
        differ(name, before.to_string(), after.to_string());
    }
    rows
}

/// Kernels that changed.
fn changed(comparison: &TraceComparison) -> Vec<&KernelChange> {
    let changed = |kernel: &&KernelChange| {
        kernel.became != Became::Same
            || !kernel.changes.is_empty()
            || kernel.count.base != kernel.count.head
            || kernel.ratio().growth().abs() > comparison.threshold
    };
    comparison.kernels.iter().filter(changed).collect()
}

/// The changes of a kernel and of its launches, one sentence each.
fn became(kernel: &KernelChange) -> Vec<String> {
    let mut sentences = match kernel.became {
        Became::Replaced => vec![format!("replaces {}", short(&kernel.name.base))],
        Became::Added => vec!["added".to_owned()],
        Became::Removed => vec!["removed".to_owned()],
        Became::Same => Vec::new(),
    };
    if !kernel.changes.is_empty() {
        sentences.push(kernel.changes.iter().joined(", "));
    }
    sentences
}

/// The mean time of a kernel; empty if it was not launched.
fn mean(time: Nanoseconds) -> String {
    if time.0 > 0.0 {
        time.to_string()
    } else {
        String::new()
    }
}

fn kernel_row(kernel: &KernelChange) -> TableRow {
    let cells = vec![
        count(kernel),
        mean(kernel.mean_ns.base),
        mean(kernel.mean_ns.head),
        kernel.growth_ns().signed(),
    ];
    TableRow::new(short(kernel.called()), cells).with_below(became(kernel))
}

/// Launches of a kernel on both sides.
fn count(kernel: &KernelChange) -> String {
    let (base, head) = (figure(kernel.count.base), figure(kernel.count.head));
    if base == head {
        base
    } else {
        format!("{base} → {head}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{fits, stands_alone};
    use regatta_core::record::trace::testing;
    use regatta_core::record::trace::testing::training;
    use regatta_judge::trace::compare;

    #[test]
    fn one_block_where_there_were_157() {
        let (base, head) = (training(157), training(1));
        let comparison = compare(("auto.trace", &base), ("one.trace", &head), None);
        let text = difference(&comparison, false);
        fits(&text);
        let coloured = difference(&comparison, true);
        assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), text);
        insta::assert_snapshot!(text);
    }

    /// A recording without single calls does not show that nothing was called.
    #[test]
    fn what_was_not_counted_is_not_none() {
        let base = training(157);
        let mut head = training(157);
        for process in &mut head.recording.processes {
            process.moments = None;
        }
        let comparison = compare(("a.trace", &base), ("b.trace", &head), None);
        let rows = figures(&comparison);
        let loads = rows.iter().find(|row| row.label == "module loads").unwrap();
        assert_eq!(loads.cells[..2], ["0", NONE]);
        assert!(comparison.findings.is_empty(), "{:?}", comparison.findings);
    }

    #[test]
    fn nothing_changed() {
        let base = training(157);
        let comparison = compare(("a.trace", &base), ("b.trace", &base), None);
        insta::assert_snapshot!(difference(&comparison, false));
    }

    fn page_of(base: &Trace, head: &Trace) -> String {
        let comparison = compare(("a <1>.trace", base), ("b.trace", head), None);
        let page = compared(&comparison, base, head).unwrap();
        stands_alone(&page);
        page
    }

    #[test]
    fn verdict_findings_and_figures_are_on_one_page() {
        let page = page_of(&testing::training(157), &testing::training(1));
        for words in [
            "<h1>Worse</h1>",
            "<b>less-parallel</b>: grid 157x1x1 → 1x1x1, fill 132 → 1 of 132 SMs of fmha_",
            "grid 157x1x1 → 1x1x1</span>",
            "2 of 3 kernels as before",
            "a &lt;1&gt;.trace",
        ] {
            assert!(page.contains(words), "{words}");
        }
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
    }
}
