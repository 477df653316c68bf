//! A suite under criterion: every case a benchmark, in device time.
//!
//! ```sh
//! cargo bench --bench suite -- cpu/flash        # of the suite `quick`
//! REGATTA_BENCH_SUITE=./mine.toml cargo bench --bench suite
//! ```
//!
//! Cases run in the same worker processes and under the same checks as those of
//! `regatta run`, and criterion decides how often. Each worker is started once, so
//! what criterion gives is one invocation, however many samples it has: its p values
//! are those of samples within a process. `regatta run` is what replicates.

mod device_time;
mod race;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use criterion::{Criterion, SamplingMode, Throughput};

use device_time::DeviceTime;
use race::{Race, Stopped};
use regatta::attention::{Case, work};
use regatta::record::criterion::names;
use regatta::suite::{self, Suite, glob};

/// Names the suite, or its file.
const SUITE: &str = "REGATTA_BENCH_SUITE";

/// Fewer samples than these criterion does not take.
const FEWEST_SAMPLES: usize = 10;

fn main() -> ExitCode {
    match bench() {
        Ok(failed) if failed.is_empty() => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("\n{} failed:\n  {}", failed.len(), failed.join("\n  "));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Benchmarks what the command line chooses. Gives the cases that failed.
fn bench() -> Result<Vec<String>> {
    let name = std::env::var(SUITE).unwrap_or_else(|_| "quick".to_owned());
    let mut suite = suite::load(&name)?;
    suite::configure(&mut suite, Path::new("regatta.toml"))?;
    let samples = suite.settings.samples as usize;
    let mut criterion = Criterion::default()
        .sample_size(samples.max(FEWEST_SAMPLES))
        .with_measurement(DeviceTime)
        .configure_from_args();
    let mut race = Race::new(&suite)?;
    let mut failed = Vec::new();
    for variant in suite.cases.chunk_by(|a, b| a.variant == b.variant) {
        let mut group = criterion.benchmark_group(variant[0].variant.to_string());
        // Growing numbers of calls a sample would weigh samples unequally; a call is
        // long enough to stand alone.
        group.sampling_mode(SamplingMode::Flat);
        for case in variant {
            group.throughput(Throughput::Elements(work::flops(&case.problem) as u64));
            let benched = unless_stopped(|| {
                let (_, function) = names(&case.id());
                group.bench_function(function, |bencher| {
                    race.ready(case).unwrap_or_else(|stopped| stop(stopped));
                    bencher.iter_custom(|calls| {
                        let time = race.time(case, calls);
                        time.unwrap_or_else(|stopped| stop(stopped))
                    });
                });
            });
            race.release(case);
            if let Err(stopped) = benched {
                failed.extend(said(&suite, case, &stopped));
            }
        }
        group.finish();
    }
    criterion.final_summary();
    Ok(failed)
}

/// Runs a benchmark up to where its case stops it. Criterion has no word for a
/// benchmark that cannot be run, and would save whatever number it is given, so the
/// benchmark is left by unwinding, which is silent.
fn unless_stopped(benchmark: impl FnOnce()) -> Result<(), Stopped> {
    catch_unwind(AssertUnwindSafe(benchmark)).map_err(|payload| {
        let stopped = payload.downcast::<Stopped>();
        *stopped.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Leaves the benchmark for [`unless_stopped`].
fn stop(stopped: Stopped) -> ! {
    resume_unwind(Box::new(stopped))
}

/// Says why a case was not benchmarked. Gives its name where that is a failure.
fn said(suite: &Suite, case: &Case, stopped: &Stopped) -> Option<String> {
    let id = case.to_string();
    let allow = &suite.rules.policy.allow;
    match stopped {
        Stopped::Unsupported(reason) => eprintln!("\n{id}: skipped, unsupported: {reason}"),
        Stopped::Failed { reason, log } => {
            eprintln!("\n{id}: failed: {reason}");
            for line in log.lines() {
                eprintln!("  | {line}");
            }
            if !allow.iter().any(|pattern| glob(pattern, &id)) {
                return Some(id);
            }
        }
    }
    None
}
