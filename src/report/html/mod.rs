//! One self-contained page: no network, no font of its own, works from a file.
//!
//! The template escapes everything but the figures, which escape their own text.
//! Without scripts the page is complete: every case lies open.

mod activity;
mod case;
mod change;
mod chosen;
mod context;
mod expectation;
mod fact;
mod many;
mod measured;

use std::io::Write;

use minijinja::Environment;
use serde::Serialize;

use self::case::CaseView;
use self::change::ChangeView;
use self::chosen::{LONGEST, MANY};
use self::context::{Context, DifferenceView, difference, tone};
use self::expectation::{ExpectationView, LimitView};
use self::many::Rest;
use self::measured::MeasuredView;
use super::exporter::{Exporter, RenderError, Report};
use super::plot::{Bar, Ink, NAMED, Whisker, forest, throughput};
use super::summary::{METRICS, Summary, tally};
use super::text::{clean, one_line};
use crate::judge::judgement::{Held, SideSummary, VerdictOutcome, Word};
use crate::units::counted;

/// Writes `index.html`.
pub(super) struct Html;

impl Exporter for Html {
    fn names(&self) -> &'static [&'static str] {
        &["index.html"]
    }

    /// However many cases there are, a page has a largest size: it is made, then written.
    fn write(
        &self,
        report: &Report,
        _: &'static str,
        out: &mut dyn Write,
    ) -> Result<(), RenderError> {
        let mut templates = Environment::new();
        templates.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
        templates.add_filter("breakable", breakable);
        // The file's extension turns escaping on.
        templates.add_template("page.html", include_str!("page.html"))?;
        templates.add_template("cases.html", include_str!("cases.html"))?;
        templates.add_template("measured.html", include_str!("measured.html"))?;
        let page = page(&Context::of(report)?);
        let page = templates
            .get_template("page.html")?
            .render(minijinja::value::Serde(page))?;
        Ok(out.write_all(page.as_bytes())?)
    }
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

/// The whole page, as the template takes it.
#[derive(Serialize)]
struct Page {
    style: &'static str,
    script: &'static str,
    suite: String,
    description: String,
    outcome: &'static str,
    outcome_word: &'static str,
    reasons: Vec<String>,
    head: SideView,
    base: Option<SideView>,
    incomparable: Vec<DifferenceView>,
    overrides: Vec<String>,
    notes: Vec<String>,
    groups: Vec<Group>,
    rest: String,
    expectations: Vec<ExpectationView>,
    more_expectations: usize,
    limits: Vec<LimitView>,
    more_limits: usize,
    forest: Option<String>,
    /// True when the figure has no room for names.
    forest_unnamed: bool,
    throughput: Option<String>,
    cases: Vec<CaseView>,
    /// Of many cases, those that are not shown in full.
    rest_of_cases: Option<Rest>,
    words: Vec<WordCount>,
    floor: String,
    measured: MeasuredView,
}

/// Changes of one kind.
#[derive(Serialize)]
struct Group {
    name: &'static str,
    tone: &'static str,
    changes: Vec<ChangeView>,
    count: usize,
    more: usize,
}

/// How many cases have a word.
#[derive(Serialize)]
struct WordCount {
    word: &'static str,
    tone: &'static str,
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

fn page(context: &Context) -> Page {
    let judgement = context.report.judgement;
    let header = &context.report.head.header;
    let summary = &context.summary;
    let sentences = |texts: &[String]| texts.iter().map(|text| clean(text)).collect();
    let (outcome, outcome_word) = match judgement.verdict.outcome {
        VerdictOutcome::Passed => ("good", "Passed"),
        VerdictOutcome::Failed => ("bad", "Failed"),
        VerdictOutcome::NotJudged => ("doubtful", "Not judged"),
    };
    let shown = context.in_full.iter();
    let cases = shown.map(|&place| CaseView::of(context, &judgement.rows[place], place));
    let expectations = listed(&judgement.expectations, |result| result.held);
    let limits = listed(&judgement.limits, |result| result.held);
    Page {
        style: include_str!("style.css"),
        script: include_str!("page.js"),
        suite: one_line(&judgement.suite),
        description: one_line(&header.suite.description),
        outcome,
        outcome_word,
        reasons: sentences(&judgement.verdict.reasons),
        head: side(&judgement.head),
        base: judgement.base.as_ref().map(side),
        incomparable: judgement.incomparable.iter().map(difference).collect(),
        overrides: measured::overrides(&header.suite.overrides),
        notes: sentences(&judgement.notes),
        groups: groups(context, summary),
        rest: summary.rest_line(),
        more_expectations: judgement.expectations.len() - expectations.len(),
        expectations: expectations
            .into_iter()
            .map(|result| ExpectationView::of(context, result))
            .collect(),
        more_limits: judgement.limits.len() - limits.len(),
        limits: limits.into_iter().map(LimitView::of).collect(),
        forest: all_ratios(context),
        forest_unnamed: judgement.rows.len() > NAMED,
        throughput: side_by_side(context),
        cases: cases.collect(),
        rest_of_cases: Rest::of(context),
        words: words(context),
        floor: header.rules.policy.floor.to_string(),
        measured: MeasuredView::of(context),
    }
}

fn groups(context: &Context, summary: &Summary) -> Vec<Group> {
    let all = [
        ("Regressed", "bad", &summary.regressed),
        (METRICS, "bad", &summary.metrics),
        ("Structure got worse", "bad", &summary.structure),
        ("Not measured", "doubtful", &summary.not_measured),
        ("Structure not judged", "doubtful", &summary.uncounted),
    ];
    let restructured = summary.restructured.iter();
    all.into_iter()
        .chain(restructured.map(|(name, rows)| (*name, "doubtful", rows)))
        .chain([("Improved", "good", &summary.improved)])
        .filter(|(_, _, rows)| !rows.is_empty())
        .map(|(name, tone, rows)| {
            let shown = match context.few() {
                true => rows.len(),
                false => rows.len().min(LONGEST),
            };
            let changes = rows[..shown].iter();
            Group {
                name,
                tone,
                changes: changes.map(|row| ChangeView::of(context, row)).collect(),
                count: rows.len(),
                more: rows.len() - shown,
            }
        })
        .collect()
}

/// What a list of results shows: all of them, or of many those that do not hold, as far as
/// there is room.
fn listed<T>(results: &[T], held: impl Fn(&T) -> Held) -> Vec<&T> {
    if results.len() <= MANY {
        return results.iter().collect();
    }
    let mut listed: Vec<&T> = results.iter().collect();
    listed.sort_by_key(|result| match held(result) {
        Held::Broken => 0,
        Held::Inconclusive => 1,
        Held::NotJudged => 2,
        Held::Yes => 3,
    });
    listed.truncate(LONGEST);
    listed
}

fn words(context: &Context) -> Vec<WordCount> {
    tally(&context.report.judgement.rows)
        .into_iter()
        .map(|(word, count)| WordCount {
            word: word.text(),
            tone: tone(word),
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

fn all_ratios(context: &Context) -> Option<String> {
    let shown = context.in_full.iter();
    let whiskers: Vec<Whisker> = shown
        .map(|&place| &context.report.judgement.rows[place])
        .filter_map(|row| {
            let change = row.change.as_ref()?;
            Some(Whisker {
                case: &row.case.0,
                ratio: change.ratio.0,
                interval: (change.low.0, change.high.0),
                ink: match row.word {
                    Word::Regressed => Ink::Slow,
                    Word::Improved => Ink::Fast,
                    _ => Ink::Base,
                },
            })
        })
        .collect();
    forest(&whiskers, context.floor().0)
}

fn side_by_side(context: &Context) -> Option<String> {
    if !context.few() {
        return None;
    }
    let bars: Vec<Bar> = context
        .report
        .judgement
        .rows
        .iter()
        .filter_map(|row| {
            let case = row.case.case().ok()?;
            let params: Vec<String> = case
                .params
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            Some(Bar {
                problem: case.problem.to_string(),
                variant: format!("{} {}", case.variant, params.join(" "))
                    .trim()
                    .to_owned(),
                tflops: row.head.as_ref()?.tflops?.0,
            })
        })
        .collect();
    throughput(&bars)
}

#[cfg(test)]
mod tests;
