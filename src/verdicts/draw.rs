//! Draws times from a model of noise, or from recorded runs.

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::noise::{Beside, Noise};
use crate::attention::CaseId;
use crate::record::types::{Outcome, Run};
use crate::units::{Nanoseconds, Ratio};

/// More invocations than any session has, fresh ones included.
const MOST_INVOCATIONS: usize = 64;

/// Where noise comes from.
#[derive(Clone, Debug)]
pub enum World {
    /// A model.
    Made(Noise),
    /// What was measured.
    Recorded(Recorded),
}

/// Recorded invocations by case, each with its samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    cases: Vec<Vec<Vec<Nanoseconds>>>,
}

/// Which side of a comparison is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// What was.
    Base,
    /// What is.
    Head,
    /// What was, in an earlier session of so many.
    Earlier(u32),
    /// What was, measured anew in the session of the head: no day lies between them.
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

/// Where in all of the draws one is: what is drawn follows from this alone, in whatever
/// order and on however many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The seed of the whole table.
    pub seed: u64,
    /// The noise and the size of the change.
    pub experiment: u64,
    /// The sweep within it.
    pub sweep: u64,
}

impl Place {
    /// The generator of one subject at this place.
    pub fn generator(self, subject: u64) -> ChaCha8Rng {
        let mut key = [0; 32];
        let words = [self.seed, self.experiment, self.sweep, subject];
        for (bytes, word) in key.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        ChaCha8Rng::from_seed(key)
    }
}

impl Recorded {
    /// Takes every case that has two invocations with two samples or more. Without such a
    /// case there is nothing to draw from: `None`.
    pub fn of(runs: &[Run]) -> Option<Recorded> {
        let mut cases: BTreeMap<(usize, &CaseId), Vec<Vec<Nanoseconds>>> = BTreeMap::new();
        for (index, run) in runs.iter().enumerate() {
            for entry in &run.entries {
                let Outcome::Measured(measured) = &entry.outcome else {
                    continue;
                };
                let samples = measured.device_ns.iter().copied();
                let usable = samples.filter(|&time| time.is_finite() && time > Nanoseconds::ZERO);
                let samples: Vec<Nanoseconds> = usable.collect();
                if samples.len() > 1 {
                    cases.entry((index, &entry.case)).or_default().push(samples);
                }
            }
        }
        let several = cases.into_values().filter(|all| all.len() > 1);
        let cases: Vec<_> = several.collect();
        (!cases.is_empty()).then_some(Recorded { cases })
    }

    /// Cases, and invocations of all of them.
    pub fn sizes(&self) -> (usize, usize) {
        (self.cases.len(), self.cases.iter().map(Vec::len).sum())
    }
}

/// One session of measuring: what its cases have in common.
pub struct Session<'a> {
    world: &'a World,
    place: Place,
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

impl<'a> Session<'a> {
    /// Begins a session.
    pub fn begin(world: &'a World, place: Place, role: Role, planned: usize) -> Session<'a> {
        let mut rng = place.generator(role.number());
        let World::Made(noise) = world else {
            return Session {
                world,
                place,
                role,
                planned,
                shared: Vec::new(),
                families: Vec::new(),
                day: 0.0,
            };
        };
        let mut shared = |_| match noise.beside {
            Beside::SlowProcesses { often, slower } => {
                f64::from(u8::from(rng.random::<f64>() < often.0)) * slower.0.ln_1p()
            }
            Beside::SharedShift { deviation } => deviation.0 * normal(&mut rng),
            _ => 0.0,
        };
        let shared = (0..MOST_INVOCATIONS).map(&mut shared).collect();
        // What a session adds is drawn apart from its invocations.
        let mut own = place.generator((1 << 60) + role.session());
        let families = match noise.beside {
            Beside::FamilyShift {
                families,
                deviation,
            } if role != Role::Base => (0..families)
                .map(|_| deviation.0 * normal(&mut own))
                .collect(),
            _ => Vec::new(),
        };
        let day = match (noise.beside, role) {
            (Beside::Day { slower }, Role::Head | Role::Beside) => slower.0.ln_1p(),
            (Beside::Day { slower }, Role::Earlier(_)) => slower.0 * normal(&mut own),
            _ => 0.0,
        };
        Session {
            world,
            place,
            role,
            planned,
            shared,
            families,
            day,
        }
    }

    /// The invocations of one case, which takes `factor` times as long as it did.
    pub fn case(&'a self, index: usize, factor: Ratio) -> Replay<'a> {
        let subject = 2 + 2 * index as u64;
        // How long a case takes is the same in both sessions.
        let mut own = self.place.generator(u64::MAX - index as u64);
        let mut rng = self.place.generator(subject + self.role.number());
        let (mut level, mut memory) = (factor.0.ln(), 0.0);
        if let World::Made(noise) = self.world {
            let (fastest, slowest) = noise.times();
            let range = (slowest / fastest).0.ln();
            level += fastest.0.ln() + range * own.random::<f64>();
            level += self.day;
            level += match noise.beside {
                Beside::CaseShift { deviation } if self.role != Role::Base => {
                    let shift = (1 << 61) + 2 * index as u64;
                    let mut session = self.place.generator(shift + self.role.session());
                    deviation.0 * normal(&mut session)
                }
                Beside::FamilyShift { .. } if self.role != Role::Base => {
                    self.families[index % self.families.len()]
                }
                _ => 0.0,
            };
            memory = noise.between.0 * normal(&mut rng);
        }
        Replay {
            session: self,
            index,
            rng,
            level,
            memory,
            next: 0,
        }
    }
}

/// One case of a session, invocation after invocation.
pub struct Replay<'a> {
    session: &'a Session<'a>,
    index: usize,
    rng: ChaCha8Rng,
    /// Logarithm of its time without noise; of what was recorded, of the change alone.
    level: f64,
    /// What the last invocation left, where invocations remember.
    memory: f64,
    next: usize,
}

impl Replay<'_> {
    /// The samples of the next invocation.
    pub fn invocation(&mut self, samples: usize) -> Vec<Nanoseconds> {
        let session = self.session;
        let at = self.next.min(MOST_INVOCATIONS - 1);
        self.next += 1;
        match session.world {
            World::Made(noise) => {
                let level = self.level + session.shared[at] + self.own(noise, at);
                self.samples(noise, level, samples)
            }
            World::Recorded(recorded) => {
                let all = &recorded.cases[self.index % recorded.cases.len()];
                let one = &all[self.rng.random_range(0..all.len())];
                let change = Ratio(self.level.exp());
                let draw = |_| one[self.rng.random_range(0..one.len())] * change;
                (0..samples).map(draw).collect()
            }
        }
    }

    /// What an invocation of this case adds by itself.
    fn own(&mut self, noise: &Noise, at: usize) -> f64 {
        let between = noise.between.0;
        if let Beside::Memory { kept } = noise.beside {
            let now = self.memory;
            let fresh = between * (1.0 - kept.0 * kept.0).sqrt();
            self.memory = kept.0 * now + fresh * normal(&mut self.rng);
            return now;
        }
        let plain = between * normal(&mut self.rng);
        plain
            + match noise.beside {
                Beside::Tail { scale, most } => {
                    let cauchy = (TAU / 4.0 * self.rng.random::<f64>()).tan();
                    (scale.0 * cauchy).ln_1p().min(most.0.ln())
                }
                Beside::SlowInvocations { often, slower } if self.rng.random::<f64>() < often.0 => {
                    slower.0.ln_1p()
                }
                Beside::Drift { by } => {
                    let done = at as f64 + self.rng.random::<f64>();
                    by.0 * (done / self.session.planned as f64).min(1.0)
                }
                _ => 0.0,
            }
    }

    fn samples(&mut self, noise: &Noise, level: f64, count: usize) -> Vec<Nanoseconds> {
        let ns = level.exp();
        let within = noise.within.0;
        let sample = |_| match noise.beside {
            Beside::CoarseClock { step } => {
                let reading = ns * (within * normal(&mut self.rng)).exp();
                Nanoseconds((reading / step.0).round() * step.0)
            }
            _ => Nanoseconds(ns * (1.0 + within * normal(&mut self.rng).abs())),
        };
        (0..count).map(sample).collect()
    }
}

/// A draw from the standard normal distribution (Box and Muller).
pub(super) fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (TAU * v).cos()
}

#[cfg(test)]
mod tests;
