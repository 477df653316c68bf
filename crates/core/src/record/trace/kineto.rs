//! A trace of PyTorch's profiler, `export_chrome_trace`: the Trace ChromeEvent Format, with the
//! `args` of Kineto.
//!
//! Operations of devices have `cat` `kernel`, `gpu_memcpy` or `gpu_memset`, and `args` with
//! `device`, `stream`, `correlation`, `grid`, `block`, `registers per thread`, `shared memory` or
//! `bytes`. The event of `cuda_runtime` or `cuda_driver` with the same `correlation` launched
//! them, in the `cpu_op` and `user_annotation` around it. Calls are not counted:
//! Kineto leaves some out. Source: libkineto's `output_json.cpp`, `CuptiActivity.cpp` and
//! `ActivityType.cpp`, with traces of 2026.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{BufRead, Read};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, SeqAccess, Visitor};
use serde_json::Value;

use super::{FileDamage, interned, numbered};
use crate::machine::{
    Launch, Operation, Process, Recorded, Recording, TracedGpu, Work, is_operator,
};

/// The number of bytes at the start of a file that show its kind: a list of devices precedes the
/// events.
const BEGINNING: u64 = 1 << 16;

/// True for a file that begins like those of PyTorch's profiler.
///
/// # Errors
/// When it cannot be read.
pub fn is(file: impl Read) -> std::io::Result<bool> {
    let mut beginning = Vec::new();
    file.take(BEGINNING).read_to_end(&mut beginning)?;
    let text = String::from_utf8_lossy(&beginning);
    let keys = [
        "\"traceEvents\"",
        "\"deviceProperties\"",
        "\"schemaVersion\"",
    ];
    Ok(text.trim_start().starts_with('{') && keys.iter().any(|key| text.contains(key)))
}

/// The object around the events.
#[derive(Deserialize)]
#[serde(expecting = "an object with traceEvents")]
struct ChromeTrace {
    #[serde(rename = "deviceProperties", default)]
    devices: Vec<Value>,
    #[serde(rename = "traceEvents")]
    events: Events,
}

/// The members of an event that are read; members of other types are ignored.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ChromeEvent {
    ph: Value,
    cat: Value,
    name: Value,
    pid: Value,
    tid: Value,
    ts: Value,
    dur: Value,
    args: Value,
}

/// The value as type `T`, if it has that type.
fn member<T: DeserializeOwned>(of: &Value) -> Option<T> {
    T::deserialize(of).ok()
}

/// A call, by its correlation.
struct RuntimeCall {
    at: u64,
    ns: u64,
    pid: u32,
    thread: usize,
}

/// The events of a trace, added one by one while reading.
#[derive(Default)]
struct Events {
    recording: Recording,
    names: HashMap<String, u32>,
    damage: FileDamage,
    /// The correlation id of each operation's launch.
    correlations: Vec<Option<u64>>,
    calls: HashMap<u64, RuntimeCall>,
    threads: Threads,
    /// Events so far.
    place: usize,
}

/// Reads a trace, an event at a time, and keeps the last `limit` operations. Single events that
/// cannot be used are reported in [`Recording::damage`], under `label`.
///
/// # Errors
/// When the JSON is not Kineto's, with the line and the column.
pub fn read(file: impl BufRead, label: &str, limit: usize) -> Result<Recording, String> {
    let trace: ChromeTrace = serde_json::from_reader(file).map_err(|error| {
        if error.is_eof() {
            format!("it is cut off: {error}")
        } else {
            error.to_string()
        }
    })?;
    let devices = trace.devices.iter().map(|gpu| {
        let number = |name: &str| member::<u32>(&gpu[name]).unwrap_or_default();
        TracedGpu {
            ordinal: number("id"),
            name: gpu["name"].as_str().unwrap_or_default().to_owned(),
            sms: number("numSms"),
            capability: format!("{}.{}", number("computeMajor"), number("computeMinor")),
        }
    });
    let mut recording = trace.events.finished(&devices.collect::<Vec<_>>(), label);
    recording.settle(limit);
    Ok(recording)
}

impl<'de> Deserialize<'de> for Events {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Events, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Events;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of events")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Events, S::Error> {
                let mut events = Events::default();
                while let Some(event) = list.next_element()? {
                    events.add(event);
                }
                Ok(events)
            }
        }
        deserializer.deserialize_seq(List)
    }
}

/// A time of the file, which is in microseconds, in nanoseconds.
fn ns(time: &Value) -> Option<u64> {
    match time.as_u64() {
        Some(whole) => whole.checked_mul(1_000),
        None => time
            .as_f64()
            .filter(|us| (0.0..1e16).contains(us))
            .map(|us| (us * 1e3).round() as u64),
    }
}

/// The name of a thread or process: a number or a text.
fn word(id: &Value) -> String {
    match id {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn text(of: Value) -> String {
    match of {
        Value::String(text) => text,
        _ => String::new(),
    }
}

impl Events {
    fn add(&mut self, event: ChromeEvent) {
        self.place += 1;
        let (Some("X"), Some(category)) = (event.ph.as_str(), event.cat.as_str()) else {
            return;
        };
        let times = ns(&event.ts).zip(ns(&event.dur));
        let times = times.map(|(start, ns)| (start, start.saturating_add(ns)));
        let correlation = member(&event.args["correlation"]).filter(|number| *number > 0);
        match (category, times) {
            ("cpu_op" | "user_annotation", Some((start, end))) => {
                let name = text(event.name);
                // Each step of a profiler has a range with its own number.
                if !name.is_empty() && !name.starts_with("ProfilerStep#") {
                    let name = interned(&mut self.threads.names, name);
                    let thread = self.threads.number(&event.pid, &event.tid);
                    self.threads.all[thread].ranges.push((start, end, name));
                }
            }
            ("cuda_runtime" | "cuda_driver", Some((at, end))) => {
                let Some(correlation) = correlation else {
                    return;
                };
                let call = RuntimeCall {
                    at,
                    ns: end - at,
                    pid: word(&event.pid).parse().unwrap_or(0),
                    thread: self.threads.number(&event.pid, &event.tid),
                };
                // A call of the runtime makes one of the driver with the same number.
                let known = self.calls.get(&correlation);
                if known.is_none_or(|known| at < known.at) {
                    self.calls.insert(correlation, call);
                }
            }
            ("kernel" | "gpu_memcpy" | "gpu_memset", times) => {
                match self.operation(&event, times) {
                    Ok(operation) => {
                        self.recording.operations.push(operation);
                        self.correlations.push(correlation);
                    }
                    Err(problem) => self.damage.add(self.place, problem),
                }
            }
            _ => {}
        }
    }

    fn operation(
        &mut self,
        event: &ChromeEvent,
        times: Option<(u64, u64)>,
    ) -> Result<Recorded, String> {
        let (start, end) = times.ok_or("an event of a device without its times")?;
        let args = &event.args;
        let bytes = member(&args["bytes"]);
        let name = event.name.as_str().unwrap_or_default();
        let work = match event.cat.as_str() {
            Some("gpu_memcpy") => {
                // Memcpy HtoD (Pageable -> Device)
                let word = name.split(' ').nth(1).filter(|word| !word.is_empty());
                let direction = word.unwrap_or("?").to_owned();
                Work::Copy { direction, bytes }
            }
            Some("gpu_memset") => Work::Set { bytes },
            _ => Work::Kernel(Launch {
                grid: member(&args["grid"]).ok_or("a kernel without its grid")?,
                block: member(&args["block"]).ok_or("a kernel without its block")?,
                registers: member(&args["registers per thread"]).filter(|number| *number > 0),
                shared_bytes: member(&args["shared memory"]),
                name: numbered(name.to_owned(), &mut self.names, &mut self.recording.names),
                ..Launch::default()
            }),
        };
        let device = member(&args["device"]).or_else(|| word(&event.pid).parse().ok());
        let operation = Operation {
            device: device.unwrap_or(0),
            stream: member(&args["stream"]).or_else(|| word(&event.tid).parse().ok()),
            ..Operation::new(work, start, end)
        };
        match operation.objection() {
            None => Ok(operation),
            Some(objection) => Err(objection.to_owned()),
        }
    }

    /// Assigns to each operation its launch and the ranges around it.
    fn finished(mut self, devices: &[TracedGpu], label: &str) -> Recording {
        let mut processes: Vec<Process> = Vec::new();
        let operations = &mut self.recording.operations;
        for (number, operation) in operations.iter_mut().enumerate() {
            let call = self.correlations[number].and_then(|number| self.calls.get(&number));
            // Operations without a known call belong to the first process.
            let Some(call) = call else { continue };
            operation.launched_ns = Some(call.at.cast_signed());
            operation.launch_ns = Some(call.ns);
            let launches = &mut self.threads.all[call.thread].launches;
            launches.push((call.at, number));
            let known = processes.iter().position(|known| known.pid == call.pid);
            operation.process = known.unwrap_or(processes.len()) as u32;
            if known.is_none() {
                processes.push(Process {
                    pid: call.pid,
                    ended: true,
                    ..Process::default()
                });
            }
        }
        self.threads.label_launches(operations);
        if processes.is_empty() {
            processes.push(Process {
                ended: true,
                ..Process::default()
            });
        }
        for operation in operations.iter() {
            let process = &mut processes[operation.process as usize];
            let ordinal = operation.device;
            if process.start == 0 || operation.start_ns < process.start {
                process.start = operation.start_ns;
            }
            if process.devices.iter().all(|known| known.ordinal != ordinal) {
                let device = devices.iter().find(|device| device.ordinal == ordinal);
                process.devices.extend(device.cloned());
            }
        }
        self.recording.processes = processes;
        self.damage.report(label, self.place, &mut self.recording);
        self.recording
    }
}

/// The largest number of bytes of an operator's text.
const MAX_OPERATOR_BYTES: usize = 200;

/// The ranges and launches of all threads of a trace. Times are nanoseconds.
#[derive(Default)]
struct Threads {
    numbers: HashMap<(String, String), usize>,
    all: Vec<HostThread>,
    names: HashSet<Arc<str>>,
}

#[derive(Default)]
struct HostThread {
    /// Start, end and name.
    ranges: Vec<(u64, u64, Arc<str>)>,
    /// Start, and the operation that was launched.
    launches: Vec<(u64, usize)>,
}

impl Threads {
    /// The number of a thread.
    fn number(&mut self, process: &Value, thread: &Value) -> usize {
        let key = (word(process), word(thread));
        *self.numbers.entry(key).or_insert_with(|| {
            self.all.push(HostThread::default());
            self.all.len() - 1
        })
    }

    /// Gives each launch the ranges that were open, outermost first, as a recording has them.
    fn label_launches(&mut self, operations: &mut [Recorded]) {
        let mut texts: HashSet<Arc<str>> = HashSet::new();
        for thread in &mut self.all {
            // The longer of two that start at once is the outer one.
            thread
                .ranges
                .sort_by_key(|(start, end, _)| (*start, u64::MAX - end));
            thread.launches.sort_unstable();
            let mut next = thread.ranges.iter().peekable();
            let mut open: Vec<(u64, &str)> = Vec::new();
            for (at, number) in &thread.launches {
                while let Some((start, end, name)) = next.next_if(|(start, ..)| start <= at) {
                    open.retain(|(last, _)| last > start);
                    open.push((*end, name));
                }
                open.retain(|(last, _)| last > at);
                let names: Vec<&str> = open.iter().map(|(_, name)| *name).collect();
                let text = operator_text(&names);
                operations[*number].operator = text.map(|text| interned(&mut texts, text));
            }
        }
    }
}

/// The three names of the open ranges that a recording keeps: the outermost, the
/// outermost that is an operator of a framework (else the last but one), and the innermost.
fn operator_text(names: &[&str]) -> Option<String> {
    let last = names.len().checked_sub(1)?;
    let operator = names.iter().position(|name| is_operator(name));
    let middle = operator.filter(|place| *place < last);
    let mut places = vec![0, middle.unwrap_or(last.saturating_sub(1)), last];
    places.dedup();
    // A `/` separates levels, so names may not have one.
    let names = places.iter().map(|place| names[*place].replace('/', "_"));
    let mut text = names.collect::<Vec<String>>().join("/");
    text.truncate(text.floor_char_boundary(MAX_OPERATOR_BYTES));
    Some(text)
}

#[cfg(test)]
mod tests;
