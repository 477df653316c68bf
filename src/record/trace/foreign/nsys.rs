//! A table of Nsight Systems': `nsys stats --report cuda_gpu_trace --format csv`.
//!
//! A row is a kernel, a copy or a set. Columns are found by their names, which carry their
//! units: `Start (ns)`, `Duration (ns)`, `GrdX`, `BlkX`, `Reg/Trd`, `Strm`, `Name`, ... Sizes are
//! in rounded megabytes there, so they stay unknown unless the column says `(B)`. Source: the
//! columns of the report as nsys 2023 to 2026 writes them, with its notices before the header.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use super::reader::Reader;
use crate::input;
use crate::machine::{Device, Launch, Operation, Process, Recorded, Recording, Work};

/// Longest line that is looked at for the header.
const LONGEST: u64 = 1 << 16;

/// True for the line that names the columns.
pub fn is_header(line: &str) -> bool {
    let line = line.trim().trim_matches('"');
    line.starts_with("Start (")
        && ["Duration (", "CorrId", "Strm", "Name"]
            .iter()
            .all(|name| line.contains(name))
}

/// Where the columns are.
struct Columns {
    at: BTreeMap<String, usize>,
    start: (usize, f64),
    duration: (usize, f64),
}

impl Columns {
    fn of(header: &csv::StringRecord) -> Result<Columns, String> {
        let found = header.iter().enumerate();
        let at: BTreeMap<String, usize> = found
            .map(|(at, name)| (name.trim().to_owned(), at))
            .collect();
        let timed = |name: &str| {
            let mut found = at.iter().filter_map(|(column, at)| {
                let unit = column
                    .strip_prefix(name)?
                    .trim()
                    .strip_prefix('(')?
                    .strip_suffix(')')?;
                Some((unit.to_owned(), *at))
            });
            let (unit, at) = found
                .next()
                .ok_or_else(|| format!("it has no column {name}"))?;
            let ns = match unit.as_str() {
                "ns" | "nsec" => 1.0,
                "us" | "µs" | "usec" => 1e3,
                "ms" | "msec" => 1e6,
                "s" | "sec" => 1e9,
                _ => return Err(format!("column {name} is in {unit}; export it in ns")),
            };
            Ok((at, ns))
        };
        let (start, duration) = (timed("Start")?, timed("Duration")?);
        for name in ["Name", "Strm"] {
            if !at.contains_key(name) {
                return Err(format!("it has no column {name}"));
            }
        }
        Ok(Columns {
            at,
            start,
            duration,
        })
    }

    /// A cell, where there is one.
    fn text<'r>(&self, row: &'r csv::StringRecord, name: &str) -> Option<&'r str> {
        let cell = row.get(*self.at.get(name)?)?.trim();
        (!cell.is_empty() && cell != "-").then_some(cell)
    }

    fn number<N: std::str::FromStr>(&self, row: &csv::StringRecord, name: &str) -> Option<N> {
        self.text(row, name)?.parse().ok()
    }

    fn three(&self, row: &csv::StringRecord, names: [&str; 3]) -> Option<[u32; 3]> {
        let [x, y, z] = names.map(|name| self.number(row, name));
        Some([x?, y?, z?])
    }

    fn time(row: &csv::StringRecord, (at, ns): (usize, f64)) -> Option<u64> {
        let text = row.get(at)?.trim();
        if let (Ok(whole), true) = (text.parse::<u64>(), ns == 1.0) {
            return Some(whole);
        }
        let time = text.parse::<f64>().ok()? * ns;
        (0.0..1e19).contains(&time).then(|| time.round() as u64)
    }
}

/// Reads a table. Its lines before the header are notices.
///
/// # Errors
/// When there is no header, or one without what every row needs.
pub fn read(mut file: impl BufRead, label: &str) -> Result<Recording, String> {
    let mut line = Vec::new();
    let mut before = 0;
    let header = loop {
        let found = input::line(&mut file, LONGEST, &mut line);
        if found.map_err(|error| error.to_string())? == input::Line::None {
            return Err("no line names the columns (Start (ns),Duration (ns),...)".to_owned());
        }
        before += 1;
        if is_header(&String::from_utf8_lossy(&line)) {
            break line.clone();
        }
    };
    let mut rows = csv::ReaderBuilder::new()
        .flexible(true)
        .from_reader(header.as_slice().chain(file));
    let columns = Columns::of(rows.headers().map_err(|error| error.to_string())?)?;
    let mut reader = Reader::new(label);
    let mut devices: Vec<Device> = Vec::new();
    let mut row = csv::StringRecord::new();
    let mut place = before;
    loop {
        match rows.read_record(&mut row) {
            Ok(false) => break,
            Ok(true) => {}
            Err(error) => return Err(format!("behind line {place}: {error}")),
        }
        place = before - 1 + row.position().map_or(0, |at| at.line() as usize);
        // nsys ends its reports with an empty line.
        if row.iter().all(|cell| cell.trim().is_empty()) {
            continue;
        }
        let operation = operation(&columns, &row, &mut devices, &mut reader);
        reader.take(place, operation);
    }
    reader.recording.processes = vec![Process {
        start: reader
            .recording
            .operations
            .iter()
            .map(|o| o.start_ns)
            .min()
            .unwrap_or(0),
        devices,
        ended: true,
        ..Process::default()
    }];
    Ok(reader.finished(place))
}

fn operation(
    columns: &Columns,
    row: &csv::StringRecord,
    devices: &mut Vec<Device>,
    reader: &mut Reader,
) -> Result<Recorded, String> {
    let start = Columns::time(row, columns.start).ok_or("it has no start")?;
    let duration = Columns::time(row, columns.duration).ok_or("it has no duration")?;
    let name = columns.text(row, "Name").ok_or("it has no name")?;
    let bytes = columns.number(row, "Bytes (B)");
    let work = match name
        .strip_prefix("[CUDA mem")
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(rest) if rest.starts_with("set") => Work::Set { bytes },
        Some(rest) => Work::Copy {
            direction: direction(rest.trim_start_matches("cpy").trim()),
            bytes,
        },
        None => {
            let three = |names| columns.three(row, names);
            let parts = [
                columns.number::<u64>(row, "StcSMem (B)"),
                columns.number::<u64>(row, "DymSMem (B)"),
            ];
            Work::Kernel(Launch {
                name: reader.name(name.to_owned()),
                grid: three(["GrdX", "GrdY", "GrdZ"]).ok_or("a kernel without its grid")?,
                block: three(["BlkX", "BlkY", "BlkZ"]).ok_or("a kernel without its block")?,
                registers: columns
                    .number(row, "Reg/Trd")
                    .filter(|registers| *registers > 0),
                shared_bytes: parts[0].zip(parts[1]).map(|(a, b)| a.saturating_add(b)),
                ..Launch::default()
            })
        }
    };
    Ok(Operation {
        device: columns
            .text(row, "Device")
            .map_or(0, |told| device(told, devices)),
        stream: columns.number(row, "Strm"),
        ..Operation::new(work, start, start.saturating_add(duration))
    })
}

/// `NVIDIA H200 (0)` is device 0.
fn device(told: &str, devices: &mut Vec<Device>) -> u32 {
    let number = told
        .strip_suffix(')')
        .and_then(|told| told.rsplit_once(" ("));
    let number = number.and_then(|(name, number)| Some((name, number.parse().ok()?)));
    let (name, ordinal) = number.unwrap_or((told, 0));
    if devices.iter().all(|known| known.ordinal != ordinal) {
        devices.push(Device {
            ordinal,
            name: name.to_owned(),
            ..Device::default()
        });
    }
    ordinal
}

/// `HtoD` for `Host-to-Device`; what is not known stays as it is told.
pub fn direction(told: &str) -> String {
    let known = match told {
        "Host-to-Device" => "HtoD",
        "Device-to-Host" => "DtoH",
        "Device-to-Device" => "DtoD",
        "Peer-to-Peer" => "PtoP",
        "Host-to-Host" => "HtoH",
        "" => "?",
        other => other,
    };
    known.to_owned()
}
