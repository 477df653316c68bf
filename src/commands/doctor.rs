//! `regatta doctor`: what this machine can run, and what is missing, with the fix.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::list::{first_line, introductions};
use super::{Ended, Stop, indented, print, ruler};
use crate::kernels::compile::Compiler;
use crate::kernels::toolkit;
use crate::measure::machine;
use crate::record::baseline::Store;
use crate::report::files::check_writable;
use crate::suite::{self, Suite};
use crate::worker::gpu_clock;

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
#[derive(Debug, Serialize)]
struct Finding {
    what: String,
    state: State,
    detail: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    fix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// It works.
    Ok,
    /// It is not here, and need not be.
    Absent,
    /// It should work and does not.
    Broken,
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
    let mut findings = vec![processor()];
    findings.extend(workers(&config, args.environment.as_deref())?);
    findings.push(gpu_driver());
    findings.extend([Compiler::Nvrtc, Compiler::Nvcc].map(compiler));
    findings.push(gpu_clock());
    findings.push(reports());
    findings.push(baselines());
    let broken = findings
        .iter()
        .any(|finding| finding.state == State::Broken);
    if args.json {
        let text = serde_json::to_string(&findings).map_err(Stop::not_judged)?;
        print(format!("{text}\n"))?;
    } else {
        for finding in &findings {
            print(shown(finding))?;
        }
    }
    Ok(if broken { 3 } else { 0 })
}

fn shown(finding: &Finding) -> String {
    let mark = match finding.state {
        State::Ok => "ok",
        State::Absent => "absent",
        State::Broken => "BROKEN",
    };
    let detail = indented(&format!("{}: {}", finding.what, finding.detail), 9, 9);
    let mut text = format!("{mark:<9}{}", detail.trim_start());
    if !finding.fix.is_empty() {
        text += &indented(&format!("fix: {}", finding.fix), 9, 14);
    }
    text
}

fn processor() -> Finding {
    Finding {
        what: "processor".to_owned(),
        state: State::Ok,
        detail: format!("{}, {} threads", machine::cpu_model(), machine::cores()),
        fix: String::new(),
    }
}

fn workers(config: &Suite, environment: Option<&str>) -> Result<Vec<Finding>, Stop> {
    let mut findings = Vec::new();
    for (worker, hello) in introductions(config, environment)? {
        let what = format!("worker {worker}");
        findings.push(match hello {
            Ok(hello) => {
                let versions = hello.versions.iter().map(|(name, v)| format!("{name} {v}"));
                Finding {
                    what,
                    state: State::Ok,
                    detail: format!(
                        "{} variants on {} ({})",
                        hello.variants.len(),
                        hello.device.name,
                        versions.collect::<Vec<_>>().join(", ")
                    ),
                    fix: String::new(),
                }
            }
            Err(reason) => Finding {
                fix: match worker.as_str() {
                    "cpu" => "it is part of regatta: please report this".to_owned(),
                    _ => format!(
                        "name a Python that has it in [environments.default] of regatta.toml, \
                         or in REGATTA_PYTHON; suites without {worker}/ variants do not need it"
                    ),
                },
                state: match worker.as_str() {
                    "cpu" => State::Broken,
                    _ => State::Absent,
                },
                what,
                detail: first_line(&reason).to_owned(),
            },
        });
    }
    Ok(findings)
}

/// Looks for NVIDIA's driver the way the loader would, without loading it.
fn gpu_driver() -> Finding {
    let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
    let what = "NVIDIA driver".to_owned();
    match version.as_deref().map(first_line) {
        Some(version) => Finding {
            what,
            state: State::Ok,
            detail: version.trim().to_owned(),
            fix: String::new(),
        },
        None => Finding {
            what,
            state: State::Absent,
            detail: "no /proc/driver/nvidia/version: nothing here can run on a GPU".to_owned(),
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
            detail: "not found: `regatta build` cannot use it".to_owned(),
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
