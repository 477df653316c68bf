//! Two tables for a spreadsheet or a data frame: `cases.csv`, `samples.csv`.
//!
//! Plain numbers, the unit in the column's name, an empty cell where there is
//! nothing. A failed case is a row with its error, never a lost row. Texts come from outside
//! and go into spreadsheets, which take some for formulas: [`text_cell`].

mod cases;

use std::io::Write;

use self::cases::cases;
use super::text::{one_line, shorten};
use super::{RenderError, Report};
use regatta_core::record::disturbance;
use regatta_core::record::types::{Entry, Outcome};
use regatta_judge::spread::Spreads;
use regatta_worker::attention::ParamValue;

/// Writes one of the tables.
pub(super) fn write(report: &Report, name: &str, out: &mut dyn Write) -> Result<(), RenderError> {
    if name == "samples.csv" {
        return samples(out, report);
    }
    let mut spreads = Spreads::default();
    report.entries.each(|entry| spreads.add(entry))?;
    let mut table = ::csv::Writer::from_writer(out);
    let filled = cases(&mut table, report, &spreads);
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
const NAMES: [&str; 9] = [
    "case",
    "invocation",
    "sample",
    "device_ns",
    "host_ns",
    "cpu_ns",
    "preempted",
    "clock_mhz",
    "disturbed",
];

fn samples(out: &mut dyn Write, report: &Report) -> Result<(), RenderError> {
    let mut table = ::csv::Writer::from_writer(out);
    let mut written = table.write_record(NAMES);
    report.entries.each(|entry| {
        if written.is_ok() {
            written = samples_of(&mut table, entry);
        }
    })?;
    done(written.and_then(|()| Ok(table.flush()?)))
}

/// A row for each sample of an entry. Digits are written into a buffer: there may be millions.
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
        let preempted = samples.preempted.get(sample);
        let figures = [
            Some(device_ns.0),
            samples.host_ns.get(sample).map(|time| time.0),
            samples.cpu_ns.get(sample).map(|time| time.0),
            preempted.map(|count| f64::from(*count)),
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

/// A table in the making.
pub(super) type Table<'o> = ::csv::Writer<&'o mut dyn Write>;

/// Longest text of a cell, in columns: spreadsheets take 32,767 characters.
const CELL: usize = 32_000;

/// A text as a cell: on one line, and behind an apostrophe where a spreadsheet would take it
/// for a formula (OWASP, "CSV Injection"). Numbers are written as they are.
pub(super) fn text_cell(text: &str) -> String {
    let text = shorten(&one_line(text), CELL);
    // The wide ones are what some spreadsheets take for the others.
    let formula = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];
    match text.starts_with(formula) {
        true => format!("'{text}"),
        false => text,
    }
}

/// A parameter's value as a cell.
pub(super) fn parameter(value: &ParamValue) -> String {
    match value {
        ParamValue::Int(number) => number.to_string(),
        ParamValue::Word(word) => text_cell(word),
    }
}

/// A plain number. Times and ratios print with a unit, which no table of figures has: they
/// are written by their numbers (`.0`).
pub(super) trait CsvNumber: ToString {}

impl CsvNumber for f64 {}
impl CsvNumber for u32 {}
impl CsvNumber for u64 {}
impl CsvNumber for usize {}

/// A figure as a cell, empty where there is none.
pub(super) fn cell(value: Option<impl CsvNumber>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Format, fixture, render};
    use regatta_core::record::types::Outcome;

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
