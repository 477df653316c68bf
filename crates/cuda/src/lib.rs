//! The `cuda` worker: our own kernels (`kernels/`) on a GPU, or those of somebody's file.
//!
//! `contract` says how kernels are launched, and `offer` what a variant launches for a problem; both
//! know no device beyond a few numbers, and are tested without a GPU. `case` makes that real, and
//! `check` compares the results with a float64 reference on the device.

mod activity;
mod argument;
mod case;
mod check;
mod contract;
mod driver;
mod error;
mod expression;
pub mod kernels;
mod offer;
mod plan;
mod reference;
mod samples;
mod worker;

pub use offer::{Offer, source};
pub use plan::{Limits, PlanRequest};
pub use worker::CudaWorker;

/// The name of the worker of our own kernels.
pub const NAME: &str = "cuda";
