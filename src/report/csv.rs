//! Two tables for a spreadsheet or a data frame: `cases.csv`, `samples.csv`.
//!
//! Plain numbers, the unit in the column's name, an empty cell where there is
//! nothing. A failed case is a row with its error, never a lost row. Texts come from outside
//! and go into spreadsheets, which take some for formulas: [`text_cell`].

mod cases;
mod cell;

use ::csv::Writer;

use self::cases::cases;
use self::cell::{cell, text_cell};
use super::exporter::{Document, Exporter, RenderError, Report};
use crate::record::disturbance;
use crate::record::types::Outcome;

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

fn samples(table: &mut Table, report: &Report) -> Result<(), ::csv::Error> {
    table.write_record([
        "case",
        "invocation",
        "sample",
        "confirm",
        "device_ns",
        "host_ns",
        "cpu_ns",
        "preempted",
        "clock_mhz",
        "disturbed",
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
                cell(measurement.cpu_ns.get(sample).map(|time| time.0)),
                cell(measurement.preempted.get(sample).copied()),
                cell(measurement.clock_mhz.get(sample)),
                text_cell(&disturbance::told(&measurement.disturbed)),
            ])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::attention::ParamValue;
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
