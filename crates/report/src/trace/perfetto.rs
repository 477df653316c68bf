//! A trace in the Trace Event Format, which Perfetto and `chrome://tracing` open.
//!
//! The format is an object with `traceEvents`: complete events (`X`) with a start and a length in
//! microseconds, each on a row (`tid`) of a group of rows (`pid`), rows named by metadata (`M`),
//! arrows from `s` to `f` of one `id`, and counters (`C`). Events of one row lie within each
//! other or apart: what overlaps in part gets a row of its own.
//! Source: "Trace Event Format", by Google, as Perfetto's documentation refers to it.
//!
//! Groups are the host of each process, with its launches, the ranges that they were in and the
//! running counts of its calls, and each GPU of a process, with a row a stream. Ranges are known
//! by what was launched in them alone: they reach from the first launch to the last.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};

use super::recorded::sizes;
use crate::RenderError;
use regatta_core::machine::{Recorded, Work};
use regatta_core::record::trace::Trace;

mod events;

use events::{LAUNCHES, Microseconds, OpenRanges, RANGES, Rows, TraceEvent, TraceEvents};

/// Writes a trace, an event a line. Times are counted from the first moment that is told.
///
/// # Errors
/// When it cannot be written.
pub fn perfetto(trace: &Trace, out: &mut dyn Write) -> Result<(), RenderError> {
    let recording = &trace.recording;
    let moments = recording.operations.iter().map(first_moment);
    let mut events = TraceEvents::new(moments.min().unwrap_or(0), out);
    let about = json!({
        "command": trace.header.command,
        "started": trace.header.started.to_string(),
        "machine": trace.header.machine.name,
        "tool": format!("regatta {}", trace.header.tool),
    });
    events.begin(&about)?;
    let groups = Groups::new(trace);
    groups.named(trace, &mut events)?;
    groups.counted(trace, &mut events)?;
    let mut rows = Rows::default();
    for (number, operation) in recording.operations.iter().enumerate() {
        groups.ran(trace, operation, number, &mut rows, &mut events)?;
    }
    groups.launched(trace, &mut rows, &mut events)?;
    rows.named(&mut events)?;
    events.end()
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

    /// Calls to CUDA so far, as often as they were written.
    fn counted(&self, trace: &Trace, events: &mut TraceEvents) -> Result<(), RenderError> {
        let last = trace.recording.operations.iter().map(|o| o.end_ns).max();
        for (at, process) in trace.recording.processes.iter().enumerate() {
            // What was counted long before or after is not drawn: the page would be all of that.
            let told = process.calls.iter().filter(|calls| {
                let at = i64::try_from(calls.at).unwrap_or(i64::MAX);
                at >= events.zero() && last.is_some_and(|last| calls.at <= last)
            });
            for calls in told.collect::<Vec<_>>() {
                let ts = events.at(calls.at.cast_signed());
                events.add(&TraceEvent {
                    ts,
                    args: Some(json!(calls.counts)),
                    ..TraceEvent::new("CUDA calls so far", 'C', (self.hosts[at], 0))
                })?;
            }
        }
        Ok(())
    }

    /// What a device did, and the arrow to it where its launch is drawn.
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
        let ts = events.at(times.0);
        events.add(&TraceEvent {
            ts,
            dur: Some(Microseconds(operation.ns())),
            cat: Some(cat),
            args: operation_args(operation),
            ..TraceEvent::new(&name, 'X', row)
        })?;
        if !is_drawn(operation) {
            return Ok(());
        }
        events.add(&TraceEvent {
            ts,
            cat: Some("launch"),
            id: Some(number),
            bp: Some("e"),
            ..TraceEvent::new("launch", 'f', row)
        })
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
                        let (ph, s) = match operation.launch_ns {
                            Some(_) => ('X', None),
                            None => ('i', Some("t")),
                        };
                        let ts = events.at(*at);
                        let name = format!("launch of {}", regatta_core::machine::short(&name));
                        events.add(&TraceEvent {
                            ts,
                            dur: operation.launch_ns.map(Microseconds),
                            cat: Some("launch"),
                            s,
                            ..TraceEvent::new(&name, ph, row)
                        })?;
                        row
                    }
                };
                last = Some((same, row));
                if is_drawn(operation) {
                    let ts = events.at(*at);
                    events.add(&TraceEvent {
                        ts,
                        cat: Some("launch"),
                        id: Some(*number),
                        ..TraceEvent::new("launch", 's', row)
                    })?;
                }
            }
            open.closed_to(0, i64::MAX, group, events)?;
            if open.were_any() {
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

/// What an operation is called, and its kind.
fn called(trace: &Trace, operation: &Recorded) -> (String, &'static str) {
    match &operation.work {
        Work::Kernel(kernel) => (trace.recording.name(kernel).to_owned(), "kernel"),
        Work::Copy { direction, .. } => (format!("copy {direction}"), "copy"),
        Work::Set { .. } => ("memory set".to_owned(), "set"),
    }
}

/// What is known of an operation.
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

#[cfg(test)]
mod tests;
