//! What a clock reads of work of known length: the ruler's readings as they are taken.

use serde::{Deserialize, Serialize};

/// Shares by which some of the work is longer than its nominal length.
pub const ADDED: [f64; 4] = [0.01, 0.02, 0.05, 0.10];

/// Sets of a round: the nominal length twice (a difference between those two is none of
/// the work's), then each of [`ADDED`].
pub const SETS: usize = 2 + ADDED.len();

/// Readings of one clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Readings {
    /// What did the work.
    pub device: String,
    /// What read it, with its version.
    pub clock: String,
    /// What the work waited by: its length is known as well as this timer is.
    pub timer: String,
    /// Smallest step of that timer, in nanoseconds, where it was found.
    pub timer_step_ns: Option<f64>,
    /// What starting and ending takes of the work's own time, in nanoseconds: a right
    /// reading is the nominal length and this.
    pub own_ns: f64,
    /// What the clock subtracts from each reading.
    pub subtracted: Option<Subtracted>,
    /// What a sample costs the host.
    pub host: Option<Host>,
    /// By length, shortest first.
    pub lengths: Vec<Length>,
}

/// What a gated clock subtracts from each reading, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subtracted {
    /// Reading with nothing between the events.
    pub pair_ns: f64,
    /// One launch on the device.
    pub launch_ns: f64,
}

/// What a sample costs the host, in nanoseconds; medians.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// All of it.
    pub total_ns: f64,
    /// All but flushing and waiting for the device.
    pub beside_ns: f64,
    /// Each step by name, in the order of a sample.
    pub steps: Vec<(String, f64)>,
}

/// Readings of one nominal length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Length {
    /// In nanoseconds.
    pub nominal_ns: f64,
    /// The sets of each round, samples in nanoseconds.
    pub rounds: Vec<[Vec<f64>; SETS]>,
}
