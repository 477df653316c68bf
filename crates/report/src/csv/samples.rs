//! The table of samples: of many cases ten million rows, so each is written as bytes, and only
//! what is text goes through the writer that quotes.

use std::io::{self, Write};

use super::cell::text_cell;
use crate::exporter::{RenderError, Report};
use regatta_core::record::disturbance;
use regatta_core::record::types::{Entry, Outcome};

/// Its columns, as they are written.
const NAMES: &str =
    "case,invocation,sample,confirm,device_ns,host_ns,cpu_ns,preempted,clock_mhz,disturbed\n";

/// Rows are written once so many bytes of them are there.
const MANY: usize = 1 << 18;

pub(super) fn samples(out: &mut dyn Write, report: &Report) -> Result<(), RenderError> {
    let mut rows = NAMES.as_bytes().to_vec();
    let planned = report.head.header.settings.invocations;
    let mut written = Ok(());
    report.entries.each(|entry| {
        if written.is_ok() {
            written = of_entry(&mut rows, entry, entry.invocation >= planned);
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

fn of_entry(rows: &mut Vec<u8>, entry: &Entry, confirms: bool) -> io::Result<()> {
    let Outcome::Measured(measurement) = &entry.outcome else {
        return Ok(());
    };
    let case = quoted(&entry.case.0)?;
    let told = quoted(&disturbance::told(&measurement.disturbed))?;
    let before = format!("{case},{},", entry.invocation);
    let confirms = format!(",{confirms},");
    let mut integers = itoa::Buffer::new();
    for (sample, device_ns) in measurement.device_ns.iter().enumerate() {
        let times = [
            Some(device_ns),
            measurement.host_ns.get(sample),
            measurement.cpu_ns.get(sample),
        ];
        rows.extend_from_slice(before.as_bytes());
        rows.extend_from_slice(integers.format(sample).as_bytes());
        rows.extend_from_slice(confirms.as_bytes());
        for time in times {
            if let Some(time) = time {
                number(rows, time.0);
            }
            rows.push(b',');
        }
        if let Some(&preempted) = measurement.preempted.get(sample) {
            rows.extend_from_slice(integers.format(preempted).as_bytes());
        }
        rows.push(b',');
        if let Some(&clock_mhz) = measurement.clock_mhz.get(sample) {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(value: f64) -> String {
        let mut rows = Vec::new();
        number(&mut rows, value);
        String::from_utf8(rows).unwrap()
    }

    /// The row that a table makes of it.
    fn row(text: &str) -> String {
        let mut writer = ::csv::Writer::from_writer(Vec::new());
        writer.write_record([&text_cell(text), "x"]).unwrap();
        String::from_utf8(writer.into_inner().unwrap()).unwrap()
    }

    #[test]
    fn a_blank_is_quoted_as_a_table_does() {
        assert_eq!(quoted(" ").unwrap() + ",x\n", row(" "));
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
        fn a_text_is_quoted_as_a_table_does(text in "[-a-z\"=,:/ é]{0,12}") {
            prop_assert_eq!(quoted(&text).unwrap() + ",x\n", row(&text));
        }
    }

    #[test]
    fn odd_figures_are_as_well() {
        for value in [
            0.0,
            -0.0,
            1.0,
            1e-4,
            9.9e-5,
            1e15,
            999_999_999_999_999.9,
            f64::NAN,
            -2.5,
        ] {
            assert_eq!(written(value), value.to_string());
        }
    }
}
