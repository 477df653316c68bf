//! What hardware counters tell of the kernels of a call, by CUPTI's range profiler.

use std::ffi::CString;

use regatta_probe::counters::{CountedKernels, Counting};

use super::case::Case;
use super::driver::Device;
use super::error::CudaError;
use regatta_core::machine::{CountedCall, CountedKernel, Structure};

/// Calls that are counted: whether a figure is exact, repeating tells.
const CALLS: usize = 3;

/// Counts some calls, apart from all timing. Each kernel runs once for each pass that the
/// metrics take.
///
/// # Errors
/// No CUPTI that counts, no permission, a call that fails, or kernels that were not counted.
pub fn of_calls(
    device: &mut Device,
    case: &mut Case,
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
    let counting = Counting::begin(&names, structure.launches.len() * CALLS)?;
    for _ in 0..CALLS {
        case.call()?;
    }
    device.synchronise()?;
    calls(&structure, &counting.end()?)
}

/// The counted kernels, which have no names, as calls that launch what the structure tells.
fn calls(structure: &Structure, counted: &CountedKernels) -> Result<Vec<CountedCall>, CudaError> {
    let launches = &structure.launches;
    let expected = launches.len() * CALLS;
    if counted.dropped > 0 || counted.kernels.len() != expected || expected == 0 {
        return Err(CudaError::NotCounted {
            expected,
            counted: counted.kernels.len() + counted.dropped,
        });
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
        let found = calls(&structure, &counted(&values, 0)).unwrap();
        assert_eq!(found.len(), CALLS);
        let names = found[2].kernels.iter().map(|kernel| kernel.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["flash", "combine"]);
        assert_eq!(found[2].kernels[0].counts["sm__inst_executed.sum"], 11.0);
        assert!(found[2].kernels[1].counts.is_empty(), "unknown is not 0");
    }

    #[test]
    fn other_kernels_than_are_launched_are_told_and_not_guessed() {
        for (values, dropped) in [(&[10.0; 5][..], 0), (&[10.0; 6], 1), (&[], 0)] {
            let error = calls(&structure(&["flash", "combine"]), &counted(values, dropped));
            let text = error.unwrap_err().to_string();
            assert!(text.contains("6 kernels were expected"), "{text}");
        }
    }
}
