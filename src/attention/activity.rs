//! What the device did during one call, and when: operations in order, the gaps between
//! them, and what it waited for.
//!
//! Unlike [`Structure`](super::Structure) these are times, taken by the device's own
//! record of its work, which stretches gaps: evidence for a cause, never a measurement.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One steady call, as the device recorded it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// What ran, by start.
    pub operations: Vec<Operation>,
    /// Nanoseconds the host needed to make the call, recording included.
    pub host_ns: u64,
    /// Calls to CUDA by name: `module_loads`, `allocations`, `frees`, `synchronisations`,
    /// `launches`, `graph_launches`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, u64>,
    /// Records that were lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

/// A kernel, copy or fill that ran. Times in nanoseconds from the start of the first
/// operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// What it is.
    pub kind: OperationKind,
    /// A kernel's name, demangled; a copy's direction, `HtoD`; empty for a fill.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// When it started.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Number of its stream, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<u32>,
    /// Bytes of a copy or fill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// When the host began to launch it, where known; before the first operation it is
    /// negative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launched_ns: Option<i64>,
}

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OperationKind {
    /// A kernel.
    Kernel,
    /// A copy by the driver, not by a kernel.
    Copy,
    /// A fill by the driver.
    Set,
}

/// A time in which nothing ran, before an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// When the operations before it had ended.
    pub start_ns: u64,
    /// When the next one started.
    pub end_ns: u64,
    /// Which that is, by its place.
    pub next: usize,
}

impl Gap {
    /// Its length in nanoseconds.
    pub fn ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }
}

/// An [`Activity`] in a few figures; what a baseline keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivitySummary {
    /// Nanoseconds in which something ran.
    pub busy_ns: u64,
    /// Nanoseconds from the first start to the last end.
    pub span_ns: u64,
    /// Times in which nothing ran.
    pub gaps: u64,
    /// Nanoseconds of the span in which the device waited for a launch that the host had
    /// not begun, where launches are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_bound_ns: Option<u64>,
    /// Copies by the driver.
    pub copies: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Nanoseconds in which a copy and a kernel ran at once.
    pub overlap_ns: u64,
    /// Which launch took longest: its place among the kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<usize>,
    /// Nanoseconds the host needed to make the call.
    pub host_ns: u64,
    /// Calls to CUDA, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, u64>,
}

impl ActivitySummary {
    /// Share of the span in which the device waited for the host, where known.
    pub fn host_bound(&self) -> Option<f64> {
        let waited = self.host_bound_ns?;
        (self.span_ns > 0).then(|| waited as f64 / self.span_ns as f64)
    }
}

impl Activity {
    /// Its kernels, in order.
    pub fn kernels(&self) -> impl Iterator<Item = &Operation> {
        self.of(OperationKind::Kernel)
    }

    fn of(&self, kind: OperationKind) -> impl Iterator<Item = &Operation> {
        self.operations
            .iter()
            .filter(move |operation| operation.kind == kind)
    }

    /// Nanoseconds from the first start to the last end.
    pub fn span_ns(&self) -> u64 {
        let starts = self.operations.iter().map(|operation| operation.start_ns);
        let ends = self.operations.iter().map(|operation| operation.end_ns);
        match (starts.min(), ends.max()) {
            (Some(start), Some(end)) => end.saturating_sub(start),
            _ => 0,
        }
    }

    /// Nanoseconds in which something ran; operations that ran at once count once.
    pub fn busy_ns(&self) -> u64 {
        length(&union(self.operations.iter()))
    }

    /// Nanoseconds in which a copy and a kernel ran at once.
    pub fn overlap_ns(&self) -> u64 {
        common(
            &union(self.of(OperationKind::Copy)),
            &union(self.of(OperationKind::Kernel)),
        )
    }

    /// Times in which nothing ran, in order.
    pub fn gaps(&self) -> Vec<Gap> {
        let mut order: Vec<usize> = (0..self.operations.len()).collect();
        order.sort_by_key(|&at| self.operations[at].start_ns);
        let mut gaps = Vec::new();
        let mut ended = None;
        for next in order {
            let operation = &self.operations[next];
            if let Some(start_ns) = ended.filter(|&ended| ended < operation.start_ns) {
                gaps.push(Gap {
                    start_ns,
                    end_ns: operation.start_ns,
                    next,
                });
            }
            ended = ended.max(Some(operation.end_ns));
        }
        gaps
    }

    /// Nanoseconds in which the device waited for a launch that the host had not begun:
    /// of each gap, the part before the launch of what ended it. The rest of a gap is the
    /// device's own, or the driver's. `None` where a launch is not known.
    pub fn host_bound_ns(&self) -> Option<u64> {
        self.gaps()
            .into_iter()
            .map(|gap| {
                let launched = self.operations[gap.next].launched_ns?;
                let launched = u64::try_from(launched).unwrap_or(0);
                Some(launched.clamp(gap.start_ns, gap.end_ns) - gap.start_ns)
            })
            .sum()
    }

    /// The figures that causes are found by, under the names that a structure has them:
    /// idle time of the device, copies under kernels, modules loaded, and which share of
    /// the call the device waited for the host (in thousandths, where it is known).
    pub fn counts(&self) -> Vec<(String, u64)> {
        let idle = self.gaps().iter().map(Gap::ns).sum();
        let mut counts = vec![("gap_ns", idle), ("overlap_ns", self.overlap_ns())];
        counts.extend(
            self.calls
                .get("module_loads")
                .map(|loads| ("module_loads", *loads)),
        );
        let waited = self.host_bound_ns().filter(|_| self.span_ns() > 0);
        counts.extend(waited.map(|ns| ("host_bound_permille", 1000 * ns / self.span_ns())));
        let named = counts.into_iter();
        named.map(|(name, n)| (name.to_owned(), n)).collect()
    }

    /// All of it in a few figures.
    pub fn summary(&self) -> ActivitySummary {
        ActivitySummary {
            busy_ns: self.busy_ns(),
            span_ns: self.span_ns(),
            gaps: self.gaps().len() as u64,
            host_bound_ns: self.host_bound_ns(),
            copies: self.of(OperationKind::Copy).count() as u64,
            copied_bytes: self
                .of(OperationKind::Copy)
                .filter_map(|copy| copy.bytes)
                .sum(),
            overlap_ns: self.overlap_ns(),
            longest: self
                .kernels()
                .enumerate()
                .max_by_key(|(_, kernel)| kernel.end_ns.saturating_sub(kernel.start_ns))
                .map(|(place, _)| place),
            host_ns: self.host_ns,
            calls: self.calls.clone(),
        }
    }
}

/// The times of operations as intervals that do not touch, in order.
fn union<'a>(operations: impl Iterator<Item = &'a Operation>) -> Vec<(u64, u64)> {
    let mut times: Vec<(u64, u64)> = operations
        .filter(|operation| operation.start_ns < operation.end_ns)
        .map(|operation| (operation.start_ns, operation.end_ns))
        .collect();
    times.sort_unstable();
    let mut found: Vec<(u64, u64)> = Vec::new();
    for (start, end) in times {
        match found.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => found.push((start, end)),
        }
    }
    found
}

fn length(intervals: &[(u64, u64)]) -> u64 {
    intervals.iter().map(|(start, end)| end - start).sum()
}

/// Length of what two unions have in common.
fn common(one: &[(u64, u64)], other: &[(u64, u64)]) -> u64 {
    let (mut i, mut j, mut length) = (0, 0, 0);
    while let (Some(a), Some(b)) = (one.get(i), other.get(j)) {
        length += a.1.min(b.1).saturating_sub(a.0.max(b.0));
        if a.1 < b.1 {
            i += 1;
        } else {
            j += 1;
        }
    }
    length
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn operation(kind: OperationKind, start_ns: u64, end_ns: u64) -> Operation {
        Operation {
            kind,
            name: String::new(),
            start_ns,
            end_ns,
            stream: None,
            bytes: (kind == OperationKind::Copy).then_some(4096),
            launched_ns: None,
        }
    }

    fn activity(operations: Vec<Operation>) -> Activity {
        Activity {
            operations,
            ..Activity::default()
        }
    }

    fn launched(start_ns: u64, end_ns: u64, launched_ns: i64) -> Operation {
        Operation {
            launched_ns: Some(launched_ns),
            ..operation(OperationKind::Kernel, start_ns, end_ns)
        }
    }

    #[test]
    fn what_runs_at_once_is_busy_once() {
        use OperationKind::{Copy, Kernel};
        let call = activity(vec![
            operation(Kernel, 0, 100),
            operation(Copy, 40, 140),
            operation(Kernel, 120, 160),
            operation(Copy, 200, 210),
        ]);
        assert_eq!((call.span_ns(), call.busy_ns()), (210, 170));
        assert_eq!(call.overlap_ns(), 60 + 20);
        let gap = Gap {
            start_ns: 160,
            end_ns: 200,
            next: 3,
        };
        assert_eq!(call.gaps(), [gap]);
        let summary = call.summary();
        assert_eq!((summary.copies, summary.copied_bytes), (2, 8192));
        assert_eq!(summary.longest, Some(0), "100 ns against 40");
        assert_eq!(summary.host_bound(), None, "no launch is known");
    }

    /// A device that is fed in time has gaps of its own; one that is not waits.
    #[test]
    fn a_gap_is_the_hosts_until_the_launch() {
        let fed = activity(vec![launched(0, 100, -30), launched(102, 200, 5)]);
        assert_eq!(fed.host_bound_ns(), Some(0));
        let starved = activity(vec![
            launched(0, 10, -8),
            launched(100, 110, 92),  // waited from 10 to 92
            launched(150, 160, 200), // a clock that is off: the whole gap, and no more
            launched(170, 180, -1),
        ]);
        assert_eq!(starved.host_bound_ns(), Some(82 + 40));
        assert_eq!(starved.summary().host_bound(), Some(122.0 / 180.0));
    }

    #[test]
    fn nothing_that_ran_is_no_span() {
        let none = activity(Vec::new());
        assert_eq!(
            (none.span_ns(), none.busy_ns(), none.gaps().len()),
            (0, 0, 0)
        );
        assert_eq!(none.summary().host_bound(), None);
    }

    #[test]
    fn it_is_written_as_short_as_it_can_be() {
        let call = activity(vec![operation(OperationKind::Set, 0, 5)]);
        let text = serde_json::to_string(&call).unwrap();
        let expected = r#"{"operations":[{"kind":"set","start_ns":0,"end_ns":5}],"host_ns":0}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Activity>(&text).unwrap(), call);
    }

    proptest! {
        #[test]
        fn busy_and_gaps_make_the_span(
            times in prop::collection::vec((0u64..500, 1u64..80, any::<bool>()), 1..30)
        ) {
            let kind = |copy| if copy { OperationKind::Copy } else { OperationKind::Kernel };
            let operations = times.iter().map(|&(start, length, copy)| {
                operation(kind(copy), start, start + length)
            });
            let call = activity(operations.collect());
            let idle: u64 = call.gaps().iter().map(Gap::ns).sum();
            prop_assert_eq!(call.busy_ns() + idle, call.span_ns());
            let copies = length(&union(call.of(OperationKind::Copy)));
            let kernels = length(&union(call.kernels()));
            prop_assert_eq!(copies + kernels - call.overlap_ns(), call.busy_ns());
        }
    }
}
