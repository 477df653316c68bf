//! The JSON of Google Benchmark, for its `compare.py` and what else reads it:
//! <https://github.com/google/benchmark/blob/main/docs/tools.md>

use std::io::Write;

use serde_json::json;

use super::{invocations, timed, write_json};
use crate::record::types::Fingerprint;
use crate::report::exporter::{Exporter, RenderError, Report};

/// Writes `google-benchmark.json`: an invocation is a repetition, so that its U test holds
/// processes against processes. `real_time` and `cpu_time` are both the device's time; what a
/// processor took is another number.
pub(crate) struct GoogleBenchmark;

impl Exporter for GoogleBenchmark {
    fn names(&self) -> &'static [&'static str] {
        &["google-benchmark.json"]
    }

    fn write(
        &self,
        report: &Report,
        _: &'static str,
        out: &mut dyn Write,
    ) -> Result<(), RenderError> {
        let header = &report.head.header;
        let repetitions = timed(report)
            .enumerate()
            .flat_map(|(family, (case, timing))| {
                let all = invocations(timing);
                let many = all.len();
                let each = all.into_iter().enumerate().map(move |(index, time)| {
                    json!({
                        "name": case,
                        "family_index": family,
                        "per_family_instance_index": 0,
                        "run_name": case,
                        "run_type": "iteration",
                        "repetitions": many,
                        "repetition_index": index,
                        "threads": 1,
                        "iterations": 1,
                        "real_time": time.0,
                        "cpu_time": time.0,
                        "time_unit": "ns",
                    })
                });
                each.collect::<Vec<_>>()
            });
        let benchmarks: Vec<_> = repetitions.collect();
        write_json(
            out,
            &json!({
                "context": {
                    "date": header.started.to_string(),
                    "host_name": header.machine.name,
                    "executable": format!("regatta run {}", header.suite.name),
                    "num_cpus": cores(&header.machine),
                    "mhz_per_cpu": 0,
                    "cpu_scaling_enabled": false,
                    "caches": [],
                    "load_avg": [],
                    "library_build_type": "release",
                },
                "benchmarks": benchmarks,
            }),
        )
    }
}

fn cores(machine: &Fingerprint) -> u64 {
    let cores = machine.hard.get("cpu.cores");
    cores.and_then(|cores| cores.parse().ok()).unwrap_or(0)
}
