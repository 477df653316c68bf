//! The device's work and state: launches, operations and their times, counts.
//!
//! The same types serve for one call that a worker counted, for a stored run, and for the recording
//! of a whole program. This module depends on no other, and judges nothing.

mod activity;
mod counters;
mod division;
mod intervals;
mod names;
mod operation;
mod shared;
mod structure;

pub use activity::{
    ASKED_OF_CUDA, Activity, ActivitySummary, DRIVER_ALLOCATIONS, DRIVER_FREES, DeviceTime,
    MODULE_LOADS, SYNCHRONISATIONS, by_device,
};
pub use counters::{
    CountedCall, CountedKernel, Counters, Counts, HardwareCounter, INSTRUCTIONS, KernelCounters,
    METRICS,
};
pub use division::{Division, Part, RecordedCall};
pub use intervals::{Cover, Own, Ran, divide};
pub use names::{StepPart, family, is_operator, moves_data, normalised, part, plain, short};
pub use operation::{Named, Operation, Work};
pub use shared::Shared;
pub use structure::{
    BYTES, CALL_PEAK, CENSUS, CENSUS_FAILED, DENORMAL_VALUES, DeviceState, FUNCTION_PPM,
    GARBAGE_COLLECTIONS, GARBAGE_NS, Launch, NUMBA_ALLOCATIONS, Structure, WIDER_RESULTS,
    is_evidence, product, sizes,
};
