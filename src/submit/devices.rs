//! How many GPUs a task of a suite needs.

use crate::suite::Suite;
use crate::suite::callable::{Callable, Framework};

/// GPUs that a process needs which measures any case of the suite; `environment` is that of
/// workers that name none.
///
/// What a worker runs on it says itself only once it is started, on another machine than this. So
/// it is taken to need a GPU, unless it is regatta's own for processors, of NumPy's functions, or
/// in an environment that keeps JAX on the processor or hides every GPU. A case of several ranks
/// needs one each.
pub fn gpus(suite: &Suite, environment: Option<&str>) -> u64 {
    let needs = suite.cases.iter().map(|case| {
        let worker = case.variant.worker.as_str();
        let named = case.variant.environment.as_deref().or(environment);
        if on_processor(suite, worker) || without_gpu(suite, worker, named) {
            return 0;
        }
        let ranks = case.problem.projection.map_or(1, |of| of.ranks);
        u64::from(ranks).max(1)
    });
    needs.max().unwrap_or(0)
}

fn on_processor(suite: &Suite, worker: &str) -> bool {
    match suite.callables.get(worker) {
        Some(Callable::Python(functions)) => functions.framework == Some(Framework::Numpy),
        Some(Callable::Cuda(_)) => false,
        None => worker == "cpu" && !suite.workers.contains_key(worker),
    }
}

/// True where the environment's variables leave a worker no GPU.
fn without_gpu(suite: &Suite, worker: &str, named: Option<&str>) -> bool {
    let of_worker = || {
        let mut all = suite.environments.iter();
        all.find(|(_, one)| one.workers.iter().any(|name| name == worker))
            .map(|(name, _)| name.as_str())
    };
    let name = named.or_else(of_worker).unwrap_or("default");
    let variable = |name: &str, variable: &str| {
        let environment = suite.environments.get(name)?;
        environment.env.get(variable).cloned()
    };
    // What an environment does not set, the default one does.
    let value = |key: &str| variable(name, key).or_else(|| variable("default", key));
    value("JAX_PLATFORMS").as_deref() == Some("cpu")
        || value("CUDA_VISIBLE_DEVICES").is_some_and(|hidden| hidden.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{BUILTIN, load};

    #[test]
    fn built_in_suites_ask_for_what_they_need() {
        for (name, expected) in [
            ("quick", 0),
            ("jax-sdpa", 0),
            ("native", 1),
            ("xformers-backward", 1),
            ("sequence-parallel", 2),
        ] {
            assert!(
                BUILTIN.iter().any(|(builtin, _)| *builtin == name),
                "{name}"
            );
            assert_eq!(gpus(&load(name).unwrap(), None), expected, "{name}");
        }
    }
}
