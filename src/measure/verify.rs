//! Whether a worker's answers can be believed, before anything is made of them.

use std::collections::BTreeMap;

use crate::attention::reference::{self, Inputs};
use crate::attention::tolerance::{limit, probes_agree, results, tolerable};
use crate::attention::{Direction, Dtype, Layout, Problem, Projection, work};
use crate::worker::protocol::{Device, Measure, Measured, PROBES, Prepared, VariantInfo};

/// Problems up to this many operations are computed here as well, so that a worker
/// whose own check is wrong is found out.
const RECOMPUTED_FLOPS: f64 = 1e9;

/// Checks results against float64, remembering the reference of each problem.
#[derive(Default)]
pub struct Verifier {
    references: BTreeMap<(Problem, u64), BTreeMap<&'static str, Vec<f64>>>,
}

impl Verifier {
    /// Holds what a worker prepared to the tolerances, and its probes to the
    /// harness's own float64 result where the problem is small enough.
    ///
    /// # Errors
    /// What is wrong with the result.
    pub fn check(
        &mut self,
        problem: &Problem,
        seed: u64,
        variant: &VariantInfo,
        prepared: &Prepared,
    ) -> Result<BTreeMap<String, f64>, String> {
        let tf32 = variant.tf32 && problem.dtype == Dtype::F32;
        let mut errors = BTreeMap::new();
        for &(tensor, direction) in results(problem.direction) {
            let error = prepared
                .errors
                .get(tensor)
                .ok_or_else(|| format!("wrong result: the worker reports no error for {tensor}"))?;
            tolerable(problem.dtype, tf32, direction, error.relative_l2)
                .map_err(|reason| format!("wrong result: {tensor}: {reason}"))?;
            errors.insert(tensor.to_owned(), error.relative_l2.unwrap_or(f64::NAN));
            let probes = prepared.probes.get(tensor).map_or(&[][..], Vec::as_slice);
            if probes.len() != PROBES {
                return Err(format!(
                    "wrong result: {} probes of {tensor}, {PROBES} are asked for",
                    probes.len()
                ));
            }
            // Whatever the worker's own check says, and however large the problem is.
            if probes.contains(&None) {
                return Err(format!(
                    "wrong result, found by regatta's own check: {tensor} has elements that \
                     are not finite or were never written"
                ));
            }
        }
        if let Some(reference) = self.reference(problem, seed) {
            for &(tensor, direction) in results(problem.direction) {
                let limit = limit(problem.dtype, tf32, direction);
                probes_agree(tensor, &prepared.probes[tensor], &reference[tensor], limit).map_err(
                    |reason| {
                        format!("wrong result, found by regatta's own float64 check: {reason}")
                    },
                )?;
            }
        }
        Ok(errors)
    }

    /// The float64 result of rank 0 of a projection, unless it is too large to compute here.
    fn projection(
        &mut self,
        problem: &Problem,
        of: &Projection,
        seed: u64,
    ) -> Option<&BTreeMap<&'static str, Vec<f64>>> {
        if work::flops(problem) > RECOMPUTED_FLOPS {
            return None;
        }
        let key = (problem.clone(), seed);
        if !self.references.contains_key(&key) {
            let out = reference::projection(problem, of, seed).ok()?;
            self.references
                .insert(key.clone(), BTreeMap::from([("out", out)]));
        }
        self.references.get(&key)
    }

    /// The float64 results of a problem, unless it is too large to compute here.
    fn reference(
        &mut self,
        problem: &Problem,
        seed: u64,
    ) -> Option<&BTreeMap<&'static str, Vec<f64>>> {
        if let Some(of) = &problem.projection {
            return self.projection(problem, of, seed);
        }
        let both = Problem {
            direction: Direction::Both,
            layout: Layout::Bshd,
            ..problem.clone()
        };
        if work::flops(&both) > RECOMPUTED_FLOPS {
            return None;
        }
        let key = (both, seed);
        if !self.references.contains_key(&key) {
            let inputs = Inputs::generate(&key.0, seed).ok()?;
            let forward = reference::forward(&key.0, &inputs).ok()?;
            let gradients = reference::backward(&key.0, &inputs, &forward).ok()?;
            let tensors = BTreeMap::from([
                ("out", forward.out),
                ("dq", gradients.dq),
                ("dk", gradients.dk),
                ("dv", gradients.dv),
            ]);
            self.references.insert(key.clone(), tensors);
        }
        self.references.get(&key)
    }
}

/// Holds a worker to what a sample was to be. One that was written before there were
/// graphs ignores the request, and its times would pass for those of replays.
///
/// # Errors
/// What it did in place of what it was asked for.
pub fn as_asked(asked: &Measure, measured: &Measured) -> Result<(), String> {
    if asked.graph != measured.graph {
        return Err(match asked.graph {
            true => "the worker does not replay CUDA graphs: its reply does not say `graph`; \
                     measure with graph = false"
                .to_owned(),
            false => "the worker replayed a CUDA graph that nobody asked for".to_owned(),
        });
    }
    match (asked.calls_per_sample, measured.calls_per_sample) {
        (wanted, made) if wanted == made => Ok(()),
        (wanted, made) => Err(format!(
            "the worker says {made} calls a sample, {wanted} were asked for"
        )),
    }
}

/// Refuses samples that no clock can have given.
///
/// # Errors
/// What is wrong with them.
pub fn samples(problem: &Problem, device: &Device, measured: &Measured) -> Result<(), String> {
    let count = measured.device_ns.len();
    if count == 0 {
        return Err("the worker took no sample".to_owned());
    }
    for (name, times) in [
        ("host_ns", &measured.host_ns),
        ("clock_mhz", &measured.clock_mhz),
    ] {
        if !times.is_empty() && times.len() != count {
            return Err(format!(
                "{count} device times but {} of {name}",
                times.len()
            ));
        }
    }
    let all = measured.device_ns.iter().chain(&measured.host_ns);
    if let Some(bad) = all
        .into_iter()
        .find(|time| !(**time > 0.0 && time.is_finite()))
    {
        return Err(format!("a sample of {bad} ns"));
    }
    let fastest = measured.device_ns.iter().copied().fold(f64::MAX, f64::min);
    if let Some(peak) = peak_flops(device, problem.dtype) {
        let rate = work::flops(problem) / (fastest * 1e-9);
        if rate > peak {
            return Err(format!(
                "a sample of {fastest:.0} ns would be {:.0} TFLOP/s, above the {:.0} TFLOP/s \
                 {} can do: the clock or the kernel is wrong",
                rate / 1e12,
                peak / 1e12,
                device.name
            ));
        }
    }
    Ok(())
}

/// Dense peak of a known device in FLOP/s, from the vendors' data sheets; for
/// float32 that of its TF32 units, which a kernel may use.
fn peak_flops(device: &Device, dtype: Dtype) -> Option<f64> {
    // (part of the name, TF32, 16 bit), TFLOP/s without sparsity
    const PEAKS: [(&str, f64, f64); 6] = [
        ("H200", 495.0, 989.0),
        ("H100", 495.0, 989.0),
        ("A100", 156.0, 312.0),
        ("L40", 183.0, 366.0),
        ("B200", 1125.0, 2250.0),
        ("B100", 900.0, 1800.0),
    ];
    let known = PEAKS.iter().find(|(name, ..)| device.name.contains(name));
    let (_, tf32, half) = known?;
    Some(1e12 * if dtype == Dtype::F32 { *tf32 } else { *half })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::protocol::Cache;

    fn device(name: &str) -> Device {
        Device {
            kind: "cuda".to_owned(),
            name: name.to_owned(),
            memory_bytes: 0,
            facts: BTreeMap::new(),
        }
    }

    #[test]
    fn samples_above_the_peak_are_refused() {
        let mut problem = Problem::new(8192, 128);
        problem.heads = 16;
        problem.kv_heads = 16;
        problem.dtype = Dtype::Bf16;
        let measured = |ns: f64| Measured {
            device_ns: vec![ns],
            ..Measured::default()
        };
        // 0.55 TFLOP in 0.1 ms: 5,500 TFLOP/s.
        let error = samples(&problem, &device("NVIDIA H200"), &measured(1e5)).unwrap_err();
        assert!(error.contains("above the 989 TFLOP/s"), "{error}");
        assert!(samples(&problem, &device("NVIDIA H200"), &measured(1e6)).is_ok());
        assert!(samples(&problem, &device("abacus"), &measured(1e5)).is_ok());
    }

    #[test]
    fn a_worker_that_ignores_the_kind_of_sample_is_found_out() {
        let asked = |graph, calls_per_sample| Measure {
            warmup: 0,
            samples: 1,
            min_samples: 1,
            budget_ms: 1,
            cache: Cache::Hot,
            graph,
            calls_per_sample,
        };
        let plain = Measured::default();
        assert_eq!(as_asked(&asked(false, 1), &plain), Ok(()));
        let error = as_asked(&asked(true, 1), &plain).unwrap_err();
        assert!(error.contains("does not replay CUDA graphs"), "{error}");
        let error = as_asked(&asked(false, 4), &plain).unwrap_err();
        assert!(error.contains("1 calls a sample, 4"), "{error}");
        let replayed = Measured {
            graph: true,
            calls_per_sample: 4,
            ..Measured::default()
        };
        assert_eq!(as_asked(&asked(true, 4), &replayed), Ok(()));
        assert!(as_asked(&asked(false, 4), &replayed).is_err());
    }

    #[test]
    fn samples_that_no_clock_gives_are_refused() {
        let problem = Problem::new(16, 16);
        let with = |device_ns: Vec<f64>, host_ns: Vec<f64>| Measured {
            device_ns,
            host_ns,
            ..Measured::default()
        };
        for (measured, says) in [
            (with(vec![], vec![]), "no sample"),
            (with(vec![0.0], vec![]), "0 ns"),
            (with(vec![f64::NAN], vec![]), "NaN ns"),
            (with(vec![1.0, 2.0], vec![1.0]), "1 of host_ns"),
        ] {
            let error = samples(&problem, &device("x"), &measured).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
