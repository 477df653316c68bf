//! How often one may look, and what each look costs.
//!
//! Invocations come in batches, and after each the undecided are judged again. Who looks
//! often enough is sure to be fooled once: each look has a share of the error that a gate
//! allows itself (Bonferroni over looks and cases; most is kept for the last, as O'Brien and
//! Fleming, Biometrics 35, 1979, keep it).

/// Fresh invocations in all after each batch, as far as a suite lets it go.
const STEPS: [u32; 6] = [0, 2, 5, 10, 18, 30];

/// What each look may spend, in hundredths, of the looks that there are; the last has the
/// rest.
const SHARES: [f64; 6] = [0.12, 0.04, 0.08, 0.08, 0.13, 0.10];

/// When a gate looks.
#[derive(Clone, Debug, PartialEq)]
pub struct Looks {
    steps: Vec<u32>,
}

impl Looks {
    /// A single one, at what was measured: two stored runs.
    pub fn once() -> Looks {
        Looks { steps: vec![0] }
    }

    /// Those of a gate that takes up to `most` fresh invocations of a case.
    pub fn up_to(most: u32) -> Looks {
        let below = STEPS.into_iter().take_while(|&step| step < most);
        let mut steps: Vec<u32> = below.collect();
        steps.push(most);
        Looks { steps }
    }

    /// Fresh invocations after the last.
    pub fn most(&self) -> u32 {
        self.steps.last().copied().unwrap_or(0)
    }

    /// Fresh invocations after the batch that follows so many; `None` after the last.
    pub fn next(&self, fresh: u32) -> Option<u32> {
        self.steps.iter().copied().find(|&step| step > fresh)
    }

    /// What part of the error the look after so many fresh invocations may spend.
    pub fn share(&self, fresh: u32) -> f64 {
        let last = self.steps.len() - 1;
        let at = self.steps.iter().position(|&step| step >= fresh);
        match at.unwrap_or(last) {
            at if at == last => self.last_share(),
            at => SHARES[at.min(SHARES.len() - 1)],
        }
    }

    /// What part the last look may spend.
    pub fn last_share(&self) -> f64 {
        let before = self.steps.len() - 1;
        1.0 - SHARES[..before.min(SHARES.len())].iter().sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_looks_spend_is_all_there_is() {
        for most in [0, 1, 2, 3, 8, 10, 24, 30, 31, 60] {
            let looks = Looks::up_to(most);
            let spent: f64 = looks.steps.iter().map(|&step| looks.share(step)).sum();
            assert!((spent - 1.0).abs() < 1e-12, "{most}: {spent}");
            assert_eq!(looks.most(), most);
        }
        assert_eq!(Looks::once().share(0), 1.0);
    }

    #[test]
    fn batches_grow_to_the_bound() {
        let looks = Looks::up_to(8);
        let next = |fresh| looks.next(fresh);
        assert_eq!(
            (next(0), next(2), next(5), next(8)),
            (Some(2), Some(5), Some(8), None)
        );
        // A gate that was cut short between two looks has the share of the later.
        assert_eq!(looks.share(3), looks.share(5));
    }
}
