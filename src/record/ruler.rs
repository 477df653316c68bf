//! What a clock reads of work of known length: the ruler's readings as they are taken.

use serde::{Deserialize, Serialize};

use crate::units::{Nanoseconds, Share};

/// Shares by which some of the work is longer than its nominal length.
pub const ADDED: [Share; 4] = [Share(0.01), Share(0.02), Share(0.05), Share(0.10)];

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
    /// Smallest step of that timer, where it was found.
    pub timer_step_ns: Option<Nanoseconds>,
    /// What starting and ending takes of the work's own time: a right reading is the
    /// nominal length and this.
    pub own_ns: Nanoseconds,
    /// What the clock subtracts from each reading.
    pub subtracted: Option<Subtracted>,
    /// What a sample costs the host.
    pub host: Option<Host>,
    /// By length, shortest first.
    pub lengths: Vec<Length>,
}

/// What a gated clock subtracts from each reading.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subtracted {
    /// Reading with nothing between the events.
    pub pair_ns: Nanoseconds,
    /// One launch on the device.
    pub launch_ns: Nanoseconds,
}

/// What a sample costs the host; medians.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// All of it.
    pub total_ns: Nanoseconds,
    /// All but flushing and waiting for the device.
    pub beside_ns: Nanoseconds,
    /// Each step by name, in the order of a sample.
    pub steps: Vec<(String, Nanoseconds)>,
}

/// Readings of one nominal length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Length {
    /// The nominal length.
    pub nominal_ns: Nanoseconds,
    /// The sets of each round, a reading a sample.
    pub rounds: Vec<[Vec<Nanoseconds>; SETS]>,
}
