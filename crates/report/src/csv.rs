//! Two tables for a spreadsheet or a data frame: `cases.csv`, `samples.csv`.
//!
//! Plain numbers, the unit in the column's name, an empty cell where there is
//! nothing. A failed case is a row with its error, never a lost row. Texts come from outside
//! and go into spreadsheets, which take some for formulas: `cell::text_cell`.

mod cases;
mod cell;
mod samples;

use std::io::Write;

use self::cases::cases;
use self::samples::samples;
use super::exporter::{Exporter, RenderError, Report};
use regatta_judge::spread::Spreads;

/// Writes both tables.
pub(super) struct Csv;

const CASES: &str = "cases.csv";
const SAMPLES: &str = "samples.csv";

impl Exporter for Csv {
    fn names(&self) -> &'static [&'static str] {
        &[CASES, SAMPLES]
    }

    fn write(
        &self,
        report: &Report,
        name: &'static str,
        out: &mut dyn Write,
    ) -> Result<(), RenderError> {
        if name == SAMPLES {
            return samples(out, report);
        }
        let mut spreads = Spreads::default();
        report
            .entries
            .each(|entry| spreads.add(entry, &report.head.header.settings))?;
        let mut table = ::csv::Writer::from_writer(out);
        let filled = cases(&mut table, report, &spreads);
        done(filled.and_then(|()| Ok(table.flush()?)), name)
    }
}

/// What a table's writer said.
fn done(written: Result<(), ::csv::Error>, name: &'static str) -> Result<(), RenderError> {
    written.map_err(|error| match error.into_kind() {
        ::csv::ErrorKind::Io(error) => RenderError::Output(error),
        kind => RenderError::Table {
            name,
            problem: format!("{kind:?}"),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::{Format, fixture, render};
    use regatta_core::record::types::Outcome;
    use regatta_worker::attention::ParamValue;

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
