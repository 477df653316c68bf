//! What a device did and how it was, in calls, runs and recordings alike.
//!
//! The types of one call are those of the worker crate, which tells them; here are the
//! recording of a whole program, its figures, the part of it that repeats, and the kernels of
//! two sides, one beside the other. Nothing here says what any of it means.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use regatta_worker::units::{Nanoseconds, Ratio, Share};

mod align;
mod calls;
mod changes;
mod divided;
mod recording;
mod steady;
mod summary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use align::{Alignment, align};
pub use calls::{Calls, Moments, in_each, in_steady};
pub use changes::{Became, KernelChange, LaunchChange, Launches, of_calls, of_recordings};
pub use divided::{repetition, whole};
pub use recording::{Process, Recorded, Recording, TracedGpu};
pub use regatta_worker::machine::*;
pub use steady::{Steady, SteadyPart, steady};
pub use summary::{CopyRow, KernelRow, LaunchShape, Summary, calls, summarise};

/// A value of the base and of the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Sides<T> {
    /// What was.
    pub base: T,
    /// What is.
    pub head: T,
}

impl<T> Sides<T> {
    /// What was and what is.
    pub fn new(base: T, head: T) -> Sides<T> {
        Sides { base, head }
    }

    /// What was and what is, where both are known.
    pub fn both(base: Option<T>, head: Option<T>) -> Option<Sides<T>> {
        Some(Sides::new(base?, head?))
    }

    /// Something of each.
    pub fn map<U>(&self, of: impl Fn(&T) -> U) -> Sides<U> {
        Sides {
            base: of(&self.base),
            head: of(&self.head),
        }
    }
}

impl<T: std::ops::Sub> Sides<T> {
    /// How much more the head has.
    pub fn growth(self) -> T::Output {
        self.head - self.base
    }
}

/// What is compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One repetition of the part that repeats: structure of the last one, times the mean
    /// over all.
    Repetition,
    /// Everything, because one side has no part that repeats.
    Whole,
}

/// A side in figures, per repetition where that is the scope.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideFigures {
    /// What it is called.
    pub label: String,
    /// From start to start, or from the first operation to the last.
    pub elapsed_ns: Nanoseconds,
    /// With at least one operation on a device.
    pub busy_ns: Nanoseconds,
    /// Without any.
    pub idle_ns: Nanoseconds,
    /// Idle until the host began to launch, where launches are known.
    pub host_bound_ns: Option<Nanoseconds>,
    /// Share of copying hidden behind kernels, where anything was copied.
    pub overlap: Option<Share>,
    /// In which kernels of two streams ran at once, where streams are known.
    pub streams_at_once_ns: Option<Nanoseconds>,
    /// Number and time of copies and sets, by direction.
    pub copies: BTreeMap<String, (f64, Nanoseconds)>,
    /// API calls by name.
    pub calls: BTreeMap<String, f64>,
    /// Records that were lost, damaged or left out.
    pub lost: u64,
}

impl Sides<SideFigures> {
    /// Head over base of a time; 1 where it is not known of both.
    pub fn ratio(&self, time: fn(&SideFigures) -> Nanoseconds) -> Ratio {
        let (base, head) = (time(&self.base), time(&self.head));
        match base.0 > 0.0 && head.0 > 0.0 {
            true => head / base,
            false => Ratio::ONE,
        }
    }
}
