//! Models of how times vary on machines without any change of the code.
//!
//! The replicate of this harness is the invocation, so a model says first how far the
//! *levels* of invocations lie apart, and then how far samples lie from their level.
//! Deviations are those of logarithms, which for small ones are relative deviations.

use regatta_worker::units::{Nanoseconds, Ratio, Share};

/// How the times of a machine vary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// As it is called where a rate is told.
    pub name: &'static str,
    /// Standard deviation of an invocation's level, drawn anew for each case.
    pub between: Share,
    /// Deviation of the samples of an invocation from its level: half a normal
    /// distribution, because interruptions only ever add.
    pub within: Share,
    /// What there is beside.
    pub beside: Beside,
}

/// What makes noise worse than independent draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Beside {
    /// Nothing: invocations are independent and normal.
    Nothing,
    /// An invocation is slower by half a Cauchy distribution: most by little, few by much.
    Tail {
        /// Half of all invocations are slower by more than this.
        scale: Share,
        /// None is slower by more than this factor.
        most: Ratio,
    },
    /// Some invocations of a case run slower, each by itself: a kernel in two modes.
    SlowInvocations {
        /// How many of them.
        often: Share,
        /// By how much.
        slower: Share,
    },
    /// Some invocations run slower in all of their cases: a process in two modes.
    SlowProcesses {
        /// How many of them.
        often: Share,
        /// By how much.
        slower: Share,
    },
    /// A session gets slower from its first invocation to its last planned one, and stays
    /// so: a machine that warms up.
    Drift {
        /// By so much in all.
        by: Share,
    },
    /// Each invocation has a shift that all of its cases share.
    SharedShift {
        /// Its standard deviation.
        deviation: Share,
    },
    /// An invocation of a case remembers the one before it, as an autoregression of the
    /// first order whose own deviation is the model's `between`. Sessions share no memory,
    /// so that each has a mean of its own.
    Memory {
        /// Correlation of one invocation with the next.
        kept: Share,
    },
    /// The head is measured on another day, on which all cases are slower.
    Day {
        /// By so much.
        slower: Share,
    },
    /// Between base and head every family of cases moves by itself: a library built anew.
    FamilyShift {
        /// Families, to which cases belong in turn.
        families: usize,
        /// Standard deviation of their shifts.
        deviation: Share,
    },
    /// Between base and head every case moves by itself: another layout of code or memory.
    CaseShift {
        /// Standard deviation of their shifts.
        deviation: Share,
    },
    /// Short kernels on a clock of coarse steps; samples lie on both sides of their level.
    CoarseClock {
        /// What readings are whole multiples of.
        step: Nanoseconds,
    },
}

const fn noise(name: &'static str, between: f64, within: f64, beside: Beside) -> Noise {
    Noise {
        name,
        between: Share(between),
        within: Share(within),
        beside,
    }
}

/// A GPU of one's own.
pub const QUIET: Noise = noise("quiet", 0.002, 0.005, Beside::Nothing);

/// A good server.
pub const TYPICAL: Noise = noise("typical", 0.01, 0.01, Beside::Nothing);

/// A hosted runner: 2.66 % was found between runs of the same commit on them.
pub const HOSTED: Noise = noise("hosted", 0.0266, 0.01, Beside::Nothing);

/// One invocation of ten in a mode 10 % slower.
pub const BISTABLE: Noise = noise(
    "bistable",
    0.003,
    0.005,
    Beside::SlowInvocations {
        often: Share(0.1),
        slower: Share(0.10),
    },
);

const fn slow_invocations(name: &'static str, often: f64) -> Noise {
    let beside = Beside::SlowInvocations {
        often: Share(often),
        slower: Share(0.03),
    };
    noise(name, 0.003, 0.005, beside)
}

const fn day(name: &'static str, slower: f64) -> Noise {
    let slower = Share(slower);
    noise(name, 0.003, 0.005, Beside::Day { slower })
}

/// Every model.
pub const MODELS: [Noise; 17] = [
    QUIET,
    TYPICAL,
    HOSTED,
    noise(
        "tails",
        0.003,
        0.005,
        Beside::Tail {
            scale: Share(0.005),
            most: Ratio(3.0),
        },
    ),
    slow_invocations("slow-tenth", 0.1),
    slow_invocations("slow-third", 0.3),
    BISTABLE,
    noise(
        "processes",
        0.003,
        0.005,
        Beside::SlowProcesses {
            often: Share(0.2),
            slower: Share(0.03),
        },
    ),
    noise("drift", 0.003, 0.005, Beside::Drift { by: Share(0.03) }),
    noise(
        "shared",
        0.003,
        0.005,
        Beside::SharedShift {
            deviation: Share(0.01),
        },
    ),
    noise("memory", 0.01, 0.005, Beside::Memory { kept: Share(0.8) }),
    day("day-0.5", 0.005),
    day("day-1", 0.01),
    day("day-2", 0.02),
    noise(
        "families",
        0.003,
        0.005,
        Beside::FamilyShift {
            families: 5,
            deviation: Share(0.01),
        },
    ),
    noise(
        "layout",
        0.003,
        0.005,
        Beside::CaseShift {
            deviation: Share(0.01),
        },
    ),
    noise(
        "clock",
        0.01,
        0.027,
        Beside::CoarseClock {
            step: Nanoseconds(32.0),
        },
    ),
];

impl Noise {
    /// How long its cases take: between these, evenly in logarithms.
    pub fn times(&self) -> (Nanoseconds, Nanoseconds) {
        match self.beside {
            Beside::CoarseClock { .. } => (Nanoseconds(4.5e3), Nanoseconds(6e3)),
            _ => (Nanoseconds(5e3), Nanoseconds(3e6)),
        }
    }
}
