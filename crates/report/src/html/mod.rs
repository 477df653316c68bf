//! One self-contained page: no network, no font of its own, works from a file.
//!
//! The template escapes everything but the figures, which escape their own text. What is known
//! of each case is data, of which the page's script draws what is asked for; without scripts
//! the worst cases are a table.

mod case;
mod change;
mod chosen;
mod context;
mod data;
mod expectation;
mod figures;
mod measured;

use std::io::Write;

use serde::Serialize;

use self::change::ChangeView;
use self::chosen::{
    KindView, LIMITS, LONGEST, PageLimits, WORST, WorstRow, kinds, worst_first, worst_rows,
};
use self::context::{DifferenceView, PageContext, difference, sign, tone};
use self::expectation::{ExpectationView, LimitView};
use self::figures::{Plots, all_ratios, side_by_side};
use self::measured::MeasuredView;
use super::by_axes::{AxisTable, by_axes};
use super::exporter::{RenderError, Report, STYLE, environment};
use super::figures::NAMED;
use super::summary::{SortedRows, tally};
use super::text::{clean, one_line};
use regatta_core::record::types::RunHeader;
use regatta_judge::judgement::{
    ExpectationResult, Judgement, Row, SideSummary, VerdictOutcome, Word,
};
use regatta_worker::units::counted;

/// Writes `index.html`.
pub(super) fn write(report: &Report, _: &str, out: &mut dyn Write) -> Result<(), RenderError> {
    Ok(out.write_all(filled(report, LIMITS)?.as_bytes())?)
}

/// The page as text.
fn filled(report: &Report, limits: PageLimits) -> Result<String, RenderError> {
    let mut templates = environment()?;
    templates.add_filter("breakable", breakable);
    templates.add_filter("linked", linked);
    // The file's extension turns escaping on.
    templates.add_template("page.html", include_str!("page.html"))?;
    let page = page(&PageContext::new(report, limits)?)?;
    let template = templates.get_template("page.html")?;
    Ok(template.render(minijinja::value::Serde(page))?)
}

/// An id with leave to break a line after its separators, and nowhere else.
fn breakable(id: &str) -> minijinja::Value {
    let mut out = String::new();
    for c in id.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            ',' | ':' => {
                out.push(c);
                out.push_str("<wbr>");
            }
            c => out.push(c),
        }
    }
    minijinja::Value::from_safe_string(out)
}

/// An id as a link to its case. The script writes it likewise.
fn linked(id: &str) -> String {
    let mut out = "#case=".to_owned();
    for byte in id.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => out.push(char::from(byte)),
            b'-' | b'_' | b'.' | b'~' | b',' | b':' | b'/' | b'@' | b'=' => {
                out.push(char::from(byte))
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The script, in the order in which its parts build on each other.
const SCRIPT: &str = concat!(
    include_str!("script/details.js"),
    include_str!("script/sweep.js"),
    include_str!("script/table.js"),
);

/// The whole page, as the template takes it.
#[derive(Serialize)]
struct Page {
    style: [&'static str; 2],
    script: &'static str,
    plots: Option<Plots>,
    /// What devices were measured to reach; empty where nobody asked.
    roof: String,
    data: String,
    worst: Vec<WorstRow>,
    in_full: String,
    kinds: Vec<KindView>,
    count: usize,
    /// What moved, by axes.
    summary: String,
    suite: String,
    description: String,
    outcome: &'static str,
    outcome_word: &'static str,
    /// What was shown, and how.
    shown: String,
    reasons: Vec<String>,
    head: SideView,
    base: Option<SideView>,
    incomparable: Vec<DifferenceView>,
    overrides: Vec<String>,
    notes: Vec<String>,
    groups: Vec<GroupView>,
    rest: String,
    expectations: Vec<ExpectationView>,
    more_expectations: usize,
    limits: Vec<LimitView>,
    more_limits: usize,
    forest: Option<String>,
    /// How many cases are in the figure at the most.
    named: usize,
    throughput: Option<String>,
    words: Vec<WordCount>,
    threshold: String,
    measured: MeasuredView,
}

/// Changes of one kind, the worst of them shown.
#[derive(Serialize)]
struct GroupView {
    name: &'static str,
    tone: &'static str,
    changes: Vec<ChangeView>,
    /// Where the table has all of them.
    link: String,
    count: usize,
    more: usize,
}

/// How many cases have a word.
#[derive(Serialize)]
struct WordCount {
    word: &'static str,
    tone: &'static str,
    sign: &'static str,
    count: usize,
}

/// A side in a line.
#[derive(Serialize)]
struct SideView {
    label: String,
    machine: String,
    revision: String,
    started: String,
    invocations: String,
}

/// Who measured what, of devices: `torch by torch.matmul of 8192 x 8192`.
fn roof(header: &RunHeader) -> String {
    let peaks = header.peaks.iter();
    let told: Vec<String> = peaks
        .map(|(worker, peak)| one_line(&format!("{worker} by {}", peak.how)))
        .collect();
    told.join("; ")
}

fn page(context: &PageContext) -> Result<Page, RenderError> {
    let judgement = context.report.judgement;
    let header = &context.report.head.header;
    let summary = &context.summary;
    let sentences = |texts: &[String]| texts.iter().map(|text| clean(text)).collect();
    let (outcome, outcome_word) = match judgement.verdict.outcome {
        VerdictOutcome::Passed => ("good", "Passed"),
        VerdictOutcome::Failed => ("bad", "Failed"),
        VerdictOutcome::Inconclusive => ("doubtful", "Inconclusive"),
    };
    let rows: Vec<&Row> = judgement.rows.iter().collect();
    let table = AxisTable::new(&rows);
    let worst = worst_first(&judgement.rows);
    let expectations = expectations(judgement);
    let limits = listed(&judgement.limits, |result| result.word);
    Ok(Page {
        style: [STYLE, include_str!("page.css")],
        script: SCRIPT,
        plots: Plots::new(&table),
        roof: roof(header),
        data: data::document(context, &table, &worst),
        worst: worst_rows(&judgement.rows, &worst),
        in_full: in_full(context),
        kinds: kinds(&judgement.rows),
        count: judgement.rows.len(),
        summary: by_axes(judgement),
        suite: one_line(&judgement.suite),
        description: one_line(&header.suite.description),
        outcome,
        outcome_word,
        shown: one_line(&judgement.verdict.shown),
        reasons: sentences(&judgement.verdict.reasons),
        head: side(&judgement.head),
        base: judgement.base.as_ref().map(side),
        incomparable: judgement.incomparable.iter().map(difference).collect(),
        overrides: measured::overrides(&header.suite),
        notes: sentences(&judgement.notes),
        groups: groups(context, summary),
        rest: summary.rest_line(),
        more_expectations: judgement.expectations.len() - expectations.len(),
        expectations: expectations
            .into_iter()
            .enumerate()
            .map(|(place, result)| {
                let card = place < WORST && result.word == Word::Regressed;
                ExpectationView::new(context, result, card)
            })
            .collect::<Result<_, _>>()?,
        more_limits: judgement.limits.len() - limits.len(),
        limits: limits.into_iter().map(LimitView::new).collect(),
        forest: all_ratios(context)?,
        named: NAMED,
        throughput: side_by_side(context)?,
        words: words(context),
        threshold: header.rules.policy.threshold.to_string(),
        measured: MeasuredView::new(context),
    })
}

fn groups(context: &PageContext, summary: &SortedRows) -> Vec<GroupView> {
    let lists = summary.lists().into_iter();
    lists
        .map(|(name, against, rows)| match against {
            1 => (name, "bad", rows),
            0 => (name, "doubtful", rows),
            _ => (name, "good", rows),
        })
        .map(|(name, tone, rows)| {
            let shown = rows.len().min(WORST);
            let changes = rows[..shown].iter();
            GroupView {
                name,
                tone,
                changes: changes.map(|row| ChangeView::new(context, row)).collect(),
                link: match name {
                    "Errors" => "#word=error".to_owned(),
                    "Regressed" | "Missing" | "Inconclusive" | "Improved" => {
                        format!("#word={}", name.to_lowercase())
                    }
                    _ => "#cases".to_owned(),
                },
                count: rows.len(),
                more: rows.len() - shown,
            }
        })
        .collect()
}

/// What a list of results shows, those that are not met first, as far as there is room.
fn listed<T>(results: &[T], word: impl Fn(&T) -> Word) -> Vec<&T> {
    let mut listed: Vec<&T> = results.iter().collect();
    listed.sort_by_key(|result| std::cmp::Reverse(word(result)));
    listed.truncate(LONGEST);
    listed
}

/// The same of expectations, of which the worst comes first.
fn expectations(judgement: &Judgement) -> Vec<&ExpectationResult> {
    let excess = |of: &ExpectationResult| {
        of.ratio
            .map_or(f64::INFINITY, |ratio| ratio.0 / of.within.0)
    };
    let mut sorted: Vec<&ExpectationResult> = judgement.expectations.iter().collect();
    sorted.sort_by(|a, b| excess(b).total_cmp(&excess(a)));
    let listed = listed(&sorted, |result| result.word);
    listed.into_iter().copied().collect()
}

/// Which cases have details, where not all of them have.
fn in_full(context: &PageContext) -> String {
    if context.few() {
        return String::new();
    }
    format!(
        "{} can be opened, those to act upon first; the others are figures in the table. \
         Everything about every case is in cases.csv and samples.csv, which --output csv=DIR writes.",
        counted(context.in_full.len(), "case")
    )
}

fn words(context: &PageContext) -> Vec<WordCount> {
    tally(&context.report.judgement.rows)
        .into_iter()
        .map(|(word, count)| WordCount {
            word: word.text(),
            tone: tone(word),
            sign: sign(word),
            count,
        })
        .collect()
}

fn side(side: &SideSummary) -> SideView {
    SideView {
        label: one_line(&side.label),
        machine: one_line(&side.machine),
        revision: side.revision.as_deref().map_or("none".to_owned(), one_line),
        started: one_line(&side.started),
        invocations: counted(side.invocations as usize, "invocation"),
    }
}

#[cfg(test)]
mod tests;
