//! `regatta doctor`: what this machine can run, and what is missing, with the fix.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::introductions::{Introduction, grouped, introductions};
use super::{Ended, Stop, indented, print, ruler};
use regatta::kernels::compile::Compiler;
use regatta::kernels::toolkit;
use regatta::measure::machine;
use regatta::record::baseline::Store;
use regatta::report::files::check_writable;
use regatta::report::terminal::COLUMNS;
use regatta::report::text::{one_line, shorten};
use regatta::suite::{self, Suite};
use regatta::worker::gpu_clock;

/// What a worker may take to introduce itself here: a look at the machine does not wait for
/// a library that loads for minutes from a cold disk.
const LIMIT: Duration = Duration::from_secs(8);

/// The worker that is always needed.
const CPU: &str = "cpu";

/// Columns of the word before each row.
const MARK: usize = 9;

/// What this machine can run, and what is missing, with the fix
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Environment of workers that name none
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,

    /// Rule the clocks: what they read of work of known length, 2 us to 20 ms
    #[arg(long)]
    ruler: bool,

    /// Write the ruler's page and tables into this folder
    #[arg(long, value_name = "DIR", requires = "ruler")]
    out: Option<PathBuf>,

    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

/// One thing that was looked at.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Finding {
    /// What was looked at.
    what: String,
    /// How it is.
    state: State,
    /// What was found.
    detail: String,
    /// What to do, where something is to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    fix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// It works.
    Ok,
    /// It is not here, and need not be.
    Absent,
    /// It did not answer in the time that is given here.
    Slow,
    /// It should work and does not.
    Broken,
}

impl State {
    fn mark(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Absent => "absent",
            State::Slow => "slow",
            State::Broken => "BROKEN",
        }
    }
}

/// Runs the command. Exits 3 when something that is always needed is broken.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &DoctorArgs) -> Ended {
    if args.ruler {
        return ruler::run(args.json, args.out.as_deref());
    }
    let mut config = Suite::default();
    suite::configure(&mut config, Path::new("regatta.toml")).map_err(Stop::usage)?;
    let found = introductions(&config, args.environment.as_deref(), Some(LIMIT))?;
    let before = vec![processor()];
    let mut after = vec![gpu_driver()];
    after.extend([Compiler::Nvrtc, Compiler::Nvcc].map(compiler));
    after.extend([gpu_clock(), reports(), baselines()]);
    if args.json {
        let workers = found.iter().map(worker);
        let all: Vec<Finding> = workers.collect();
        let all: Vec<&Finding> = before.iter().chain(&all).chain(&after).collect();
        let text = serde_json::to_string(&all).map_err(Stop::not_judged)?;
        print(format!("{text}\n"))?;
    } else {
        for finding in &before {
            print(shown(finding))?;
        }
        print(workers(&found))?;
        for finding in &after {
            print(shown(finding))?;
        }
    }
    let mut states = before.iter().chain(&after).map(|finding| finding.state);
    let broken = states.any(|state| state == State::Broken)
        || found.iter().any(|one| state_of(one) == State::Broken);
    Ok(if broken { 3 } else { 0 })
}

/// A line, and the fix below it. What is broken is told whole.
fn shown(finding: &Finding) -> String {
    let text = format!("{}: {}", finding.what, finding.detail);
    let mut text = match finding.state {
        State::Broken => {
            let text = indented(&one_line(&text), MARK, MARK);
            format!("{:<MARK$}{}", finding.state.mark(), text.trim_start())
        }
        state => row(state, &text),
    };
    if !finding.fix.is_empty() {
        text += &below("fix", &finding.fix);
    }
    text
}

fn row(state: State, text: &str) -> String {
    let text = shorten(&one_line(text), COLUMNS - MARK);
    format!("{:<MARK$}{text}\n", state.mark())
}

/// What belongs to the row above.
fn below(word: &str, text: &str) -> String {
    indented(&format!("{word}: {}", one_line(text)), MARK, MARK + 5)
}

/// Workers that are here, a row each; then what others lack, once for all that lack it.
fn workers(found: &[Introduction]) -> String {
    let here = found.iter().filter(|one| one.found.is_ok());
    let mut text: String = here.map(|one| shown(&worker(one))).collect();
    for (absence, workers) in grouped(found) {
        let state = match absence.slow {
            true => State::Slow,
            false if workers == [CPU] => State::Broken,
            false => State::Absent,
        };
        text += &match workers.as_slice() {
            [one] => row(state, &format!("worker {one}: {}", absence.lacks)),
            several => {
                let words = format!("{} workers: {}", several.len(), absence.lacks);
                row(state, &words) + &below("for", &several.join(", "))
            }
        };
        text += &below("fix", &absence.fix);
    }
    text
}

fn state_of(one: &Introduction) -> State {
    match &one.found {
        Ok(_) => State::Ok,
        Err(absence) if absence.slow => State::Slow,
        Err(_) if one.worker == CPU => State::Broken,
        Err(_) => State::Absent,
    }
}

/// A worker, as JSON tells it.
fn worker(one: &Introduction) -> Finding {
    let what = format!("worker {}", one.worker);
    let state = state_of(one);
    match &one.found {
        Ok(hello) => {
            let versions = hello.versions.iter().map(|(name, v)| format!("{name} {v}"));
            let detail = format!(
                "{} variants on {} ({})",
                hello.variants.len(),
                hello.device.name,
                versions.collect::<Vec<_>>().join(", ")
            );
            Finding {
                what,
                state,
                detail,
                fix: String::new(),
            }
        }
        Err(absence) => Finding {
            what,
            state,
            detail: absence.reason.clone(),
            fix: absence.fix.clone(),
        },
    }
}

fn processor() -> Finding {
    Finding {
        what: "processor".to_owned(),
        state: State::Ok,
        detail: format!("{}, {} threads", machine::cpu_model(), machine::cores()),
        fix: String::new(),
    }
}

/// Looks for NVIDIA's driver the way the loader would, without loading it.
fn gpu_driver() -> Finding {
    let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
    let what = "NVIDIA driver".to_owned();
    match version.as_deref().and_then(|text| text.lines().next()) {
        Some(version) => Finding {
            what,
            state: State::Ok,
            detail: version.trim().to_owned(),
            fix: String::new(),
        },
        None => Finding {
            what,
            state: State::Absent,
            detail: "no /proc/driver/nvidia/version, so nothing runs on a GPU".to_owned(),
            fix: "none needed for suites on cpu/ variants, such as quick".to_owned(),
        },
    }
}

fn compiler(compiler: Compiler) -> Finding {
    let what = match compiler {
        Compiler::Nvrtc => "CUDA's run-time compiler (nvrtc)",
        Compiler::Nvcc => "CUDA's compiler (nvcc)",
    };
    let what = what.to_owned();
    match toolkit::here(compiler) {
        Ok(toolkit) => Finding {
            what,
            state: State::Ok,
            detail: toolkit.program.display().to_string(),
            fix: String::new(),
        },
        Err(why) => Finding {
            what,
            state: State::Absent,
            detail: "not found, so not for `regatta build`".to_owned(),
            // Its last line is what to do.
            fix: why.lines().last().unwrap_or_default().to_owned(),
        },
    }
}

/// Whether Python workers can be given the gated clock.
fn gpu_clock() -> Finding {
    let what = "GPU clock".to_owned();
    match gpu_clock::install() {
        Ok(Some(path)) => Finding {
            what,
            state: State::Ok,
            detail: format!("version {}, {}", regatta_probe::VERSION, path.display()),
            fix: String::new(),
        },
        Ok(None) => Finding {
            what,
            state: State::Absent,
            detail: "this regatta was built without: Python workers time by plain events"
                .to_owned(),
            fix: format!(
                "build the package regatta-probe and name its library in {}",
                gpu_clock::VARIABLE
            ),
        },
        Err(error) => Finding {
            what,
            state: State::Broken,
            detail: format!("cannot be written into the cache: {error}"),
            fix: "name a folder that can be written in XDG_CACHE_HOME".to_owned(),
        },
    }
}

fn reports() -> Finding {
    let what = "report folder".to_owned();
    match check_writable(Path::new("reports/.doctor")) {
        Ok(()) => Finding {
            what,
            state: State::Ok,
            detail: "reports/ can be written".to_owned(),
            fix: String::new(),
        },
        Err(error) => Finding {
            what,
            state: State::Broken,
            detail: error.to_string(),
            fix: "start regatta elsewhere, or give --out DIR".to_owned(),
        },
    }
}

fn baselines() -> Finding {
    let (stored, broken) = Store::new("baselines").list();
    let state = match broken.is_empty() {
        true => State::Ok,
        false => State::Broken,
    };
    let mut detail = format!("{} in baselines/", stored.len());
    for error in &broken {
        detail += &format!("; {error}");
    }
    Finding {
        what: "baselines".to_owned(),
        state,
        detail,
        fix: match state {
            State::Broken => "restore the file from version control, or save it anew".to_owned(),
            _ => String::new(),
        },
    }
}
