//! What a device did and how it was: launches, operations and their times, counts, state.
//!
//! One set of types for one call that a worker counted, for a run that keeps it, and for the
//! recording of a whole program. Knows nobody, and says of nothing what it means.

mod activity;
mod counters;
mod division;
mod intervals;
mod launch;
mod names;
mod operation;
mod operator;
mod shares;
mod state;
mod structure;
mod times;

pub use activity::{
    ASKED_OF_CUDA, Activity, ActivitySummary, DRIVER_ALLOCATIONS, DRIVER_FREES, MODULE_LOADS,
    SYNCHRONISATIONS,
};
pub use counters::{
    CountedCall, CountedKernel, Counters, Counts, INSTRUCTIONS, KernelCounters, METRICS, Metric,
};
pub use division::{Division, Part, RecordedCall};
pub use intervals::{Cover, Gap, Ran, gaps};
pub use launch::{Launch, product, sizes};
pub use names::{moves_data, normalised, plain, short};
pub use operation::{Named, Operation, Work};
pub use operator::{StepPart, family, is_operator, part};
pub use shares::{Own, divide};
pub use state::{DeviceState, throttle_words};
pub use structure::{BYTES, CENSUS, CENSUS_FAILED, Structure};
pub use times::{DeviceTime, by_device};
