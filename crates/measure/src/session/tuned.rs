//! What a tuner chose of a case.

use regatta_core::record::types::{Choices, Tuned};
use regatta_worker::protocol::{Prepared, VariantInfo};

/// What a tuner chose of a case that is prepared, and whether a case may ask for it.
pub fn tuned(prepared: &Prepared, variant: &VariantInfo) -> Choices {
    let chosen = prepared.tuned.iter().filter_map(|name| {
        // What it became is not told: nothing is known of it.
        let value = prepared.effective.get(name)?.clone();
        let takes = variant.parameters.get(name);
        let pinnable = takes.is_some_and(|takes| takes.allows(&value));
        Some((name.clone(), Tuned { value, pinnable }))
    });
    chosen.collect()
}
