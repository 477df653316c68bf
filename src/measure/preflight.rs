//! What is found out before anything is measured: that every worker starts, knows
//! its variants and parameters, and has the memory for its cases.

use std::collections::{BTreeMap, BTreeSet};

use super::session::Launcher;
use crate::attention::{Case, work};
use crate::suite::Suite;
use crate::suite::document::nearest;
use crate::worker::host::HostError;
use crate::worker::protocol::{Hello, VariantInfo};

/// Why nothing can be measured.
#[derive(Debug, thiserror::Error)]
pub enum Preflight {
    /// A worker did not come up.
    #[error(transparent)]
    Worker(#[from] HostError),
    /// The suite asks for something its workers do not have.
    #[error("{0}")]
    Plan(String),
}

/// Has every worker of the suite introduce itself, and holds the suite to it.
///
/// # Errors
/// The first worker that cannot be used, or the first case that cannot be run.
pub fn check(
    suite: &Suite,
    launcher: &mut dyn Launcher,
) -> Result<BTreeMap<String, Hello>, Preflight> {
    let names: BTreeSet<String> = suite
        .cases
        .iter()
        .map(|case| case.variant.worker_name())
        .collect();
    let mut hellos = BTreeMap::new();
    for name in names {
        let hello = launcher.start(&name)?.hello().clone();
        hellos.insert(name, hello);
    }
    // Some libraries missing is what a suite over many of them expects; all of them is a
    // machine that was not set up.
    let mut absent = hellos.values().map(|hello| hello.absent.as_ref());
    if absent.clone().all(|reason| reason.is_some())
        && let Some(reason) = absent.next().flatten()
    {
        return Err(Preflight::Plan(reason.clone()));
    }
    for case in &suite.cases {
        let hello = &hellos[&case.variant.worker_name()];
        if hello.absent.is_some() {
            continue;
        }
        let found = variant_of(case, hello).and_then(|variant| {
            parameters_known(suite, case, variant)?;
            memory_fits(case, hello, variant)
        });
        found.map_err(|error| match (error, suite.origins.get(&case.variant)) {
            (Preflight::Plan(message), Some(place)) => {
                Preflight::Plan(format!("{place}: {message}"))
            }
            (error, _) => error,
        })?;
    }
    for change in &suite.overrides {
        if !suite
            .cases
            .iter()
            .any(|case| case.variant == change.variant)
        {
            return Err(Preflight::Plan(format!(
                "an override is for {}, which this suite does not measure",
                change.variant
            )));
        }
    }
    Ok(hellos)
}

/// The variant of a case, as its worker describes it.
///
/// # Errors
/// When the worker has none of this name.
pub fn variant_of<'a>(case: &Case, hello: &'a Hello) -> Result<&'a VariantInfo, Preflight> {
    let name = &case.variant.name;
    if let Some(variant) = hello.variants.iter().find(|variant| variant.name == *name) {
        return Ok(variant);
    }
    let known = || hello.variants.iter().map(|variant| variant.name.as_str());
    let worker = &case.variant.worker;
    let hint = match nearest(name, known()) {
        Some(near) => format!("did you mean `{worker}/{near}`?"),
        None => format!("it has {}", known().collect::<Vec<_>>().join(", ")),
    };
    Err(Preflight::Plan(format!(
        "worker {worker} has no variant `{name}`; {hint}"
    )))
}

fn parameters_known(suite: &Suite, case: &Case, variant: &VariantInfo) -> Result<(), Preflight> {
    let handed = suite.params_for(case);
    for (name, value) in case.params.iter().chain(handed.iter()) {
        let Some(parameter) = variant.parameters.get(name) else {
            let known = || variant.parameters.keys().map(String::as_str);
            let hint = match nearest(name, known()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if variant.parameters.is_empty() => "it takes none".to_owned(),
                None => format!("it takes {}", known().collect::<Vec<_>>().join(", ")),
            };
            return Err(Preflight::Plan(format!(
                "{} has no parameter `{name}`; {hint}",
                case.variant
            )));
        };
        if !parameter.allows(value) {
            return Err(Preflight::Plan(format!(
                "{}: {name} = {value} is not possible; it takes `auto` or {}",
                case.variant,
                match parameter {
                    crate::worker::protocol::Parameter::Integer(_) => "a number".to_owned(),
                    crate::worker::protocol::Parameter::Words(words) => words.join(", "),
                }
            )));
        }
    }
    Ok(())
}

fn memory_fits(case: &Case, hello: &Hello, variant: &VariantInfo) -> Result<(), Preflight> {
    let needed = work::memory_bytes(&case.problem, variant.stores_scores);
    let device = &hello.device;
    if needed <= device.memory_bytes {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let scores = if variant.stores_scores {
        ", its score matrix included"
    } else {
        ""
    };
    Err(Preflight::Plan(format!(
        "{case} needs {:.1} GiB for its tensors{scores}; {} has {:.1} GiB: \
         take a smaller shape, or leave this one out with --filter",
        gib(needed),
        device.name,
        gib(device.memory_bytes)
    )))
}
