//! `regatta doctor`: shows what this machine can run and what is missing, with the fix.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::{Ended, note, print_json, show_blocks, watch_for};
use regatta_core::record::baseline::Store;
use regatta_core::suite::environment::Environment;
use regatta_core::suite::{self, Suite};
use regatta_cuda::kernels::compile::Compiler;
use regatta_cuda::kernels::toolkit;
use regatta_measure::command;
use regatta_measure::environments::{PythonEnvironment, interpreter_of};
use regatta_measure::experiment::introductions::{
    Absence, Introduction, checked, grouped, introductions,
};
use regatta_measure::machine;
use regatta_measure::ruler::{self, ClockReading};
use regatta_probe::Error;
use regatta_report::document::{Block, ListItem, Table, TableRow, Tone};
use regatta_report::files::check_writable;
use regatta_worker::joined::Joined;
use regatta_worker::units::counted;

/// The time limit for a worker's introduction. The command does not wait for a library that takes
/// minutes to load from a cold disk.
const LIMIT: Duration = Duration::from_secs(8);

/// The worker that is always needed.
const CPU: &str = "cpu";

/// The heading of the workers.
const WORKERS: &str = "Workers";

/// Show what this machine can run, what is missing, and the fix
///
/// With a suite: whether its workers and environments work here. Exits 3 where one does not.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// A built-in suite's name or file; without it, every worker that is known
    #[arg(conflicts_with = "check_clocks")]
    suite: Option<String>,

    /// The environment of workers that name none
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,

    /// Time work of known length, 2 µs to 20 ms: each clock's error
    #[arg(long)]
    check_clocks: bool,

    /// Machine-readable output
    #[arg(long, conflicts_with = "check_clocks")]
    pub json: bool,
}

/// Runs the command. Exits 3 when something that is always needed is broken.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &DoctorArgs) -> Ended {
    if args.check_clocks {
        return check_clocks();
    }
    let name = args.suite.as_deref();
    let mut config = name.map_or_else(|| Ok(Suite::default()), suite::load)?;
    suite::configure(&mut config, Path::new("regatta.toml"))?;
    watch_for("");
    let environment_name = args.environment.as_deref();
    let introductions = match name {
        Some(_) => checked(&config, environment_name, Some(LIMIT))?,
        None => introductions(&config, environment_name, Some(LIMIT))?,
    };
    let is_needed = |worker: &str| name.is_some() || worker == CPU;
    let machine = vec![
        check("processor", processor()),
        check("NVIDIA driver", gpu_driver()),
        check("GPU clock", gpu_clock()),
    ];
    let compilers = [Compiler::Nvrtc, Compiler::Nvcc].map(compiler).into();
    let all_workers = introductions.iter();
    let all_workers = all_workers.map(|one| worker(one, is_needed(&one.worker)));
    let of_what = name.map_or(" of regatta.toml", |_| "");
    let environments = config.environments.iter().map(environment).collect();
    let folders = [("report folder", reports()), ("baselines", baselines())];
    let folders = folders.map(|(name, found)| check(name, found)).into();
    let groups: [(&str, Vec<DoctorCheck>); 5] = [
        ("Machine", machine),
        ("CUDA compilers", compilers),
        (WORKERS, all_workers.collect()),
        (&format!("Environments{of_what}"), environments),
        ("Folders", folders),
    ];
    let all: Vec<&DoctorCheck> = groups.iter().flat_map(|(_, checks)| checks).collect();
    if args.json {
        print_json(&all)?;
    } else {
        let groups = groups.iter().filter(|(_, checks)| !checks.is_empty());
        let blocks = groups.flat_map(|(name, checks)| {
            let items = match *name {
                WORKERS => workers(&introductions, is_needed),
                _ => checks.iter().map(DoctorCheck::item).collect(),
            };
            [Block::heading(*name), Block::List(items)]
        });
        show_blocks(blocks.collect())?;
    }
    let broken = all.iter().any(|check| check.state == CheckState::Broken);
    Ok(if broken { 3 } else { 0 })
}

/// An item for each available worker; then, for each missing requirement, one item for all workers
/// that lack it.
fn workers(introductions: &[Introduction], is_needed: impl Fn(&str) -> bool) -> Vec<ListItem> {
    let here = introductions.iter().filter(|one| one.found.is_ok());
    let mut items: Vec<ListItem> = here.map(|one| worker(one, false).item()).collect();
    for (absence, workers) in grouped(introductions) {
        let state = state_of(absence, workers.iter().all(|worker| is_needed(worker)));
        let name = match workers.as_slice() {
            [one] => (*one).to_owned(),
            several => format!("{} workers", several.len()),
        };
        let mut item = check(name, lack(state, &absence.lacks, &absence.fix)).item();
        if workers.len() > 1 {
            item.below.insert(0, format!("for: {}", workers.join(", ")));
        }
        items.push(item);
    }
    items
}

/// The state of an unavailable worker.
fn state_of(absence: &Absence, is_needed: bool) -> CheckState {
    if absence.slow {
        CheckState::Slow
    } else if is_needed {
        CheckState::Broken
    } else {
        CheckState::Absent
    }
}

/// A worker as a check, which JSON lists.
fn worker(one: &Introduction, is_needed: bool) -> DoctorCheck {
    let what = format!("worker {}", one.worker);
    match &one.found {
        Ok(hello) => {
            let versions = hello.versions.iter().map(|(name, v)| format!("{name} {v}"));
            let detail = format!(
                "{} on {} ({})",
                counted(hello.variants.len(), "variant"),
                hello.device.name,
                versions.joined(", ")
            );
            check(what, Ok(detail))
        }
        Err(absence) => {
            let state = state_of(absence, is_needed);
            check(what, lack(state, &absence.reason, &absence.fix))
        }
    }
}

/// The result of one check.
#[derive(Debug, Serialize)]
struct DoctorCheck {
    /// The part that was checked.
    what: String,
    /// The state of it.
    state: CheckState,
    /// The result of the check.
    detail: String,
    /// The fix, if one is needed.
    #[serde(skip_serializing_if = "String::is_empty")]
    fix: String,
}

/// The details of a part that works; or its state, the details, and the fix.
type Found = Result<String, (CheckState, String, String)>;

fn lack(state: CheckState, detail: &str, fix: &str) -> Found {
    Err((state, detail.to_owned(), fix.to_owned()))
}

fn check(what: impl Into<String>, found: Found) -> DoctorCheck {
    let ok = |detail| (CheckState::Ok, detail, String::new());
    let (state, detail, fix) = found.map_or_else(|lack| lack, ok);
    DoctorCheck {
        what: what.into(),
        state,
        detail,
        fix,
    }
}

impl DoctorCheck {
    fn item(&self) -> ListItem {
        let (mark, tone) = match self.state {
            CheckState::Ok => ("ok", Tone::Good),
            CheckState::Absent => ("absent", Tone::Calm),
            CheckState::Slow => ("slow", Tone::Doubtful),
            CheckState::Broken => ("BROKEN", Tone::Bad),
        };
        // The heading already has the kind of the part.
        let kinds = ["worker ", "environment ", "compiler "];
        let name = kinds.iter().find_map(|kind| self.what.strip_prefix(kind));
        let name = name.unwrap_or(&self.what);
        let fix = (!self.fix.is_empty()).then(|| format!("fix: {}", self.fix));
        ListItem {
            tone,
            below: fix.into_iter().collect(),
            ..ListItem::new(format!("{mark} {name}"), &self.detail)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckState {
    /// It works.
    Ok,
    /// It is not available, and not required.
    Absent,
    /// It did not answer within the time limit.
    Slow,
    /// It should work and does not.
    Broken,
}

fn processor() -> Found {
    let (model, cores) = (machine::cpu_model(), machine::cores());
    Ok(format!("{model}, {cores} threads"))
}

/// The version of NVIDIA's driver, as the kernel reports it.
fn gpu_driver() -> Found {
    let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
    let version = version.as_deref().and_then(|text| text.lines().next());
    let detail = "no /proc/driver/nvidia/version, so nothing runs on a GPU";
    let fix = "none needed for suites on cpu/ variants, such as quick";
    version.map_or_else(
        || lack(CheckState::Absent, detail, fix),
        |version| Ok(version.trim().to_owned()),
    )
}

fn compiler(compiler: Compiler) -> DoctorCheck {
    let state = match toolkit::here(compiler) {
        Ok(toolkit) => Ok(toolkit.program.display().to_string()),
        Err(why) => {
            let detail = "not found; `regatta build` cannot use it";
            // The last line is the fix.
            let fix = why.lines().last().unwrap_or_default();
            lack(CheckState::Absent, detail, fix)
        }
    };
    check(format!("compiler {}", compiler.name()), state)
}

/// Checks that the gated clock is available to Python workers.
fn gpu_clock() -> Found {
    match command::install_probe() {
        Ok(Some(path)) => {
            let version = regatta_probe::VERSION;
            Ok(format!("version {version}, {}", path.display()))
        }
        Ok(None) => {
            let detail = "this regatta was built without: Python workers time by plain events";
            let variable = command::PROBE_VARIABLE;
            let fix = format!("build the package regatta-probe and name its library in {variable}");
            lack(CheckState::Absent, detail, &fix)
        }
        Err(error) => {
            let detail = format!("cannot be written into the cache: {error}");
            let fix = "name a folder that can be written in XDG_CACHE_HOME";
            lack(CheckState::Broken, &detail, fix)
        }
    }
}

fn reports() -> Found {
    let fix = "start regatta elsewhere, or give --out DIR";
    match check_writable(Path::new("reports/.doctor")) {
        Ok(()) => Ok("reports/ can be written".to_owned()),
        Err(error) => lack(CheckState::Broken, &error.to_string(), fix),
    }
}

fn baselines() -> Found {
    let (stored, broken) = Store::new("baselines").list();
    let mut detail = format!("{} in baselines/", stored.len());
    for error in &broken {
        detail += &format!("; {error}");
    }
    let fix = "restore the file from version control, or save it again";
    if broken.is_empty() {
        Ok(detail)
    } else {
        lack(CheckState::Broken, &detail, fix)
    }
}

/// An environment as a check, with the state that `regatta env` reports.
fn environment((name, environment): (&String, &Environment)) -> DoctorCheck {
    let state = match PythonEnvironment::locate(name, environment) {
        Err(error) => lack(CheckState::Broken, &error.to_string(), ""),
        Ok(None) => {
            let interpreter = interpreter_of(environment);
            let fix = format!("name another in [environments.{name}] of regatta.toml");
            // A name without a folder is searched for only when it is started.
            if interpreter.contains('/') && !Path::new(&interpreter).is_file() {
                lack(CheckState::Absent, "its interpreter is not there", &fix)
            } else {
                Ok(format!("{interpreter} as it is"))
            }
        }
        Ok(Some(made)) if made.lock().is_some() => Ok(made.folder().display().to_string()),
        Ok(Some(made)) => lack(CheckState::Absent, "not made yet", &made.command()),
    };
    check(format!("environment {name}"), state)
}

/// The meaning of the columns, below a table.
const LEGEND: &str = "read: median. bias: read less nominal and less what starting and ending \
     takes of the work itself. visible: largest difference between two interleaved sets of the \
     same work, over all rounds. +n %: what work longer by n % was read as.";

/// Checks the clock of the first GPU and the monotonic clock of the CPU. Exits 3 if a device exists
/// and could not be checked.
///
/// # Errors
/// See [`super::Stop`].
fn check_clocks() -> Ended {
    let mut code = 0;
    for name in ["gpu", "cpu"] {
        note(format!("checking the {name} clock"));
        let readings = match name {
            "gpu" => ruler::gpu(),
            _ => Ok(ruler::cpu()),
        };
        let blocks = match readings {
            Ok((what, readings)) => table(what, &readings),
            Err(error @ Error::Unavailable(_)) => {
                vec![Block::Note(format!("{name} clock absent: {error}"))]
            }
            Err(error) => {
                code = 3;
                vec![Block::Note(format!("{name} clock FAILED: {error}"))]
            }
        };
        show_blocks(blocks)?;
    }
    Ok(code)
}

fn table(what: String, readings: &[ClockReading]) -> Vec<Block> {
    let rows = readings.iter().map(|reading| {
        let mut cells = vec![
            reading.read.to_string(),
            reading.bias.signed(),
            format!("{:.2}", reading.visible),
        ];
        cells.extend(reading.added.map(|share| format!("{:.2}", share.0 * 100.0)));
        TableRow::new(reading.nominal.to_string(), cells)
    });
    let heads = vec!["read", "bias", "visible", "+1 %", "+2 %", "+5 %", "+10 %"];
    vec![
        Block::Note(what),
        Block::Table(Table::new("nominal", heads, rows)),
        Block::Text(vec![LEGEND.to_owned()]),
    ]
}
