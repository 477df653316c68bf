//! Traces: what a program did on its GPUs, operation by operation.
//!
//! [`raw`] reads what the injected library left in a folder, a file a process;
//! [`mod@file`] keeps it as one `.trace` file and reads that back; [`foreign`] reads what other
//! profilers wrote.

pub mod file;
pub mod foreign;
pub mod raw;
#[cfg(test)]
pub mod testing;
mod types;

pub use types::*;
