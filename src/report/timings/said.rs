//! Where the time went, in two lines.

use super::{InvocationTime, Timings, doing};
use crate::record::spent::Phase;
use crate::record::types::How;
use crate::report::text::one_line;
use crate::units::{Elapsed, Nanoseconds, Share};

/// Phases that are named.
const NAMED: usize = 3;

/// The least share of the whole that is worth a name.
const LEAST: Share = Share(0.005);

impl Timings {
    /// ```text
    /// took 2 min 7 s, of which 1.30 s timed something (1.0 %);
    ///   starting workers 41 %, preparing 33 %, checking 12 %
    /// ```
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
        // The harness's two checks are one to whoever waits for them.
        let mut shares: Vec<(&str, Share)> = Vec::new();
        for of in &self.phases {
            let name = match of.phase {
                Phase::CheckingAfter => doing(Phase::Checking),
                phase => doing(phase),
            };
            match shares.iter_mut().find(|(known, _)| *known == name) {
                Some((_, share)) => *share = *share + of.share,
                None => shares.push((name, of.share)),
            }
        }
        shares.retain(|(_, share)| *share >= LEAST);
        shares.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let longest = shares.iter().take(NAMED);
        let longest: Vec<String> = longest
            .map(|(name, share)| format!("{name} {share:.0}"))
            .collect();
        if !longest.is_empty() {
            said += &format!(";\n  {}", longest.join(", "));
        }
        for of in self.fell_back() {
            let because = of.because.as_deref().unwrap_or_default();
            let (worker, number) = (&of.worker, of.invocation);
            said += &format!(
                "\n{worker} was forked at first, and from invocation {number} on started: {}",
                one_line(because)
            );
        }
        said
    }

    /// The first invocation of each worker that was started after others were forked.
    fn fell_back(&self) -> impl Iterator<Item = &InvocationTime> {
        let mut known: Vec<&str> = Vec::new();
        self.invocations.iter().filter(move |of| {
            let others = self.invocations.iter();
            let mut others = others.filter(|other| other.worker == of.worker);
            let first = of.because.is_some()
                && !known.contains(&of.worker.as_str())
                && others.any(|other| other.start == Some(How::Forked));
            if first {
                known.push(&of.worker);
            }
            first
        })
    }
}
