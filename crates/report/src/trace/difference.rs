//! The difference of two traces on the terminal.

use std::collections::BTreeSet;

use owo_colors::Style;
use serde::Serialize;

use super::table::{cell, figure, short, told};
use crate::screen::{Screen, bad, doubtful, good, laid_out};
use crate::text::one_line;
use regatta_core::machine::{Became, KernelChange, Scope, SideFigures};
use regatta_judge::judgement::VerdictOutcome;
use regatta_judge::trace::Comparison;
use regatta_worker::units::{NONE, Nanoseconds};

/// Kernels that are listed.
const LISTED: usize = 20;

/// The answer, at most eighty columns wide; colour is all that `colour` adds.
pub fn difference(of: &Comparison, colour: bool) -> String {
    laid_out(colour, LISTED, |screen| write(screen, of))
}

fn write(screen: &mut Screen, of: &Comparison) {
    let style = match of.verdict.outcome {
        VerdictOutcome::Passed => good(),
        VerdictOutcome::Failed => bad(),
        VerdictOutcome::Inconclusive => doubtful(),
    };
    screen.painted(&word(of).to_uppercase(), style);
    for reason in &of.verdict.reasons {
        screen.hanging(2, reason);
    }
    for differs in incomparable(of) {
        screen.hanging(2, &differs);
    }
    if let Some(account) = &of.account {
        screen.line("");
        screen.painted("Where the time went", Style::new().bold());
        screen.hanging(2, &account.to_string());
    }
    if !of.findings.is_empty() {
        screen.line("");
        screen.painted("Why", Style::new().bold());
    }
    for finding in &of.findings {
        screen.hanging(2, &told(finding));
    }
    screen.line("");
    screen.painted(scope(of), Style::new().bold());
    for row in figures(of) {
        screen.line(format!(
            "  {}{:>12} → {:>12} {:>16}",
            cell(&row.name, 26),
            row.base,
            row.head,
            row.change
        ));
    }
    kernels(screen, of);
    screen.line("");
    for note in &of.notes {
        screen.hanging(0, note);
    }
}

/// The verdict in a word or two.
pub(super) fn word(of: &Comparison) -> &'static str {
    match of.verdict.outcome {
        VerdictOutcome::Passed => "Nothing worse",
        VerdictOutcome::Failed => "Worse",
        VerdictOutcome::Inconclusive => "Inconclusive",
    }
}

/// Facts that keep times from being compared, a sentence each.
pub(super) fn incomparable(of: &Comparison) -> Vec<String> {
    let facts = of.incomparable.iter();
    facts
        .map(|differs| {
            let (base, head) = (&differs.base, &differs.head);
            let field = &differs.field;
            format!("{field}: {base} → {head}; times are not compared")
        })
        .collect()
}

/// What is compared.
pub(super) fn scope(of: &Comparison) -> &'static str {
    match of.scope {
        Scope::Repetition => "One repetition of the steady part",
        Scope::Whole => "The whole program",
    }
}

/// A figure of both sides, as it is shown.
#[derive(Serialize)]
pub(super) struct FigureRow {
    pub name: String,
    pub base: String,
    pub head: String,
    /// What became of a time; empty for a count.
    pub change: String,
}

/// Times of both sides, and counts that differ.
pub(super) fn figures(of: &Comparison) -> Vec<FigureRow> {
    let (base, head) = (&of.sides.base, &of.sides.head);
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

fn time(name: &str, (base, head): (Nanoseconds, Nanoseconds)) -> FigureRow {
    FigureRow {
        name: name.to_owned(),
        base: base.to_string(),
        head: head.to_string(),
        change: match base.0 > 0.0 && head.0 > 0.0 {
            true => (head / base).to_string(),
            false => String::new(),
        },
    }
}

/// Copies and calls of both sides that differ.
fn counts(base: &SideFigures, head: &SideFigures) -> Vec<FigureRow> {
    let mut rows = Vec::new();
    let mut differ = |name: String, base: String, head: String| {
        if base != head {
            rows.push(FigureRow {
                name,
                base,
                head,
                change: String::new(),
            });
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
        // A recording without running counts does not say that there were none.
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

/// Kernels of which there is something to tell.
pub(super) fn changed(of: &Comparison) -> Vec<&KernelChange> {
    let told = |kernel: &&KernelChange| {
        kernel.became != Became::Same
            || !kernel.changes.is_empty()
            || kernel.count.base != kernel.count.head
            || kernel.ratio().growth().abs() > of.threshold
    };
    of.kernels.iter().filter(told).collect()
}

/// What became of a kernel and of its launches, a sentence each.
pub(super) fn became(kernel: &KernelChange) -> Vec<String> {
    let mut told = match kernel.became {
        Became::Replaced => vec![format!("replaces {}", short(&kernel.name.base))],
        Became::Added => vec!["added".to_owned()],
        Became::Removed => vec!["removed".to_owned()],
        Became::Same => Vec::new(),
    };
    if !kernel.changes.is_empty() {
        let changes: Vec<String> = kernel.changes.iter().map(ToString::to_string).collect();
        told.push(changes.join(", "));
    }
    told
}

/// A mean time of a kernel; empty where it was not launched.
pub(super) fn mean(time: Nanoseconds) -> String {
    match time.0 > 0.0 {
        true => time.to_string(),
        false => String::new(),
    }
}

/// What a kernel takes more, or less: `+265.4 ms`.
pub(super) fn growth(kernel: &KernelChange) -> String {
    let growth = kernel.growth_ns();
    let sign = if growth.0 < 0.0 { "-" } else { "+" };
    format!("{sign}{}", growth.abs())
}

/// How many kernels there is nothing to tell of.
pub(super) fn alike(of: &Comparison) -> Option<String> {
    let same = of.kernels.len() - changed(of).len();
    (same > 0).then(|| format!("{same} of {} kernels as before", of.kernels.len()))
}

fn kernels(screen: &mut Screen, of: &Comparison) {
    let changed = changed(of);
    screen.line("");
    if !changed.is_empty() {
        screen.line(format!(
            "{:<34}{:>13} {:>10} {:>10} {:>10}",
            "kernel", "count", "mean", "mean now", "total"
        ));
    }
    for kernel in changed.iter().take(LISTED) {
        screen.line(format!(
            "{}{:>13} {:>10} {:>10} {:>10}",
            cell(&short(kernel.called()), 34),
            count(kernel),
            mean(kernel.mean_ns.base),
            mean(kernel.mean_ns.head),
            growth(kernel)
        ));
        for sentence in became(kernel) {
            screen.hanging(2, &sentence);
        }
    }
    if let Some(more) = changed.len().checked_sub(LISTED).filter(|more| *more > 0) {
        screen.hanging(2, &format!("and {more} more that changed"));
    }
    if let Some(alike) = alike(of) {
        screen.hanging(0, &alike);
    }
}

/// Launches of a kernel on both sides.
pub(super) fn count(kernel: &KernelChange) -> String {
    let (base, head) = (figure(kernel.count.base), figure(kernel.count.head));
    match base == head {
        true => base,
        false => format!("{base} → {head}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::fits;
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

    /// A recording without running counts does not say that nothing was called.
    #[test]
    fn what_was_not_counted_is_not_none() {
        let base = training(157);
        let mut head = training(157);
        for process in &mut head.recording.processes {
            process.calls.clear();
        }
        let comparison = compare(("a.trace", &base), ("b.trace", &head), None);
        let rows = figures(&comparison);
        let launches = rows.iter().find(|row| row.name == "launches").unwrap();
        assert_eq!((&*launches.base, &*launches.head), ("3", NONE));
        assert!(comparison.findings.is_empty(), "{:?}", comparison.findings);
    }

    #[test]
    fn nothing_changed() {
        let base = training(157);
        let comparison = compare(("a.trace", &base), ("b.trace", &base), None);
        insta::assert_snapshot!(difference(&comparison, false));
    }
}
