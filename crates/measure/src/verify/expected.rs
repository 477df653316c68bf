//! The reference results of each problem, computed once and cached.

use std::collections::BTreeMap;

use regatta_worker::operator::{Native, TooLarge};
use regatta_worker::tolerance::Expected;

/// The harness recomputes problems of up to this many operations itself, to notice a worker whose
/// own check is wrong. Forward and backward count together, and each key-value head of each
/// sequence adds a thousand operations.
pub const RECOMPUTED_FLOPS: f64 = 1e9;

/// The largest amount of memory that the harness's own check uses. A problem is not recomputed if
/// one head of one sequence needs more.
pub const RECOMPUTED_BYTES: u64 = 512 << 20;

/// The number of references that are cached: each is a kilobyte, and the lengths of its sequences.
const MAX_REFERENCES: usize = 10_000;

/// The expected values of each result, by name.
pub type ByResult = BTreeMap<&'static str, Expected>;

/// The outcome of a lookup.
pub enum ReferenceLookup<'a> {
    /// The expected values.
    Computed(&'a ByResult),
    /// The problem is too large by the documented bounds.
    NotComputedHere,
    /// The problem is within the bounds, but there was not enough memory.
    TooLarge(TooLarge),
}

/// Computed references, by problem, seed and draw of the probes.
pub struct ReferenceCache {
    pub kept: BTreeMap<(Native, u64, Option<u64>), ByResult>,
    /// Computes a reference: problem, seed, draw of the probes, maximum bytes.
    pub compute: fn(&Native, u64, Option<u64>, u64) -> Result<ByResult, TooLarge>,
}

impl Default for ReferenceCache {
    fn default() -> ReferenceCache {
        ReferenceCache {
            kept: BTreeMap::new(),
            compute: Native::expected,
        }
    }
}

impl ReferenceCache {
    /// The expected results of a problem.
    pub fn find(&mut self, problem: &Native, seed: u64, draw: Option<u64>) -> ReferenceLookup<'_> {
        let wanted = problem.same_values();
        // A reference with gradients also serves for the forward pass alone.
        let both = wanted.with_gradients().map(|both| (both, seed, draw));
        let both = both.filter(|both| self.kept.contains_key(both));
        let key = both.unwrap_or((wanted, seed, draw));
        if !self.kept.contains_key(&key) {
            if too_large(problem) {
                return ReferenceLookup::NotComputedHere;
            }
            let expected = match (self.compute)(&key.0, seed, draw, RECOMPUTED_BYTES) {
                Ok(expected) => expected,
                Err(error) => return ReferenceLookup::TooLarge(error),
            };
            if self.kept.len() == MAX_REFERENCES {
                self.kept.clear();
            }
            self.kept.insert(key.clone(), expected);
        }
        ReferenceLookup::Computed(&self.kept[&key])
    }
}

/// True for a problem that the harness does not recompute, as docs/TIMING.md says.
fn too_large(problem: &Native) -> bool {
    let (operations, bytes) = problem.cost_of_reference();
    operations > RECOMPUTED_FLOPS || bytes > RECOMPUTED_BYTES.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn computed(references: &mut ReferenceCache, id: &str, seed: u64) -> ByResult {
        match references.find(&id.parse().unwrap(), seed, Some(seed)) {
            ReferenceLookup::Computed(expected) => expected.clone(),
            ReferenceLookup::NotComputedHere => panic!("{id} is not computed"),
            ReferenceLookup::TooLarge(error) => panic!("{id}: {error}"),
        }
    }

    #[test]
    fn forward_is_served_by_what_was_computed_for_a_gradient() {
        let mut references = ReferenceCache::default();
        let both = computed(&mut references, "s16,d8,bwd", 1);
        assert_eq!(both.len(), 4);
        assert_eq!(computed(&mut references, "s16,d8", 1), both);
        assert_eq!(computed(&mut references, "s16,d8,bhsd", 1), both);
        assert_eq!(references.kept.len(), 1);
        assert_ne!(computed(&mut references, "s16,d8", 2), both);
        assert_eq!(references.kept.len(), 2);
        // A forward problem computes no gradients.
        assert_eq!(computed(&mut references, "s17,d8", 1).len(), 1);
        assert_eq!(computed(&mut references, "s17,d8,both", 1).len(), 4);
    }

    #[test]
    fn the_bounds_are_those_that_are_documented() {
        let large = |id: &str| too_large(&id.parse().unwrap());
        // 0.94 GFLOP, forward and backward; forward alone would be a quarter.
        assert!(!large("s1024,d64"));
        assert!(large("s1100,d64"));
        // Few operations, but a plane of 4 GB: as many rows as the operations allow.
        assert!(large("s1000000,d64,window-0-0"));
        // Few keys are visible.
        assert!(!large("b8,h32,kv8,s1,sk1000000,d128,window-255-0-br"));
        // A huge number of sequences.
        assert!(large("b2000000,s1,d1"));
    }
}
