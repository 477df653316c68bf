//! Tests of the timing method on a simulated device.

use crate::Result;
use crate::clock::{CacheState, Mark, Sample, StreamClock, TimedDevice};
use mock::{HOT_SHARE, ISSUE_NS, LAUNCH_NS, Mock, MockCall, PAIR_NS, failure};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const KERNEL_NS: u64 = 20_000;

/// So long that the watchdog never interferes with an honest call of the simulation on a slow
/// machine.
const NEVER: Duration = Duration::from_secs(3_600);

/// For calls that are meant to trigger the watchdog.
const SOON: Duration = Duration::from_millis(2);

fn clock() -> StreamClock<Mock> {
    let mut clock = StreamClock::new(Mock::new()).unwrap();
    clock.limited(NEVER);
    clock.calibrate().unwrap();
    clock.device().take_trace();
    clock
}

fn kernel(device: &mut Mock) -> Result<()> {
    device.kernel(KERNEL_NS)
}

const RUN_UP: [MockCall; 8] = [MockCall::NullKernel; 8];

const AFTER: [MockCall; 6] = [
    MockCall::HostClock,
    MockCall::Record(Mark::Stop),
    MockCall::OpenGate,
    MockCall::Synchronise,
    MockCall::Elapsed,
    MockCall::SmClock,
];

#[test]
fn a_cold_sample_is_the_contract() {
    let mut clock = clock();
    let sample = clock.sample(CacheState::Cold, kernel).unwrap();
    assert_eq!(sample.device_ns, KERNEL_NS as f64);
    assert_eq!(sample.host_ns, ISSUE_NS as f64);
    let contract = [
        &[MockCall::Synchronise, MockCall::Flush][..],
        &[MockCall::Record(Mark::Flushed), MockCall::CloseGate],
        &RUN_UP,
        &[
            MockCall::Record(Mark::Start),
            MockCall::Reach(Mark::Flushed),
        ],
        &[MockCall::HostClock, MockCall::Kernel],
        &AFTER,
    ]
    .concat();
    assert_eq!(clock.device().take_trace(), contract);
}

#[test]
fn the_reading_is_the_kernels_own_time() {
    let mut clock = clock();
    let cold = clock.sample(CacheState::Cold, kernel).unwrap();
    let expected = Sample {
        device_ns: KERNEL_NS as f64,
        host_ns: ISSUE_NS as f64,
        clock_mhz: cold.clock_mhz,
        synchronised: false,
    };
    assert_eq!(cold, expected);
    let hot = clock.sample(CacheState::Hot, kernel).unwrap();
    let saved = KERNEL_NS / HOT_SHARE;
    assert_eq!(hot.device_ns, (KERNEL_NS - saved) as f64);
}

#[test]
fn calibration_reads_the_pair_and_the_null_kernel() {
    let mut clock = StreamClock::new(Mock::new()).unwrap();
    let overhead = clock.calibrate().unwrap();
    assert_eq!(overhead, (PAIR_NS + LAUNCH_NS) as f64);
    // A second calibration does not subtract the first.
    assert_eq!(clock.calibrate().unwrap(), overhead);
}

/// The simulation's gate blocks the calling thread for good, as a driver would. Only the watchdog's
/// thread can end this test.
#[test]
fn a_call_that_synchronises_is_let_through_and_says_so() {
    let mut clock = clock();
    clock.limited(SOON);
    let sample = clock
        .sample(CacheState::Cold, |device| {
            kernel(device)?;
            device.synchronise()
        })
        .unwrap();
    assert!(sample.synchronised);
    assert!(
        sample.device_ns > KERNEL_NS as f64,
        "it waited for the host"
    );
    assert!(clock.device().gate_is_open());
    // The next sample is honest again.
    clock.limited(NEVER);
    let sample = clock.sample(CacheState::Cold, kernel).unwrap();
    assert!(!sample.synchronised);
    assert_eq!(sample.device_ns, KERNEL_NS as f64);
}

#[test]
fn a_failure_at_any_step_surfaces_and_leaves_the_gate_open() {
    let steps = [
        MockCall::Flush,
        MockCall::Synchronise,
        MockCall::CloseGate,
        MockCall::NullKernel,
        MockCall::Record(Mark::Start),
        MockCall::Kernel,
        MockCall::Record(Mark::Stop),
        MockCall::Elapsed,
        MockCall::Record(Mark::Flushed),
        MockCall::Reach(Mark::Flushed),
    ];
    for step in steps {
        let mut clock = clock();
        clock.device().fails = Some(step);
        let failed = clock.sample(CacheState::Cold, kernel);
        assert_eq!(failed, Err(failure()), "{step:?}");
        assert!(clock.device().gate_is_open(), "{step:?}");
        // The device recovers, and so does the clock.
        clock.device().fails = None;
        let sample = clock.sample(CacheState::Cold, kernel).unwrap();
        assert!(!sample.synchronised, "{step:?}");
        assert!(clock.device().gate_is_open(), "{step:?}");
    }
}

#[test]
fn a_panic_in_the_call_opens_the_gate() {
    let mut clock = clock();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        clock.sample(CacheState::Cold, |_| panic!("the call"))
    }));
    assert!(panicked.is_err());
    assert!(clock.device().gate_is_open());
    clock.sample(CacheState::Cold, kernel).unwrap();
}

#[test]
fn a_guard_that_outlives_its_sample_harms_no_later_one() {
    let mut clock = clock();
    clock.limited(SOON);
    let mut late = Some(clock.begin(CacheState::Hot).unwrap());
    let sample = clock
        .sample(CacheState::Hot, |device| {
            drop(late.take());
            assert!(!device.gate_is_open());
            device.synchronise()
        })
        .unwrap();
    assert!(sample.synchronised);
}

pub(crate) mod mock;
