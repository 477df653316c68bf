//! The reference results of each problem, computed once and kept while there is room.

use std::collections::BTreeMap;

use regatta_worker::operator::{Native, TooLarge};
use regatta_worker::tolerance::Expected;

/// Problems up to this many operations are computed here as well, so that a worker
/// with a wrong check of its own is noticed. Forward and backward are counted together, and
/// each key-value head of each sequence as a thousand operations more.
pub const RECOMPUTED_FLOPS: f64 = 1e9;

/// The most memory that the harness's own check uses. A problem of which one head of
/// one sequence takes more is not computed here.
pub const RECOMPUTED_BYTES: u64 = 512 << 20;

/// References that are kept at the most: a kilobyte each, and the lengths of their sequences.
const MAX_REFERENCES: usize = 10_000;

/// The expected values of each result, by its name.
pub type ByResult = BTreeMap<&'static str, Expected>;

/// The outcome of looking up a reference.
pub enum ReferenceLookup<'a> {
    /// It is here.
    Computed(&'a ByResult),
    /// The problem is too large, by the documented bounds.
    NotComputedHere,
    /// It was to be computed, and the memory for it was not there.
    TooLarge(TooLarge),
}

/// References that were computed, by problem, seed and the draw of its probes.
pub struct ReferenceCache {
    pub kept: BTreeMap<(Native, u64, Option<u64>), ByResult>,
    /// Computes what is not here: problem, seed, draw of its probes, bytes that it may take.
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
        // One with gradients serves forward alone as well.
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

/// True for a problem that the harness does not compute, as docs/TIMING.md says.
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
        // Forward alone pays for forward alone.
        assert_eq!(computed(&mut references, "s17,d8", 1).len(), 1);
        assert_eq!(computed(&mut references, "s17,d8,both", 1).len(), 4);
    }

    #[test]
    fn the_bounds_are_those_that_are_documented() {
        let large = |id: &str| too_large(&id.parse().unwrap());
        // 0.94 GFLOP, forward and backward; forward alone would be a quarter.
        assert!(!large("s1024,d64"));
        assert!(large("s1100,d64"));
        // Few operations, and a plane of 4 GB: as many rows as operations allow.
        assert!(large("s1000000,d64,window-0-0"));
        // The keys that are seen are few.
        assert!(!large("b8,h32,kv8,s1,sk1000000,d128,window-255-0-br"));
        // Sequences without number.
        assert!(large("b2000000,s1,d1"));
    }
}
