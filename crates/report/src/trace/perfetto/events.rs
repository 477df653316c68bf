//! Events of the Trace Event Format, and the rows that they lie on.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;
use serde_json::{Value, json};

use crate::RenderError;

/// The row of a host's launches.
pub const LAUNCHES: u64 = 1;
/// The row of the ranges that a host was in.
pub const RANGES: u64 = 2;
/// Rows below are those of streams by their number; others are numbered from here. Perfetto
/// takes numbers of 32 bits.
const MORE: u64 = 1 << 20;

/// An event. What it lacks is not written.
#[derive(Serialize)]
pub struct TraceEvent<'a> {
    pub name: &'a str,
    pub ph: char,
    pub pid: u64,
    pub tid: u64,
    pub ts: Microseconds,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dur: Option<Microseconds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cat: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<usize>,
    /// An arrow ends at the event around its end, not at the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bp: Option<&'a str>,
    /// How far a moment's mark reaches: its row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
}

impl<'a> TraceEvent<'a> {
    /// One of these, at the first moment.
    pub fn new(name: &'a str, ph: char, (pid, tid): (u64, u64)) -> TraceEvent<'a> {
        TraceEvent {
            name,
            ph,
            pid,
            tid,
            ts: Microseconds(0),
            dur: None,
            cat: None,
            id: None,
            bp: None,
            s: None,
            args: None,
        }
    }
}

/// Nanoseconds, written as microseconds.
#[derive(Clone, Copy)]
pub struct Microseconds(pub u64);

impl Serialize for Microseconds {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Below 2^53 ns, 104 days from the first event, this is exact to the nanosecond.
        serializer.serialize_f64(self.0 as f64 / 1e3)
    }
}

/// What is written of a trace.
pub struct TraceEvents<'a> {
    zero: i64,
    first: bool,
    out: &'a mut dyn Write,
}

impl<'a> TraceEvents<'a> {
    /// None yet; times are counted from `zero`.
    pub fn new(zero: i64, out: &'a mut dyn Write) -> TraceEvents<'a> {
        let first = true;
        TraceEvents { zero, first, out }
    }

    /// From what times are counted.
    pub fn zero(&self) -> i64 {
        self.zero
    }

    /// What stands before all events.
    pub fn begin(&mut self, about: &Value) -> Result<(), RenderError> {
        let out = &mut self.out;
        writeln!(
            out,
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":["
        )?;
        Ok(())
    }

    /// What stands behind them.
    pub fn end(&mut self) -> Result<(), RenderError> {
        writeln!(self.out, "\n]}}")?;
        Ok(())
    }

    /// A moment.
    pub fn at(&self, ns: i64) -> Microseconds {
        Microseconds(ns.saturating_sub(self.zero).max(0).unsigned_abs())
    }

    /// Writes one.
    pub fn add(&mut self, event: &TraceEvent) -> Result<(), RenderError> {
        if !std::mem::take(&mut self.first) {
            self.out.write_all(b",\n")?;
        }
        let text = serde_json::to_vec(event).map_err(std::io::Error::from)?;
        Ok(self.out.write_all(&text)?)
    }

    /// Names a row or a group.
    pub fn name(&mut self, what: &str, row: (u64, u64), name: &str) -> Result<(), RenderError> {
        self.add(&TraceEvent {
            args: Some(json!({ "name": name })),
            ..TraceEvent::new(what, 'M', row)
        })
    }
}

/// The ranges that are open where the host is, outermost first.
#[derive(Default)]
pub struct OpenRanges {
    ranges: Vec<(String, i64)>,
    /// End of the last launch.
    until: i64,
    any: bool,
}

impl OpenRanges {
    /// The next launch: what it is not in ends, what it is in begins.
    pub fn reached(
        &mut self,
        operator: Option<&str>,
        (at, end): (i64, i64),
        group: u64,
        events: &mut TraceEvents,
    ) -> Result<(), RenderError> {
        let path: Vec<&str> = operator.map_or_else(Vec::new, |told| told.split('/').collect());
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

    /// True where any was ever open.
    pub fn were_any(&self) -> bool {
        self.any
    }

    /// Ends all but the outermost, at the end of the last launch or before the next one.
    pub fn closed_to(
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
            let ts = events.at(from);
            events.add(&TraceEvent {
                ts,
                dur: Some(Microseconds(end.saturating_sub(from).max(0).unsigned_abs())),
                cat: Some("range"),
                ..TraceEvent::new(&name, 'X', (group, RANGES))
            })?;
        }
        Ok(())
    }
}

/// A group, and a stream or row of it by its number, where it has one.
type Stream = (u64, Option<u64>);

/// Rows, each with the end of what lies on it last.
#[derive(Default)]
pub struct Rows {
    /// Of each stream its rows, with the end of what lies last on each.
    ends: BTreeMap<Stream, Vec<(u64, i64)>>,
    names: BTreeMap<(u64, u64), String>,
}

impl Rows {
    /// The row for what is next of a stream, or of a host's launches: the first on which
    /// nothing runs any more. Starts never go back.
    pub fn free(
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

    /// Names all of them.
    pub fn named(&self, events: &mut TraceEvents) -> Result<(), RenderError> {
        for (row, name) in &self.names {
            events.name("thread_name", *row, name)?;
        }
        Ok(())
    }
}
