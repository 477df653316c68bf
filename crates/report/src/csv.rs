//! Two tables for a spreadsheet or a data frame: `cases.csv`, `samples.csv`.
//!
//! Plain numbers, the unit in the column's name, an empty cell where there is
//! nothing. A failed case is a row with its error, never a lost row. Texts come from outside
//! and go into spreadsheets, which take some for formulas: [`text_cell`].

mod cases;

use std::io::{self, Write};

use self::cases::cases;
use super::exporter::{RenderError, Report};
use super::text::one_line;
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

/// What a table's writer said.
fn done(written: Result<(), ::csv::Error>) -> Result<(), RenderError> {
    written.map_err(|error| match error.into_kind() {
        ::csv::ErrorKind::Io(error) => RenderError::Output(error),
        kind => RenderError::Table {
            name: "cases.csv",
            problem: format!("{kind:?}"),
        },
    })
}

/// Its columns, as they are written.
const NAMES: &str =
    "case,invocation,sample,device_ns,host_ns,cpu_ns,preempted,clock_mhz,disturbed\n";

/// Rows are written once so many bytes of them are there.
const MANY: usize = 1 << 18;

pub(super) fn samples(out: &mut dyn Write, report: &Report) -> Result<(), RenderError> {
    let mut rows = NAMES.as_bytes().to_vec();
    let mut written = Ok(());
    report.entries.each(|entry| {
        if written.is_ok() {
            written = of_entry(&mut rows, entry);
        }
        if rows.len() >= MANY && written.is_ok() {
            written = out.write_all(&rows);
            rows.clear();
        }
    })?;
    written
        .and_then(|()| out.write_all(&rows))
        .map_err(RenderError::Output)
}

fn of_entry(rows: &mut Vec<u8>, entry: &Entry) -> io::Result<()> {
    let Outcome::Measured(measurement) = &entry.outcome else {
        return Ok(());
    };
    let case = quoted(&entry.case.0)?;
    let told = quoted(&disturbance::told(&measurement.disturbed))?;
    let before = format!("{case},{},", entry.invocation);
    let mut integers = itoa::Buffer::new();
    for (sample, device_ns) in measurement.samples.device_ns.iter().enumerate() {
        let times = [
            Some(device_ns),
            measurement.samples.host_ns.get(sample),
            measurement.samples.cpu_ns.get(sample),
        ];
        rows.extend_from_slice(before.as_bytes());
        rows.extend_from_slice(integers.format(sample).as_bytes());
        rows.push(b',');
        for time in times {
            if let Some(time) = time {
                number(rows, time.0);
            }
            rows.push(b',');
        }
        if let Some(&preempted) = measurement.samples.preempted.get(sample) {
            rows.extend_from_slice(integers.format(preempted).as_bytes());
        }
        rows.push(b',');
        if let Some(clock_mhz) = measurement.samples.clock_at(sample) {
            number(rows, clock_mhz);
        }
        rows.push(b',');
        rows.extend_from_slice(told.as_bytes());
        rows.push(b'\n');
    }
    Ok(())
}

/// Numbers between these are written alike by everybody: without an exponent.
const PLAIN: std::ops::Range<f64> = 1e-4..1e15;

/// A figure, by its shortest digits.
fn number(rows: &mut Vec<u8>, value: f64) {
    if !PLAIN.contains(&value) {
        rows.extend_from_slice(value.to_string().as_bytes());
        return;
    }
    let mut digits = zmij::Buffer::new();
    let digits = digits.format_finite(value);
    let digits = digits.strip_suffix(".0").unwrap_or(digits);
    rows.extend_from_slice(digits.as_bytes());
}

/// A text as the table's writer has it in a cell.
fn quoted(text: &str) -> io::Result<String> {
    // As ids are: half a million times the same.
    let plain = |c: char| c.is_ascii_alphanumeric() || "/:,=._-".contains(c);
    if text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(plain) {
        return Ok(match text.contains(',') {
            true => format!("\"{text}\""),
            false => text.to_owned(),
        });
    }
    let text = text_cell(text);
    if text.is_empty() {
        return Ok(text);
    }
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    writer.write_record([text])?;
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes)
        .trim_end_matches('\n')
        .to_owned())
}

/// A table in the making.
pub(super) type Table<'o> = ::csv::Writer<&'o mut dyn Write>;

/// A text as a cell: on one line, and behind an apostrophe where a spreadsheet would take it
/// for a formula (OWASP, "CSV Injection"). Numbers are written as they are.
pub(super) fn text_cell(text: &str) -> String {
    let text = one_line(text);
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

    use proptest::prelude::*;

    use super::*;
    use crate::text::shorten;
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

    fn written(value: f64) -> String {
        let mut rows = Vec::new();
        number(&mut rows, value);
        String::from_utf8(rows).unwrap()
    }

    #[test]
    fn odd_figures_are_written_as_they_are_printed() {
        let edges = [
            0.0,
            -0.0,
            1.0,
            -2.5,
            1e-4,
            9.9e-5,
            1e15,
            999_999_999_999_999.9,
            f64::NAN,
        ];
        for value in edges {
            assert_eq!(written(value), value.to_string());
        }
    }

    proptest! {
        #[test]
        fn a_figure_is_as_short_as_it_is_printed(value in any::<f64>(), power in -6_i32..18) {
            let plain = 10_f64.powi(power) * (1.0 + value.abs() % 1.0);
            for value in [value, plain, plain.round()] {
                // Of two that are as near, either is right.
                let text = written(value);
                prop_assert_eq!(text.len(), value.to_string().len());
                prop_assert_eq!(text.parse(), Ok(value));
            }
        }

        #[test]
        fn a_text_is_quoted_as_a_table_does(text in "| |[-a-z\"=,:/ é]{0,12}") {
            let mut writer = ::csv::Writer::from_writer(Vec::new());
            writer.write_record([&text_cell(&text), "x"]).unwrap();
            let row = String::from_utf8(writer.into_inner().unwrap()).unwrap();
            prop_assert_eq!(quoted(&text).unwrap() + ",x\n", row);
        }
    }
}
