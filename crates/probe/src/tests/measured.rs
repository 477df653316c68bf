//! Many samples of one call, as it is and as a graph.

use super::{KERNEL_NS, clock, kernel};
use crate::Error;
use crate::clock::Device;
use crate::measure::Plan;
use crate::mock::{ISSUE_NS, Mock, Step};
use crate::sample::Cache;
use std::panic::{AssertUnwindSafe, catch_unwind};

const PLAN: Plan = Plan {
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
    let closed = trace.iter().position(|step| *step == Step::CloseGate);
    let kernels = |steps: &[Step]| steps.iter().filter(|step| **step == Step::Kernel).count();
    assert_eq!(kernels(&trace[..closed.unwrap()]), 3);
    assert_eq!(kernels(&trace), 6);
}

#[test]
fn the_budget_ends_it_after_the_least() {
    let mut clock = clock();
    let plan = Plan {
        samples: 100,
        min_samples: 4,
        budget_ns: 0,
        ..PLAN
    };
    let measured = clock.measure(&plan, kernel).unwrap();
    assert_eq!(measured.samples.len(), 4);
    let more = Plan {
        samples: 2,
        min_samples: 5,
        ..PLAN
    };
    assert_eq!(clock.measure(&more, kernel).unwrap().samples.len(), 5);
}

#[test]
fn a_graph_costs_the_host_one_launch() {
    let mut clock = clock();
    let two = |device: &mut Mock| kernel(device).and_then(|()| kernel(device));
    let plain = clock.measure(&PLAN, two).unwrap();
    let plan = Plan {
        graph: true,
        ..PLAN
    };
    clock.device().take_trace();
    let graph = clock.measure(&plan, two).unwrap();
    assert_eq!(graph.samples[0].device_ns, plain.samples[0].device_ns);
    assert_eq!(plain.samples[0].host_ns, 2.0 * ISSUE_NS as f64);
    assert_eq!(graph.samples[0].host_ns, ISSUE_NS as f64);
    let trace = clock.device().take_trace();
    let begin = trace.iter().position(|step| *step == Step::BeginCapture);
    assert_eq!(
        trace[begin.unwrap()..][..5],
        [
            Step::BeginCapture,
            Step::Kernel,
            Step::Kernel,
            Step::EndCapture,
            Step::LaunchGraph
        ]
    );
}

#[test]
fn a_call_that_cannot_be_captured_says_so() {
    let mut clock = clock();
    let failed = clock.capture(|device| {
        kernel(device)?;
        device.synchronise()
    });
    assert!(matches!(failed, Err(Error::NotCapturable(_))), "{failed:?}");
    assert!(!clock.device().is_capturing());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        clock.capture(|_| panic!("the call")).is_ok()
    }));
    assert!(panicked.is_err());
    assert!(!clock.device().is_capturing());
    clock.sample(Cache::Cold, kernel).unwrap();
}
