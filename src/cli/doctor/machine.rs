//! What is looked at beside workers: processor, driver, compilers, clock, folders.

use std::path::Path;

use super::finding::{Check, CheckState};
use regatta_core::record::baseline::Store;
use regatta_core::suite::environment::Environment;
use regatta_cuda::kernels::compile::Compiler;
use regatta_cuda::kernels::toolkit;
use regatta_measure::command;
use regatta_measure::environments::{PythonEnvironment, interpreter_of};
use regatta_measure::machine;
use regatta_report::files::check_writable;

pub(super) fn processor() -> Check {
    let detail = format!("{}, {} threads", machine::cpu_model(), machine::cores());
    Check::new("processor", CheckState::Ok, detail)
}

/// Looks for NVIDIA's driver the way the loader would, without loading it.
pub(super) fn gpu_driver() -> Check {
    const WHAT: &str = "NVIDIA driver";
    let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
    match version.as_deref().and_then(|text| text.lines().next()) {
        Some(version) => Check::new(WHAT, CheckState::Ok, version.trim()),
        None => {
            let detail = "no /proc/driver/nvidia/version, so nothing runs on a GPU";
            Check::new(WHAT, CheckState::Absent, detail)
                .helped_by("none needed for suites on cpu/ variants, such as quick")
        }
    }
}

pub(super) fn compiler(compiler: Compiler) -> Check {
    let (what, name) = match compiler {
        Compiler::Nvrtc => ("CUDA's run-time compiler (nvrtc)", "nvrtc"),
        Compiler::Nvcc => ("CUDA's compiler (nvcc)", "nvcc"),
    };
    let found = match toolkit::here(compiler) {
        Ok(toolkit) => Check::new(what, CheckState::Ok, toolkit.program.display().to_string()),
        // The last line is what to do.
        Err(why) => Check::new(
            what,
            CheckState::Absent,
            "not found, so not for `regatta build`",
        )
        .helped_by(why.lines().last().unwrap_or_default()),
    };
    found.called(name)
}

/// Whether Python workers can be given the gated clock.
pub(super) fn gpu_clock() -> Check {
    const WHAT: &str = "GPU clock";
    match command::install_probe() {
        Ok(Some(path)) => {
            let detail = format!("version {}, {}", regatta_probe::VERSION, path.display());
            Check::new(WHAT, CheckState::Ok, detail)
        }
        Ok(None) => {
            let detail = "this regatta was built without: Python workers time by plain events";
            Check::new(WHAT, CheckState::Absent, detail).helped_by(format!(
                "build the package regatta-probe and name its library in {}",
                command::PROBE_VARIABLE
            ))
        }
        Err(error) => {
            let detail = format!("cannot be written into the cache: {error}");
            Check::new(WHAT, CheckState::Broken, detail)
                .helped_by("name a folder that can be written in XDG_CACHE_HOME")
        }
    }
}

pub(super) fn reports() -> Check {
    const WHAT: &str = "report folder";
    match check_writable(Path::new("reports/.doctor")) {
        Ok(()) => Check::new(WHAT, CheckState::Ok, "reports/ can be written"),
        Err(error) => Check::new(WHAT, CheckState::Broken, error.to_string())
            .helped_by("start regatta elsewhere, or give --out DIR"),
    }
}

pub(super) fn baselines() -> Check {
    const WHAT: &str = "baselines";
    let (stored, broken) = Store::new("baselines").list();
    let mut detail = format!("{} in baselines/", stored.len());
    for error in &broken {
        detail += &format!("; {error}");
    }
    match broken.is_empty() {
        true => Check::new(WHAT, CheckState::Ok, detail),
        false => Check::new(WHAT, CheckState::Broken, detail)
            .helped_by("restore the file from version control, or save it again"),
    }
}

/// An environment as `regatta env` tells it.
pub(super) fn environment((name, environment): (&String, &Environment)) -> Check {
    let told = |state, detail: &str| {
        Check::new(&format!("environment {name}"), state, detail).called(name)
    };
    match PythonEnvironment::locate(name, environment) {
        Err(error) => told(CheckState::Broken, &error.to_string()),
        Ok(None) => {
            let interpreter = interpreter_of(environment);
            // A bare name is looked for when it is started.
            match interpreter.contains('/') && !Path::new(&interpreter).is_file() {
                true => told(CheckState::Absent, "its interpreter is not there").helped_by(
                    format!("name another in [environments.{name}] of regatta.toml"),
                ),
                false => told(CheckState::Ok, &format!("{interpreter} as it is")),
            }
        }
        Ok(Some(made)) if made.lock().is_some() => {
            told(CheckState::Ok, &made.folder().display().to_string())
        }
        Ok(Some(_)) => {
            told(CheckState::Absent, "not made yet").helped_by(format!("regatta env make {name}"))
        }
    }
}
