//! What an account is made from.

use regatta_core::machine::{Counters, Division, KernelChange, Sides};
use regatta_worker::units::Nanoseconds;

/// Two sides, and what is known of them.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The times that were judged.
    pub times: Sides<Nanoseconds>,
    /// What they are divided by.
    pub divisions: Sides<&'a Division>,
    /// Whether what the device waits for the host is in them.
    pub holds_host: Sides<bool>,
    /// The host's time to make the call, where it was taken.
    pub host: Option<Sides<Nanoseconds>>,
    /// Medians of the device's clock, where it was read.
    pub mhz: Option<Sides<f64>>,
    /// What hardware counted of the kernels, where it did on both sides.
    pub counters: Option<Sides<&'a Counters>>,
    /// What changed of the kernels' launches.
    pub kernels: &'a [KernelChange],
}
