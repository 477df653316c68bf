//! The difference of two traces on the terminal.

use owo_colors::{OwoColorize, Style};

use super::table::short;
use super::{Text, cell, figure, percent};
use crate::judge::judgement::VerdictOutcome;
use crate::judge::trace::{Became, Comparison, KernelChange, Scope, SideFigures};
use crate::report::format::{RatioChange, ShortTime};

/// Kernels that are listed.
const LISTED: usize = 20;

/// The answer, at most eighty columns wide; colour is all that `colour` adds.
pub fn difference(of: &Comparison, colour: bool) -> String {
    let mut text = Text::default();
    let paint = |words: &str, style: Style| match colour {
        true => words.style(style).to_string(),
        false => words.to_owned(),
    };
    let (word, style) = match of.verdict.outcome {
        VerdictOutcome::Passed => ("NOTHING WORSE", Style::new().green().bold()),
        VerdictOutcome::Failed => ("WORSE", Style::new().red().bold()),
        VerdictOutcome::NotJudged => ("NOT JUDGED", Style::new().yellow().bold()),
    };
    text.line(&paint(word, style));
    for reason in &of.verdict.reasons {
        text.say(2, reason);
    }
    for differs in &of.incomparable {
        let (base, head) = (&differs.base, &differs.head);
        text.say(
            2,
            &format!(
                "{}: {base} -> {head}; times are not compared",
                differs.field
            ),
        );
    }
    if !of.findings.is_empty() {
        text.line("");
        text.line(&paint("Why", Style::new().bold()));
    }
    for finding in &of.findings {
        let words = format!(
            "{}: {} (confidence {:.2})",
            finding.cause, finding.evidence, finding.confidence
        );
        text.say(2, &words);
    }
    text.line("");
    text.line(&paint(
        match of.scope {
            Scope::Repetition => "One repetition of the steady part",
            Scope::Whole => "The whole program",
        },
        Style::new().bold(),
    ));
    for (name, base, head) in rows(&of.sides.base, &of.sides.head) {
        if let Some(line) = times(&name, base, head) {
            text.line(&line);
        }
    }
    for (name, base, head) in counts(&of.sides.base, &of.sides.head) {
        text.line(&format!("  {}{base:>12} -> {head:>12}", cell(&name, 26)));
    }
    kernels(&mut text, of);
    text.line("");
    for note in &of.notes {
        text.say(0, note);
    }
    text.0
}

type Row = (String, Option<f64>, Option<f64>);

fn rows(base: &SideFigures, head: &SideFigures) -> Vec<Row> {
    let some = |name: &str, base: f64, head: f64| (name.to_owned(), Some(base), Some(head));
    vec![
        some("elapsed", base.elapsed_ns, head.elapsed_ns),
        some("device busy", base.busy_ns, head.busy_ns),
        some("device idle", base.idle_ns, head.idle_ns),
        (
            "of that, host-bound".to_owned(),
            base.host_bound_ns,
            head.host_bound_ns,
        ),
    ]
}

fn times(name: &str, base: Option<f64>, head: Option<f64>) -> Option<String> {
    let (base, head) = (base?, head?);
    let change = match base > 0.0 && head > 0.0 {
        true => RatioChange(head / base).to_string(),
        false => String::new(),
    };
    Some(format!(
        "  {}{:>12} -> {:>12} {change:>16}",
        cell(name, 26),
        ShortTime(base).to_string(),
        ShortTime(head).to_string()
    ))
}

/// Copies and calls of both sides that differ.
fn counts(base: &SideFigures, head: &SideFigures) -> Vec<(String, String, String)> {
    let mut rows = Vec::new();
    let mut differ = |name: String, before: f64, after: f64| {
        let (before, after) = (figure(before), figure(after));
        if before != after {
            rows.push((name, before, after));
        }
    };
    let directions: std::collections::BTreeSet<&String> =
        base.copies.keys().chain(head.copies.keys()).collect();
    for direction in directions {
        let number = |side: &SideFigures| side.copies.get(direction).map_or(0.0, |(n, _)| *n);
        differ(format!("copies {direction}"), number(base), number(head));
    }
    let names: std::collections::BTreeSet<&String> =
        base.calls.keys().chain(head.calls.keys()).collect();
    for name in names {
        let number = |side: &SideFigures| side.calls.get(name).copied().unwrap_or(0.0);
        differ(name.replace('_', " "), number(base), number(head));
    }
    if let (Some(before), Some(after)) = (base.overlap, head.overlap) {
        rows.push((
            "copies behind kernels".to_owned(),
            percent(before),
            percent(after),
        ));
        rows.retain(|(_, before, after)| before != after);
    }
    rows
}

fn kernels(text: &mut Text, of: &Comparison) {
    let told = |kernel: &&KernelChange| {
        kernel.became != Became::Same
            || !kernel.changes.is_empty()
            || kernel.count.base != kernel.count.head
            || (kernel.ratio() - 1.0).abs() > of.floor
    };
    let changed: Vec<&KernelChange> = of.kernels.iter().filter(told).collect();
    let same = of.kernels.len() - changed.len();
    text.line("");
    if !changed.is_empty() {
        text.line(&format!(
            "{:<34}{:>13} {:>10} {:>10} {:>10}",
            "kernel", "count", "mean", "mean now", "total"
        ));
    }
    for kernel in changed.iter().take(LISTED) {
        let time = |ns: f64| match ns > 0.0 {
            true => ShortTime(ns).to_string(),
            false => String::new(),
        };
        let growth = kernel.growth_ns();
        let sign = if growth < 0.0 { "-" } else { "+" };
        text.line(&format!(
            "{}{:>13} {:>10} {:>10} {:>10}",
            cell(&short(kernel.called()), 34),
            count(kernel),
            time(kernel.mean_ns.base),
            time(kernel.mean_ns.head),
            format!("{sign}{}", ShortTime(growth.abs()))
        ));
        match kernel.became {
            Became::Replaced => text.say(2, &format!("replaces {}", short(&kernel.name.base))),
            Became::Added => text.say(2, "added"),
            Became::Removed => text.say(2, "removed"),
            Became::Same => {}
        }
        if !kernel.changes.is_empty() {
            text.say(2, &kernel.changes.join(", "));
        }
    }
    if let Some(more) = changed.len().checked_sub(LISTED).filter(|more| *more > 0) {
        text.say(2, &format!("and {more} more that changed"));
    }
    if same > 0 {
        text.say(
            0,
            &format!("{same} of {} kernels as before", of.kernels.len()),
        );
    }
}

fn count(kernel: &KernelChange) -> String {
    let (base, head) = (figure(kernel.count.base), figure(kernel.count.head));
    match base == head {
        true => base,
        false => format!("{base} -> {head}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::trace::{FLOOR, compare};
    use crate::record::trace::testing;
    use crate::report::text::width;

    #[test]
    fn one_block_where_there_were_157() {
        let (base, head) = (testing::training(157), testing::training(1));
        let comparison = compare(("auto.trace", &base), ("one.trace", &head), FLOOR);
        let text = difference(&comparison, false);
        for line in text.lines() {
            assert!(width(line) <= 80, "{line}");
        }
        let coloured = difference(&comparison, true);
        assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), text);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn nothing_changed() {
        let base = testing::training(157);
        let comparison = compare(("a.trace", &base), ("b.trace", &base), FLOOR);
        insta::assert_snapshot!(difference(&comparison, false));
    }
}
