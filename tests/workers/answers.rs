//! The results that the fake worker answers, right or off, and what it says of them.

use std::collections::BTreeMap;

use regatta_worker::attention::Attention;
use regatta_worker::inputs::probe_indices;
use regatta_worker::protocol::{Checked, PROBES, Prepare, TensorError};
use regatta_worker::serve::Refusal;

/// The right results of a problem, by name.
pub type Tensors = BTreeMap<&'static str, Vec<f64>>;

pub fn tensors(problem: &Attention, seed: u64) -> Result<Tensors, Refusal> {
    let too_large = |error| Refusal::Failed(format!("{error}"));
    problem.whole(seed).map_err(too_large)
}

/// Results as a worker answers them: what it says of their errors, and probes.
pub struct Answered {
    pub errors: BTreeMap<String, TensorError>,
    pub probes: BTreeMap<String, Vec<Option<f64>>>,
}

/// Answers with the right results times a factor; `error` of each by its name.
pub fn answered(
    problem: &Attention,
    tensors: &Tensors,
    factor: f64,
    error: impl Fn(&str) -> Option<f64>,
) -> Answered {
    let mut answered = Answered {
        errors: BTreeMap::new(),
        probes: BTreeMap::new(),
    };
    for (name, _) in problem.results() {
        let tensor = &tensors[name];
        let probes = probe_indices(tensor.len() as u64, PROBES, None)
            .map(|i| Some(tensor[i as usize] * factor).filter(|value| value.is_finite()));
        answered.probes.insert((*name).to_owned(), probes.collect());
        let error = TensorError {
            relative_l2: error(name),
            max_abs: error(name),
        };
        answered.errors.insert((*name).to_owned(), error);
    }
    answered
}

/// The factor of a variant's results, and the error that it reports for them.
pub fn mistake(variant: &str) -> (f64, Option<f64>) {
    match variant {
        "wrong" => (1.25, Some(0.25)),
        "lying" => (1.25, Some(1e-7)),
        "nan" => (f64::NAN, None),
        _ => (1.0, Some(1e-7)),
    }
}

/// The check of the last timed call, on the inputs of the next seed.
pub fn checked(case: &Prepare) -> Result<Checked, Refusal> {
    let seed = case.seed.wrapping_add(1);
    let problem = case.problem.attention().map_err(Refusal::Unsupported)?;
    let right = tensors(problem, seed)?;
    let (factor, error) = mistake(&case.variant);
    let Answered { errors, probes } = match case.variant.as_str() {
        "stale" => {
            let first = tensors(problem, case.seed)?;
            let error = |name: &str| {
                let pairs = first[name].iter().zip(&right[name]);
                let off: f64 = pairs.map(|(a, b)| (a - b).powi(2)).sum();
                let norm: f64 = right[name].iter().map(|b| b * b).sum();
                Some((off / norm).sqrt())
            };
            answered(problem, &first, factor, error)
        }
        "stale-lying" => {
            let first = tensors(problem, case.seed)?;
            answered(problem, &first, factor, |_| error)
        }
        _ => answered(problem, &right, factor, |_| error),
    };
    Ok(Checked {
        seed,
        errors,
        probes,
        ..Checked::default()
    })
}
