//! A judgement as a document: the answer for the terminal, the comment on a pull request, and parts
//! of the page.

use std::collections::HashSet;

use super::Report;
use super::by_axes::by_axes;
use super::document::{Block, Document, Table, TableRow, Tone};
use super::summary::{RowList, SortedRows, evidence, reproduce};
use super::text::shorten;
use regatta_core::suite::{Metric, Quantity};
use regatta_judge::judgement::{
    Difference, ExpectationResult, Judgement, MetricRow, Mismatch, Row, SideSummary, Timing,
    Uncounted, VerdictOutcome,
};
use regatta_judge::largest_slowdown;
use regatta_worker::units::{Ratio, counted};

/// The largest number of rows in a list of a comment.
pub(crate) const MAX_MARKDOWN: usize = 40;

/// The largest number of rows in a list on a terminal, without `--all`.
const MAX_TERMINAL: usize = 20;

/// The largest number of cases of a run without a base that are printed without `--all`.
const FEW: usize = 60;

/// The number of rows of a list that have all their paragraphs. Later rows have them only if they
/// name something about their variant for the first time.
const IN_FULL: usize = 5;

/// The largest number of structural changes of a case, besides those that a cause names.
const MAX_STRUCTURE: usize = 3;

/// The limit of a list.
#[derive(Clone, Copy)]
pub(crate) struct Lists {
    pub most: usize,
    /// The format that has the omitted rows: `, which --all prints`.
    pub elsewhere: &'static str,
}

impl Lists {
    pub(crate) fn shown<'a, T>(&self, all: &'a [T]) -> &'a [T] {
        &all[..all.len().min(self.most)]
    }

    /// `and 5 more, which --all prints`; empty if nothing is left out.
    pub(crate) fn rest(&self, count: usize) -> String {
        match count.saturating_sub(self.most) {
            0 => String::new(),
            more => format!("and {more} more{}", self.elsewhere),
        }
    }
}

/// The answer for a terminal, about all cases if `all`, else about those that changed.
pub fn terminal(judgement: &Judgement, all: bool) -> Document {
    let lists = Lists {
        most: if all { usize::MAX } else { MAX_TERMINAL },
        elsewhere: ", which --all prints",
    };
    let summary = SortedRows::new(judgement);
    let mut document = verdict(judgement);
    document.word = judgement.verdict.outcome.text().to_owned();
    let body = &mut document.body;
    body.extend(answer(&summary, lists));
    if judgement.structure_only {
        // No case has a time, and the lists have all changes of structure.
    } else if judgement.base.is_none() && !judgement.rows.is_empty() {
        body.extend(every_alone(&judgement.rows, lists));
    } else if all {
        body.push(Block::counted(
            "Every case",
            judgement.rows.len(),
            Tone::Calm,
        ));
        body.push(Block::Table(verdicts(&judgement.rows)));
    }
    body.extend(closing(judgement));
    document
}

/// The comment on a pull request.
pub(crate) fn markdown(report: &Report) -> Document {
    let judgement = report.judgement;
    let lists = Lists {
        most: MAX_MARKDOWN,
        elsewhere: "",
    };
    let summary = SortedRows::new(judgement);
    let mut document = verdict(judgement);
    document.body.extend(answer(&summary, lists));
    document.body.extend(closing(judgement));
    let mut details = Vec::new();
    if let Some(row) = summary.rows([RowList::Regressed]).next() {
        details.push(Block::Note("Measure the slowest case again:".to_owned()));
        details.push(Block::Command(vec![reproduce(report, &row.case.0)]));
    }
    if !judgement.differences.is_empty() {
        details.push(Block::heading("Where the sides differ"));
        details.push(mismatches(&judgement.differences, lists));
    }
    if !details.is_empty() {
        let title = "How it was measured".to_owned();
        document.body.push(Block::Details(title, details));
    }
    document
}

/// The verdict with its reasons and both sides.
pub(crate) fn verdict(judgement: &Judgement) -> Document {
    let verdict = &judgement.verdict;
    let (word, tone) = match verdict.outcome {
        VerdictOutcome::Passed => ("Passed", Tone::Good),
        VerdictOutcome::Failed => ("Failed", Tone::Bad),
        VerdictOutcome::Inconclusive => ("Inconclusive", Tone::Doubtful),
    };
    let side = |name: &str, side: &SideSummary| {
        let revision = side.revision.as_deref().unwrap_or("no revision");
        format!(
            "{name} {} ({}, {}, {})",
            side.label,
            side.machine,
            shorten(revision, 13),
            counted(side.invocations as usize, "invocation")
        )
    };
    let base = judgement.base.as_ref();
    let sides = [
        Some(by_axes(judgement)).filter(|text| !text.is_empty()),
        largest_slowdown(judgement).map(at_most),
        Some(side("head", &judgement.head)),
        base.map(|base| side("base", base)),
    ];
    Document {
        title: format!("{word}: {} on {}", judgement.suite, judgement.head.machine),
        tone,
        word: word.to_owned(),
        subject: judgement.suite.clone(),
        sentence: verdict.shown.clone(),
        summary: vec![
            Block::list(verdict.reasons.iter().cloned()),
            Block::Text(sides.into_iter().flatten().collect()),
        ],
        ..Document::default()
    }
}

/// The largest slowdown that the intervals allow, or the smallest gain.
fn at_most(most: Ratio) -> String {
    if most < Ratio(0.9995) {
        return format!("Each case is at least {}.", most.in_words());
    }
    let most = most.max(Ratio::ONE).growth();
    format!("No case is more than {most} slower.")
}

/// The lists of rows, failures first.
fn answer(summary: &SortedRows, lists: Lists) -> Vec<Block> {
    let all = summary.lists.iter();
    let (bad, others): (Vec<_>, Vec<_>) = all.partition(|(kind, _)| kind.tone() == Tone::Bad);
    let [bad, others] = [bad, others].map(|all| {
        all.into_iter()
            .flat_map(|(kind, rows)| list(*kind, rows, lists))
    });
    let violated = violated(&summary.violated, lists);
    bad.chain(violated).chain(others).collect()
}

/// A list of cases under a heading.
pub(crate) fn list(kind: RowList, rows: &[&Row], lists: Lists) -> [Block; 2] {
    let most = if lists.most == usize::MAX {
        usize::MAX
    } else {
        MAX_STRUCTURE
    };
    let paragraphs = |row: &Row, in_full| paragraphs(row, in_full, most);
    let each = of_all(rows, paragraphs);
    let mut before: HashSet<String> = HashSet::new();
    let mut lines = Vec::new();
    for (place, row) in lists.shown(rows).iter().enumerate() {
        let known = before.len();
        before.extend(named(row));
        let in_full = before.len() > known || place < IN_FULL || lists.most == usize::MAX;
        let mut below = paragraphs(row, in_full || row.change().is_none());
        below.retain(|paragraph| !each.contains(paragraph));
        let mut of_row = metrics(row);
        if let Some(last) = of_row.last_mut() {
            last.below = below;
        }
        lines.extend(of_row);
    }
    let table = Table {
        label: "case",
        heads: vec!["metric", "base", "head", "change", "90 % interval"],
        rows: lines,
        ids: true,
        each,
        rest: lists.rest(rows.len()),
    };
    let title = Block::counted(kind.title(), rows.len(), kind.tone());
    [title, Block::Table(table)]
}

/// The causes, metrics and kinds of structure that a row names, together with its variant, because
/// two functions may be slower for different reasons.
fn named(row: &Row) -> Vec<String> {
    let causes = row.findings.iter().map(|finding| finding.cause.to_string());
    let metrics = row
        .regressed()
        .map(|metric| metric.metric.text().to_owned());
    let changes = row.structure.iter().flatten();
    let kinds = changes.map(|change| change.kind.to_string());
    let case = row.case.case();
    let variant = case.map_or(String::new(), |case| case.variant.to_string());
    let names = causes.chain(metrics).chain(kinds);
    names.map(|name| format!("{variant} {name}")).collect()
}

/// The paragraphs below a case: its reason and, if `in_full`, the causes and at most `most` other
/// changes.
fn paragraphs(row: &Row, in_full: bool, most: usize) -> Vec<String> {
    let mut paragraphs: Vec<String> = row.reason.iter().cloned().collect();
    paragraphs.extend(row.metric(Metric::Device).and_then(apart_from_medians));
    paragraphs.extend(Uncounted::sentence(&row.uncounted));
    if in_full {
        let causes = row.findings.iter().flat_map(|finding| &finding.differences);
        let is_cause = |one: &Difference| causes.clone().any(|difference| difference == one);
        let beside = row.worth_telling();
        let beside = beside.filter(|change| !is_cause(&change.difference));
        let beside: Vec<String> = beside.map(ToString::to_string).collect();
        paragraphs.extend(accounts(row));
        paragraphs.extend(row.findings.iter().map(ToString::to_string));
        let number = beside.len().saturating_sub(most);
        paragraphs.extend(beside.into_iter().take(most));
        if number > 0 {
            let changes = counted(number, "more change");
            paragraphs.push(format!("{changes} of structure, which --all prints"));
        }
    }
    paragraphs
}

/// Two changes that differ by less than this look the same to a reader.
const SAME_CHANGE: f64 = 0.05;

/// A sentence for a change that does not follow from the two times of its row. The change is the
/// median of all differences, or that of pairs whose samples took turns, which differs from the
/// ratio of medians if some starts are slow or load varies.
fn apart_from_medians(metric: &MetricRow) -> Option<String> {
    let medians = Ratio(metric.head / metric.base);
    let change = &metric.change;
    let follows = change.low.is_none_or(|low| low <= medians)
        && change.high.is_none_or(|high| medians <= high)
        && (medians.0 / change.ratio.0 - 1.0).abs() <= SAME_CHANGE;
    let source = if change.paired {
        "from samples taken in turn"
    } else {
        "the median of all differences between invocations"
    };
    let medians = short(medians);
    let words = format!("the change is {source}; the medians of the sides differ by {medians}");
    (!follows).then_some(words)
}

/// The breakdowns of a case's times, one sentence each. All but that of the device time begin with
/// the metric: `host time +299.0 µs = launches +120, not explained +179`.
pub(crate) fn accounts(row: &Row) -> Vec<String> {
    let accounts = row.metrics.iter().filter_map(|metric| {
        let account = metric.account.as_ref()?;
        Some(match metric.metric {
            Metric::Device => account.to_string(),
            other => format!("{} {account}", other.text()),
        })
    });
    accounts.collect()
}

/// The full explanation of a case: its first metric, the others that got worse, and its paragraphs.
pub(crate) fn explanation(row: &Row) -> Vec<String> {
    let first = row.first_metric().map(|metric| metric.metric);
    let parts = evidence(row).into_iter();
    let mut lines: Vec<String> = parts.map(|parts| parts.join("   ")).collect();
    let others = row.regressed();
    let others = others.filter(|metric| Some(metric.metric) != first);
    lines.extend(others.map(MetricRow::changed));
    lines.extend(paragraphs(row, true, usize::MAX));
    lines
}

/// The paragraphs that all cases of a list share, if there are several cases.
fn of_all(rows: &[&Row], paragraphs: impl Fn(&Row, bool) -> Vec<String>) -> Vec<String> {
    let Some((first, others)) = rows.split_first().filter(|(_, others)| !others.is_empty()) else {
        return Vec::new();
    };
    let mut all = paragraphs(first, true);
    for row in others {
        if all.is_empty() {
            break;
        }
        let of_row = paragraphs(row, true);
        all.retain(|paragraph| of_row.contains(paragraph));
    }
    all
}

/// The rows of a case: its device time, the other metrics that got worse or may be worse, and CPU
/// time if it decided.
fn metrics(row: &Row) -> Vec<TableRow> {
    let mut shown: Vec<&MetricRow> = row.metric(Metric::Device).into_iter().collect();
    let first = row.first_metric();
    let first = first.filter(|first| first.change.word == row.word);
    let cpu = row.metric(Metric::CpuTime);
    let cpu = cpu.filter(|_| shown.iter().any(|device| device.change.by_cpu_time));
    for other in first.into_iter().chain(row.regressed()).chain(cpu) {
        if shown.iter().all(|shown| shown.metric != other.metric) {
            shown.push(other);
        }
    }
    if shown.is_empty() {
        let [base, head] = [&row.base, &row.head].map(time);
        let cells = ["", &*base, &*head, "", ""].map(str::to_owned);
        return vec![TableRow::new(row.case.to_string(), cells.into())];
    }
    let labels = std::iter::once(row.case.to_string()).chain(std::iter::repeat(String::new()));
    let lines = shown.into_iter().zip(labels).map(|(metric, label)| {
        let cells = vec![
            not_device(metric.metric),
            metric.metric.value(metric.base),
            metric.metric.value(metric.head),
            short(metric.change.ratio),
            metric.change.interval().unwrap_or_default(),
        ];
        TableRow::new(label, cells)
    });
    lines.collect()
}

/// A metric's name; empty for the device time.
fn not_device(metric: Metric) -> String {
    match metric {
        Metric::Device => String::new(),
        other => other.text().to_owned(),
    }
}

/// Violated expectations, the worst first, each together with all others of the same name.
fn violated(violated: &[&ExpectationResult], lists: Lists) -> Vec<Block> {
    if violated.is_empty() {
        return Vec::new();
    }
    let title = Block::counted("Violated expectations", violated.len(), Tone::Bad);
    let mut blocks = vec![title];
    let mut left: Vec<&ExpectationResult> = lists.shown(violated).to_vec();
    while let Some(first) = left.first().copied() {
        let (same, others): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|one| one.name == first.name);
        blocks.push(Block::Note(first.name.clone()));
        blocks.push(Block::Table(expectations(&same)));
        left = others;
    }
    let rest = lists.rest(violated.len());
    blocks.extend(Some(Block::Note(rest)).filter(|_| violated.len() > lists.most));
    blocks
}

/// A table of expectations: the value of each case, its bound, and the reference.
pub(crate) fn expectations(all: &[&ExpectationResult]) -> Table {
    let rows = all.iter().map(|one| {
        let against = one.against.iter().map(|id| format!("of {id}"));
        let below = against.chain(one.reason.clone()).collect();
        let cells = vec![
            match one.metric {
                Quantity::Metric(metric) => not_device(metric),
                ref figure => figure.to_string(),
            },
            one.value.map_or_else(String::new, |_| one.value_text()),
            one.interval().unwrap_or_default(),
            one.allowed(),
        ];
        TableRow::new(one.subject(), cells).with_below(below)
    });
    let heads = vec!["metric", "value", "90 % interval", "allowed"];
    Table {
        ids: true,
        ..Table::new("case", heads, rows)
    }
}

/// Facts in which the sides differ.
pub(crate) fn mismatches(all: &[Mismatch], lists: Lists) -> Block {
    let rows = lists.shown(all).iter().map(|mismatch| {
        let cells = vec![mismatch.base.clone(), mismatch.head.clone()];
        TableRow::new(&mismatch.field, cells)
    });
    let table = Table::new("fact", vec!["base", "head"], rows);
    Block::Table(table.with_rest(lists.rest(all.len())))
}

/// Every case of a run without a base: its time, its rate, and the range of its invocations.
fn every_alone(rows: &[Row], lists: Lists) -> Vec<Block> {
    let all = rows.len();
    let most = if all <= FEW { all } else { lists.most };
    let lists = Lists { most, ..lists };
    let cells = |row: &Row| {
        let Some(timing) = &row.head else {
            return vec![row.word.name().to_owned()];
        };
        let spread = (timing.max_ns - timing.min_ns).share_of(timing.median_ns);
        let several = timing.invocations_ns.len() > 1;
        let rate = timing.tflops.filter(|rate| rate.is_finite());
        vec![
            timing.median_ns.to_string(),
            rate.map_or_else(String::new, |rate| format!("{rate}FLOP/s")),
            if several {
                spread.to_string()
            } else {
                String::new()
            },
        ]
    };
    let table = cases(lists.shown(rows), vec!["time", "rate", "spread"], cells);
    let mut blocks = vec![
        Block::counted("Every case", rows.len(), Tone::Calm),
        Block::Table(table.with_rest(lists.rest(rows.len()))),
    ];
    let mut timings = rows.iter().filter_map(|row| row.head.as_ref());
    if timings.any(|timing| timing.invocations_ns.len() > 1) {
        let spread = "spread: from the fastest invocation to the slowest, as a part of the median";
        blocks.push(Block::list([spread.to_owned()]));
    }
    blocks
}

/// Cases with their verdicts.
pub(crate) fn verdicts<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Table {
    cases(rows, vec!["base", "head", "change", "verdict"], |row| {
        vec![
            time(&row.base),
            time(&row.head),
            row.change()
                .map_or_else(String::new, |change| short(change.ratio)),
            row.word.name().to_owned(),
        ]
    })
}

fn cases<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    heads: Vec<&'static str>,
    cells: impl Fn(&Row) -> Vec<String>,
) -> Table {
    let rows = rows.into_iter().map(|row| TableRow {
        tone: Tone::from_word(row.word),
        ..TableRow::new(row.case.to_string(), cells(row))
    });
    Table {
        ids: true,
        ..Table::new("case", heads, rows)
    }
}

/// The notes.
fn closing(judgement: &Judgement) -> Option<Block> {
    let notes = judgement.notes.iter().map(|note| format!("note: {note}"));
    (!judgement.notes.is_empty()).then(|| Block::Text(notes.collect()))
}

/// A change in a column: `+12.3 %`, `2.01x`, `3.10x faster`.
fn short(ratio: Ratio) -> String {
    let text = ratio.to_string();
    text.strip_suffix(" slower").unwrap_or(&text).to_owned()
}

/// The time of a side; empty where it was not measured.
fn time(timing: &Option<Timing>) -> String {
    let timing = timing.as_ref();
    timing.map_or(String::new(), |timing| timing.median_ns.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, finding, fits};
    use regatta_core::suite::Metric;
    use regatta_judge::judgement::{Cause, Word};
    use regatta_worker::case::CaseId;
    use regatta_worker::joined::Joined;

    fn plain(scene: &fixture::Scene) -> String {
        terminal(&scene.judgement, false).text(false)
    }

    fn whole(scene: &fixture::Scene) -> String {
        terminal(&scene.judgement, true).text(false)
    }

    #[test]
    fn answers_read_well() {
        for (name, scene) in [
            ("a_failed_gate_says_what_and_why", fixture::failed()),
            ("a_run_alone", fixture::passed()),
            (
                "hostile_reasons_stay_inside_their_lines",
                fixture::incomplete(),
            ),
            ("a_refused_comparison_says_what_differs", fixture::refused()),
            ("nothing_is_no_reason_to_fail", fixture::empty()),
        ] {
            insta::assert_snapshot!(name, plain(&scene));
        }
        insta::assert_snapshot!("every_case_on_request", whole(&fixture::failed()));
    }

    #[test]
    fn a_change_that_two_times_do_not_give_says_so() {
        let scene = fixture::failed();
        let metrics = scene.judgement.rows.iter().flat_map(|row| &row.metrics);
        let mut metric = metrics.clone().next().unwrap().clone();
        (metric.base, metric.head) = (100.0, 119.0);
        let change = &mut metric.change;
        (change.paired, change.low, change.high) = (true, None, None);
        change.ratio = Ratio(1.2);
        assert_eq!(apart_from_medians(&metric), None);
        metric.change.ratio = Ratio(1.28);
        let words = apart_from_medians(&metric).unwrap();
        assert!(words.ends_with("the medians of the sides differ by +19.0 %"));
        // Slow starts on one side: the wide interval has both.
        metric.change.ratio = Ratio(1.9);
        (metric.change.low, metric.change.high) = (Some(Ratio(1.05)), Some(Ratio(1.97)));
        assert_eq!(apart_from_medians(&metric), Some(words));
        metric.change.ratio = Ratio(1.21);
        assert_eq!(apart_from_medians(&metric), None);
        (metric.change.low, metric.change.high) = (Some(Ratio(1.2)), Some(Ratio(1.22)));
        assert!(apart_from_medians(&metric).is_some());
        (metric.change.paired, metric.change.ratio) = (false, Ratio(0.97));
        let words = apart_from_medians(&metric).unwrap();
        assert!(words.contains("all differences between invocations"));
    }

    #[test]
    fn a_list_of_many_says_how_many_more_there_are() {
        let mut scene = fixture::large(100);
        let text = plain(&scene);
        assert!(text.contains("Regressed (25)"), "{text}");
        assert!(text.contains("  and 5 more, which --all prints\n"));
        assert!(!whole(&scene).contains("--all prints"));
        scene.judgement.base = None;
        for row in &mut scene.judgement.rows {
            (row.word, row.metrics) = (Word::New, Vec::new());
        }
        assert!(plain(&scene).contains("  and 80 more, which --all prints\n"));
        scene.judgement.rows.truncate(60);
        assert!(!plain(&scene).contains("more, which"));
    }

    #[test]
    fn paragraphs_of_each_case_of_a_list_are_printed_once() {
        let mut scene = fixture::failed();
        let rows = &mut scene.judgement.rows;
        rows.retain(|row| row.word != Word::Regressed || row.findings.len() > 1);
        let mut several = rows.iter().filter(|row| row.findings.len() > 1);
        let mut row = several.next().unwrap().clone();
        row.case.0 = "torch/efficient:s9000,d32,bwd".into();
        rows.push(row);
        let text = plain(&scene);
        assert!(text.contains("  all torch/efficient, d32, bwd\n"));
        assert!(text.contains("each: less-parallel: "), "{text}");
        assert_eq!(text.matches("less-parallel").count(), 1, "{text}");
        for label in ["s10000", "s9000 "] {
            assert!(text.contains(&format!("\n  {label}  1.03 ms")), "{text}");
        }
    }

    #[test]
    fn causes_stand_below_the_worst_and_below_a_row_with_a_new_one() {
        let mut scene = fixture::large(200);
        let rows = scene.judgement.rows.iter_mut();
        let slow = rows.filter(|row| row.word == Word::Regressed);
        for (place, row) in slow.enumerate() {
            let cause = match place {
                30 => Cause::CopiesAdded,
                _ => Cause::LessParallel,
            };
            row.findings = vec![finding(cause, &format!("figure {place}"), None)];
        }
        let count = |text: &str| text.matches(": figure ").count();
        let shown = count(&plain(&scene));
        assert!((5..=6).contains(&shown), "{shown}");
        assert_eq!(count(&whole(&scene)), 50);
        // Each function has its own reason.
        for (place, row) in scene.judgement.rows.iter_mut().enumerate() {
            row.case = CaseId(format!("mine/f{place}:s64,d64").into());
        }
        assert_eq!(count(&plain(&scene)), MAX_TERMINAL);
    }

    #[test]
    fn what_passed_is_no_slower_than_or_at_least_so_much_faster() {
        for (high, sentence) in [
            (1.024, "No case is more than 2.4 % slower."),
            (0.9999, "No case is more than 0.0 % slower."),
            (0.9, "Each case is at least 10.0 % faster."),
            (0.25, "Each case is at least 4.00x faster."),
        ] {
            assert_eq!(at_most(Ratio(high)), sentence);
        }
    }

    #[test]
    fn another_metric_has_a_line_of_its_own() {
        let mut scene = fixture::failed();
        let mut rows = scene.judgement.rows.iter_mut();
        let row = rows.find(|row| row.word == Word::Regressed).unwrap();
        row.metrics[0].change.word = Word::Same;
        for (metric, base, head) in [
            (Metric::Host, 52_100.0, 352_400.0),
            (Metric::FirstCall, 1e6, 3e6),
        ] {
            let metric = fixture::metric(metric, Word::Regressed, base, head);
            row.metrics.push(metric);
        }
        let case = row.case.clone();
        scene.judgement.rows.retain(|row| row.case == case);
        let text = plain(&scene);
        let (_, list) = text.split_once("Regressed (1)\n").unwrap();
        let words = |line: &str| line.split_whitespace().joined(" ");
        let lines: Vec<String> = list.lines().take(5).map(words).collect();
        assert_eq!(lines[0], "case metric base head change 90 % interval");
        let host = "host time 52.1 µs 352.4 µs 6.76x [6.72x, 6.80x]";
        let first_call = "first call 1.00 ms 3.00 ms 3.00x [2.98x, 3.02x]";
        // The wall-clock time comes first.
        assert!(lines[2].contains(" ms "), "{text}");
        assert_eq!(lines[3..], [host, first_call], "{text}");
    }

    #[test]
    fn lines_fit_and_colour_is_all_that_colour_adds() {
        for scene in [fixture::failed(), fixture::incomplete(), fixture::refused()] {
            for all in [false, true] {
                let plain = terminal(&scene.judgement, all).text(false);
                fits(&plain);
                let coloured = terminal(&scene.judgement, all).text(true);
                assert_ne!(coloured, plain);
                assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
            }
        }
    }
}
