//! A sweep: two sessions that measure the same cases, some of which may have changed.

use super::draw::{Place, Replay, Role, Session, World};
use crate::record::side::median;
use crate::units::{Nanoseconds, Ratio};

/// How a sweep is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Design {
    /// Cases of a sweep.
    pub cases: usize,
    /// Invocations of the head, and of each session of the base.
    pub invocations: usize,
    /// Invocations of a base that is one session.
    pub base: usize,
    /// Samples of an invocation.
    pub samples: usize,
    /// Samples of the first invocation, for tools that measure in one process; at least
    /// `samples`, of which the gate takes no more.
    pub first_samples: usize,
    /// Fresh invocations that a suite asks for.
    pub fresh: u32,
}

impl Design {
    /// What suites ask for where they say nothing.
    pub const DEFAULT: Design = Design {
        cases: 200,
        invocations: 5,
        base: 10,
        samples: 20,
        first_samples: 20,
        fresh: 30,
    };
}

/// What a head is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// One stored session, as in `regatta gate`.
    Stored,
    /// So many stored sessions.
    Sessions(usize),
    /// The base, measured anew beside the head.
    Beside,
    /// One stored session, with nothing fresh, as in `regatta diff`.
    Once,
}

/// Which cases changed, and how much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Changed {
    /// So many, the first ones.
    pub cases: usize,
    /// They take so many times as long.
    pub factor: Ratio,
}

impl Changed {
    /// Nothing did.
    pub const NOTHING: Changed = Changed {
        cases: 0,
        factor: Ratio::ONE,
    };

    fn of(&self, case: usize) -> Ratio {
        match case < self.cases {
            true => self.factor,
            false => Ratio::ONE,
        }
    }
}

/// The invocations of one case on one side, each with its samples.
pub type Invocations = Vec<Vec<Nanoseconds>>;

/// One side of a sweep.
pub struct Measured<'a> {
    replays: Vec<Replay<'a>>,
    design: Design,
    /// By case, what was planned.
    pub cases: Vec<Invocations>,
}

/// All sessions of a sweep.
pub struct Sessions<'a> {
    base: Session<'a>,
    beside: Session<'a>,
    earlier: Vec<Session<'a>>,
    head: Session<'a>,
    design: Design,
    changed: Changed,
}

/// What is judged: a head, a base, and sessions before it.
pub struct Sweep<'a> {
    /// What was.
    pub base: Measured<'a>,
    /// What is.
    pub head: Measured<'a>,
    /// Sessions of the base before, which have nothing fresh.
    pub earlier: Vec<Measured<'a>>,
}

/// Sessions that a baseline keeps, at the most.
pub const SESSIONS: u32 = 8;

impl<'a> Sessions<'a> {
    /// Begins all.
    pub fn begin(world: &'a World, place: Place, design: Design, changed: Changed) -> Self {
        let begin = |role| Session::begin(world, place, role, design.invocations);
        Sessions {
            base: Session::begin(world, place, Role::Base, design.base),
            beside: begin(Role::Beside),
            earlier: (1..SESSIONS).map(|n| begin(Role::Earlier(n))).collect(),
            head: begin(Role::Head),
            design,
            changed,
        }
    }

    /// Measures a head, and the base that it is held to.
    pub fn measure(&self, against: Against) -> Sweep<'_> {
        self.planted(against, |case| self.changed.of(case))
    }

    /// The same of a head whose cases take so many times as long.
    pub fn planted(&self, against: Against, factor: impl Fn(usize) -> Ratio) -> Sweep<'_> {
        let of = |session, invocations| {
            let design = Design {
                invocations,
                ..self.design
            };
            Measured::of(session, design, |_| Ratio::ONE)
        };
        let each = self.design.invocations;
        let (base, earlier) = match against {
            Against::Beside => (of(&self.beside, each), 0),
            Against::Sessions(sessions) => (of(&self.base, each), sessions - 1),
            Against::Stored => (of(&self.base, self.design.base), 0),
            Against::Once => (of(&self.base, each), 0),
        };
        let earlier = self.earlier.iter().take(earlier);
        Sweep {
            base,
            head: Measured::of(&self.head, self.design, factor),
            earlier: earlier.map(|session| of(session, each)).collect(),
        }
    }
}

impl<'a> Measured<'a> {
    fn of(
        session: &'a Session<'a>,
        design: Design,
        changed: impl Fn(usize) -> Ratio,
    ) -> Measured<'a> {
        let cases = 0..design.cases;
        let mut replays: Vec<Replay> = cases
            .map(|index| session.case(index, changed(index)))
            .collect();
        let planned = |replay: &mut Replay| -> Invocations {
            let samples = |invocation| match invocation {
                0 => design.first_samples,
                _ => design.samples,
            };
            let invocations = 0..design.invocations;
            invocations
                .map(|invocation| replay.invocation(samples(invocation)))
                .collect()
        };
        Measured {
            cases: replays.iter_mut().map(planned).collect(),
            replays,
            design,
        }
    }

    /// The medians of the planned invocations of a case, of the samples that a gate takes.
    pub fn medians(&self, case: usize) -> Vec<Nanoseconds> {
        let invocations = self.cases[case].iter();
        let taken = invocations.map(|samples| &samples[..self.design.samples.min(samples.len())]);
        taken.filter_map(median).collect()
    }

    /// The medians of so many fresh invocations of a case.
    pub fn fresh(&mut self, case: usize, invocations: usize) -> Vec<Nanoseconds> {
        let replay = &mut self.replays[case];
        let samples = self.design.samples;
        let medians = (0..invocations).filter_map(|_| median(&replay.invocation(samples)));
        medians.collect()
    }
}
