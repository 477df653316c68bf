//! Compares the results of a script's call in the head with those of the same call in the base.
//!
//! Both sides draw the same inputs, because both scripts start with the same seeds. If the results
//! of the base differ between its own processes, for example because inputs are not initialised, it
//! cannot serve as a reference.

use std::collections::BTreeMap;

use regatta_core::record::{Compared, Fault};
use regatta_worker::protocol::OutputSample;

/// Compares the outputs of head and base, and returns their relative L2 differences by name.
/// `listed` has the outputs of base and head from the processes that listed the calls.
///
/// # Errors
/// A sentence that names the first output outside its tolerance. If the head's own processes differ
/// from each other, the fault is [`Fault::Unchecked`]: the change may not be the cause, as the base
/// may differ too and have been lucky.
pub fn compare(
    [base, head]: [&[OutputSample]; 2],
    listed: [Option<&[OutputSample]>; 2],
) -> Result<(Compared, BTreeMap<String, f64>), (Fault, String)> {
    let nothing = |reason: &str| (Compared::Nothing(reason.to_owned()), BTreeMap::new());
    if base.is_empty() && head.is_empty() {
        return Ok(nothing("the calls return no arrays"));
    }
    let varies = |before: Option<&[OutputSample]>, now| {
        before.is_some_and(|before| difference(before, now).is_err())
    };
    if varies(listed[0], base) {
        return Ok(nothing(
            "the calls return something else in each process: draw their inputs with a seed, set \
             what `empty` leaves unset, and change nothing that a later call reads",
        ));
    }
    match difference(base, head) {
        Ok(errors) => Ok((Compared::Base, errors)),
        Err(_) if varies(listed[1], head) => Err((
            Fault::Unchecked,
            "the head's results differ from process to process, and were not checked: it may read \
             memory that is not set, draw without a seed, or have a race"
                .to_owned(),
        )),
        Err(reason) => Err((Fault::WrongResult, reason)),
    }
}

/// Relative L2 differences of the outputs, by name.
fn difference(
    base: &[OutputSample],
    head: &[OutputSample],
) -> Result<BTreeMap<String, f64>, String> {
    if base.len() != head.len() {
        return Err(format!(
            "wrong result: the call returned {} arrays, in the base {}",
            head.len(),
            base.len()
        ));
    }
    let several = base.len() > 1;
    let mut errors = BTreeMap::new();
    for (place, (base, head)) in base.iter().zip(head).enumerate() {
        let name = if several {
            format!("out{place}")
        } else {
            "out".to_owned()
        };
        if (&base.shape, &base.dtype) != (&head.shape, &head.dtype) {
            return Err(format!(
                "wrong result: {name} is {:?} of {}, in the base {:?} of {}: the base is its \
                 reference",
                head.shape, head.dtype, base.shape, base.dtype
            ));
        }
        let limit = tolerance(&base.dtype);
        let values = relative(&base.values, &head.values);
        // The values are a sample of an array's elements; its norms cover all of them.
        let norms = relative(&base.norms, &head.norms);
        match (values, norms) {
            (Some(values), Some(norms)) if values.max(norms) <= limit => {
                errors.insert(name, values);
            }
            (Some(values), Some(norms)) => {
                return Err(format!(
                    "wrong result: {name} differs from the base's by {:.1e} (relative L2), above \
                     the {limit:.0e} allowed for {}: the base is its reference, on the same \
                     inputs",
                    values.max(norms),
                    base.dtype
                ));
            }
            _ => {
                return Err(format!(
                    "wrong result: {name} is not finite where the base's is, or the other way \
                     around"
                ));
            }
        }
    }
    Ok(errors)
}

/// `‖a - b‖ / ‖a‖` over the finite elements. `None` if an element is finite on one side only.
fn relative(base: &[Option<f64>], head: &[Option<f64>]) -> Option<f64> {
    if base.len() != head.len() {
        return None;
    }
    let (mut difference, mut size) = (0.0, 0.0);
    for pair in base.iter().zip(head) {
        match pair {
            (Some(base), Some(head)) => {
                difference += (base - head).powi(2);
                size += base.powi(2);
            }
            (None, None) => {}
            _ => return None,
        }
    }
    Some(if size > 0.0 {
        (difference / size).sqrt()
    } else {
        difference.sqrt()
    })
}

/// The largest relative L2 difference between two correct results of a type: about eight roundings,
/// and sums in another order. Whole numbers must be equal.
fn tolerance(dtype: &str) -> f64 {
    match dtype {
        "float64" | "complex128" => 1e-10,
        "float32" | "complex64" => 2e-5,
        "float16" => 5e-3,
        "bfloat16" => 3e-2,
        narrow if narrow.starts_with("float") => 0.2,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(dtype: &str, values: &[f64]) -> OutputSample {
        let finite = |value: f64| value.is_finite().then_some(value);
        OutputSample {
            shape: vec![values.len() as u64],
            dtype: dtype.to_owned(),
            values: values.iter().copied().map(finite).collect(),
            norms: vec![finite(values.iter().map(|x| x * x).sum::<f64>().sqrt())],
        }
    }

    #[test]
    fn roundings_pass_and_another_result_does_not() {
        let base = [output("float32", &[1.0, 2.0, f64::NAN])];
        for (values, wrong) in [
            (vec![1.000_01, 2.0, f64::NAN], ""),
            (
                vec![1.001, 2.0, f64::NAN],
                "differs from the base's by 4.5e-4",
            ),
            (vec![1.0, 2.0, 3.0], "not finite"),
            (vec![1.0, 2.0], "[2] of float32, in the base [3]"),
        ] {
            let head = [output("float32", &values)];
            match compare([&base, &head], [None, None]) {
                Ok((how, errors)) => {
                    assert_eq!((how, wrong), (Compared::Base, ""));
                    assert!(errors["out"] < 1e-5);
                }
                Err((_, reason)) => {
                    assert!(!wrong.is_empty() && reason.contains(wrong), "{reason}");
                }
            }
        }
        assert!(compare([&base, &[]], [None, None]).is_err());
    }

    #[test]
    fn results_that_the_base_does_not_repeat_are_no_reference() {
        let [one, other] = [[1.0, 2.0], [2.0, 1.0]].map(|values| [output("float32", &values)]);
        let (how, _) = compare([&one, &other], [Some(&other[..]), None]).unwrap();
        assert!(matches!(how, Compared::Nothing(_)));
        // The base repeats its own results. If the head repeats its own too, they are wrong; else
        // the cause is unknown.
        let wrong = |listed: &[OutputSample]| {
            let listed = [Some(&one[..]), Some(listed)];
            compare([&one, &other], listed).unwrap_err()
        };
        let (fault, reason) = wrong(&one);
        assert_eq!(fault, Fault::Unchecked);
        assert!(reason.starts_with("the head's results differ from process to process"));
        assert_eq!(wrong(&other).0, Fault::WrongResult);
        let (how, _) = compare([&[], &[]], [None, None]).unwrap();
        assert_eq!(
            how,
            Compared::Nothing("the calls return no arrays".to_owned())
        );
    }
}
