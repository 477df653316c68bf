//! The `cuda` worker: regatta's own kernels (`kernels/`) on a GPU, or those of a user's file.
//!
//! `contract` describes how kernels are launched, and `offer` plans a variant's launches for a
//! problem. Both know only a few numbers of the device, and are tested without a GPU. `case`
//! allocates and launches, and `check` compares the results with a float64 reference on the device.

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

/// The name of the worker of regatta's own kernels.
pub const NAME: &str = "cuda";
