//! Two tables for a spreadsheet or a data frame: `cases.csv`, `samples.csv`.
//!
//! Plain numbers, the unit in the column's name, an empty cell where there is
//! nothing. A failed case is a row with its error, never a lost row. Texts come from outside
//! and go into spreadsheets, which take some for formulas: [`text_cell`].

use std::collections::{BTreeMap, BTreeSet};

use ::csv::Writer;

use super::exporter::{Document, Exporter, RenderError, Report};
use super::fill;
use super::text::one_line;
use crate::attention::{ActivitySummary, Case, CaseId, FACETS, ParamValue};
use crate::judge::judgement::{Change, Finding, Row, Stage, Timing, Uncounted};
use crate::judge::spread::{Spread, spreads};
use crate::record::conditions::Conditions;
use crate::record::side::{CaseRecord, Side};
use crate::record::types::Outcome;
use crate::suite::structural::Action;

/// Writes both tables.
pub(super) struct Csv;

impl Exporter for Csv {
    fn export(&self, report: &Report) -> Result<Vec<Document>, RenderError> {
        Ok(vec![
            document("cases.csv", |table| cases(table, report))?,
            document("samples.csv", |table| samples(table, report))?,
        ])
    }
}

type Table = Writer<Vec<u8>>;

fn document(
    name: &'static str,
    fill: impl FnOnce(&mut Table) -> Result<(), ::csv::Error>,
) -> Result<Document, RenderError> {
    let broken = |problem: String| RenderError::Table { name, problem };
    let mut table = Writer::from_writer(Vec::new());
    fill(&mut table).map_err(|error| broken(error.to_string()))?;
    let bytes = table
        .into_inner()
        .map_err(|error| broken(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| broken(error.to_string()))?;
    Ok(Document { name, text })
}

/// Columns of `cases.csv` between the facets and the parameters. From `busy_ns` to
/// `moving_ns` they are of one recorded call, `host_bound` a share of it.
const FIGURES: [&str; 39] = [
    "word",
    "allowed",
    "reason",
    "head_ns",
    "head_min_ns",
    "head_max_ns",
    "base_ns",
    "base_min_ns",
    "base_max_ns",
    "ratio",
    "ratio_low",
    "ratio_high",
    "confidence",
    "p",
    "reachable_p",
    "smallest_effect",
    "stage",
    "tflops",
    "gbps",
    "host_ns",
    "first_call_ns",
    "samples",
    "invocations",
    "spread_within",
    "spread_between",
    "peak_bytes",
    "throttled",
    "other_processes",
    "synchronised",
    "sm_fill",
    "busy_ns",
    "idle_ns",
    "host_bound",
    "copying_ns",
    "overlap_ns",
    "moving_ns",
    "findings",
    "structure",
    "severity",
];

fn cases(table: &mut Table, report: &Report) -> Result<(), ::csv::Error> {
    let head = Side::from_run("head", report.head);
    let sms = fill::sms(&report.head.header);
    let spread_of: BTreeMap<CaseId, Spread> = spreads(report.head)
        .into_iter()
        .map(|spread| (spread.case.clone(), spread))
        .collect();
    let parsed: Vec<Option<Case>> = report
        .judgement
        .rows
        .iter()
        .map(|row| row.case.case().ok())
        .collect();
    let params: BTreeSet<&str> = parsed
        .iter()
        .flatten()
        .flat_map(|case| case.params.iter())
        .map(|(name, _)| name.as_str())
        .collect();
    let effective: BTreeSet<&str> = head
        .cases
        .values()
        .flat_map(|record| record.effective.keys())
        .map(String::as_str)
        .collect();

    let mut names: Vec<String> = vec!["case".into()];
    names.extend(FACETS.iter().chain(&FIGURES).map(ToString::to_string));
    names.extend(params.iter().map(|name| format!("param_{name}")));
    names.extend(
        effective
            .iter()
            .map(|name| format!("effective_{}", one_line(name))),
    );
    table.write_record(&names)?;

    for (row, case) in report.judgement.rows.iter().zip(&parsed) {
        let record = head.cases.get(&row.case);
        let mut cells = vec![text_cell(&row.case.0)];
        let facet = |name: &str| case.as_ref().map_or(String::new(), |case| case.facet(name));
        cells.extend(FACETS.iter().map(|name| text_cell(&facet(name))));
        cells.extend(figures(row, record, spread_of.get(&row.case), sms));
        cells.extend(params.iter().map(|name| {
            let value = case.as_ref().map(|case| case.params.get(name));
            value.as_ref().map_or(String::new(), parameter)
        }));
        cells.extend(effective.iter().map(|&name| {
            let value = record.and_then(|record| record.effective.get(name));
            value.map_or(String::new(), parameter)
        }));
        table.write_record(&cells)?;
    }
    Ok(())
}

/// A text as a cell: on one line, and behind an apostrophe where a spreadsheet would take it
/// for a formula (OWASP, "CSV Injection"). Numbers are written as they are.
fn text_cell(text: &str) -> String {
    let text = one_line(text);
    // The wide ones are what some spreadsheets take for the others.
    let formula = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];
    match text.starts_with(formula) {
        true => format!("'{text}"),
        false => text,
    }
}

/// A parameter's value as a cell.
fn parameter(value: &ParamValue) -> String {
    match value {
        ParamValue::Int(number) => number.to_string(),
        ParamValue::Word(word) => text_cell(word),
    }
}

/// The cells under [`FIGURES`].
fn figures(
    row: &Row,
    record: Option<&CaseRecord>,
    spread: Option<&Spread>,
    sms: Option<u32>,
) -> [String; 39] {
    let condition = |count: fn(&Conditions) -> Option<u32>| {
        cell(record.and_then(|record| count(&record.conditions)))
    };
    let share =
        |share: fn(&Spread) -> f64| cell(spread.map(share).filter(|share| share.is_finite()));
    let activity = record.and_then(|record| record.activity.as_ref());
    let active = |ns: fn(&ActivitySummary) -> Option<u64>| cell(activity.and_then(ns));
    let head = |figure: fn(&Timing) -> f64| cell(row.head.as_ref().map(figure));
    let base = |figure: fn(&Timing) -> f64| cell(row.base.as_ref().map(figure));
    let change = |figure: fn(&Change) -> f64| cell(row.change.as_ref().map(figure));
    [
        row.word.text().to_owned(),
        row.allowed.to_string(),
        row.reason.as_deref().map(text_cell).unwrap_or_default(),
        head(|timing| timing.median_ns.0),
        head(|timing| timing.min_ns.0),
        head(|timing| timing.max_ns.0),
        base(|timing| timing.median_ns.0),
        base(|timing| timing.min_ns.0),
        base(|timing| timing.max_ns.0),
        change(|change| change.ratio.0),
        change(|change| change.low.0),
        change(|change| change.high.0),
        change(|change| change.confidence.0),
        change(|change| change.p.0),
        change(|change| change.reachable_p.0),
        change(|change| change.smallest_effect.0),
        row.change
            .as_ref()
            .map_or("", |change| match change.stage {
                Stage::Screen => "screen",
                Stage::Confirm => "confirm",
            })
            .to_owned(),
        cell(row.head.as_ref().and_then(|timing| Some(timing.tflops?.0))),
        cell(row.head.as_ref().and_then(|timing| timing.gbps)),
        cell(row.head.as_ref().and_then(|timing| Some(timing.host_ns?.0))),
        cell(
            row.head
                .as_ref()
                .and_then(|timing| Some(timing.first_call_ns?.0)),
        ),
        cell(row.head.as_ref().map(|timing| timing.samples)),
        cell(row.head.as_ref().map(|timing| timing.invocations_ns.len())),
        share(|spread| spread.within.0),
        share(|spread| spread.between.0),
        cell(record.and_then(|record| Some(record.peak_bytes?.0))),
        condition(|of| (of.known > 0).then_some(of.throttled)),
        condition(|of| (of.known > 0).then_some(of.other_processes)),
        condition(|of| (of.synchronised > 0).then_some(of.synchronised)),
        cell(record.and_then(|record| Some(fill::share(record, sms)?.0))),
        active(|of| Some(of.busy_ns)),
        active(|of| Some(of.idle_ns())),
        cell(activity.and_then(ActivitySummary::host_bound)),
        active(|of| of.copying_ns),
        active(|of| Some(of.overlap_ns)),
        active(|of| of.moving_ns),
        findings(&row.findings),
        structure(row),
        cell(row.severity.map(|share| share.0)),
    ]
}

fn findings(findings: &[Finding]) -> String {
    let texts: Vec<String> = findings
        .iter()
        .map(|finding| one_line(&format!("{}: {}", finding.cause, finding.evidence)))
        .collect();
    text_cell(&texts.join("; "))
}

/// Every change of structure with how it is taken: `fail: grid 157x1x1 → 1x1x1 of fmha`.
/// Empty where nothing changed, and where nothing was compared; what is not counted any more
/// is told.
fn structure(row: &Row) -> String {
    let changes = row.structure.iter().flatten();
    let uncounted = Uncounted::told(&row.uncounted).into_iter();
    let uncounted = uncounted.map(|told| one_line(&format!("not judged: {told}")));
    let texts = changes.map(|change| {
        let action = match change.action {
            Action::Fail => "fail",
            Action::Warn => "warn",
            Action::Ignore => "ignore",
        };
        one_line(&format!("{action}: {change}"))
    });
    text_cell(&uncounted.chain(texts).collect::<Vec<_>>().join("; "))
}

fn cell(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

fn samples(table: &mut Table, report: &Report) -> Result<(), ::csv::Error> {
    table.write_record([
        "case",
        "invocation",
        "sample",
        "confirm",
        "device_ns",
        "host_ns",
        "clock_mhz",
    ])?;
    let planned = report.head.header.settings.invocations;
    for entry in &report.head.entries {
        let Outcome::Measured(measurement) = &entry.outcome else {
            continue;
        };
        for (sample, device_ns) in measurement.device_ns.iter().enumerate() {
            table.write_record([
                text_cell(&entry.case.0),
                entry.invocation.to_string(),
                sample.to_string(),
                (entry.invocation >= planned).to_string(),
                device_ns.0.to_string(),
                cell(measurement.host_ns.get(sample).map(|time| time.0)),
                cell(measurement.clock_mhz.get(sample)),
            ])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Format, fixture, render};

    /// A table as rows of `column = cell`, empty cells left out.
    fn readable(text: &str) -> String {
        let mut reader = ::csv::Reader::from_reader(text.as_bytes());
        let names = reader.headers().unwrap().clone();
        let mut out = String::new();
        for record in reader.records() {
            for (name, value) in names.iter().zip(&record.unwrap()) {
                if !value.is_empty() {
                    out += &format!("{name} = {}\n", super::super::text::shorten(value, 90));
                }
            }
            out.push('\n');
        }
        out
    }

    #[test]
    fn a_row_has_everything_about_its_case() {
        let scene = fixture::failed();
        let text = &render(Format::Csv, &scene.report()).unwrap()[0].text;
        let case = "torch/efficient:s10000,d32,bwd\n";
        let readable = readable(text);
        let row = readable
            .split("\n\n")
            .find(|row| row.contains(case))
            .unwrap();
        insta::assert_snapshot!(row);
    }

    #[test]
    fn no_text_begins_a_formula() {
        let mut scene = fixture::failed();
        let hostile = "=HYPERLINK(\"http://evil.example\", \"ok\")";
        for row in &mut scene.judgement.rows {
            row.reason = Some(hostile.to_owned());
        }
        for entry in &mut scene.head.entries {
            if let Outcome::Measured(measurement) = &mut entry.outcome {
                for (name, word) in [("a", "@SUM(A1)"), ("b", "-1+1"), ("c", "\t=1"), ("d", "x")] {
                    let effective = &mut measurement.effective;
                    effective.insert(name.to_owned(), ParamValue::from(word));
                }
                let number = ParamValue::Int(-1);
                measurement.effective.insert("e".to_owned(), number);
            }
        }
        let mut seen = BTreeSet::new();
        for document in render(Format::Csv, &scene.report()).unwrap() {
            let mut reader = ::csv::Reader::from_reader(document.text.as_bytes());
            for record in reader.records() {
                for cell in &record.unwrap() {
                    let number = cell.parse::<f64>().is_ok();
                    assert!(
                        number || !cell.starts_with(['=', '+', '-', '@', '\t']),
                        "{cell}"
                    );
                    seen.insert(cell.to_owned());
                }
            }
        }
        for cell in [
            &format!("'{hostile}"),
            "'@SUM(A1)",
            "'-1+1",
            "'=1",
            "x",
            "-1",
        ] {
            assert!(seen.contains(cell), "{cell}");
        }
    }

    #[test]
    fn failed_cases_are_rows_with_their_error() {
        let scene = fixture::incomplete();
        let text = &render(Format::Csv, &scene.report()).unwrap()[0].text;
        insta::assert_snapshot!(readable(text));
    }

    #[test]
    fn conditions_are_columns() {
        let mut scene = fixture::failed();
        fixture::disturb(&mut scene.head);
        let text = &render(Format::Csv, &scene.report()).unwrap()[0].text;
        let readable = readable(text);
        let row = readable.split("\n\n").next().unwrap();
        for cell in [
            "throttled = 1\n",
            "other_processes = 2\n",
            "synchronised = 1\n",
        ] {
            assert!(row.contains(cell), "{row}");
        }
    }

    #[test]
    fn samples_are_numbered_and_confirming_ones_marked() {
        let scene = fixture::failed();
        let documents = render(Format::Csv, &scene.report()).unwrap();
        let lines: Vec<&str> = documents[1].text.lines().collect();
        let taken: usize = scene
            .head
            .entries
            .iter()
            .map(|entry| match &entry.outcome {
                Outcome::Measured(measurement) => measurement.device_ns.len(),
                _ => 0,
            })
            .sum();
        assert_eq!(lines.len(), taken + 1);
        assert!(lines[1].starts_with("\"torch/efficient:s10000,d32,bwd\",0,0,false,"));
        assert!(lines.iter().any(|line| line.contains(",5,0,true,")));
    }
}
