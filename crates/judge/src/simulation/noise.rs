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
    /// An invocation is slower by half a Cauchy distribution, most by little, few by much: half
    /// of all by more than the share, none by more than the factor.
    Tail(Share, Ratio),
    /// How many invocations of a case, each by itself, run slower, and by how much: a kernel in
    /// two modes.
    SlowInvocations(Share, Share),
    /// How many invocations run slower in all of their cases, and by how much: a process in two
    /// modes.
    SlowProcesses(Share, Share),
    /// A session gets slower by so much in all from its first invocation to its last planned
    /// one, and stays so: a machine that warms up.
    Drift(Share),
    /// Each invocation has a shift that all of its cases share, of this standard deviation.
    SharedShift(Share),
    /// An invocation of a case remembers the one before it, as an autoregression of the
    /// first order with this correlation, whose own deviation is the model's `between`.
    /// Sessions share no memory, so that each has a mean of its own.
    Memory(Share),
    /// The head is measured on another day, on which all cases are slower by so much.
    Day(Share),
    /// Between base and head each of so many families, to which cases belong in turn, moves by
    /// itself, by shifts of this standard deviation: a library built anew.
    FamilyShift(usize, Share),
    /// Between base and head every case moves by itself, by shifts of this standard deviation:
    /// another layout of code or memory.
    CaseShift(Share),
    /// Short kernels on a clock whose readings are whole multiples of this; samples lie on both
    /// sides of their level.
    CoarseClock(Nanoseconds),
}

const fn noise(name: &'static str, between: f64, within: f64, beside: Beside) -> Noise {
    Noise {
        name,
        between: Share(between),
        within: Share(within),
        beside,
    }
}

/// A calm machine with something beside.
const fn calm(name: &'static str, beside: Beside) -> Noise {
    noise(name, 0.003, 0.005, beside)
}

/// A GPU of one's own.
pub const QUIET: Noise = noise("quiet", 0.002, 0.005, Beside::Nothing);

/// A good server.
pub const TYPICAL: Noise = noise("typical", 0.01, 0.01, Beside::Nothing);

/// A hosted runner: 2.66 % was found between runs of the same commit on them.
pub const HOSTED: Noise = noise("hosted", 0.0266, 0.01, Beside::Nothing);

/// One invocation of ten in a mode 10 % slower.
pub const BISTABLE: Noise = calm("bistable", Beside::SlowInvocations(Share(0.1), Share(0.10)));

/// The resolution of the GPU's own clock, of kernels of 5 µs.
const STEP: Beside = Beside::CoarseClock(Nanoseconds(32.0));

/// Every model.
pub const MODELS: [Noise; 17] = [
    QUIET,
    TYPICAL,
    HOSTED,
    calm("tails", Beside::Tail(Share(0.005), Ratio(3.0))),
    calm(
        "slow-tenth",
        Beside::SlowInvocations(Share(0.1), Share(0.03)),
    ),
    calm(
        "slow-third",
        Beside::SlowInvocations(Share(0.3), Share(0.03)),
    ),
    BISTABLE,
    calm("processes", Beside::SlowProcesses(Share(0.2), Share(0.03))),
    calm("drift", Beside::Drift(Share(0.03))),
    calm("shared", Beside::SharedShift(Share(0.01))),
    noise("memory", 0.01, 0.005, Beside::Memory(Share(0.8))),
    calm("day-0.5", Beside::Day(Share(0.005))),
    calm("day-1", Beside::Day(Share(0.01))),
    calm("day-2", Beside::Day(Share(0.02))),
    calm("families", Beside::FamilyShift(5, Share(0.01))),
    calm("layout", Beside::CaseShift(Share(0.01))),
    noise("clock", 0.01, 0.027, STEP),
];

impl Noise {
    /// How long its cases take: between these, evenly in logarithms.
    pub fn times(&self) -> (Nanoseconds, Nanoseconds) {
        match self.beside {
            Beside::CoarseClock(_) => (Nanoseconds(4.5e3), Nanoseconds(6e3)),
            _ => (Nanoseconds(5e3), Nanoseconds(3e6)),
        }
    }
}
