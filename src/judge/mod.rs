//! What it means: statistics, verdict, expectations, causes.
//!
//! Pure: values in, values out. Nothing here reads a file, a clock or a device.

mod comparable;
mod complete;
mod floor;
pub mod judgement;
mod phrase;
mod reasons;
mod shift;
pub mod statistics;
mod time;
mod timing;
mod values;

#[cfg(test)]
mod testing;
