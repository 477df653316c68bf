//! How often verdicts are wrong: noise without a change, and with a known one, is replayed
//! through this gate's own rule and through those of other tools.
//!
//! Pure: values in, values out, and the same seed gives the same table on any number of
//! threads.

mod batches;
mod bootstrap;
pub mod calibrate;
pub mod draw;
pub mod gate;
pub mod history;
pub mod noise;
pub mod pairs;
pub mod rate;
pub mod rules;
pub mod show;
pub mod sweep;
pub mod table;
