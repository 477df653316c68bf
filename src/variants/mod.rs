//! The project's own kernels under test, behind the worker protocol.
//!
//! Nothing else in the program runs them: they are reached through
//! `regatta worker NAME`, like any other worker.

pub mod cpu;
pub mod cuda;

use crate::worker::serve::Worker;

/// The workers that are part of regatta.
pub const NAMES: [&str; 2] = [cpu::NAME, cuda::NAME];

/// The built-in worker of this name.
pub fn worker(name: &str) -> Option<Box<dyn Worker>> {
    match name {
        cpu::NAME => Some(Box::new(cpu::CpuWorker::new())),
        cuda::NAME => Some(Box::new(cuda::CudaWorker::default())),
        _ => None,
    }
}
