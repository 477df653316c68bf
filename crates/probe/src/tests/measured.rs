//! Many samples of one call, as it is and as a graph.

use super::mock::{ISSUE_NS, MockCall};
use super::{KERNEL_NS, clock, kernel};
use crate::sample::{Cache, SamplingPlan};

const PLAN: SamplingPlan = SamplingPlan {
    warmup: 2,
    samples: 3,
    min_samples: 1,
    budget_ns: u64::MAX,
    cache: Cache::Cold,
    graph: false,
};

#[test]
fn first_call_and_warm_up_are_ungated() {
    let mut clock = clock();
    let measured = clock.measure(&PLAN, kernel).unwrap();
    assert_eq!(measured.samples.len(), 3);
    assert!(measured.first_call_ns >= (KERNEL_NS + ISSUE_NS) as f64 * 0.7);
    let trace = clock.device().take_trace();
    let closed = trace.iter().position(|step| *step == MockCall::CloseGate);
    let kernels = |steps: &[MockCall]| {
        steps
            .iter()
            .filter(|step| **step == MockCall::Kernel)
            .count()
    };
    assert_eq!(kernels(&trace[..closed.unwrap()]), 3);
    assert_eq!(kernels(&trace), 6);
}

#[test]
fn the_budget_ends_it_after_the_least() {
    let mut clock = clock();
    let plan = SamplingPlan {
        samples: 100,
        min_samples: 4,
        budget_ns: 0,
        ..PLAN
    };
    let measured = clock.measure(&plan, kernel).unwrap();
    assert_eq!(measured.samples.len(), 4);
    let more = SamplingPlan {
        samples: 2,
        min_samples: 5,
        ..PLAN
    };
    assert_eq!(clock.measure(&more, kernel).unwrap().samples.len(), 5);
}
