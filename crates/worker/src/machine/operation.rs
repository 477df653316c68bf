//! Operations of a device and their times.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::intervals::Ran;
use crate::units::{Bytes, is_zero};

/// A kernel, copy or fill that ran. Times are nanoseconds: in a recording, of CUPTI's clock, which
/// host and device records of all processes share; for one call, from the start of its first
/// operation. `K` describes a kernel: its launch, or only its name. `O` is the form of its
/// operator: a text that many operations share, or in a file a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Operation<K, O = Arc<str>> {
    /// The work that it did.
    #[serde(flatten)]
    pub work: Work<K>,
    /// Number of its process, if there are several.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub process: u32,
    /// The device's ordinal in its process.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub device: u32,
    /// The start on the device.
    pub start_ns: u64,
    /// The end on the device; at least `start_ns`.
    pub end_ns: u64,
    /// Number of its stream, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<u32>,
    /// The moment when the host began to launch it, if known. Before the first operation of a call
    /// it is negative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launched_ns: Option<i64>,
    /// The time that the host took to launch it, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_ns: Option<u64>,
    /// The ranges around the launch on the host, outermost first, joined by `/`:
    /// `step/forward/aten::mm`. Of more than three, it has the outermost, the outermost operator of
    /// a framework (otherwise the last but one) and the innermost, in at most 200 bytes. Absent if
    /// the program names no range, or the launch is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<O>,
}

/// The work of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Work<K> {
    /// Ran a kernel.
    Kernel(K),
    /// Copied memory by the driver, not by a kernel.
    Copy {
        /// `HtoD`, `DtoH`, `DtoD`, `PtoP`, `HtoH` or `?`.
        #[serde(default = "unknown")]
        direction: String,
        /// The number of bytes, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
    },
    /// Filled memory by the driver.
    Set {
        /// The number of bytes, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
    },
}

fn unknown() -> String {
    "?".to_owned()
}

/// A kernel of which only the name is known, because its launch is listed elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Named {
    /// The name, demangled.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

impl<K> Work<K> {
    /// The same work, with each kernel converted by `named`.
    pub fn named<L>(&self, named: impl Fn(&K) -> L) -> Work<L> {
        match self {
            Work::Kernel(kernel) => Work::Kernel(named(kernel)),
            Work::Copy { direction, bytes } => Work::Copy {
                direction: direction.clone(),
                bytes: *bytes,
            },
            Work::Set { bytes } => Work::Set { bytes: *bytes },
        }
    }
}

/// The latest time that is accepted, in nanoseconds: about the year 2116 for a clock that counts
/// from 1970. Sums and differences of two times fit into an `i64`.
const LATEST_NS: u64 = 1 << 62;

impl<K> Operation<K> {
    /// An operation between two times, without other details.
    pub fn new(work: Work<K>, start_ns: u64, end_ns: u64) -> Operation<K> {
        Operation {
            work,
            process: 0,
            device: 0,
            start_ns,
            end_ns,
            stream: None,
            launched_ns: None,
            launch_ns: None,
            operator: None,
        }
    }

    /// A sentence about an impossible time or size, if it has one.
    pub fn objection(&self) -> Option<&'static str> {
        let launched = self.launched_ns.map_or(0, i64::unsigned_abs);
        let latest = self.end_ns.max(launched).max(self.launch_ns.unwrap_or(0));
        if self.end_ns < self.start_ns {
            return Some("the operation ends before it starts");
        }
        if latest > LATEST_NS {
            return Some("its times are beyond any clock");
        }
        let beyond = self.bytes().is_some_and(|bytes| Bytes(bytes) > Bytes::MAX);
        beyond.then_some("it moves more bytes than any machine has")
    }

    /// The duration in nanoseconds.
    pub fn ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// The kernel, if it is one.
    pub fn kernel(&self) -> Option<&K> {
        match &self.work {
            Work::Kernel(kernel) => Some(kernel),
            _ => None,
        }
    }

    /// True for a copy by the driver.
    pub fn is_copy(&self) -> bool {
        matches!(self.work, Work::Copy { .. })
    }

    /// Bytes of a copy or fill, if known.
    pub fn bytes(&self) -> Option<u64> {
        match self.work {
            Work::Kernel(_) => None,
            Work::Copy { bytes, .. } | Work::Set { bytes } => bytes,
        }
    }
}

impl<K, O> Operation<K, O> {
    /// The same operation, with its operator in another form; `None` stays unknown.
    pub fn with_operator<P>(self, convert: impl FnOnce(O) -> Option<P>) -> Operation<K, P> {
        Operation {
            work: self.work,
            process: self.process,
            device: self.device,
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            stream: self.stream,
            launched_ns: self.launched_ns,
            launch_ns: self.launch_ns,
            operator: self.operator.and_then(convert),
        }
    }
}

impl<K> From<&Operation<K>> for Ran {
    fn from(operation: &Operation<K>) -> Ran {
        Ran {
            start_ns: operation.start_ns,
            end_ns: operation.end_ns,
            // Nothing can have waited before the first operation.
            launched_ns: operation
                .launched_ns
                .map(|at| u64::try_from(at).unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_cannot_be_are_objected_to() {
        let set =
            |start_ns, end_ns| Operation::<Named>::new(Work::Set { bytes: None }, start_ns, end_ns);
        assert_eq!(set(1, 2).objection(), None);
        assert!(set(2, 1).objection().is_some());
        assert!(set(0, u64::MAX).objection().is_some());
        let launched = Operation {
            launched_ns: Some(i64::MIN),
            ..set(1, 2)
        };
        assert!(launched.objection().is_some());
    }
}
