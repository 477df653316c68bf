//! The workers that are part of regatta, reached through `regatta worker NAME` like any other.

use regatta_cpu::CpuWorker;
use regatta_cuda::CudaWorker;
use regatta_worker::serve::Worker;

/// Their names.
pub const NAMES: [&str; 2] = [regatta_cpu::NAME, regatta_cuda::NAME];

/// The built-in worker of this name.
pub fn worker(name: &str) -> Option<Box<dyn Worker>> {
    match name {
        regatta_cpu::NAME => Some(Box::new(CpuWorker::new())),
        regatta_cuda::NAME => Some(Box::new(CudaWorker::default())),
        _ => None,
    }
}
