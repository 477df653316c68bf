//! The table of samples: of many cases ten million rows, so each is written as bytes, and only
//! what is text goes through the writer that quotes.

use std::io::{self, Write};

use super::cell::text_cell;
use crate::record::disturbance;
use crate::record::types::{Entry, Outcome};
use crate::report::exporter::{RenderError, Report};

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
    let case = quoted(&text_cell(&entry.case.0))?;
    let disturbed = quoted(&text_cell(&disturbance::told(&measurement.disturbed)))?;
    for (sample, device_ns) in measurement.device_ns.iter().enumerate() {
        write!(rows, "{case},{},{sample},{confirms},", entry.invocation)?;
        number(rows, Some(device_ns.0))?;
        number(rows, measurement.host_ns.get(sample).map(|time| time.0))?;
        number(rows, measurement.cpu_ns.get(sample).map(|time| time.0))?;
        if let Some(preempted) = measurement.preempted.get(sample) {
            write!(rows, "{preempted}")?;
        }
        rows.push(b',');
        if let Some(clock_mhz) = measurement.clock_mhz.get(sample) {
            write!(rows, "{clock_mhz}")?;
        }
        writeln!(rows, ",{disturbed}")?;
    }
    Ok(())
}

/// Integers below this are exact, and soon written.
const EXACT: f64 = 9e15;

/// A figure and the comma behind it, empty where there is none.
fn number(rows: &mut Vec<u8>, value: Option<f64>) -> io::Result<()> {
    match value {
        None => rows.write_all(b","),
        Some(value) if value.fract() == 0.0 && (1.0..EXACT).contains(&value) => {
            write!(rows, "{},", value as u64)
        }
        Some(value) => write!(rows, "{value},"),
    }
}

/// A text as the table's writer has it.
fn quoted(text: &str) -> io::Result<String> {
    if text.is_empty() {
        return Ok(String::new());
    }
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    writer.write_record([text])?;
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes)
        .trim_end_matches('\n')
        .to_owned())
}
