//! A trace on the terminal.

use crate::screen::{Screen, laid_out};
use crate::text::{one_line, shell_command, shorten, width};
use regatta_core::machine::{KernelRow, Shape, Summary};
use regatta_core::record::trace::Trace;
use regatta_judge::judgement::Finding;
use regatta_judge::trace::{Analysis, apart_told};
use regatta_worker::units::{Bytes, Digits, Nanoseconds, Share, counted};

/// Kernels that are listed.
const LISTED: usize = 20;

/// The table of a trace, at most eighty columns wide.
pub fn table(trace: &Trace, analysis: &Analysis) -> String {
    laid_out(false, LISTED, |screen| write(screen, trace, analysis))
}

fn write(screen: &mut Screen, trace: &Trace, analysis: &Analysis) {
    screen.hanging(0, &shell_command(&trace.header.command));
    for line in facts(trace, analysis) {
        screen.hanging(2, &line);
    }
    if !analysis.findings.is_empty() {
        screen.line("");
        screen.hanging(0, "What stands out");
    }
    for finding in &analysis.findings {
        screen.hanging(2, &told(finding));
    }
    match &analysis.steady {
        Some(part) => {
            let steady = &part.steady;
            let before = steady.from_ns.saturating_sub(first_ns(trace));
            screen.line("");
            screen.hanging(
                0,
                &format!(
                    "Steady state: {} of {}, {} each, {} after the first operation",
                    counted(steady.repeats, "repetition"),
                    counted(steady.period, "operation"),
                    steady.period_time(),
                    Nanoseconds(before as f64)
                ),
            );
            if steady.set_aside > 0 {
                let more = counted(steady.set_aside, "repetition");
                let why = "warm-up, or an interruption by the host";
                screen.hanging(2, &format!("{more} beside them set aside: {why}"));
            }
            summary(screen, &part.summary, steady.repeats as f64);
            screen.line("");
            screen.hanging(0, "In all, warm-up included:");
            summary_in_short(screen, &analysis.whole);
            first_occurrences(screen, analysis);
        }
        None => {
            screen.line("");
            screen.hanging(
                0,
                "No part repeats at the end: warm-up and compilation are in what follows.",
            );
            summary(screen, &analysis.whole, 1.0);
        }
    }
    screen.line("");
    screen.hanging(
        0,
        "One run under a profiler: structure is exact, times are an indication.",
    );
}

/// A finding in a line.
pub(super) fn told(finding: &Finding) -> String {
    let share = finding
        .share
        .map(|share| format!(" ({share} of the change)"));
    format!("{finding}{}", share.unwrap_or_default())
}

fn first_ns(trace: &Trace) -> u64 {
    let operations = &trace.recording.operations;
    operations.first().map_or(0, |operation| operation.start_ns)
}

/// What was recorded, and what is missing of it.
pub(super) fn facts(trace: &Trace, analysis: &Analysis) -> Vec<String> {
    let recording = &trace.recording;
    let ended = match &trace.header.recorder {
        None => format!("it ended with {}", trace.header.ended),
        Some(recorder) => format!("recorded by {recorder}"),
    };
    let mut facts = vec![format!(
        "{}, {} that used a GPU, on {}; {ended}",
        counted(recording.operations.len(), "operation"),
        counted(recording.processes.len(), "process").replace("processs", "processes"),
        trace.header.machine.name,
    )];
    facts.extend(apart_told(trace, analysis));
    let unfinished = recording.processes.iter().filter(|process| !process.ended);
    let unfinished: Vec<String> = unfinished.map(|process| process.pid.to_string()).collect();
    if !unfinished.is_empty() {
        facts.push(format!(
            "process {} did not end by itself: its last operations may be missing",
            unfinished.join(", ")
        ));
    }
    if recording.dropped() > 0 {
        facts.push(format!("{} records were lost", recording.dropped()));
    }
    if recording.left_out > 0 {
        facts.push(format!(
            "the earliest {} operations were left out (--limit)",
            recording.left_out
        ));
    }
    for process in &recording.processes {
        facts.extend(
            process
                .problems
                .iter()
                .map(|problem| format!("process {}: {problem}", process.pid)),
        );
    }
    if let Some((file, damage)) = recording.damage.first() {
        facts.push(format!(
            "{} could not be used; the first is {file}:{}: {}",
            counted(recording.damage.len(), "line"),
            damage.line,
            damage.problem
        ));
    }
    facts
}

fn summary(screen: &mut Screen, of: &Summary, times: f64) {
    let (count, total) = match times > 1.0 {
        true => ("count*", "total*"),
        false => ("count", "total"),
    };
    screen.line("");
    screen.line(&format!(
        "{:<33}{count:>7} {total:>10} {:>10} {:>7} {:>9}",
        "kernel", "mean", "share", "SMs"
    ));
    for kernel in of.kernels.iter().take(LISTED) {
        row(screen, kernel, of, times);
    }
    if let Some(more) = of
        .kernels
        .len()
        .checked_sub(LISTED)
        .filter(|more| *more > 0)
    {
        let rest: u64 = of.kernels[LISTED..]
            .iter()
            .map(|kernel| kernel.total_ns)
            .sum();
        let rest = Nanoseconds(rest as f64 / times);
        screen.hanging(2, &format!("and {more} more kernels, {rest}"));
    }
    for copy in &of.copies {
        screen.line(&format!(
            "{}{:>7} {:>10} {:>10} {:>17}",
            cell(
                if copy.what == "set" {
                    "memory set"
                } else {
                    &copy.what
                },
                33
            ),
            figure(copy.count as f64 / times),
            Nanoseconds(copy.total_ns as f64 / times).to_string(),
            Nanoseconds(copy.total_ns as f64 / copy.count.max(1) as f64).to_string(),
            Bytes((copy.bytes as f64 / times) as u64).to_string()
        ));
    }
    if times > 1.0 {
        screen.hanging(0, "* in one repetition");
    }
    screen.line("");
    for line in spent(of, times) {
        screen.hanging(0, &line);
    }
}

/// How the devices' time was spent, in sentences.
pub(super) fn spent(of: &Summary, times: f64) -> Vec<String> {
    let spent = &of.time;
    let time = |ns: u64| Nanoseconds(ns as f64 / times);
    let mut lines = vec![format!(
        "busy {} of {}; idle {} ({}) in {}, the longest {}",
        time(spent.busy_ns),
        time(spent.span_ns),
        time(spent.idle_ns()),
        spent.idle_share(),
        counted(spent.gaps as usize, "gap"),
        Nanoseconds(spent.longest_gap_ns.unwrap_or(0) as f64)
    )];
    lines.push(match spent.host_bound().zip(spent.host_bound_ns) {
        Some((share, waited)) => format!(
            "host-bound {}: idle {} until the host began to launch what came next",
            share,
            time(waited)
        ),
        None => "host-bound: unknown, as launches were not recorded".to_owned(),
    });
    if let Some((overlap, copying)) = spent.overlap().zip(spent.copying_ns) {
        lines.push(format!(
            "copies {}, {} of it while a kernel ran",
            time(copying),
            overlap
        ));
    }
    let calls: Vec<String> = of
        .calls
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(name, count)| {
            format!(
                "{} {}",
                name.replace('_', " "),
                figure(*count as f64 / times)
            )
        })
        .collect();
    if !calls.is_empty() {
        lines.push(format!("calls: {}", calls.join(", ")));
    }
    lines
}

fn row(screen: &mut Screen, kernel: &KernelRow, of: &Summary, times: f64) {
    let first = kernel.shapes.first();
    screen.line(&format!(
        "{}{:>7} {:>10} {:>10} {:>7} {:>9}",
        cell(&short(&kernel.name), 33),
        figure(kernel.count as f64 / times),
        Nanoseconds(kernel.total_ns as f64 / times).to_string(),
        kernel.mean().to_string(),
        Share(kernel.total_ns as f64 / of.kernel_ns.max(1) as f64).to_string(),
        first.map_or(String::new(), filled)
    ));
    screen.hanging(2, &shapes(kernel));
}

/// `1 of 132`.
pub(super) fn filled(shape: &Shape) -> String {
    let filled = shape.filled();
    filled.map_or(String::new(), |(filled, sms)| format!("{filled}/{sms}"))
}

/// The grids of a kernel in a line.
pub(super) fn shapes(kernel: &KernelRow) -> String {
    const TOLD: usize = 3;
    let told = kernel.shapes.iter().take(TOLD).map(|shape| {
        let shared = shape.shared_bytes.filter(|bytes| *bytes > 0);
        let shared = shared.map_or(String::new(), |bytes| format!(", {} shared", Bytes(bytes)));
        let registers = shape.registers;
        let registers = registers.map_or(String::new(), |n| format!(", {n} registers"));
        format!(
            "{} x {}{registers}{shared}",
            sizes(shape.grid),
            sizes(shape.block)
        )
    });
    let mut told: Vec<String> = told.collect();
    let more = kernel.shapes.len().saturating_sub(TOLD) + kernel.other_shapes;
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    told.join("; ")
}

pub(super) fn sizes([x, y, z]: [u32; 3]) -> String {
    format!("{x}x{y}x{z}")
}

fn summary_in_short(screen: &mut Screen, of: &Summary) {
    for line in spent(of, 1.0) {
        screen.hanging(2, &line);
    }
}

/// Kernels whose first launch took much longer than they take once warm.
fn first_occurrences(screen: &mut Screen, analysis: &Analysis) {
    let Some(part) = &analysis.steady else { return };
    for kernel in part.summary.kernels.iter().take(LISTED) {
        let whole = analysis
            .whole
            .kernels
            .iter()
            .find(|row| row.name == kernel.name);
        let Some(first) = whole.map(|row| Nanoseconds::whole(row.first_ns)) else {
            continue;
        };
        if first > kernel.mean() * 2.0 {
            screen.hanging(
                2,
                &format!(
                    "first {}: {}, {} times its mean once steady",
                    short(&kernel.name),
                    first,
                    (first / kernel.mean().max(Nanoseconds(1.0))).times()
                ),
            );
        }
    }
}

/// A text cut and padded to so many columns.
pub(super) fn cell(text: &str, columns: usize) -> String {
    let text = shorten(&one_line(text), columns);
    let padding = columns.saturating_sub(width(&text));
    format!("{text}{:padding$}", "")
}

/// A count that may be a mean.
pub(super) fn figure(count: f64) -> String {
    match (count - count.round()).abs() < 0.05 {
        true => format!("{count:.0}"),
        false => Digits(count).to_string(),
    }
}

/// A kernel's name as the terminal has room for it.
pub(super) fn short(name: &str) -> String {
    regatta_core::machine::short(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::fits;
    use regatta_core::record::trace::testing;
    use regatta_judge::trace::analyse;

    fn shown(trace: &Trace) -> String {
        let text = table(trace, &analyse(&trace.recording));
        fits(&text);
        text
    }

    #[test]
    fn a_training_loop() {
        insta::assert_snapshot!(shown(&testing::training(157)));
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut trace = testing::training(1);
        trace.recording.names[1] = "void \u{1b}[31mhostile\u{202e}<script>\n(int)".to_owned();
        trace.recording.operations.truncate(7);
        trace.recording.left_out = 9;
        trace.recording.processes[0].dropped = 12;
        trace.recording.processes[0].ended = false;
        insta::assert_snapshot!(shown(&trace));
        trace.recording = Default::default();
        assert!(shown(&trace).contains("0 operations"));
    }
}
