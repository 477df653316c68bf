//! The sources of regatta's CUDA kernels, the launch of each entry point, and their compilation for
//! a device.

pub mod arch;
pub mod cache;
pub mod compile;
pub mod ledger;
mod nvcc;
mod nvrtc;
pub mod occupancy;
pub mod source;
pub mod toolkit;
