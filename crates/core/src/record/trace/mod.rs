//! Traces: what a program did on its GPUs, operation by operation.
//!
//! [`raw`] reads what the injected library left in a folder, a file a process;
//! [`mod@file`] keeps it as one `.trace` file and reads that back; [`kineto`] reads what
//! PyTorch's profiler wrote.

pub mod file;
pub mod kineto;
pub mod raw;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod types;

pub use types::*;
