//! Shows a trace: its operations, their numbers, and the time by kind.

use crate::RenderError;
use crate::document::{Block, Document, ListItem, Table, TableRow, Tone};
use crate::text::shell_command;
use regatta_core::machine::{KernelRow, LaunchShape, Summary, short, sizes};
use regatta_core::record::trace::Trace;
use regatta_judge::judgement::Finding;
use regatta_judge::trace::{Analysis, apart_sentence};
use regatta_worker::joined::Joined;
use regatta_worker::units::{Bytes, Digits, Nanoseconds, Share, counted};

/// The largest numbers of kernels that a terminal and a page list.
pub(super) const LISTED: [usize; 2] = [20, 60];

/// The table of a trace, at most eighty columns wide.
pub fn table(trace: &Trace, analysis: &Analysis) -> String {
    document(trace, analysis, LISTED[0]).text(false)
}

/// The page of a trace.
///
/// # Errors
/// When the template does not fit its data.
pub fn page(trace: &Trace, analysis: &Analysis) -> Result<String, RenderError> {
    document(trace, analysis, LISTED[1]).page()
}

/// The document, with at most `most` kernels.
fn document(trace: &Trace, analysis: &Analysis, most: usize) -> Document {
    let mut body = Vec::new();
    if !analysis.findings.is_empty() {
        body.push(Block::heading("What stands out"));
        body.push(findings(&analysis.findings));
    }
    match &analysis.steady {
        Some(part) => {
            let steady = &part.steady;
            let first = trace.recording.operations.first();
            let first = first.map_or(0, |operation| operation.start_ns);
            let subtitle = format!(
                "{} of {}, {} each, {} after the first operation",
                counted(steady.repeats, "repetition"),
                counted(steady.period, "operation"),
                steady.period_time(),
                Nanoseconds(steady.from_ns.saturating_sub(first) as f64)
            );
            let title = "Steady state".to_owned();
            body.push(Block::Heading(title, subtitle, Tone::Calm));
            if steady.set_aside > 0 {
                let more = counted(steady.set_aside, "repetition");
                let why = "warm-up, or an interruption by the host";
                body.push(Block::list([format!(
                    "{more} beside them discarded: {why}"
                )]));
            }
            let repeats = steady.repeats as f64;
            body.extend(operations(&part.summary, repeats, most));
            body.push(Block::Note("* in one repetition".to_owned()));
            body.push(Block::Text(spent(&part.summary, repeats)));
            body.push(Block::heading("In all, warm-up included"));
            body.push(Block::Page(operations(&analysis.whole, 1.0, most)));
            body.push(Block::list(spent(&analysis.whole, 1.0)));
        }
        None => {
            let subtitle =
                "no part repeats at the end: warm-up and compilation are in it".to_owned();
            let title = "The whole recording".to_owned();
            body.push(Block::Heading(title, subtitle, Tone::Calm));
            body.extend(operations(&analysis.whole, 1.0, most));
            body.push(Block::Text(spent(&analysis.whole, 1.0)));
        }
    }
    let about = "One run under a profiler: structure is exact, times are an indication.";
    body.push(Block::Text(vec![about.to_owned()]));
    let timeline = "--output perfetto=PATH writes every operation for ui.perfetto.dev.";
    body.push(Block::Page(vec![Block::Note(timeline.to_owned())]));
    let command = shell_command(&trace.header.command);
    Document {
        title: format!("{}: trace", trace.header.title()),
        kicker: "regatta trace".to_owned(),
        sentence: command,
        summary: vec![Block::list(facts(trace, analysis))],
        body,
        ..Document::default()
    }
}

/// The findings, one on each line.
pub(super) fn findings(found: &[Finding]) -> Block {
    let item = |finding: &Finding| {
        let share = finding.share;
        let share = share.map(|share| format!(" ({share} of the change)"));
        let text = format!("{}{}", finding.evidence, share.unwrap_or_default());
        ListItem::new(finding.cause.to_string(), text)
    };
    Block::List(found.iter().map(item).collect())
}

/// Facts about the recording, and its gaps.
fn facts(trace: &Trace, analysis: &Analysis) -> Vec<String> {
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
    facts.extend(apart_sentence(trace, analysis));
    let unfinished = recording.processes.iter().filter(|process| !process.ended);
    let unfinished = unfinished.map(|process| process.pid).joined(", ");
    if !unfinished.is_empty() {
        facts.push(format!(
            "process {unfinished} did not end by itself: its last operations may be missing"
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
        let problems = process.problems.iter();
        facts.extend(problems.map(|problem| format!("process {}: {problem}", process.pid)));
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

/// Tables of kernels and copies, per repetition if there are several.
fn operations(summary: &Summary, times: f64, most: usize) -> Vec<Block> {
    let time = |ns: u64| Nanoseconds(ns as f64 / times).to_string();
    let [count, total, bytes] = if times > 1.0 {
        ["count*", "total*", "bytes*"]
    } else {
        ["count", "total", "bytes"]
    };
    let kernel = |kernel: &KernelRow| {
        let cells = vec![
            figure(kernel.count as f64 / times),
            time(kernel.total_ns),
            kernel.mean().to_string(),
            Share(kernel.total_ns as f64 / summary.kernel_ns.max(1) as f64).to_string(),
            kernel.shapes.first().map_or(String::new(), filled),
        ];
        TableRow::new(short(&kernel.name), cells).with_below(vec![shapes(kernel)])
    };
    let left_out = summary.kernels.iter().skip(most);
    let left_out: u64 = left_out.map(|kernel| kernel.total_ns).sum();
    let rest = match summary.kernels.len().saturating_sub(most) {
        0 => String::new(),
        more => format!("and {more} more kernels, {}", time(left_out)),
    };
    let heads = vec![count, total, "mean", "share", "SMs"];
    let kernels = summary.kernels.iter().take(most).map(kernel);
    let kernels = Table::new("kernel", heads, kernels).with_rest(rest);
    let copies = summary.copies.iter().map(|copy| {
        let label = match &*copy.what {
            "set" => "memory set",
            what => what,
        };
        let cells = vec![
            figure(copy.count as f64 / times),
            time(copy.total_ns),
            Nanoseconds(copy.total_ns as f64 / copy.count.max(1) as f64).to_string(),
            Bytes((copy.bytes as f64 / times) as u64).to_string(),
        ];
        TableRow::new(label, cells)
    });
    let copies = Table::new("copies", vec![count, total, "mean", bytes], copies);
    let tables = [kernels, copies].into_iter();
    let tables = tables.filter(|table| !table.rows.is_empty());
    tables.map(Block::Table).collect()
}

/// The time of the devices by kind, in sentences.
fn spent(summary: &Summary, times: f64) -> Vec<String> {
    let spent = &summary.time;
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
    let calls = summary.calls.iter().filter(|(_, count)| **count > 0);
    let calls = calls.map(|(name, count)| {
        let count = figure(*count as f64 / times);
        format!("{} {count}", name.replace('_', " "))
    });
    let calls = calls.joined(", ");
    if !calls.is_empty() {
        lines.push(format!("calls: {calls}"));
    }
    lines
}

/// The filled multiprocessors of a launch: `1/132`.
fn filled(shape: &LaunchShape) -> String {
    let filled = shape.filled();
    filled.map_or(String::new(), |(filled, sms)| format!("{filled}/{sms}"))
}

/// The grids of a kernel on one line.
fn shapes(kernel: &KernelRow) -> String {
    const LISTED_SHAPES: usize = 3;
    let shapes = kernel.shapes.iter().take(LISTED_SHAPES).map(|shape| {
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
    let more = kernel.shapes.len().saturating_sub(LISTED_SHAPES) + kernel.other_shapes;
    let more = (more > 0).then(|| format!("and {more} more"));
    shapes.chain(more).joined("; ")
}

/// A count that may be a mean.
pub(super) fn figure(count: f64) -> String {
    if (count - count.round()).abs() < 0.05 {
        format!("{count:.0}")
    } else {
        Digits(count).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{fits, stands_alone};
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

    #[test]
    fn the_page_is_one_file_and_what_comes_from_outside_is_text() {
        let mut trace = testing::training(157);
        trace.header.command = vec!["<b>'id'".to_owned(), "train.py\u{202e}".to_owned()];
        trace.recording.names[1] = "void <script>alert(1)</script>&(int)".to_owned();
        let page = page(&trace, &analyse(&trace.recording)).unwrap();
        stands_alone(&page);
        assert!(page.contains("&lt;script&gt;"));
    }
}
