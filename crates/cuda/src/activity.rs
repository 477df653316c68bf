//! The device's operations in one call, recorded by CUPTI, and the hardware counters of the call's
//! kernels, from CUPTI's range profiler.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::time::Instant;

use regatta_core::machine::{
    Activity, CountedCall, CountedKernel, Named, Operation, RecordedCall, Structure,
};
use regatta_probe::census::CallRecording;
use regatta_probe::counters::{CountedKernels, Counting};
use regatta_probe::{CacheState, Cuda, StreamClock};
use regatta_worker::units::Nanoseconds;
use serde::Deserialize;

use super::case::CudaCase;
use super::driver::CudaDevice;
use super::error::CudaError;

/// A recording in the probe's format, with times in ns of CUPTI's clock.
#[derive(Deserialize)]
struct ProbeRecording {
    called: Option<i64>,
    returned: Option<i64>,
    operations: Vec<Operation<Named>>,
    counts: BTreeMap<String, u64>,
    ns: BTreeMap<String, u64>,
    dropped: u64,
}

impl ProbeRecording {
    fn read(json: &str) -> Result<ProbeRecording, CudaError> {
        let read = serde_json::from_str(json);
        read.map_err(|error| {
            CudaError::Other(format!("the launch census is not valid JSON: {error}"))
        })
    }

    /// Keeps only operations that were launched within the call. Returns false if a launch is
    /// unknown.
    fn keep_the_call(&mut self) -> bool {
        let (Some(called), Some(returned)) = (self.called, self.returned) else {
            return false;
        };
        let launches = self
            .operations
            .iter()
            .map(|operation| operation.launched_ns);
        let known = launches.clone().all(|at| at.is_some());
        let inside = |at: Option<i64>| at.is_some_and(|at| (called..=returned).contains(&at));
        self.operations
            .retain(|operation| inside(operation.launched_ns));
        known
    }

    /// The operations in the protocol's form, with times from the start of the first.
    fn operations(self) -> Vec<Operation<Named>> {
        let starts = self.operations.iter().map(|operation| operation.start_ns);
        let first = starts.min().unwrap_or(0);
        let counted = |operation: Operation<Named>| Operation {
            device: 0,
            start_ns: operation.start_ns - first,
            end_ns: operation.end_ns - first,
            launched_ns: operation.launched_ns.map(|at| at - first.cast_signed()),
            launch_ns: None,
            ..operation
        };
        self.operations.into_iter().map(counted).collect()
    }
}

/// Makes the call twice and returns the record of the second one: the first recording of a process
/// changes how code is loaded.
///
/// # Errors
/// CUPTI is missing, or the call fails.
pub fn record_call(device: &mut CudaDevice, case: &mut CudaCase) -> Result<Activity, CudaError> {
    recorded(device, case)?;
    let (recorded, host_ns) = recorded(device, case)?;
    Ok(activity(recorded, host_ns))
}

fn recorded(
    device: &mut CudaDevice,
    case: &mut CudaCase,
) -> Result<(ProbeRecording, u64), CudaError> {
    device.synchronise()?;
    let mut recording = CallRecording::begin()?;
    let begin = Instant::now();
    case.call()?;
    let host_ns = begin.elapsed().as_nanos() as u64;
    recording.returned();
    device.synchronise()?;
    Ok((ProbeRecording::read(&recording.end()?)?, host_ns))
}

/// The number of calls from which the median time of each operation is taken.
const RECORDED_CALLS: usize = 5;

/// Records calls in the way they are timed, behind the gate.
///
/// # Errors
/// CUPTI is missing, or the clock or the call fails.
pub fn record_samples(
    clock: &mut StreamClock<Cuda>,
    case: &mut CudaCase,
    cache: CacheState,
) -> Result<Vec<RecordedCall>, CudaError> {
    let mut calls = Vec::new();
    // One more, because the first recording of a process changes how code is loaded.
    for number in 0..=RECORDED_CALLS {
        let mut recording = CallRecording::begin()?;
        let begun = clock.begin(cache)?;
        recording.called();
        case.call()?;
        recording.returned();
        let sample = clock.end(begun)?;
        let mut recorded = ProbeRecording::read(&recording.end()?)?;
        if recorded.keep_the_call() && recorded.dropped == 0 && number > 0 {
            calls.push(RecordedCall {
                time_ns: Some(Nanoseconds(sample.device_ns)),
                calls: std::mem::take(&mut recorded.counts),
                operations: recorded.operations(),
            });
        }
    }
    Ok(calls)
}

fn activity(mut recorded: ProbeRecording, host_ns: u64) -> Activity {
    Activity {
        host_ns,
        calls: std::mem::take(&mut recorded.counts),
        calls_ns: std::mem::take(&mut recorded.ns),
        dropped: recorded.dropped,
        operations: recorded.operations(),
    }
}

/// The number of calls that are counted. A figure is exact if it repeats.
const COUNTED_CALLS: usize = 3;

/// Counts some calls, without timing them. Each kernel runs once for every pass that the metrics
/// need.
///
/// # Errors
/// CUPTI cannot count or lacks permission, a call fails, or kernels were not counted.
pub fn count_kernels(
    device: &mut CudaDevice,
    case: &mut CudaCase,
    metrics: &[String],
) -> Result<Vec<CountedCall>, CudaError> {
    let names = metrics
        .iter()
        .filter_map(|name| CString::new(name.as_str()).ok());
    let names: Vec<CString> = names.collect();
    // Does work that is needed only once for a case.
    case.call()?;
    device.synchronise()?;
    let structure = case.structure();
    let counting = Counting::begin(&names, structure.launches.len() * COUNTED_CALLS)?;
    for _ in 0..COUNTED_CALLS {
        case.call()?;
    }
    device.synchronise()?;
    counted_calls(&structure, &counting.end()?)
}

/// The counted kernels, which have no names, as calls with the launches of `structure`.
fn counted_calls(
    structure: &Structure,
    counted: &CountedKernels,
) -> Result<Vec<CountedCall>, CudaError> {
    let launches = &structure.launches;
    let expected = launches.len() * COUNTED_CALLS;
    if counted.dropped > 0 || counted.kernels.len() != expected || expected == 0 {
        return Err(CudaError::Other(format!(
            "{expected} kernels were expected of the counted calls, and {} counted",
            counted.kernels.len() + counted.dropped
        )));
    }
    let kernel = |(name, values): (&String, &Vec<f64>)| {
        let counts = counted.metrics.iter().cloned().zip(values.iter().copied());
        CountedKernel {
            name: name.clone(),
            counts: counts.filter(|(_, value)| value.is_finite()).collect(),
        }
    };
    let calls = counted.kernels.chunks(launches.len()).map(|call| {
        let names = launches.iter().map(|launch| &launch.name);
        CountedCall {
            kernels: names.zip(call).map(kernel).collect(),
        }
    });
    Ok(calls.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::machine::Launch;

    const RECORDING: &str = r#"{"dropped":0,"begin":1000,"called":1350,"returned":1600,"end":3000,
        "counts":{"launches":1,"frees":0},"ns":{"launches":5},"operations":[
        {"kind":"copy","direction":"HtoD","bytes":64,"start_ns":1500,"end_ns":1600,"stream":7,"device":1,"launched_ns":1300},
        {"kind":"kernel","name":"flash","grid":[1, 2, 3],"start_ns":2000,"end_ns":2500,"stream":7,"device":1,"launched_ns":1400,"launch_ns":5,"operator":"step"}]}"#;

    #[test]
    fn times_count_from_the_first_start() {
        let activity = activity(ProbeRecording::read(RECORDING).unwrap(), 42);
        let times = activity.operations.iter();
        let times = times.map(|one| (one.start_ns, one.end_ns, one.launched_ns));
        let expected = [(0, 100, Some(-200)), (500, 1_000, Some(-100))];
        assert_eq!(times.collect::<Vec<_>>(), expected);
        let kernel = activity.operations[1].kernel();
        assert_eq!(kernel.map(|kernel| kernel.name.as_str()), Some("flash"));
        assert_eq!(activity.operations[0].bytes(), Some(64));
        assert_eq!(activity.operations[1].operator.as_deref(), Some("step"));
        assert_eq!(activity.calls["launches"], 1);
        assert_eq!(activity.calls["frees"], 0);
        assert_eq!(activity.calls_ns, [("launches".to_owned(), 5)].into());
    }

    #[test]
    fn what_was_launched_within_the_call_is_its_work() {
        let mut recording = ProbeRecording::read(RECORDING).unwrap();
        assert!(recording.keep_the_call());
        assert_eq!(recording.operations().len(), 1);
        let unknown = RECORDING.replace(r#","launched_ns":1300"#, "");
        assert!(!ProbeRecording::read(&unknown).unwrap().keep_the_call());
    }

    fn structure(names: &[&str]) -> Structure {
        let launches = names.iter().map(|name| Launch {
            name: (*name).to_owned(),
            ..Launch::default()
        });
        Structure {
            launches: launches.collect(),
            ..Structure::default()
        }
    }

    fn counted(values: &[f64], dropped: usize) -> CountedKernels {
        CountedKernels {
            metrics: vec!["sm__inst_executed.sum".to_owned()],
            unavailable: Vec::new(),
            passes: 1,
            dropped,
            kernels: values.iter().map(|&value| vec![value]).collect(),
        }
    }

    #[test]
    fn kernels_are_named_by_the_launches_of_each_call() {
        let structure = structure(&["flash", "combine"]);
        let values = [10.0, 2.0, 10.0, 2.0, 11.0, f64::NAN];
        let counted = counted_calls(&structure, &counted(&values, 0)).unwrap();
        assert_eq!(counted.len(), COUNTED_CALLS);
        let names = counted[2].kernels.iter().map(|kernel| kernel.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["flash", "combine"]);
        assert_eq!(counted[2].kernels[0].counts["sm__inst_executed.sum"], 11.0);
        assert!(counted[2].kernels[1].counts.is_empty(), "unknown is not 0");
    }

    #[test]
    fn other_kernels_than_are_launched_are_told_and_not_guessed() {
        for (values, dropped) in [(&[10.0; 5][..], 0), (&[10.0; 6], 1), (&[], 0)] {
            let error = counted_calls(&structure(&["flash", "combine"]), &counted(values, dropped));
            let text = error.unwrap_err().to_string();
            assert!(text.contains("6 kernels were expected"), "{text}");
        }
    }
}
