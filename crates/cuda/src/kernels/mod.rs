//! Our CUDA kernels as sources: what is there, how each entry point is launched, and
//! how a file becomes code for a device.

pub mod arch;
pub mod cache;
pub mod compile;
pub mod ledger;
mod nvcc;
mod nvrtc;
pub mod occupancy;
pub mod source;
pub mod toolkit;
