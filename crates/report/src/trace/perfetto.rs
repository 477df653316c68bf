//! A trace in the Trace Event Format, which Perfetto and `chrome://tracing` open.
//!
//! The format is an object with `traceEvents`: complete events (`X`) with a start and a length in
//! microseconds, each on a row (`tid`) of a group of rows (`pid`), rows named by metadata (`M`),
//! arrows from `s` to `f` of one `id`. Events of one row lie within each other or apart: what
//! overlaps in part gets a row of its own.
//! Source: "Trace Event Format", by Google, as Perfetto's documentation refers to it.
//!
//! Groups are the host of each process, with its launches and the ranges around them, and each GPU
//! of a process, with a row a stream. A range reaches from its first launch to its last.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};

use super::recorded::sizes;
use crate::RenderError;
use regatta_core::machine::{Recorded, Work};
use regatta_core::record::trace::Trace;

/// The row of a host's launches.
const LAUNCHES: u64 = 1;
/// The row of the ranges that a host was in.
const RANGES: u64 = 2;
/// Rows below are those of streams by their number; others are numbered from here. Perfetto
/// takes numbers of 32 bits.
const MORE: u64 = 1 << 20;

/// Nanoseconds as microseconds: below 2^53 ns, 104 days, exact to the nanosecond.
fn microseconds(ns: u64) -> Value {
    json!(ns as f64 / 1e3)
}

/// The events that are written.
struct TraceEvents<'a> {
    /// The moment from which times are counted.
    zero: i64,
    first: bool,
    out: &'a mut dyn Write,
}

impl TraceEvents<'_> {
    fn event(&self, name: &str, ph: &str, (pid, tid): (u64, u64), at: i64) -> Value {
        let at = at.saturating_sub(self.zero).max(0).unsigned_abs();
        json!({ "name": name, "ph": ph, "pid": pid, "tid": tid, "ts": microseconds(at) })
    }

    fn add(&mut self, event: &Value) -> Result<(), RenderError> {
        if !std::mem::take(&mut self.first) {
            self.out.write_all(b",\n")?;
        }
        Ok(write!(self.out, "{event}")?)
    }

    /// Names a row or a group.
    fn name(&mut self, what: &str, row: (u64, u64), name: &str) -> Result<(), RenderError> {
        let mut event = self.event(what, "M", row, self.zero);
        event["args"] = json!({ "name": name });
        self.add(&event)
    }
}

/// Writes a trace, an event a line. Times are counted from the first event.
///
/// # Errors
/// When it cannot be written.
pub fn perfetto(trace: &Trace, out: &mut dyn Write) -> Result<(), RenderError> {
    let recording = &trace.recording;
    let moments = recording.operations.iter().map(first_moment);
    let zero = moments.min().unwrap_or(0);
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
    let first = true;
    let mut events = TraceEvents { zero, first, out };
    let groups = Groups::new(trace);
    groups.named(trace, &mut events)?;
    let mut rows = Rows::default();
    for (number, operation) in recording.operations.iter().enumerate() {
        groups.ran(trace, operation, number, &mut rows, &mut events)?;
    }
    groups.launched(trace, &mut rows, &mut events)?;
    for (row, name) in &rows.names {
        events.name("thread_name", *row, name)?;
    }
    Ok(writeln!(events.out, "\n]}}")?)
}

fn first_moment(operation: &Recorded) -> i64 {
    let start = operation.start_ns.cast_signed();
    operation.launched_ns.map_or(start, |at| at.min(start))
}

/// The numbers of the groups of rows: of each process's host, and of its GPUs.
struct Groups {
    hosts: Vec<u64>,
    devices: BTreeMap<(u32, u32), u64>,
}

impl Groups {
    fn new(trace: &Trace) -> Groups {
        let recording = &trace.recording;
        let mut devices: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        let mut processes = recording.processes.len();
        for operation in &recording.operations {
            devices.insert((operation.process, operation.device), 0);
            processes = processes.max(operation.process as usize + 1);
        }
        let hosts: Vec<u64> = (1..=processes as u64).collect();
        for (device, number) in devices.values_mut().zip(hosts.len() as u64 + 1..) {
            *device = number;
        }
        Groups { hosts, devices }
    }

    fn host(&self, process: u32) -> u64 {
        self.hosts.get(process as usize).copied().unwrap_or(0)
    }

    fn named(&self, trace: &Trace, events: &mut TraceEvents) -> Result<(), RenderError> {
        let processes = &trace.recording.processes;
        let pid = |at: usize| processes.get(at).map_or(0, |process| process.pid);
        for (at, group) in self.hosts.iter().enumerate() {
            let command = processes.get(at).map(|process| process.argv.join(" "));
            let name = format!("host: {} ({})", command.unwrap_or_default(), pid(at));
            events.name("process_name", (*group, 0), &name)?;
        }
        for ((process, device), group) in &self.devices {
            let process = *process as usize;
            let known = processes.get(process).map(|process| &process.devices);
            let mut known = known.into_iter().flatten();
            let found = known.find(|known| known.ordinal == *device);
            let called = found.map_or("", |found| found.name.as_str());
            let name = format!("GPU {device}: {called} ({})", pid(process));
            events.name("process_name", (*group, 0), &name)?;
        }
        Ok(())
    }

    /// An operation of a device, and the arrow to it where its launch is drawn.
    fn ran(
        &self,
        trace: &Trace,
        operation: &Recorded,
        number: usize,
        rows: &mut Rows,
        events: &mut TraceEvents,
    ) -> Result<(), RenderError> {
        let group = self.devices[&(operation.process, operation.device)];
        let times = (
            operation.start_ns.cast_signed(),
            operation.end_ns.cast_signed(),
        );
        let stream = operation.stream.map(u64::from);
        let stream_name = match stream {
            Some(stream) => format!("stream {stream}"),
            None => "stream unknown".to_owned(),
        };
        let row = rows.free((group, stream), times, &stream_name);
        let (name, cat) = called(trace, operation);
        let mut event = events.event(&name, "X", row, times.0);
        (event["dur"], event["cat"]) = (microseconds(operation.ns()), cat.into());
        if let Some(args) = operation_args(operation) {
            event["args"] = args;
        }
        events.add(&event)?;
        if !is_drawn(operation) {
            return Ok(());
        }
        // The arrow ends at the event around its end, not at the next.
        let mut event = events.event("launch", "f", row, times.0);
        (event["cat"], event["id"], event["bp"]) = ("launch".into(), number.into(), "e".into());
        events.add(&event)
    }

    /// What hosts launched, by process in the order of launching, with the ranges around it.
    fn launched(
        &self,
        trace: &Trace,
        rows: &mut Rows,
        events: &mut TraceEvents,
    ) -> Result<(), RenderError> {
        let mut order: Vec<(usize, &Recorded, i64)> = Vec::new();
        let operations = trace.recording.operations.iter().enumerate();
        order.extend(operations.filter_map(|(at, o)| Some((at, o, o.launched_ns?))));
        order.sort_by_key(|(_, operation, at)| (operation.process, *at));
        let mut last = None;
        for process in order.chunk_by(|a, b| a.1.process == b.1.process) {
            let group = self.host(process[0].1.process);
            let mut open = OpenRanges::default();
            for (number, operation, at) in process {
                let end = at.saturating_add(operation.launch_ns.unwrap_or(0).cast_signed());
                open.reached(operation.operator.as_deref(), (*at, end), group, events)?;
                let (name, _) = called(trace, operation);
                // One launch of a graph is that of all its nodes.
                let same = (group, *at, operation.launch_ns);
                let row = match last {
                    Some((known, row)) if known == same => row,
                    _ => {
                        let row = rows.free((group, Some(LAUNCHES)), (*at, end), "launches");
                        let name = format!("launch of {}", regatta_core::machine::short(&name));
                        let mut event = match operation.launch_ns {
                            Some(ns) => {
                                let mut event = events.event(&name, "X", row, *at);
                                event["dur"] = microseconds(ns);
                                event
                            }
                            None => {
                                // A moment, marked across its row.
                                let mut event = events.event(&name, "i", row, *at);
                                event["s"] = "t".into();
                                event
                            }
                        };
                        event["cat"] = "launch".into();
                        events.add(&event)?;
                        row
                    }
                };
                last = Some((same, row));
                if is_drawn(operation) {
                    let mut event = events.event("launch", "s", row, *at);
                    (event["cat"], event["id"]) = ("launch".into(), (*number).into());
                    events.add(&event)?;
                }
            }
            open.closed_to(0, i64::MAX, group, events)?;
            if open.any {
                let ranges = "ranges, from their first launch to their last";
                events.name("thread_name", (group, RANGES), ranges)?;
            }
        }
        Ok(())
    }
}

/// True where an arrow leads to an operation: it needs a launch with a length, before it.
fn is_drawn(operation: &Recorded) -> bool {
    let launched = operation
        .launched_ns
        .filter(|_| operation.launch_ns.is_some());
    launched.is_some_and(|at| at <= operation.start_ns.cast_signed())
}

/// The name of an operation, and its kind.
fn called(trace: &Trace, operation: &Recorded) -> (String, &'static str) {
    match &operation.work {
        Work::Kernel(kernel) => (trace.recording.name(kernel).to_owned(), "kernel"),
        Work::Copy { direction, .. } => (format!("copy {direction}"), "copy"),
        Work::Set { .. } => ("memory set".to_owned(), "set"),
    }
}

/// The known figures of an operation.
fn operation_args(operation: &Recorded) -> Option<Value> {
    let mut args = serde_json::Map::new();
    let mut tell = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            args.insert(name.to_owned(), value);
        }
    };
    if let Some(kernel) = operation.kernel() {
        tell("grid", Some(sizes(kernel.grid).into()));
        tell("block", Some(sizes(kernel.block).into()));
        tell("registers", kernel.registers.map(Value::from));
        tell("shared_bytes", kernel.shared_bytes.map(Value::from));
        tell("local_bytes", kernel.local_bytes.map(Value::from));
        tell("graph", kernel.graph.map(Value::from));
    }
    tell("bytes", operation.bytes().map(Value::from));
    tell("operator", operation.operator.as_deref().map(Value::from));
    (!args.is_empty()).then_some(Value::Object(args))
}

/// The ranges that are open where the host is, outermost first.
#[derive(Default)]
struct OpenRanges {
    ranges: Vec<(String, i64)>,
    /// End of the last launch.
    until: i64,
    any: bool,
}

impl OpenRanges {
    /// The next launch: what it is not in ends, what it is in begins.
    fn reached(
        &mut self,
        operator: Option<&str>,
        (at, end): (i64, i64),
        group: u64,
        events: &mut TraceEvents,
    ) -> Result<(), RenderError> {
        let path: Vec<&str> = operator.map_or_else(Vec::new, |path| path.split('/').collect());
        let common = self.ranges.iter().zip(&path);
        let common = common.take_while(|((open, _), now)| open == *now).count();
        self.closed_to(common, at, group, events)?;
        let new = path[common..].iter().map(|name| ((*name).to_owned(), at));
        self.ranges.extend(new);
        self.any |= !self.ranges.is_empty();
        self.until = match common {
            0 => end,
            _ => self.until.max(end),
        };
        Ok(())
    }

    /// Ends all but the outermost, at the end of the last launch or before the next one.
    fn closed_to(
        &mut self,
        left: usize,
        next: i64,
        group: u64,
        events: &mut TraceEvents,
    ) -> Result<(), RenderError> {
        let end = self.until.min(next);
        while self.ranges.len() > left {
            let Some((name, from)) = self.ranges.pop() else {
                break;
            };
            let dur = end.saturating_sub(from).max(0).unsigned_abs();
            let mut event = events.event(&name, "X", (group, RANGES), from);
            (event["dur"], event["cat"]) = (microseconds(dur), "range".into());
            events.add(&event)?;
        }
        Ok(())
    }
}

/// A group, and a stream or row of it by its number, where it has one.
type Stream = (u64, Option<u64>);

/// Rows, each with the end of what lies on it last.
#[derive(Default)]
struct Rows {
    /// Of each stream its rows, with the end of what lies last on each.
    ends: BTreeMap<Stream, Vec<(u64, i64)>>,
    names: BTreeMap<(u64, u64), String>,
}

impl Rows {
    /// The row for what is next of a stream, or of a host's launches: the first on which
    /// nothing runs any more. Starts never go back.
    fn free(
        &mut self,
        (group, stream): Stream,
        (start, end): (i64, i64),
        called: &str,
    ) -> (u64, u64) {
        let rows = self.ends.entry((group, stream)).or_default();
        if let Some((number, last)) = rows.iter_mut().find(|(_, last)| *last <= start) {
            *last = end;
            return (group, *number);
        }
        let own = stream.filter(|stream| rows.is_empty() && *stream < MORE);
        let number = own.unwrap_or(MORE + self.names.len() as u64);
        rows.push((number, end));
        let name = match rows.len() {
            1 => called.to_owned(),
            place => format!("{called} ({place})"),
        };
        self.names.insert((group, number), name);
        (group, number)
    }
}

#[cfg(test)]
mod tests;
