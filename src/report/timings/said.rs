//! Where the time went, in a sentence.

use super::{Timings, doing};
use crate::units::{Elapsed, Nanoseconds};

/// Phases that are named.
const NAMED: usize = 3;

/// The least share of the whole that is worth a name.
const LEAST: f64 = 0.005;

impl Timings {
    /// `took 2 min 7 s, of which 1.3 s timed something (1.0 %); starting workers 41 %,
    /// preparing 33 %, checking 12 %`
    pub fn said(&self) -> String {
        let mut said = format!("took {}", Elapsed(self.took_ns));
        if self.parts.len() > 1 {
            said += &format!(" in {} parts", self.parts.len());
        }
        said += &match self.timed_ns > Nanoseconds::ZERO {
            true => format!(
                ", of which {} timed something ({})",
                Elapsed(self.timed_ns),
                self.timed_share
            ),
            false => ", and timed nothing".to_owned(),
        };
        let worth = |share: f64| share.is_finite() && share >= LEAST;
        let longest = self.phases.iter().filter(|of| worth(of.share.0));
        let longest: Vec<String> = longest
            .take(NAMED)
            .map(|of| format!("{} {:.0}", doing(of.phase), of.share))
            .collect();
        match longest.is_empty() {
            true => said,
            false => format!("{said}; {}", longest.join(", ")),
        }
    }
}
