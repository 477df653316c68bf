//! A trace in the Trace Event Format, which Perfetto and `chrome://tracing` open.
//!
//! The format is an object with `traceEvents`: complete events (`X`) with a start and a length in
//! microseconds, each on a row (`tid`) of a group of rows (`pid`), rows named by metadata (`M`),
//! ranges from `B` to `E`, arrows from `s` to `f` of one `id`. Events of one row are nested or
//! disjoint, so events that overlap in part need different rows. Source: "Trace Event Format", by
//! Google, as Perfetto's documentation refers to it.
//!
//! There is a group for the host of each process, with its launches and the ranges around them, and
//! one for each GPU of a process, with a row for each stream. A range extends from its first launch
//! to its last.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};

use crate::RenderError;
use regatta_core::machine::{Recorded, Work, short, sizes};
use regatta_core::record::trace::Trace;

/// The row of a host's launches.
const LAUNCHES: u64 = 1;
/// The row of the ranges that a host was in.
const RANGES: u64 = 2;
/// A stream's first row has the stream's number, which is below this one. Further rows are this far
/// apart. Perfetto reads numbers of 32 bits.
const STREAMS: u64 = 1 << 20;

/// A group, and one of its rows.
type EventRow = (u64, u64);

/// Nanoseconds as microseconds: below 2^53 ns, 104 days, exact to the nanosecond.
fn microseconds(ns: u64) -> Value {
    json!(ns as f64 / 1e3)
}

/// Writes the events of a trace.
struct TraceEvents<'a> {
    trace: &'a Trace,
    /// The moment from which times are counted.
    zero: i64,
    first: bool,
    /// Groups by process: of its host, and of each GPU.
    groups: BTreeMap<(u32, Option<u32>), u64>,
    /// The rows of a stream, or of a host's launches, each with the end of its last event.
    rows: BTreeMap<EventRow, Vec<i64>>,
    out: &'a mut dyn Write,
}

/// Writes a trace, one event on each line. Times are counted from the first event.
///
/// # Errors
/// When it cannot be written.
pub fn perfetto(trace: &Trace, out: &mut dyn Write) -> Result<(), RenderError> {
    let operations = &trace.recording.operations;
    let moments = operations.iter().map(|operation| {
        let start = operation.start_ns.cast_signed();
        operation.launched_ns.map_or(start, |at| at.min(start))
    });
    let about = json!({
        "command": trace.header.command,
        "started": trace.header.started.to_string(),
        "machine": trace.header.machine.name,
        "tool": format!("regatta {}", trace.header.tool),
    });
    writeln!(
        out,
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":["
    )?;
    let mut events = TraceEvents {
        trace,
        zero: moments.min().unwrap_or(0),
        first: true,
        groups: BTreeMap::new(),
        rows: BTreeMap::new(),
        out,
    };
    for (number, operation) in operations.iter().enumerate() {
        events.operation(number, operation)?;
    }
    let mut launches: Vec<HostLaunch> = Vec::new();
    launches.extend(
        operations
            .iter()
            .enumerate()
            .filter_map(|(number, operation)| {
                let at = operation.launched_ns?;
                let end = at.saturating_add(operation.launch_ns?.cast_signed());
                Some((number, operation, (at, end)))
            }),
    );
    launches.sort_by_key(|(_, operation, times)| (operation.process, *times));
    for process in launches.chunk_by(|a, b| a.1.process == b.1.process) {
        events.launches(process)?;
    }
    Ok(writeln!(events.out, "\n]}}")?)
}

/// An operation by its number, with the start and the end of its launch.
type HostLaunch<'a> = (usize, &'a Recorded, (i64, i64));

impl TraceEvents<'_> {
    fn add(
        &mut self,
        ph: &str,
        name: &str,
        (pid, tid): EventRow,
        at: i64,
        members: impl IntoIterator<Item = (&'static str, Value)>,
    ) -> Result<(), RenderError> {
        let at = at.saturating_sub(self.zero).max(0).unsigned_abs();
        let mut event =
            json!({ "name": name, "ph": ph, "pid": pid, "tid": tid, "ts": microseconds(at) });
        for (member, value) in members {
            event[member] = value;
        }
        if !std::mem::take(&mut self.first) {
            self.out.write_all(b",\n")?;
        }
        Ok(write!(self.out, "{event}")?)
    }

    /// Names a row or a group.
    fn name(&mut self, what: &str, row: EventRow, name: &str) -> Result<(), RenderError> {
        self.add(
            "M",
            what,
            row,
            self.zero,
            [("args", json!({ "name": name }))],
        )
    }

    /// The group of a process's host or of its GPU; a new group gets a name.
    fn group(&mut self, process: u32, device: Option<u32>) -> Result<u64, RenderError> {
        let next = self.groups.len() as u64 + 1;
        let group = *self.groups.entry((process, device)).or_insert(next);
        if group == next {
            let known = self.trace.recording.processes.get(process as usize);
            let name = match device {
                None => {
                    let command = known.map(|process| process.argv.join(" "));
                    format!("host: {}", command.unwrap_or_default())
                }
                Some(device) => {
                    let mut devices = known.into_iter().flat_map(|process| &process.devices);
                    let named = devices.find(|known| known.ordinal == device);
                    format!("GPU {device}: {}", named.map_or("", |device| &device.name))
                }
            };
            let pid = known.map_or(0, |process| process.pid);
            self.name("process_name", (group, 0), &format!("{name} ({pid})"))?;
        }
        Ok(group)
    }

    /// The row for the next event of a stream or of a host's launches: the first row on which no
    /// event runs any more. Starts must not decrease.
    fn row(
        &mut self,
        (group, number): EventRow,
        (start, end): (i64, i64),
        name: &str,
    ) -> Result<EventRow, RenderError> {
        let ends = self.rows.entry((group, number)).or_default();
        let free = ends.iter().position(|last| *last <= start);
        let place = free.unwrap_or(ends.len());
        let row = (group, number + STREAMS * place as u64);
        if free.is_some() {
            ends[place] = end;
            return Ok(row);
        }
        ends.push(end);
        match place {
            0 => self.name("thread_name", row, name)?,
            place => self.name("thread_name", row, &format!("{name} ({})", place + 1))?,
        }
        Ok(row)
    }

    /// An operation of a device, and the end of the arrow to it.
    fn operation(&mut self, number: usize, operation: &Recorded) -> Result<(), RenderError> {
        let group = self.group(operation.process, Some(operation.device))?;
        let times = (
            operation.start_ns.cast_signed(),
            operation.end_ns.cast_signed(),
        );
        let stream = operation
            .stream
            .map(u64::from)
            .filter(|number| *number < STREAMS - 1);
        let row = match stream {
            Some(number) => self.row((group, number), times, &format!("stream {number}"))?,
            None => self.row((group, STREAMS - 1), times, "stream unknown")?,
        };
        let (name, kind) = self.described(operation);
        let mut members = vec![("dur", microseconds(operation.ns())), ("cat", kind.into())];
        members.extend(operation_args(operation).map(|args| ("args", args)));
        self.add("X", &name, row, times.0, members)?;
        if has_arrow(operation) {
            // The arrow must end at the enclosing event, not at the next one.
            let end = [
                ("cat", "launch".into()),
                ("id", number.into()),
                ("bp", "e".into()),
            ];
            self.add("f", "launch", row, times.0, end)?;
        }
        Ok(())
    }

    /// Adds the launches of a process's host, in order, with the ranges around them.
    fn launches(&mut self, launches: &[HostLaunch]) -> Result<(), RenderError> {
        let Some((_, first, _)) = launches.first() else {
            return Ok(());
        };
        let group = self.group(first.process, None)?;
        let ranges = (group, RANGES);
        let mut open: Vec<&str> = Vec::new();
        let (mut named, mut until) = (false, i64::MIN);
        let mut last = None;
        for (number, operation, times) in launches {
            let path = operation.operator.as_deref();
            let path: Vec<&str> = path.map_or_else(Vec::new, |path| path.split('/').collect());
            let common = open.iter().zip(&path).take_while(|(a, b)| a == b).count();
            // Ranges that do not contain this launch end, and new ones begin.
            for name in open.drain(common..).rev() {
                self.add("E", name, ranges, until.min(times.0), [])?;
            }
            until = if common == 0 {
                times.1
            } else {
                until.max(times.1)
            };
            for name in &path[common..] {
                if !std::mem::replace(&mut named, true) {
                    let name = "ranges, from their first launch to their last";
                    self.name("thread_name", ranges, name)?;
                }
                self.add("B", name, ranges, times.0, [("cat", "range".into())])?;
            }
            open = path;
            // All nodes of a graph share one launch.
            let row = match last.filter(|(known, _)| known == times) {
                Some((_, row)) => row,
                None => {
                    let row = self.row((group, LAUNCHES), *times, "launches")?;
                    let name = format!("launch of {}", short(&self.described(operation).0));
                    let dur = microseconds(operation.launch_ns.unwrap_or(0));
                    let members = [("dur", dur), ("cat", "launch".into())];
                    self.add("X", &name, row, times.0, members)?;
                    row
                }
            };
            last = Some((*times, row));
            if has_arrow(operation) {
                let start = [("cat", "launch".into()), ("id", (*number).into())];
                self.add("s", "launch", row, times.0, start)?;
            }
        }
        for name in open.into_iter().rev() {
            self.add("E", name, ranges, until, [])?;
        }
        Ok(())
    }

    /// The name of an operation, and its kind.
    fn described(&self, operation: &Recorded) -> (String, &'static str) {
        match &operation.work {
            Work::Kernel(kernel) => (self.trace.recording.name(kernel).to_owned(), "kernel"),
            Work::Copy { direction, .. } => (format!("copy {direction}"), "copy"),
            Work::Set { .. } => ("memory set".to_owned(), "set"),
        }
    }
}

/// True if an arrow can lead to an operation: it needs a launch with a length, which is not after
/// the start.
fn has_arrow(operation: &Recorded) -> bool {
    let launched = operation.launched_ns.zip(operation.launch_ns);
    launched.is_some_and(|(at, _)| at <= operation.start_ns.cast_signed())
}

/// The known figures of an operation.
fn operation_args(operation: &Recorded) -> Option<Value> {
    let kernel = operation.kernel();
    let mut args = json!({
        "grid": kernel.map(|kernel| sizes(kernel.grid)),
        "block": kernel.map(|kernel| sizes(kernel.block)),
        "registers": kernel.and_then(|kernel| kernel.registers),
        "shared_bytes": kernel.and_then(|kernel| kernel.shared_bytes),
        "local_bytes": kernel.and_then(|kernel| kernel.local_bytes),
        "graph": kernel.and_then(|kernel| kernel.graph),
        "bytes": operation.bytes(),
        "operator": operation.operator.as_deref(),
    });
    let known = args.as_object_mut()?;
    known.retain(|_, value| !value.is_null());
    let is_any_known = !known.is_empty();
    is_any_known.then_some(args)
}

#[cfg(test)]
mod tests;
