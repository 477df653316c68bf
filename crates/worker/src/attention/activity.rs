//! What the device did during one call, and when: operations in order, the gaps between
//! them, and what it waited for.
//!
//! Unlike [`Structure`](super::Structure) these are times, taken by the device's own
//! record of its work, which stretches gaps: evidence for a cause, never a measurement.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::intervals::{Cover, Gap, Ran, gaps};
use super::structure::moves_data;

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

/// What a call asks of CUDA that one in steady state does without, each by its name in
/// [`Activity::calls`] and by that of the count it is in a structure. A worker's own
/// `allocations` are those of its library's allocator, and most of them never reach the driver.
pub const ASKED_OF_CUDA: [(&str, &str); 4] = [
    ("module_loads", MODULE_LOADS),
    ("synchronisations", SYNCHRONISATIONS),
    ("allocations", DRIVER_ALLOCATIONS),
    ("frees", DRIVER_FREES),
];

/// The count of modules loaded during one steady call.
pub const MODULE_LOADS: &str = "module_loads";

/// The count of waits for the device, a stream or an event.
pub const SYNCHRONISATIONS: &str = "synchronisations";

/// The count of memory taken from the driver, of the device or pinned.
pub const DRIVER_ALLOCATIONS: &str = "driver_allocations";

/// The count of memory given back to the driver.
pub const DRIVER_FREES: &str = "driver_frees";

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
    /// Nanoseconds in which the driver copied. Older files do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copying_ns: Option<u64>,
    /// Nanoseconds in which a kernel that moves data ran ([`moves_data`]). Older files do
    /// not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving_ns: Option<u64>,
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
    /// Nanoseconds of the span in which nothing ran.
    pub fn idle_ns(&self) -> u64 {
        self.span_ns.saturating_sub(self.busy_ns)
    }

    /// Share of the time spent copying in which a kernel ran too, where anything was copied.
    pub fn overlap(&self) -> Option<f64> {
        let copying = self.copying_ns.filter(|ns| *ns > 0)?;
        Some(self.overlap_ns as f64 / copying as f64)
    }

    /// A figure by the name that tables and limits have for it, where known.
    pub fn figure(&self, name: &str) -> Option<f64> {
        let ns = |ns: u64| Some(ns as f64);
        match name {
            "busy_ns" => ns(self.busy_ns),
            "idle_ns" => ns(self.idle_ns()),
            "copying_ns" => self.copying_ns.and_then(ns),
            "moving_ns" => self.moving_ns.and_then(ns),
            "overlap_ns" => ns(self.overlap_ns),
            "host_bound" => self.host_bound(),
            "overlap" => self.overlap(),
            _ => None,
        }
    }

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
        self.cover().span_ns()
    }

    /// Nanoseconds in which something ran; operations that ran at once count once.
    pub fn busy_ns(&self) -> u64 {
        self.cover().ns()
    }

    /// Nanoseconds in which a copy and a kernel ran at once.
    pub fn overlap_ns(&self) -> u64 {
        let kernels = Cover::of(self.kernels().map(Ran::from));
        self.copying().common_ns(&kernels)
    }

    /// Times in which nothing ran, in order.
    pub fn gaps(&self) -> Vec<Gap> {
        gaps(self.operations.iter().map(Ran::from))
    }

    /// Nanoseconds in which the device waited for a launch that the host had not begun:
    /// of each gap, the part before the launch of what ended it ([`Gap::host_ns`]).
    /// `None` where a launch is not known.
    pub fn host_bound_ns(&self) -> Option<u64> {
        self.gaps().into_iter().map(|gap| gap.host_ns).sum()
    }

    /// When the driver copied.
    fn copying(&self) -> Cover {
        Cover::of(self.of(OperationKind::Copy).map(Ran::from))
    }

    /// When a kernel ran that moves data.
    fn moving(&self) -> Cover {
        let kernels = self.kernels().filter(|kernel| moves_data(&kernel.name));
        Cover::of(kernels.map(Ran::from))
    }

    fn cover(&self) -> Cover {
        Cover::of(self.operations.iter().map(Ran::from))
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
            copying_ns: Some(self.copying().ns()),
            moving_ns: Some(self.moving().ns()),
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

impl From<&Operation> for Ran {
    fn from(operation: &Operation) -> Ran {
        Ran {
            start_ns: operation.start_ns,
            end_ns: operation.end_ns,
            // Before the first operation there is nothing that could have waited.
            launched_ns: operation
                .launched_ns
                .map(|at| u64::try_from(at).unwrap_or(0)),
        }
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
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
            host_ns: None,
        };
        assert_eq!(call.gaps(), [gap]);
        let summary = call.summary();
        assert_eq!((summary.copies, summary.copied_bytes), (2, 8192));
        assert_eq!((summary.copying_ns, summary.idle_ns()), (Some(110), 40));
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
    fn time_in_kernels_that_move_data_is_told_apart() {
        let named = |name: &str, start_ns, end_ns| Operation {
            name: name.to_owned(),
            ..operation(OperationKind::Kernel, start_ns, end_ns)
        };
        let call = activity(vec![
            named("void at::native::elementwise_kernel<128, 4>(int)", 0, 38),
            named("void pytorch_flash::flash_fwd_kernel<64>(Params)", 40, 100),
            named("void at::native::elementwise_kernel<128, 4>(int)", 90, 130),
        ]);
        assert_eq!(call.summary().moving_ns, Some(38 + 40));
    }

    /// A baseline from before these were kept is read, and what it lacks is not 0.
    #[test]
    fn a_summary_of_an_older_file_is_read() {
        let text = r#"{"busy_ns":9,"span_ns":10,"gaps":1,"copies":1,"copied_bytes":4,
            "overlap_ns":0,"host_ns":7}"#;
        let summary: ActivitySummary = serde_json::from_str(text).unwrap();
        assert_eq!((summary.copying_ns, summary.moving_ns), (None, None));
    }

    #[test]
    fn it_is_written_as_short_as_it_can_be() {
        let call = activity(vec![operation(OperationKind::Set, 0, 5)]);
        let text = serde_json::to_string(&call).unwrap();
        let expected = r#"{"operations":[{"kind":"set","start_ns":0,"end_ns":5}],"host_ns":0}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Activity>(&text).unwrap(), call);
    }
}
