//! A trace of PyTorch's profiler, `export_chrome_trace`: the Trace ChromeEvent Format, with what
//! Kineto puts into `args`.
//!
//! Operations of devices have `cat` `kernel`, `gpu_memcpy` or `gpu_memset`, and `args` with
//! `device`, `stream`, `correlation`, `grid`, `block`, `registers per thread`, `shared memory` or
//! `bytes`. The event of `cuda_runtime` or `cuda_driver` with the same `correlation` launched
//! them, in the `cpu_op` and `user_annotation` around it. Calls are not counted:
//! Kineto leaves some out. Source: libkineto's `output_json.cpp`, `CuptiActivity.cpp` and
//! `ActivityType.cpp`, with traces of 2026.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io::{BufRead, Read};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::input::Damage;
use crate::machine::{
    Launch, Operation, Process, Recorded, Recording, TracedGpu, Work, is_operator,
};

/// How much of a file tells whether it is one, in bytes: a list of devices stands before the
/// events.
const BEGINNING: u64 = 1 << 16;

/// EventList that are kept with what is wrong with them; the others are counted.
const DAMAGE_KEPT: usize = 20;

/// True for a file that begins so as PyTorch's profiler writes it.
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

/// What is read of an event; members of other types than these are as if they were not there.
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
    args: Args,
}

#[derive(Default)]
struct Args(BTreeMap<&'static str, Value>);

/// Members of `args` that are read.
const READ: [&str; 8] = [
    "device",
    "stream",
    "correlation",
    "registers per thread",
    "shared memory",
    "grid",
    "block",
    "bytes",
];

impl<'de> Deserialize<'de> for Args {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Args, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Args;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the members of an event")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Args, M::Error> {
                let mut args = Args::default();
                while let Some(key) = map.next_key::<String>()? {
                    match READ.into_iter().find(|name| *name == key) {
                        Some(name) => drop(args.0.insert(name, map.next_value()?)),
                        None => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(args)
            }

            fn visit_unit<E: Error>(self) -> Result<Args, E> {
                Ok(Args::default())
            }
        }
        deserializer.deserialize_any(Members)
    }
}

impl Args {
    fn number<N: TryFrom<u64>>(&self, name: &str) -> Option<N> {
        self.0.get(name)?.as_u64()?.try_into().ok()
    }

    fn three(&self, name: &str) -> Option<[u32; 3]> {
        let parts = self.0.get(name)?.as_array()?.iter();
        let parts: Vec<u32> = parts
            .filter_map(|part| part.as_u64()?.try_into().ok())
            .collect();
        parts.try_into().ok()
    }
}

/// A GPU.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Properties {
    id: u32,
    name: String,
    #[serde(rename = "numSms")]
    sms: u32,
    #[serde(rename = "computeMajor")]
    major: u32,
    #[serde(rename = "computeMinor")]
    minor: u32,
}

/// What an event is.
enum EventCategory {
    Kernel,
    Copy,
    Set,
    /// A call to CUDA.
    Call,
    /// A range of the host's.
    Range,
}

impl EventCategory {
    fn from_category(cat: &str) -> Option<EventCategory> {
        match cat {
            "kernel" => Some(EventCategory::Kernel),
            "gpu_memcpy" => Some(EventCategory::Copy),
            "gpu_memset" => Some(EventCategory::Set),
            "cuda_runtime" | "cuda_driver" => Some(EventCategory::Call),
            "cpu_op" | "user_annotation" => Some(EventCategory::Range),
            _ => None,
        }
    }
}

/// A call, by its correlation.
struct RuntimeCall {
    at: u64,
    ns: u64,
    pid: u32,
    thread: usize,
}

#[derive(Default)]
struct KinetoTrace {
    recording: Recording,
    names: HashMap<String, u32>,
    /// EventList that cannot be used.
    bad: Vec<Damage>,
    devices: Vec<TracedGpu>,
    /// Of each operation, what launched it.
    correlations: Vec<Option<u64>>,
    calls: HashMap<u64, RuntimeCall>,
    threads: Threads,
    /// EventList so far.
    place: usize,
}

/// Reads a trace, an event at a time, and keeps the last `limit` operations. Single events that
/// cannot be used are reported in [`Recording::damage`], under `label`.
///
/// # Errors
/// When it is no such JSON, with the line and the column.
pub fn read(file: impl BufRead, label: &str, limit: usize) -> Result<Recording, String> {
    let mut found = KinetoTrace::default();
    let mut reader = serde_json::Deserializer::from_reader(file);
    let read = reader.deserialize_map(Whole(&mut found));
    let read = read.and_then(|()| reader.end());
    read.map_err(|error| match error.is_eof() {
        true => format!("it is cut off: {error}"),
        false => error.to_string(),
    })?;
    let mut recording = found.finished(label);
    recording.settle(limit);
    Ok(recording)
}

/// The object around the events.
struct Whole<'f>(&'f mut KinetoTrace);

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with traceEvents")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let mut any = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "traceEvents" => {
                    any = true;
                    map.next_value_seed(EventList(self.0))?;
                }
                "deviceProperties" => {
                    let told: Vec<Properties> = map.next_value()?;
                    self.0
                        .devices
                        .extend(told.into_iter().map(|told| TracedGpu {
                            ordinal: told.id,
                            name: told.name,
                            sms: told.sms,
                            capability: format!("{}.{}", told.major, told.minor),
                        }));
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        match any {
            true => Ok(()),
            false => Err(M::Error::custom("there is no traceEvents in it")),
        }
    }
}

struct EventList<'f>(&'f mut KinetoTrace);

impl<'de> serde::de::DeserializeSeed<'de> for EventList<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for EventList<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut events: S) -> Result<(), S::Error> {
        while let Some(event) = events.next_element()? {
            self.0.event(event);
        }
        Ok(())
    }
}

/// Microseconds as they are written, in nanoseconds.
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

/// The number of a kernel's name.
fn numbered(name: String, names: &mut HashMap<String, u32>, known: &mut Vec<String>) -> u32 {
    *names.entry(name).or_insert_with_key(|name| {
        known.push(name.clone());
        known.len() as u32 - 1
    })
}

impl KinetoTrace {
    fn event(&mut self, event: ChromeEvent) {
        self.place += 1;
        let kind = event.cat.as_str().and_then(EventCategory::from_category);
        let (Some("X"), Some(kind)) = (event.ph.as_str(), kind) else {
            return;
        };
        let times = ns(&event.ts).zip(ns(&event.dur));
        let times = times.map(|(start, ns)| (start, start.saturating_add(ns)));
        let correlation = event
            .args
            .number("correlation")
            .filter(|number| *number > 0);
        match (kind, times) {
            (EventCategory::Range, Some((start, end))) => {
                let name = text(event.name);
                // Each step of a profiler has a range with its own number.
                if !name.is_empty() && !name.starts_with("ProfilerStep#") {
                    let thread = self.threads.number(word(&event.pid), word(&event.tid));
                    self.threads.range(thread, name, start, end);
                }
            }
            (EventCategory::Call, Some((at, end))) => {
                let Some(correlation) = correlation else {
                    return;
                };
                let call = RuntimeCall {
                    at,
                    ns: end - at,
                    pid: word(&event.pid).parse().unwrap_or(0),
                    thread: self.threads.number(word(&event.pid), word(&event.tid)),
                };
                // A call of the runtime makes one of the driver with the same number.
                let first = self
                    .calls
                    .get(&correlation)
                    .is_none_or(|known| at < known.at);
                if first {
                    self.calls.insert(correlation, call);
                }
            }
            (EventCategory::Call | EventCategory::Range, None) => {}
            (kind, times) => {
                let operation = times
                    .ok_or_else(|| "an event of a device without its times".to_owned())
                    .and_then(|times| self.operation(kind, event, times));
                let sound = operation.and_then(|operation| match operation.objection() {
                    None => Ok(operation),
                    Some(objection) => Err(objection.to_owned()),
                });
                match sound {
                    Ok(operation) => {
                        self.recording.operations.push(operation);
                        self.correlations.push(correlation);
                    }
                    Err(problem) => self.bad.push(Damage {
                        line: self.place,
                        problem,
                    }),
                }
            }
        }
    }

    fn operation(
        &mut self,
        kind: EventCategory,
        event: ChromeEvent,
        (start, end): (u64, u64),
    ) -> Result<Recorded, String> {
        let args = &event.args;
        let bytes = args.number("bytes");
        let device = args
            .number("device")
            .or_else(|| word(&event.pid).parse().ok());
        let stream = args
            .number("stream")
            .or_else(|| word(&event.tid).parse().ok());
        let name = text(event.name);
        let work = match kind {
            EventCategory::Copy => {
                // Memcpy HtoD (Pageable -> TracedGpu)
                let told = name.split(' ').nth(1).filter(|told| !told.is_empty());
                let direction = told.unwrap_or("?").to_owned();
                Work::Copy { direction, bytes }
            }
            EventCategory::Set => Work::Set { bytes },
            _ => Work::Kernel(Launch {
                grid: args.three("grid").ok_or("a kernel without its grid")?,
                block: args.three("block").ok_or("a kernel without its block")?,
                registers: args
                    .number("registers per thread")
                    .filter(|registers| *registers > 0),
                shared_bytes: args.number("shared memory"),
                name: numbered(name, &mut self.names, &mut self.recording.names),
                ..Launch::default()
            }),
        };
        Ok(Operation {
            device: device.unwrap_or(0),
            stream,
            ..Operation::new(work, start, end)
        })
    }

    /// Lays launches and the ranges around them beside what they launched.
    fn finished(mut self, label: &str) -> Recording {
        let mut pids: Vec<u32> = Vec::new();
        let operations = &mut self.recording.operations;
        for (number, operation) in operations.iter_mut().enumerate() {
            let call = self.correlations[number].and_then(|number| self.calls.get(&number));
            let pid = call.map(|call| call.pid);
            if let Some(call) = call {
                operation.launched_ns = Some(call.at.cast_signed());
                operation.launch_ns = Some(call.ns);
                self.threads.launch(call.thread, call.at, number);
            }
            let known = pid.map_or(Some(0), |pid| pids.iter().position(|known| *known == pid));
            operation.process = known.unwrap_or(pids.len()) as u32;
            if let (None, Some(pid)) = (known, pid) {
                pids.push(pid);
            }
        }
        self.threads
            .label_launches(|number, told| operations[number].operator = Some(told));
        let mut processes: Vec<Process> = pids
            .iter()
            .map(|pid| Process {
                pid: *pid,
                ended: true,
                ..Process::default()
            })
            .collect();
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
                let mut told = self.devices.iter().filter(|told| told.ordinal == ordinal);
                process.devices.extend(told.next().cloned());
            }
        }
        self.recording.processes = processes;
        let more = self.bad.len().saturating_sub(DAMAGE_KEPT);
        self.bad.truncate(DAMAGE_KEPT);
        if more > 0 {
            self.bad.push(Damage {
                line: self.place,
                problem: format!("and {more} more could not be used"),
            });
        }
        let bad = self.bad.into_iter();
        let damage = bad.map(|damage| (label.to_owned(), damage));
        self.recording.damage = damage.collect();
        self.recording
    }
}

/// Bytes of an operator's text.
const LONGEST_OPERATOR: usize = 200;

/// The ranges and launches of all threads of a trace. Times are nanoseconds.
#[derive(Default)]
struct Threads {
    numbers: HashMap<(String, String), usize>,
    threads: Vec<HostThread>,
    names: Vec<String>,
    known: HashMap<String, u32>,
}

#[derive(Default)]
struct HostThread {
    /// Start, end and number of the name.
    ranges: Vec<(u64, u64, u32)>,
    /// Start, and the operation that was launched.
    launches: Vec<(u64, usize)>,
}

impl Threads {
    /// The number of a thread.
    fn number(&mut self, process: String, thread: String) -> usize {
        let threads = &mut self.threads;
        *self.numbers.entry((process, thread)).or_insert_with(|| {
            threads.push(HostThread::default());
            threads.len() - 1
        })
    }

    /// A range of a thread.
    fn range(&mut self, thread: usize, name: String, start: u64, end: u64) {
        let names = &mut self.names;
        let number = *self.known.entry(name).or_insert_with_key(|name| {
            names.push(name.clone());
            names.len() as u32 - 1
        });
        self.threads[thread].ranges.push((start, end, number));
    }

    /// A launch of a thread.
    fn launch(&mut self, thread: usize, at: u64, operation: usize) {
        self.threads[thread].launches.push((at, operation));
    }

    /// Gives each launch the ranges that were open, outermost first, as a recording has them.
    fn label_launches(mut self, mut label: impl FnMut(usize, Arc<str>)) {
        let mut texts: HashSet<Arc<str>> = HashSet::new();
        for thread in &mut self.threads {
            // Of two that start at once the longer is the outer one.
            thread
                .ranges
                .sort_by_key(|(start, end, _)| (*start, u64::MAX - end));
            thread.launches.sort_unstable();
            let mut next = thread.ranges.iter().peekable();
            let mut open: Vec<(u64, u32)> = Vec::new();
            for (at, operation) in &thread.launches {
                while let Some((start, end, name)) = next.next_if(|(start, ..)| start <= at) {
                    open.retain(|(last, _)| last > start);
                    open.push((*end, *name));
                }
                open.retain(|(last, _)| last > at);
                let names: Vec<&str> = open
                    .iter()
                    .map(|(_, name)| self.names[*name as usize].as_str())
                    .collect();
                let Some(text) = operator_text(&names) else {
                    continue;
                };
                let told = match texts.get(text.as_str()) {
                    Some(known) => Arc::clone(known),
                    None => {
                        let new: Arc<str> = text.into();
                        texts.insert(Arc::clone(&new));
                        new
                    }
                };
                label(*operation, told);
            }
        }
    }
}

/// Of the names of all open ranges the three that a recording tells: the outermost, the
/// outermost that is an operator of a framework (else the last but one), and the innermost.
fn operator_text(names: &[&str]) -> Option<String> {
    let last = names.len().checked_sub(1)?;
    let operator = names.iter().position(|name| is_operator(name));
    let middle = operator.filter(|place| *place < last);
    let mut places = vec![0, middle.unwrap_or(last.saturating_sub(1)), last];
    places.dedup();
    // Levels are told apart by what may not be in them.
    let told = places.iter().map(|place| names[*place].replace('/', "_"));
    let told: Vec<String> = told.collect();
    let mut text = told.join("/");
    let end = (0..=LONGEST_OPERATOR.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
    Some(text)
}

#[cfg(test)]
mod tests;
