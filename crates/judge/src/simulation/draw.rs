//! Draws times from a model of noise.

use std::f64::consts::TAU;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::noise::{Beside, Noise};
use regatta_core::record::side::median;
use regatta_worker::units::{Nanoseconds, Ratio};

/// More invocations than any session has, fresh ones included.
const MOST_INVOCATIONS: usize = 64;

/// Samples of an invocation.
const SAMPLES: usize = 20;

/// Which session is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The stored base.
    Base,
    /// The head.
    Head,
    /// The base, in an earlier session of this number.
    Earlier(u32),
    /// The base, measured anew in the session of the head: no day lies between them.
    Beside,
}

impl Role {
    /// Tells its draws from those of others, beside the subject's own.
    fn number(self) -> u64 {
        match self {
            Role::Base => 0,
            Role::Head => 1,
            Role::Beside => 1 << 41,
            Role::Earlier(session) => (2 + u64::from(session)) << 41,
        }
    }

    /// The same of what a session adds to its cases: one that both sides share adds the same
    /// to both.
    fn session(self) -> u64 {
        match self {
            Role::Beside => Role::Head.number(),
            role => role.number(),
        }
    }
}

/// The generator of one subject of a sweep: what is drawn follows from these alone, in whatever
/// order and on however many threads.
fn generator(sweep: u64, subject: u64) -> ChaCha8Rng {
    const SEED: u64 = 20_260_105;
    let mut key = [0; 32];
    for (bytes, word) in key.chunks_exact_mut(8).zip([SEED, 0, sweep, subject]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    ChaCha8Rng::from_seed(key)
}

/// A draw from the standard normal distribution (Box and Muller).
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (TAU * v).cos()
}

/// One session of measuring: what its cases have in common.
pub struct Session {
    noise: Noise,
    sweep: u64,
    role: Role,
    /// Invocations that are planned; fresh ones come after them.
    planned: usize,
    /// Logarithm of what each invocation adds to all cases.
    shared: Vec<f64>,
    /// Logarithm of what this session adds to each family.
    families: Vec<f64>,
    /// Logarithm of what its day adds to all cases.
    day: f64,
}

impl Session {
    /// Begins a session.
    pub fn begin(noise: Noise, sweep: u64, role: Role, planned: usize) -> Session {
        let mut rng = generator(sweep, role.number());
        let mut shared = |_| match noise.beside {
            Beside::SlowProcesses(often, slower) if rng.random::<f64>() < often.0 => {
                slower.0.ln_1p()
            }
            Beside::SharedShift(deviation) => deviation.0 * normal(&mut rng),
            _ => 0.0,
        };
        let shared = (0..MOST_INVOCATIONS).map(&mut shared).collect();
        // What a session adds is drawn apart from its invocations.
        let mut own = generator(sweep, (1 << 60) + role.session());
        let families = match noise.beside {
            Beside::FamilyShift(families, deviation) if role != Role::Base => (0..families)
                .map(|_| deviation.0 * normal(&mut own))
                .collect(),
            _ => Vec::new(),
        };
        let day = match (noise.beside, role) {
            (Beside::Day(slower), Role::Head | Role::Beside) => slower.0.ln_1p(),
            (Beside::Day(slower), Role::Earlier(_)) => slower.0 * normal(&mut own),
            _ => 0.0,
        };
        Session {
            noise,
            sweep,
            role,
            planned,
            shared,
            families,
            day,
        }
    }

    /// The invocations of one case, which takes `factor` times as long as it did.
    pub fn case(&self, index: usize, factor: Ratio) -> Replay<'_> {
        let subject = 2 + 2 * index as u64;
        // How long a case takes is the same in both sessions.
        let mut own = generator(self.sweep, u64::MAX - index as u64);
        let mut rng = generator(self.sweep, subject + self.role.number());
        let (fastest, slowest) = self.noise.times();
        let range = (slowest / fastest).0.ln();
        let shift = match self.noise.beside {
            Beside::CaseShift(deviation) if self.role != Role::Base => {
                let shift = (1 << 61) + 2 * index as u64;
                deviation.0 * normal(&mut generator(self.sweep, shift + self.role.session()))
            }
            Beside::FamilyShift(..) if self.role != Role::Base => {
                self.families[index % self.families.len()]
            }
            _ => 0.0,
        };
        Replay {
            level: factor.0.ln() + fastest.0.ln() + range * own.random::<f64>() + self.day + shift,
            memory: self.noise.between.0 * normal(&mut rng),
            session: self,
            rng,
            next: 0,
        }
    }
}

/// One case of a session, invocation after invocation.
pub struct Replay<'a> {
    session: &'a Session,
    rng: ChaCha8Rng,
    /// Logarithm of its time without noise.
    level: f64,
    /// What the last invocation left, where invocations remember.
    memory: f64,
    next: usize,
}

impl Replay<'_> {
    /// The medians of so many more invocations.
    pub fn medians(&mut self, invocations: usize) -> Vec<Nanoseconds> {
        let medians = (0..invocations).filter_map(|_| median(&self.invocation()));
        medians.collect()
    }

    /// The samples of the next invocation.
    fn invocation(&mut self) -> Vec<Nanoseconds> {
        let at = self.next.min(MOST_INVOCATIONS - 1);
        self.next += 1;
        let ns = (self.level + self.session.shared[at] + self.own(at)).exp();
        let within = self.session.noise.within.0;
        let sample = |_| match self.session.noise.beside {
            Beside::CoarseClock(step) => {
                let reading = ns * (within * normal(&mut self.rng)).exp();
                Nanoseconds((reading / step.0).round() * step.0)
            }
            _ => Nanoseconds(ns * (1.0 + within * normal(&mut self.rng).abs())),
        };
        (0..SAMPLES).map(sample).collect()
    }

    /// What an invocation of this case adds by itself.
    fn own(&mut self, at: usize) -> f64 {
        let noise = self.session.noise;
        let between = noise.between.0;
        if let Beside::Memory(kept) = noise.beside {
            let now = self.memory;
            let fresh = between * (1.0 - kept.0 * kept.0).sqrt();
            self.memory = kept.0 * now + fresh * normal(&mut self.rng);
            return now;
        }
        let plain = between * normal(&mut self.rng);
        plain
            + match noise.beside {
                Beside::Tail(scale, most) => {
                    let cauchy = (TAU / 4.0 * self.rng.random::<f64>()).tan();
                    (scale.0 * cauchy).ln_1p().min(most.0.ln())
                }
                Beside::SlowInvocations(often, slower) if self.rng.random::<f64>() < often.0 => {
                    slower.0.ln_1p()
                }
                Beside::Drift(by) => {
                    let done = at as f64 + self.rng.random::<f64>();
                    by.0 * (done / self.session.planned as f64).min(1.0)
                }
                _ => 0.0,
            }
    }
}
