//! Checks before anything is measured: every worker starts, has the variants and parameters that
//! the suite names, and has the memory for its cases.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::workers::{Processes, WaitingWorker};
use crate::SetupError;
use crate::session::reference_worker;
use crate::worker::{Conversation, Launcher, WorkerError, WorkerFailure};
use regatta_core::suite::Suite;
use regatta_core::suite::document::name_hint;
use regatta_core::text::one_line;
use regatta_worker::case::{Case, CaseId, Dtype, NAME_RULE, ParamValue, is_name};
use regatta_worker::operator::{DeclaredProblem, Direction};
use regatta_worker::protocol::{
    DeviceKind, Hello, Parameter, Peak, ReplyBody, RequestBody, VariantInfo,
};
use regatta_worker::units::{Bytes, Digits};

/// The workers' answers to the preflight.
pub struct Introduced {
    /// The workers' introductions, by name.
    pub hellos: BTreeMap<String, Hello>,
    /// The worker that was kept running.
    pub waiting: Option<WaitingWorker>,
    /// Measured peaks of devices, if the suite asks for them.
    pub peaks: BTreeMap<String, Peak>,
    /// A sentence for each worker that could not measure the peak, unless another worker measured
    /// its device.
    pub unmeasured: Vec<String>,
    /// Cases that a revision does not have yet, each with the reason.
    pub lacking: BTreeMap<CaseId, String>,
}

/// Has every worker of the suite introduce itself, and checks the suite against the answers. The
/// worker `kept` is introduced last, so that it is alone, and stays up to serve the first
/// invocation. A worker that measures a peak is always ended: it has loaded libraries, whose
/// loading a first call would include. If `may_lack`, a revision is not refused for cases that it
/// does not have.
///
/// # Errors
/// The first worker that cannot be used, or the first case that cannot be run.
pub fn check(
    suite: &Suite,
    launcher: &mut Processes,
    kept: &str,
    may_lack: bool,
) -> Result<Introduced, SetupError> {
    let dtypes: BTreeSet<Dtype> = suite
        .cases
        .iter()
        .map(|case| case.problem.dtype())
        .collect();
    let kept = if suite.settings.peak { "" } else { kept };
    let (mut peaks, mut unmeasured) = (BTreeMap::new(), BTreeMap::new());
    let names: BTreeSet<String> = suite
        .cases
        .iter()
        .map(|case| case.variant.worker_name())
        .collect();
    let mut hellos = BTreeMap::new();
    let (mut absent, mut lacking) = (BTreeMap::new(), BTreeMap::new());
    let mut waiting = None;
    let others = names.iter().filter(|name| *name != kept);
    for name in others.chain(names.get(kept)) {
        if let Some(hello) = launcher.listed(name) {
            hellos.insert(name.clone(), hello.clone());
            continue;
        }
        let mut conversation = match launcher.start(name) {
            Ok(conversation) => conversation,
            Err(error) => match lacks(launcher, name, &error).filter(|_| may_lack) {
                Some(reason) => {
                    absent.insert(name.clone(), reason);
                    continue;
                }
                None => return Err(error.into()),
            },
        };
        let hello = conversation.hello().clone();
        device_known(name, &hello)?;
        nameable(name, &hello)?;
        if suite.settings.peak && hello.absent.is_none() {
            match peak(&mut *conversation, &dtypes) {
                Ok(peak) => drop(peaks.insert(name.clone(), peak)),
                Err(why) => {
                    let why = format!("{name}: the peak of its device is not measured: {why}");
                    unmeasured.insert(name.clone(), why);
                }
            }
        }
        hellos.insert(name.clone(), hello);
        let conversation = launcher.put_back(name, conversation);
        if name == kept {
            waiting = conversation.map(|conversation| (name.clone(), conversation));
        }
    }
    // Another worker measured the same device.
    unmeasured.retain(|name, _| {
        let device = |worker: &String| hellos.get(worker).map(|hello: &Hello| &hello.device.name);
        !peaks.keys().any(|other| device(other) == device(name))
    });
    // A suite over many libraries may well find some of them missing. If all are, the machine was
    // not set up.
    let mut reasons = hellos.values().map(|hello| hello.absent.as_ref());
    if reasons.clone().all(|reason| reason.is_some())
        && let Some(reason) = reasons.next().flatten()
    {
        return Err(SetupError(reason.clone()));
    }
    for case in &suite.cases {
        let worker = case.variant.worker_name();
        if let Some(reason) = absent.get(&worker) {
            lacking.insert(case.id(), reason.clone());
            continue;
        }
        let hello = &hellos[&worker];
        if hello.absent.is_some() {
            continue;
        }
        if case.problem.is_call() {
            continue;
        }
        match known(suite, case, hello) {
            Err((_, error)) if may_lack => {
                let reason = error.0.split("; ").next().unwrap_or_default().to_owned();
                lacking.insert(case.id(), reason);
            }
            _ => possible(suite, case, hello)?,
        }
    }
    references(suite, launcher, &hellos)?;
    Ok(Introduced {
        hellos,
        waiting,
        peaks,
        unmeasured: unmeasured.into_values().collect(),
        lacking,
    })
}

/// The reason for which a revision lacks a worker that did not start: it does not have the file
/// that the worker's command names, or the file has no such function. `None` if something else
/// failed.
fn lacks(processes: &Processes, worker: &str, error: &WorkerError) -> Option<String> {
    /// Texts of the Python worker for a file without the function.
    const NO_FUNCTION: [&str; 2] = [" has no function `", " has no public function "];
    if let Some(path) = processes.lacking(worker, Path::new(".")) {
        return Some(format!("it has no file {}", path.display()));
    }
    match &error.failure {
        WorkerFailure::Refused(reason)
            if NO_FUNCTION.iter().any(|words| reason.contains(words)) =>
        {
            Some(one_line(reason))
        }
        _ => None,
    }
}

/// Checks a case against the hello of its worker.
///
/// # Errors
/// The worker does not have the variant or a parameter, or its device lacks memory.
pub(crate) fn possible(suite: &Suite, case: &Case, hello: &Hello) -> Result<(), SetupError> {
    let variant = known(suite, case, hello).map_err(|(place, error)| at(place, error))?;
    let place = suite.origins.get(&case.variant);
    callable(suite, case, variant).map_err(|error| at(place, error))?;
    memory_fits(suite, case, hello, variant).map_err(|error| at(place, error))
}

/// Returns the variant of a case, and checks that it has all parameters.
///
/// # Errors
/// The name that the worker does not know, and its place in the suite.
fn known<'a, 's>(
    suite: &'s Suite,
    case: &Case,
    hello: &'a Hello,
) -> Result<&'a VariantInfo, (Option<&'s String>, SetupError)> {
    let place = suite.origins.get(&case.variant);
    let variant = variant_of(case, hello).map_err(|error| (place, error))?;
    for (name, value) in case.params.iter() {
        parameter_known(case, name, value, variant).map_err(|error| (place, error))?;
    }
    let changes = suite.overrides.iter();
    for change in changes.filter(|change| change.variant == case.variant) {
        parameter_known(case, &change.parameter, &change.to, variant)
            .map_err(|error| (Some(&change.origin.0), error))?;
    }
    Ok(variant)
}

/// The time limit for measuring a peak.
const PEAK_LIMIT: Duration = Duration::from_secs(60);

/// Asks a worker to measure the peak of its device.
///
/// # Errors
/// The reason: the worker does not know this request, cannot measure a peak, or ended.
fn peak(worker: &mut dyn Conversation, dtypes: &BTreeSet<Dtype>) -> Result<Peak, String> {
    let dtypes = dtypes.iter().copied().collect();
    match worker.ask(RequestBody::Peak { dtypes }, PEAK_LIMIT) {
        Ok(ReplyBody::Peak(peak)) => match peak.sound() {
            peak if peak.is_empty() => Err("its answer has no figure of a device".to_owned()),
            peak => Ok(peak),
        },
        Ok(
            ReplyBody::Failed { reason }
            | ReplyBody::Unavailable { reason }
            | ReplyBody::Unsupported { reason }
            | ReplyBody::Lost { reason },
        ) => Err(reason),
        Ok(_) => Err("it answered something else".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Checks that the names of a worker's variants can be part of case ids.
///
/// # Errors
/// The first name that cannot.
pub fn nameable(worker: &str, hello: &Hello) -> Result<(), SetupError> {
    let mut names = hello.variants.iter().map(|variant| variant.name.as_str());
    match names.find(|name| !is_name(name)) {
        Some(name) => Err(SetupError(format!(
            "worker {worker} has a variant named `{}`, which no case id can hold: a name is \
             {NAME_RULE}",
            name.escape_debug()
        ))),
        None => Ok(()),
    }
}

/// The variant of a case as its worker describes it.
///
/// # Errors
/// The worker has no variant of this name.
pub fn variant_of<'a>(case: &Case, hello: &'a Hello) -> Result<&'a VariantInfo, SetupError> {
    let name = &case.variant.name;
    if let Some(variant) = hello.variants.iter().find(|variant| variant.name == *name) {
        return Ok(variant);
    }
    let worker = &case.variant.worker;
    let known = hello.variants.iter();
    let known = known.map(|variant| format!("{worker}/{}", variant.name));
    let known: Vec<String> = known.collect();
    let hint = name_hint(
        &format!("{worker}/{name}"),
        known.iter().map(String::as_str),
    );
    Err(SetupError(format!(
        "worker {worker} has no variant `{name}`; {hint}"
    )))
}

/// Refuses an unknown kind of device: the kind decides, for example, which clock is judged, and
/// must not be guessed.
fn device_known(worker: &str, hello: &Hello) -> Result<(), SetupError> {
    let kind = &hello.device.kind;
    if hello.absent.is_some() || hello.device.known_kind().is_some() {
        Ok(())
    } else {
        Err(SetupError(format!(
            "worker {worker} reports a device of the kind {kind:?}; expected one of {}",
            DeviceKind::names()
        )))
    }
}

/// Puts the place in the suite in front of an error.
pub(crate) fn at(place: Option<&String>, error: SetupError) -> SetupError {
    match place {
        Some(place) => SetupError(format!("{place}: {error}")),
        None => error,
    }
}

fn parameter_known(
    case: &Case,
    name: &str,
    value: &ParamValue,
    variant: &VariantInfo,
) -> Result<(), SetupError> {
    let Some(parameter) = variant.parameters.get(name) else {
        let known = variant.parameters.keys().map(String::as_str);
        return Err(SetupError(format!(
            "{} has no parameter `{name}`; {}",
            case.variant,
            name_hint(name, known)
        )));
    };
    if parameter.allows(value) {
        return Ok(());
    }
    Err(SetupError(format!(
        "{}: {name} = {value} is not possible; it takes `auto` or {}",
        case.variant,
        match parameter {
            Parameter::Integer => "a number".to_owned(),
            Parameter::Words(words) => words.join(", "),
        }
    )))
}

/// Refuses a function that cannot be called with the operands of a declared operator.
fn callable(suite: &Suite, case: &Case, variant: &VariantInfo) -> Result<(), SetupError> {
    let Some(arguments) = &variant.arguments else {
        return Ok(());
    };
    let Some(problem) = case.problem.declared() else {
        let refusal = variant.refusal(&case.problem).map(SetupError);
        return refusal.map_or(Ok(()), Err);
    };
    let operator = suite.operators.get(&problem.operator);
    let operands = operator.and_then(|operator| operator.operands(problem).ok());
    match operands.and_then(|operands| arguments.objection(&operands)) {
        Some(why) => Err(SetupError(format!(
            "{} cannot be called for operator `{}`: {why}",
            case.variant, problem.operator
        ))),
        None => Ok(()),
    }
}

/// Starts each reference, and refuses one that has loaded code under test: both would have the same
/// faults.
fn references(
    suite: &Suite,
    launcher: &mut Processes,
    hellos: &BTreeMap<String, Hello>,
) -> Result<(), SetupError> {
    let problems = || {
        let cases = suite.cases.iter();
        cases.filter_map(|case| case.problem.declared())
    };
    let names: BTreeSet<&str> = problems()
        .map(|problem| problem.operator.as_str())
        .collect();
    for name in names {
        let Some(operator) = suite.operators.get(name) else {
            continue;
        };
        let Some(reference) = &operator.reference else {
            continue;
        };
        let worker = launcher.start(&reference_worker(name))?;
        let arguments = worker.hello().variants.iter();
        let mut arguments = arguments.filter_map(|variant| variant.arguments.as_ref());
        let why = arguments.find_map(|arguments| {
            let mut problems = problems().filter(|problem| problem.operator == name);
            problems.find_map(|problem| {
                let mut operands = operator.operands(problem).ok()?;
                // Gradients have a function of their own, which computes them.
                if let Some(gradients) = operands.gradients.take() {
                    let is_given = |name: &String| gradients.given.contains(name);
                    operands.inputs.retain(|input| !is_given(&input.name));
                }
                arguments.objection(&operands)
            })
        });
        if let Some(why) = why {
            return Err(SetupError(format!(
                "operators.{name}.reference = \"{reference}\" cannot be called: {why}"
            )));
        }
        let asks = |problem: &DeclaredProblem| {
            problem.operator == name && operator.direction(problem).has_backward()
        };
        let has_gradients =
            |variant: &VariantInfo| variant.directions.contains(&Direction::Backward);
        if problems().any(asks) && !worker.hello().variants.iter().any(has_gradients) {
            let (file, function) = reference.rsplit_once(':').unwrap_or((reference, ""));
            return Err(SetupError(format!(
                "operators.{name}.reference = \"{reference}\": a sweep asks for gradients, and {file} \
                 has no function `{function}_gradients`: it takes the arguments of `{function}` and \
                 the outputs' gradients, and returns those of the inputs that `gradients` lists"
            )));
        }
        let files = worker.hello().files.iter();
        let loaded: BTreeSet<&PathBuf> = files.filter(|path| !is_installed(path)).collect();
        for (tested, hello) in hellos {
            let both = hello.files.iter().find(|file| loaded.contains(file));
            if let Some(file) = both {
                return Err(SetupError(format!(
                    "operators.{name}.reference = \"{reference}\": the reference loads {}, which \
                     worker `{tested}` loads too, so a mistake there would be in both: write the \
                     reference in a file of its own that imports no code under test",
                    file.display()
                )));
            }
        }
    }
    Ok(())
}

/// True for a file of an installed package, or one that an interpreter loads on startup.
fn is_installed(path: &Path) -> bool {
    let mut parts = path.iter();
    let package = |part: &OsStr| part == "site-packages" || part == "dist-packages";
    parts.any(package) || path.ends_with("sitecustomize.py") || path.ends_with("usercustomize.py")
}

fn memory_fits(
    suite: &Suite,
    case: &Case,
    hello: &Hello,
    variant: &VariantInfo,
) -> Result<(), SetupError> {
    let stores_scores = variant.stores_scores;
    let needed = Bytes(case.problem.memory_bytes(&suite.operators, stores_scores));
    let device = &hello.device;
    if needed <= device.memory_bytes {
        return Ok(());
    }
    let scores = if variant.stores_scores {
        ", its score matrix included"
    } else {
        ""
    };
    Err(SetupError(format!(
        "{case} needs {:.1} GiB for its tensors{scores}; {} has {:.1} GiB: \
         take a smaller shape, or leave this one out with --filter",
        needed.gib(),
        device.name,
        device.memory_bytes.gib()
    )))
}

/// A line of 80 columns; the page has the method.
pub(crate) fn peak_line(worker: &str, peak: &Peak) -> String {
    let products = peak.tflops.iter();
    let products: Vec<String> = products
        .map(|(dtype, rate)| format!("{dtype} {rate}"))
        .collect();
    let products =
        (!products.is_empty()).then(|| format!("products {}FLOP/s", products.join(", ")));
    let copies = peak
        .gbps
        .map(|rate| format!("copies {} GB/s", Digits(rate)));
    let figures: Vec<String> = products.into_iter().chain(copies).collect();
    format!("{worker}: {}", figures.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_worker::units::Rate;

    #[test]
    fn a_reference_may_share_installed_files_alone() {
        for (path, shared) in [
            ("/env/lib/python3.12/site-packages/numpy", true),
            ("/usr/lib/python3/dist-packages/numpy", true),
            ("/etc/python3.12/sitecustomize.py", true),
            ("/home/me/mylib/norms.py", false),
        ] {
            assert_eq!(is_installed(Path::new(path)), shared, "{path}");
        }
    }

    #[test]
    fn figures_are_told_with_their_units() {
        let peak = Peak {
            tflops: BTreeMap::from([(Dtype::F32, Rate(0.1466)), (Dtype::Bf16, Rate(792.3))]),
            gbps: Some(4250.7),
            how: "a product".to_owned(),
        };
        let expected = "torch: products f32 146.6 G, bf16 792.3 TFLOP/s; copies 4251 GB/s";
        assert_eq!(peak_line("torch", &peak), expected);
    }
}
