//! What is looked at beside workers: processor, driver, compilers, clock, folders.

use std::path::Path;

use super::finding::{Finding, State};
use regatta::kernels::compile::Compiler;
use regatta::kernels::toolkit;
use regatta::measure::environments::{Made, interpreter_of};
use regatta::measure::machine;
use regatta::record::baseline::Store;
use regatta::report::files::check_writable;
use regatta::suite::environment::Environment;
use regatta::worker::gpu_clock;

pub(super) fn processor() -> Finding {
    Finding {
        what: "processor".to_owned(),
        name: "processor".to_owned(),
        state: State::Ok,
        detail: format!("{}, {} threads", machine::cpu_model(), machine::cores()),
        fix: String::new(),
    }
}

/// Looks for NVIDIA's driver the way the loader would, without loading it.
pub(super) fn gpu_driver() -> Finding {
    let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
    let (what, name) = ("NVIDIA driver".to_owned(), "NVIDIA driver".to_owned());
    match version.as_deref().and_then(|text| text.lines().next()) {
        Some(version) => Finding {
            what,
            name,
            state: State::Ok,
            detail: version.trim().to_owned(),
            fix: String::new(),
        },
        None => Finding {
            what,
            name,
            state: State::Absent,
            detail: "no /proc/driver/nvidia/version, so nothing runs on a GPU".to_owned(),
            fix: "none needed for suites on cpu/ variants, such as quick".to_owned(),
        },
    }
}

pub(super) fn compiler(compiler: Compiler) -> Finding {
    let (what, name) = match compiler {
        Compiler::Nvrtc => ("CUDA's run-time compiler (nvrtc)", "nvrtc"),
        Compiler::Nvcc => ("CUDA's compiler (nvcc)", "nvcc"),
    };
    let (what, name) = (what.to_owned(), name.to_owned());
    match toolkit::here(compiler) {
        Ok(toolkit) => Finding {
            what,
            name,
            state: State::Ok,
            detail: toolkit.program.display().to_string(),
            fix: String::new(),
        },
        Err(why) => Finding {
            what,
            name,
            state: State::Absent,
            detail: "not found, so not for `regatta build`".to_owned(),
            // Its last line is what to do.
            fix: why.lines().last().unwrap_or_default().to_owned(),
        },
    }
}

/// Whether Python workers can be given the gated clock.
pub(super) fn gpu_clock() -> Finding {
    let (what, name) = ("GPU clock".to_owned(), "GPU clock".to_owned());
    match gpu_clock::install() {
        Ok(Some(path)) => Finding {
            what,
            name,
            state: State::Ok,
            detail: format!("version {}, {}", regatta_probe::VERSION, path.display()),
            fix: String::new(),
        },
        Ok(None) => Finding {
            what,
            name,
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
            name,
            state: State::Broken,
            detail: format!("cannot be written into the cache: {error}"),
            fix: "name a folder that can be written in XDG_CACHE_HOME".to_owned(),
        },
    }
}

pub(super) fn reports() -> Finding {
    let (what, name) = ("report folder".to_owned(), "report folder".to_owned());
    match check_writable(Path::new("reports/.doctor")) {
        Ok(()) => Finding {
            what,
            name,
            state: State::Ok,
            detail: "reports/ can be written".to_owned(),
            fix: String::new(),
        },
        Err(error) => Finding {
            what,
            name,
            state: State::Broken,
            detail: error.to_string(),
            fix: "start regatta elsewhere, or give --out DIR".to_owned(),
        },
    }
}

pub(super) fn baselines() -> Finding {
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
        name: "baselines".to_owned(),
        state,
        detail,
        fix: match state {
            State::Broken => "restore the file from version control, or save it anew".to_owned(),
            _ => String::new(),
        },
    }
}

/// An environment as `regatta env list` tells it.
pub(super) fn environment((name, environment): (&String, &Environment)) -> Finding {
    let (state, detail, fix) = match Made::of(name, environment) {
        Err(error) => (State::Broken, error.to_string(), String::new()),
        Ok(None) => {
            let interpreter = interpreter_of(environment);
            // A bare name is looked for when it is started.
            match interpreter.contains('/') && !Path::new(&interpreter).is_file() {
                true => (
                    State::Absent,
                    "its interpreter is not there".to_owned(),
                    format!("name another in [environments.{name}] of regatta.toml"),
                ),
                false => (State::Ok, format!("{interpreter} as it is"), String::new()),
            }
        }
        Ok(Some(made)) if made.lock().is_some() => (
            State::Ok,
            made.folder().display().to_string(),
            String::new(),
        ),
        Ok(Some(_)) => (
            State::Absent,
            "not made yet".to_owned(),
            format!("regatta env make {name}"),
        ),
    };
    Finding {
        what: format!("environment {name}"),
        name: name.clone(),
        state,
        detail,
        fix,
    }
}
