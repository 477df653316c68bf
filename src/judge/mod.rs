//! What it means: statistics, verdict, expectations, causes.
//!
//! Pure: values in, values out. Nothing here reads a file, a clock or a device.

pub mod judgement;
pub mod statistics;
