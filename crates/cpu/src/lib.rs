//! The `cpu` worker: attention on the processor, in three ways.
//!
//! [`naive`] keeps the score matrix, [`flash`] tiles it away, [`split_key`] is
//! parallel over the keys alone. All do their arithmetic in f32.

mod case;
mod check;
mod contents;
pub mod flash;
pub mod gemm;
pub mod kernel;
pub mod naive;
mod offered;
mod peak;
mod scratch;
pub mod softmax;
pub mod split_key;
pub mod storage;
mod tensors;
#[cfg(test)]
mod tests;
mod tile;
mod worker;

pub use worker::{CpuWorker, NAME};
