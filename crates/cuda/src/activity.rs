//! What the device does in one call, by CUPTI's record of it, and what its hardware counters tell of
//! the call's kernels, by CUPTI's range profiler.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::time::Instant;

use regatta_core::machine::{
    Activity, CountedCall, CountedKernel, Named, Operation, RecordedCall, Structure, Work,
};
use regatta_probe::census::{self, CallRecording, Recorded, RecordedOperation};
use regatta_probe::counters::{CountedKernels, Counting};
use regatta_probe::{CacheState, Cuda, StreamClock};
use regatta_worker::units::Nanoseconds;

use super::case::CudaCase;
use super::driver::CudaDevice;
use super::error::CudaError;

/// Makes the call twice and gives the second: the first of a process changes how code is
/// loaded.
///
/// # Errors
/// No CUPTI, or a call that fails.
pub fn record_call(device: &mut CudaDevice, case: &mut CudaCase) -> Result<Activity, CudaError> {
    recorded(device, case)?;
    let (recorded, host_ns) = recorded(device, case)?;
    Ok(activity(&recorded, host_ns))
}

fn recorded(device: &mut CudaDevice, case: &mut CudaCase) -> Result<(Recorded, u64), CudaError> {
    device.synchronise()?;
    let mut recording = CallRecording::begin()?;
    let begin = Instant::now();
    case.call()?;
    let host_ns = begin.elapsed().as_nanos() as u64;
    recording.returned();
    device.synchronise()?;
    Ok((recording.end()?, host_ns))
}

/// Calls whose operations' times are kept: their medians.
const RECORDED_CALLS: usize = 5;

/// Calls recorded as they are timed, behind the gate.
///
/// # Errors
/// No CUPTI, the clock's, or a call that fails.
pub fn record_samples(
    clock: &mut StreamClock<Cuda>,
    case: &mut CudaCase,
    cache: CacheState,
) -> Result<Vec<RecordedCall>, CudaError> {
    let mut found = Vec::new();
    // One more: the first recording of a process changes how code is loaded.
    for number in 0..=RECORDED_CALLS {
        let mut recording = CallRecording::begin()?;
        let begun = clock.begin(cache)?;
        recording.called();
        case.call()?;
        recording.returned();
        let sample = clock.end(begun)?;
        let recorded = recording.end()?;
        let whole = recorded.of_the_call().filter(|_| recorded.dropped == 0);
        let Some(of_the_call) = whole.filter(|_| number > 0) else {
            continue;
        };
        found.push(RecordedCall {
            time_ns: Some(Nanoseconds(sample.device_ns)),
            operations: operations(&recorded, &of_the_call),
            calls: calls(&recorded),
        });
    }
    Ok(found)
}

/// Calls to CUDA, by name.
fn calls(recorded: &Recorded) -> BTreeMap<String, u64> {
    let named = recorded.counts.named().into_iter();
    named
        .map(|(name, made)| (name.to_owned(), made.calls))
        .collect()
}

/// A recording, counted from the start of its first operation.
fn activity(recorded: &Recorded, host_ns: u64) -> Activity {
    let all: Vec<&RecordedOperation> = recorded.operations.iter().collect();
    let named = recorded.counts.named().into_iter();
    Activity {
        operations: operations(recorded, &all),
        host_ns,
        calls: calls(recorded),
        calls_ns: named
            .filter(|(_, made)| made.calls > 0)
            .map(|(name, made)| (name.to_owned(), made.ns))
            .collect(),
        dropped: recorded.dropped,
    }
}

/// Operations of a recording, counted from the start of the first of them.
fn operations(recorded: &Recorded, of: &[&RecordedOperation]) -> Vec<Operation<Named>> {
    let starts = of.iter().map(|operation| operation.start);
    let first = starts.min().unwrap_or(recorded.begin);
    let converted = |operation: &RecordedOperation| {
        let work = match operation.activity {
            census::RecordedWork::Kernel(ref kernel) => {
                let name = recorded.name(kernel.name).to_owned();
                Work::Kernel(Named { name })
            }
            census::RecordedWork::Copy { direction, bytes } => Work::Copy {
                direction: direction.to_owned(),
                bytes: Some(bytes),
            },
            census::RecordedWork::Fill { bytes } => Work::Set { bytes: Some(bytes) },
        };
        let launched = |at: u64| at.cast_signed() - first.cast_signed();
        let operator = |id| recorded.operator(id).into();
        Operation {
            stream: Some(operation.stream),
            launched_ns: operation.launch.map(|launch| launched(launch.at)),
            operator: operation.operator.map(operator),
            ..Operation::new(work, operation.start - first, operation.end - first)
        }
    };
    of.iter().map(|operation| converted(operation)).collect()
}

/// Calls that are counted: whether a figure is exact, repeating tells.
const COUNTED_CALLS: usize = 3;

/// Counts some calls, apart from all timing. Each kernel runs once for each pass that the
/// metrics take.
///
/// # Errors
/// No CUPTI that counts, no permission, a call that fails, or kernels that were not counted.
pub fn count_kernels(
    device: &mut CudaDevice,
    case: &mut CudaCase,
    metrics: &[String],
) -> Result<Vec<CountedCall>, CudaError> {
    let names = metrics
        .iter()
        .filter_map(|name| CString::new(name.as_str()).ok());
    let names: Vec<CString> = names.collect();
    // What is made once for a case is made before.
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

/// The counted kernels, which have no names, as calls that launch what the structure tells.
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
    use regatta_probe::census::{CallClass, CallCount, CallCounts, LaunchCall, RecordedKernel};

    use super::*;

    #[test]
    fn times_count_from_the_first_start() {
        let (direction, bytes) = ("HtoD", 64);
        let copy = census::RecordedWork::Copy { direction, bytes };
        let kernel = census::RecordedWork::Kernel(RecordedKernel::default());
        let launched = RecordedOperation {
            launch: Some(LaunchCall { at: 1_400, ns: 5 }),
            operator: Some(0),
            ..RecordedOperation::new(kernel, 2_000, 2_500)
        };
        let recorded = Recorded {
            begin: 1_000,
            end: 3_000,
            operations: vec![RecordedOperation::new(copy, 1_500, 1_600), launched],
            names: vec!["flash".to_owned()],
            called: None,
            returned: None,
            operators: vec!["step".to_owned()],
            counts: CallCounts::from([(CallClass::Launch, CallCount { calls: 1, ns: 5 })]),
            dropped: 0,
        };
        let activity = activity(&recorded, 42);
        let times: Vec<(u64, u64, Option<i64>)> = activity
            .operations
            .iter()
            .map(|operation| (operation.start_ns, operation.end_ns, operation.launched_ns))
            .collect();
        assert_eq!(times, [(0, 100, None), (500, 1_000, Some(-100))]);
        let kernel = activity.operations[1].kernel();
        assert_eq!(kernel.map(|kernel| kernel.name.as_str()), Some("flash"));
        assert_eq!(activity.operations[0].bytes(), Some(64));
        assert_eq!(activity.operations[1].operator.as_deref(), Some("step"));
        assert_eq!(activity.calls["launches"], 1);
        assert_eq!(activity.calls_ns, [("launches".to_owned(), 5)].into());
    }
}

#[cfg(test)]
mod counting_tests {
    use super::*;
    use regatta_core::machine::Launch;

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
        let found = counted_calls(&structure, &counted(&values, 0)).unwrap();
        assert_eq!(found.len(), COUNTED_CALLS);
        let names = found[2].kernels.iter().map(|kernel| kernel.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["flash", "combine"]);
        assert_eq!(found[2].kernels[0].counts["sm__inst_executed.sum"], 11.0);
        assert!(found[2].kernels[1].counts.is_empty(), "unknown is not 0");
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
