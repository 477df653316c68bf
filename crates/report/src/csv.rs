//! Two tables for a spreadsheet or a data frame: `cases.csv`, `samples.csv`.
//!
//! Numbers are plain, with the unit in the column's name; a cell without a value is empty. A failed
//! case is a row with its error. Texts come from outside, and spreadsheets take some of them for
//! formulas: [`text_cell`].

use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;
use std::io::Write;

use super::facts::{CaseSide, FIGURES, FactFigure, coefficient_of_variation};
use super::judgement::accounts;
use super::text::{one_line, shorten};
use super::{RenderError, Report};
use regatta_core::machine::METRICS;
use regatta_core::record::{Entry, Outcome, disturbance, median};
use regatta_core::suite::{Action, Metric};
use regatta_judge::judgement::{MetricRow, Row, Uncounted};
use regatta_judge::structure::multiprocessors;
use regatta_worker::case::{Case, CaseId, FACETS, ParamValue};
use regatta_worker::joined::Joined;
use regatta_worker::units::{Dimensioned, Nanoseconds, Share};

/// Writes one of the tables.
pub(super) fn write(report: &Report, name: &str, out: &mut dyn Write) -> Result<(), RenderError> {
    if name == "samples.csv" {
        return samples(out, report);
    }
    let mut within = HashMap::new();
    report.entries(None, |entry| add_spread(&mut within, entry))?;
    let mut table = ::csv::Writer::from_writer(out);
    let filled = cases(&mut table, report, &within);
    done(filled.and_then(|()| Ok(table.flush()?)))
}

/// The error of a table's writer.
fn done(written: Result<(), ::csv::Error>) -> Result<(), RenderError> {
    written.map_err(|error| match error.into_kind() {
        ::csv::ErrorKind::Io(error) => RenderError::Output(error),
        kind => RenderError::Table {
            name: "cases.csv",
            problem: format!("{kind:?}"),
        },
    })
}

/// The columns of `samples.csv`.
const NAMES: [&str; 12] = [
    "case",
    "invocation",
    "sample",
    "device_ns",
    "host_ns",
    "cpu_ns",
    "preempted",
    "page_faults",
    "threads",
    "waited_ns",
    "clock_mhz",
    "disturbed",
];

fn samples(out: &mut dyn Write, report: &Report) -> Result<(), RenderError> {
    let mut table = ::csv::Writer::from_writer(out);
    let mut written = table.write_record(NAMES);
    report.entries(None, |entry| {
        if written.is_ok() {
            written = samples_of(&mut table, entry);
        }
    })?;
    done(written.and_then(|()| Ok(table.flush()?)))
}

/// Writes a row for each sample of an entry. The digits share a buffer, since there may be
/// millions.
fn samples_of(table: &mut Table, entry: &Entry) -> Result<(), ::csv::Error> {
    let Outcome::Measured(measurement) = &entry.outcome else {
        return Ok(());
    };
    let case = text_cell(&entry.case.0);
    let disturbed = text_cell(&disturbance::describe(&measurement.disturbed));
    let invocation = entry.invocation.to_string();
    let samples = &measurement.samples;
    let mut digits = zmij::Buffer::new();
    for (sample, device_ns) in samples.device_ns.iter().enumerate() {
        table.write_field(&case)?;
        table.write_field(&invocation)?;
        table.write_field(itoa::Buffer::new().format(sample))?;
        let count = |list: &[u32]| list.get(sample).map(|count| f64::from(*count));
        let figures = [
            Some(device_ns.0),
            samples.host_ns.get(sample).map(|time| time.0),
            samples.cpu_ns.get(sample).map(|time| time.0),
            count(&samples.preempted),
            count(&samples.page_faults),
            count(&samples.threads),
            samples.waited_ns.get(sample).map(|time| time.0),
            samples.clock_at(sample),
        ];
        for figure in figures {
            let digits = figure.map_or("", |figure| digits.format(figure));
            table.write_field(digits.strip_suffix(".0").unwrap_or(digits))?;
        }
        table.write_field(&disturbed)?;
        table.write_record(None::<&[u8]>)?;
    }
    Ok(())
}

/// A table that is being written.
type Table<'o> = ::csv::Writer<&'o mut dyn Write>;

/// The longest text of a cell, in columns: spreadsheets allow 32,767 characters.
const CELL: usize = 32_000;

/// A text as a cell: on one line, and after an apostrophe if a spreadsheet would take it for a
/// formula (OWASP, "CSV Injection"). Numbers are written without one.
fn text_cell(text: &str) -> String {
    let text = shorten(&one_line(text), CELL);
    // Some spreadsheets treat the full-width characters like the others.
    let formula = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];
    if text.starts_with(formula) {
        format!("'{text}")
    } else {
        text
    }
}

/// A parameter's value as a cell.
fn parameter(value: &ParamValue) -> String {
    match value {
        ParamValue::Int(number) => number.to_string(),
        ParamValue::Word(word) => text_cell(word),
    }
}

/// A number as a cell, without its unit; empty for `None`.
fn cell(value: Option<impl Dimensioned>) -> String {
    let value = value
        .map(Dimensioned::number)
        .filter(|value| value.is_finite());
    value.map_or(String::new(), |value| value.to_string())
}

/// A column's name, and the function that makes its cell.
type Column<T> = (&'static str, fn(&T) -> String);

/// Columns of texts of `cases.csv`, before and after those of figures.
const TEXTS: [&[Column<Row>]; 2] = [
    &[
        ("word", |row| row.word.name().to_owned()),
        ("allowed", |row| row.allowed.to_string()),
        ("reason", |row| texts_cell(row.reason.iter())),
    ],
    &[
        ("findings", |row| texts_cell(row.findings.iter())),
        ("account", |row| texts_cell(accounts(row).into_iter())),
        ("structure", structure),
    ],
];

/// The columns of each metric, whose key precedes their names: the values of both sides, in
/// nanoseconds or bytes, and the change with its 90 % interval.
const OF_METRIC: [Column<MetricRow>; 9] = [
    ("word", |metric| metric.change.word.name().to_owned()),
    ("base", |metric| cell(Some(metric.base))),
    ("head", |metric| cell(Some(metric.head))),
    ("ratio", |metric| cell(Some(metric.change.ratio))),
    ("ratio_low_90", |metric| cell(metric.change.low)),
    ("ratio_high_90", |metric| cell(metric.change.high)),
    ("threshold", |metric| cell(Some(metric.change.threshold))),
    ("detectable", |metric| cell(metric.change.detectable)),
    ("paired", |metric| metric.change.paired.to_string()),
];

/// The spread of the samples of each invocation, by case.
type Spreads = HashMap<CaseId, Vec<f64>>;

/// Adds the spread of an invocation. Samples that are not finite are left out.
fn add_spread(spreads: &mut Spreads, entry: &Entry) {
    if let Outcome::Measured(measurement) = &entry.outcome {
        let samples = measurement.samples.device_ns.iter().copied();
        let samples: Vec<Nanoseconds> = samples.filter(|time| time.is_finite()).collect();
        let spread = coefficient_of_variation(&samples).0;
        if spread.is_finite() {
            spreads.entry(entry.case.clone()).or_default().push(spread);
        }
    }
}

/// Writes `cases.csv`: a row for each case.
fn cases(table: &mut Table, report: &Report, within: &Spreads) -> Result<(), ::csv::Error> {
    let head = report.side;
    let rows = &report.judgement.rows;
    let cases: Vec<_> = rows.iter().map(|row| row.case.case().ok()).collect();
    let params = cases.iter().flatten().flat_map(|case| case.params.iter());
    let params: BTreeSet<&String> = params.map(|(name, _)| name).collect();
    let effective = head
        .cases
        .values()
        .flat_map(|record| record.effective.keys());
    let effective: BTreeSet<&String> = effective.collect();

    let mut names: Vec<String> = vec!["case".to_owned()];
    names.extend(FACETS.map(str::to_owned));
    let declared = Case::declared_axes(cases.iter().flatten().map(|case| &**case));
    names.extend(declared.iter().cloned());
    names.extend(TEXTS[0].iter().map(|(name, _)| (*name).to_owned()));
    names.push("filter".to_owned());
    for (name, ..) in FIGURES {
        names.push(name.to_owned());
        names.extend(of_base(name));
    }
    names.extend(TEXTS[1].iter().map(|(name, _)| (*name).to_owned()));
    for metric in Metric::ALL {
        names.extend(OF_METRIC.map(|(name, _)| format!("{}_{name}", metric.name())));
    }
    names.extend(["instructions", "instructions_spread"].map(str::to_owned));
    names.extend(params.iter().map(|name| format!("param_{name}")));
    let became = effective.iter().map(|name| one_line(name));
    names.extend(became.map(|name| format!("effective_{name}")));
    table.write_record(&names)?;

    let filter = report.judgement.head.filter.as_deref().unwrap_or_default();
    for (row, case) in rows.iter().zip(&cases) {
        let sms = multiprocessors(&report.head.header, &row.case);
        let record = head.cases.get(&row.case);
        let mut cells = vec![text_cell(&row.case.0)];
        let facet = |name: &str| case.as_ref().map_or(String::new(), |case| case.facet(name));
        cells.extend(FACETS.iter().map(|name| text_cell(&facet(name))));
        let axis = |name: &str| case.as_ref().map_or(String::new(), |case| case.axis(name));
        cells.extend(declared.iter().map(|name| text_cell(&axis(name))));
        cells.extend(TEXTS[0].iter().map(|(_, read)| read(row)));
        cells.push(text_cell(filter));
        let spread = within.get(&row.case).and_then(|spreads| median(spreads));
        let sides = [(&row.head, record), (&row.base, None)].map(|(timing, record)| CaseSide {
            timing: timing.as_ref(),
            record,
            within: spread.map(Share),
            sms,
        });
        for (name, _, read) in FIGURES {
            let [now, before] = sides
                .each_ref()
                .map(|side| cell(read(side).map(FactFigure::number)));
            cells.push(now);
            cells.extend(of_base(name).map(|_| before));
        }
        cells.extend(TEXTS[1].iter().map(|(_, read)| read(row)));
        for metric in Metric::ALL {
            match row.metric(metric) {
                Some(metric) => cells.extend(OF_METRIC.map(|(_, read)| read(metric))),
                // Without a base, a metric has only its head value.
                None => cells.extend(OF_METRIC.map(|(name, _)| match name {
                    "head" => cell(record.and_then(|record| record.median(metric))),
                    _ => String::new(),
                })),
            }
        }
        let counters = record.and_then(|record| record.counters.as_deref());
        let instructions = counters.and_then(|counters| counters.total(METRICS[0].name));
        cells.push(cell(instructions.map(|counts| counts.most as f64)));
        cells.push(cell(instructions.map(|counts| counts.spread() as f64)));
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

/// The column of the base beside one of the head.
fn of_base(name: &str) -> Option<String> {
    Some(format!("base_{}", name.strip_prefix("head_")?))
}

/// Texts in a cell.
fn texts_cell(texts: impl Iterator<Item = impl Display>) -> String {
    text_cell(&texts.map(|text| one_line(&text.to_string())).joined("; "))
}

/// Every change of structure with its action: `fail: grid 157x1x1 → 1x1x1 of fmha`. Empty if
/// nothing changed or nothing was compared. Counts that the head lacks are named.
fn structure(row: &Row) -> String {
    let changes = row.structure.iter().flatten();
    let uncounted = Uncounted::sentence(&row.uncounted).into_iter();
    let uncounted = uncounted.map(|lost| format!("missing: {lost}"));
    let texts = changes.map(|change| {
        let action = match change.action {
            Action::Fail => "fail",
            Action::Warn => "warn",
            Action::Ignore => "ignore",
        };
        format!("{action}: {change}")
    });
    texts_cell(uncounted.chain(texts))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Format, fixture, render};
    use regatta_core::record::Outcome;

    /// A table as rows of `column = cell`, empty cells left out.
    fn readable(scene: &fixture::Scene) -> String {
        let text = scene.shown(Format::Csv);
        let mut reader = ::csv::Reader::from_reader(text.as_bytes());
        let names = reader.headers().unwrap().clone();
        let mut out = String::new();
        for record in reader.records().map(Result::unwrap) {
            let cells = names
                .iter()
                .zip(&record)
                .filter(|(_, cell)| !cell.is_empty());
            out.extend(cells.map(|(name, cell)| format!("{name} = {}\n", shorten(cell, 90))));
            out.push('\n');
        }
        out
    }

    #[test]
    fn a_row_has_everything_about_its_case() {
        let mut scene = fixture::failed();
        fixture::disturb(&mut scene.head);
        let readable = readable(&scene);
        let case = "torch/efficient:s10000,d32,bwd\n";
        let row = readable.split("\n\n").find(|row| row.contains(case));
        insta::assert_snapshot!(row.unwrap());
    }

    #[test]
    fn failed_cases_are_rows_with_their_error() {
        insta::assert_snapshot!(readable(&fixture::incomplete()));
    }

    #[test]
    fn no_text_begins_a_formula() {
        let mut scene = fixture::failed();
        let hostile = "=HYPERLINK(\"http://evil.example\", \"ok\")";
        for row in &mut scene.judgement.rows {
            row.reason = Some(hostile.to_owned());
        }
        for entry in &mut scene.head.entries {
            if let Outcome::Measured(of) = &mut entry.outcome {
                let words = [("a", "@SUM(A1)"), ("b", "-1+1"), ("c", "\t=1"), ("d", "x")];
                let words = words.map(|(name, word)| (name.to_owned(), ParamValue::from(word)));
                of.effective = words.into();
                of.effective.insert("e".to_owned(), ParamValue::Int(-1));
            }
        }
        let mut seen = BTreeSet::new();
        for document in render(Format::Csv, &scene.report()).unwrap() {
            let mut reader = ::csv::Reader::from_reader(document.text.as_bytes());
            for record in reader.records() {
                seen.extend(record.unwrap().iter().map(str::to_owned));
            }
        }
        let formula = |cell: &&String| cell.starts_with(['=', '+', '-', '@', '\t']);
        let formulas = seen.iter().filter(formula);
        let words: Vec<_> = formulas
            .filter(|cell| cell.parse::<f64>().is_err())
            .collect();
        assert!(words.is_empty(), "{words:?}");
        let hostile = format!("'{hostile}");
        for cell in [&*hostile, "'@SUM(A1)", "'-1+1", "'=1", "x", "-1"] {
            assert!(seen.contains(cell), "{cell}");
        }
    }

    #[test]
    fn samples_are_numbered() {
        let scene = fixture::failed();
        let documents = render(Format::Csv, &scene.report()).unwrap();
        let lines: Vec<&str> = documents[1].text.lines().collect();
        let measured = |entry: &&Entry| matches!(entry.outcome, Outcome::Measured(_));
        let taken = 30 * scene.head.entries.iter().filter(measured).count();
        assert_eq!(lines.len(), taken + 1);
        for (line, numbers) in [(1, "0,0"), (30, "0,29"), (31, "1,0")] {
            let start = format!("\"torch/efficient:s10000,d32,bwd\",{numbers},");
            assert!(lines[line].starts_with(&start), "{}", lines[line]);
        }
    }
}
