//! `regatta doctor`: what this machine can run, and what is missing, with the fix.

pub(super) mod finding;
mod group;
mod machine;

use std::path::Path;
use std::time::Duration;

use clap::Args;
use finding::{Check, CheckState};
use group::{GroupRow, group, rows};
use machine::{baselines, compiler, environment, gpu_clock, gpu_driver, processor, reports};

use super::{Ended, Stop, clocks, print, watch_for};
use regatta_core::suite::{self, Suite};
use regatta_cuda::kernels::compile::Compiler;
use regatta_measure::experiment::introductions::{Absence, Introduction, grouped, introductions};
use regatta_report::text::one_line;

/// What a worker may take to introduce itself here: a look at the machine does not wait for
/// a library that loads for minutes from a cold disk.
const LIMIT: Duration = Duration::from_secs(8);

/// The worker that is always needed.
const CPU: &str = "cpu";

/// Show what this machine can run, what is missing, and the fix
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// The environment of workers that name none
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,

    /// Time work of known length, 2 µs to 20 ms: each clock's error
    #[arg(long)]
    check_clocks: bool,

    /// Machine-readable output
    #[arg(long, conflicts_with = "check_clocks")]
    json: bool,
}

/// Runs the command. Exits 3 when something that is always needed is broken.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &DoctorArgs) -> Ended {
    if args.check_clocks {
        return clocks::run();
    }
    let mut config = Suite::default();
    suite::configure(&mut config, Path::new("regatta.toml")).map_err(Stop::usage)?;
    watch_for("");
    let found = introductions(&config, args.environment.as_deref(), Some(LIMIT))?;
    let here: Vec<Check> = found.iter().map(worker).collect();
    let machine = [processor(), gpu_driver(), gpu_clock()];
    let compilers = [Compiler::Nvrtc, Compiler::Nvcc].map(compiler);
    let folders = [reports(), baselines()];
    let environments: Vec<Check> = config.environments.iter().map(environment).collect();
    // In the order that scripts know.
    let [processor, driver, clock] = &machine;
    let all = std::iter::once(processor).chain(&here).chain([driver]);
    let all = all.chain(&compilers).chain([clock]).chain(&folders);
    let all: Vec<&Check> = all.chain(&environments).collect();
    if args.json {
        let text = serde_json::to_string(&all).map_err(Stop::not_judged)?;
        print(format!("{text}\n"))?;
    } else {
        let groups = [
            group("Machine", &rows(&machine)),
            group("CUDA compilers", &rows(&compilers)),
            group("Workers", &workers(&found)),
            group("Environments of regatta.toml", &rows(&environments)),
            group("Folders", &rows(&folders)),
        ];
        let groups = groups.into_iter().filter(|group| !group.is_empty());
        print(groups.collect::<Vec<_>>().join("\n"))?;
    }
    let broken = all
        .iter()
        .any(|finding| finding.state == CheckState::Broken);
    Ok(if broken { 3 } else { 0 })
}

/// Workers that are here, a row each; then what others lack, once for all that lack it.
fn workers(found: &[Introduction]) -> Vec<GroupRow> {
    let here = found.iter().filter(|one| one.found.is_ok());
    let mut rows: Vec<GroupRow> = here.map(|one| GroupRow::new(&worker(one))).collect();
    for (absence, workers) in grouped(found) {
        let (name, names) = match workers.as_slice() {
            [one] => ((*one).to_owned(), None),
            several => (
                format!("{} workers", several.len()),
                Some(("for", several.join(", "))),
            ),
        };
        let fix = ("fix", absence.fix.clone());
        rows.push(GroupRow {
            state: state_of(absence, workers == [CPU]),
            name: one_line(&name),
            detail: absence.lacks.clone(),
            below: names.into_iter().chain([fix]).collect(),
        });
    }
    rows
}

/// Of a worker that is not here.
fn state_of(absence: &Absence, always_needed: bool) -> CheckState {
    match absence.slow {
        true => CheckState::Slow,
        false if always_needed => CheckState::Broken,
        false => CheckState::Absent,
    }
}

/// A worker, as JSON tells it.
fn worker(one: &Introduction) -> Check {
    let what = format!("worker {}", one.worker);
    let found = match &one.found {
        Ok(hello) => {
            let versions = hello.versions.iter().map(|(name, v)| format!("{name} {v}"));
            let detail = format!(
                "{} variants on {} ({})",
                hello.variants.len(),
                hello.device.name,
                versions.collect::<Vec<_>>().join(", ")
            );
            Check::new(&what, CheckState::Ok, detail)
        }
        Err(absence) => {
            let state = state_of(absence, one.worker == CPU);
            Check::new(&what, state, absence.reason.as_str()).helped_by(absence.fix.as_str())
        }
    };
    found.called(&one.worker)
}
