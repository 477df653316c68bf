//! Which cases stand in which columns.

use std::collections::HashSet;

use owo_colors::Style;

use crate::labels::Labels;
use crate::screen::{Grid, GridRow, Screen, Tone};
use crate::summary::{factors, interval};
use crate::text::shorten_middle;
use regatta_core::suite::rules::Metric;
use regatta_core::suite::structural::Kind;
use regatta_judge::judgement::{Cause, ExpectationResult, MetricRow, Row, Timing, Uncounted, Word};
use regatta_worker::units::Ratio;

/// So many of a list have all that is known of them below their line; of the others that
/// have figures of their own, those of which something is told for the first time.
const TOLD: usize = 5;

/// A list of cases under a heading, those first that come first, up to so many.
pub(super) fn list(screen: &mut Screen, name: &str, rows: &[&Row], tone: Tone) {
    screen.heading(name, rows.len(), tone.strong());
    let labels = Labels::new(rows.iter().map(|row| &row.case));
    if let Some(common) = labels.common() {
        screen.wrapped(2, &format!("all {common}"));
    }
    // Neither is what is told of each of them said of each.
    let of_all = of_all(rows);
    for paragraph in &of_all {
        screen.wrapped(2, &format!("each: {paragraph}"));
    }
    let shown = &rows[..rows.len().min(screen.most)];
    let everything = screen.most == usize::MAX;
    let mut known = Mentioned::default();
    let mut lines = Vec::new();
    for (place, row) in shown.iter().enumerate() {
        // All are asked, so that all of theirs is known.
        let new = known.adds(row);
        let whole = new || place < TOLD || everything || row.change().is_none();
        let mut below = paragraphs(row, whole);
        below.retain(|paragraph| !of_all.contains(paragraph));
        let mut of_row = metrics(row, labels.label(&row.case));
        if let Some(last) = of_row.last_mut() {
            last.below = below;
        }
        lines.extend(of_row);
    }
    Grid {
        label: "case",
        heads: vec!["metric", "base", "head", "change", "90 % interval"],
        rows: lines,
    }
    .print(screen, usize::MAX);
    screen.left_out(rows.len());
}

/// What was told of earlier cases of a list.
#[derive(Default)]
struct Mentioned {
    causes: HashSet<Cause>,
    metrics: HashSet<Metric>,
    structure: HashSet<Kind>,
}

impl Mentioned {
    /// True where something of it was not told of any before.
    fn adds(&mut self, row: &Row) -> bool {
        let causes = row.findings.iter().map(|finding| finding.cause);
        let causes = causes.filter(|cause| self.causes.insert(*cause)).count();
        let metrics = row.regressed().map(|of| of.metric);
        let metrics = metrics
            .filter(|metric| self.metrics.insert(*metric))
            .count();
        let changes = row.structure.iter().flatten().map(|change| change.kind);
        let changes = changes.filter(|kind| self.structure.insert(*kind)).count();
        causes + metrics + changes > 0
    }
}

/// What is told of a case below its figures: why it is judged as it is, and with `whole` what
/// else changed, and the causes.
fn paragraphs(row: &Row, whole: bool) -> Vec<String> {
    let mut told: Vec<String> = row.reason.iter().cloned().collect();
    told.extend(Uncounted::sentence(&row.uncounted));
    if whole {
        told.extend(row.regressed().filter_map(accounted));
        told.extend(row.structure_beside_causes());
        told.extend(row.account_told());
        told.extend(row.findings.iter().map(ToString::to_string));
    }
    told
}

/// Where a metric's change went: `first call +21.0 ms = compiling 1 → 4 +20.0`.
fn accounted(of: &MetricRow) -> Option<String> {
    let account = of.account.as_ref()?;
    Some(format!("{} {account}", of.metric.text()))
}

/// What is told of every case of a list, where they are several.
fn of_all(rows: &[&Row]) -> Vec<String> {
    let Some((first, others)) = rows.split_first().filter(|(_, others)| !others.is_empty()) else {
        return Vec::new();
    };
    let mut all = paragraphs(first, true);
    for row in others {
        if all.is_empty() {
            break;
        }
        let told = paragraphs(row, true);
        all.retain(|paragraph| told.contains(paragraph));
    }
    all
}

/// A case by the metrics that got worse, a line each, or else by its device time.
fn metrics(row: &Row, label: String) -> Vec<GridRow> {
    let mut shown: Vec<&MetricRow> = row.regressed().collect();
    if shown.is_empty() {
        shown.extend(
            row.first_metric()
                .filter(|of| of.word == row.word)
                .or(row.metric(Metric::Device)),
        );
    }
    if shown.is_empty() {
        return vec![GridRow {
            label,
            cells: vec![String::new(), time(&row.base), time(&row.head)],
            ..GridRow::default()
        }];
    }
    let lines = shown.into_iter().enumerate().map(|(place, of)| GridRow {
        label: if place == 0 {
            label.clone()
        } else {
            String::new()
        },
        cells: vec![
            match of.metric {
                Metric::Device => String::new(),
                other => other.text().to_owned(),
            },
            of.metric.value(of.base),
            of.metric.value(of.head),
            short(of.change.ratio),
            interval(&of.change).unwrap_or_default(),
        ],
        ..GridRow::default()
    });
    lines.collect()
}

/// Cases of a run without a base that are all printed unasked.
const FEW: usize = 60;

/// Every case of a run without a base: what it takes, how fast that is, and how far its
/// invocations are apart.
pub(super) fn table_alone(screen: &mut Screen, rows: &[Row]) {
    let most = match rows.len() <= FEW {
        true => rows.len(),
        false => screen.most,
    };
    every(screen, rows, most, &["time", "rate", "spread"], |row| {
        let Some(timing) = &row.head else {
            return vec![row.word.text().to_owned()];
        };
        let spread = match timing.invocations_ns.len() {
            0 | 1 => String::new(),
            _ => (timing.max_ns - timing.min_ns)
                .share_of(timing.median_ns)
                .to_string(),
        };
        vec![timing.median_ns.to_string(), rate(timing), spread]
    });
    if rows.iter().any(|row| row.head.is_some()) {
        screen.wrapped(
            2,
            "spread: from the fastest invocation to the slowest, as a part of the median",
        );
    }
    if rows.len() > most {
        screen.left_out(rows.len());
    }
}

/// Every case with what is said of it.
pub(super) fn table(screen: &mut Screen, rows: &[Row]) {
    every(
        screen,
        rows,
        screen.most,
        &["base", "head", "change", "verdict"],
        |row| {
            vec![
                time(&row.base),
                time(&row.head),
                row.change().map_or_else(String::new, |of| short(of.ratio)),
                row.word.text().to_owned(),
            ]
        },
    );
}

/// Cases by variant, at the most so many: what those of one have in common stands above them.
fn every(
    screen: &mut Screen,
    rows: &[Row],
    most: usize,
    heads: &[&'static str],
    cells: impl Fn(&Row) -> Vec<String>,
) {
    screen.heading("Every case", rows.len(), Style::new().bold());
    let shown = &rows[..rows.len().min(most)];
    let variant = |row: &Row| row.case.0.split(':').next().map(str::to_owned);
    let groups: Vec<&[Row]> = shown.chunk_by(|a, b| variant(a) == variant(b)).collect();
    let mut lines = Vec::new();
    for group in &groups {
        let labels = Labels::new(group.iter().map(|row| &row.case));
        let common = labels.common();
        let indent = if common.is_some() { "  " } else { "" };
        lines.extend(common.map(|common| GridRow {
            label: common,
            ..GridRow::default()
        }));
        lines.extend(group.iter().map(|row| GridRow {
            label: format!("{indent}{}", labels.label(&row.case)),
            cells: cells(row),
            tone: match row.word {
                Word::Regressed | Word::Error => Tone::Bad,
                Word::Improved => Tone::Good,
                Word::Missing | Word::Inconclusive => Tone::Doubtful,
                _ => Tone::Calm,
            },
            below: Vec::new(),
        }));
    }
    Grid {
        label: "case",
        heads: heads.to_vec(),
        rows: lines,
    }
    .print(screen, usize::MAX);
}

/// Cases that violate one expectation: what each takes, what it may, and of what.
pub(super) fn violated(screen: &mut Screen, of: &[&ExpectationResult]) {
    let ids = of.iter().flat_map(|one| {
        let against = one.against.iter();
        std::iter::once(&one.case).chain(against)
    });
    let labels = match of {
        // It is called by its id, and so is what it is compared with.
        [_] => Labels::default(),
        _ => Labels::new(ids),
    };
    if let Some(common) = labels.common() {
        screen.wrapped(2, &format!("all {common}"));
    }
    let lines = of.iter().enumerate().map(|(place, one)| {
        let against = one.against.as_ref();
        let against = against.map(|id| format!("of {}", shorten_middle(&labels.label(id), 70)));
        let reason = one.reason.clone();
        let reason = reason.filter(|_| place < TOLD || screen.most == usize::MAX);
        GridRow {
            label: labels.label(&one.case),
            cells: vec![
                match one.metric {
                    Metric::Device => String::new(),
                    other => other.text().to_owned(),
                },
                one.ratio.unwrap_or(Ratio(f64::NAN)).factor().to_string(),
                factors(one).unwrap_or_default(),
                one.within.factor().to_string(),
            ],
            tone: Tone::Calm,
            below: against.into_iter().chain(reason).collect(),
        }
    });
    Grid {
        label: "case",
        heads: vec!["metric", "takes", "90 % interval", "at most"],
        rows: lines.collect(),
    }
    .print(screen, usize::MAX);
}

/// A change in a column: `+12.3 %`, `2.01x` as long, `3.10x faster`.
fn short(ratio: Ratio) -> String {
    let text = ratio.to_string();
    text.strip_suffix(" slower").unwrap_or(&text).to_owned()
}

/// The time of a side, where it was measured.
fn time(timing: &Option<Timing>) -> String {
    let timing = timing.as_ref();
    timing.map_or(String::new(), |timing| timing.median_ns.to_string())
}

/// `193.4 GFLOP/s`, where a call has a rate.
fn rate(timing: &Timing) -> String {
    match timing.tflops {
        Some(rate) if rate.is_finite() => format!("{rate}FLOP/s"),
        _ => String::new(),
    }
}
