//! An environment for releases that a command line names, made after one that is declared.

use super::declared::{NoCommand, environment_of, is_python};
use regatta_core::names::plain_name;
use regatta_core::suite::Suite;
use regatta_core::suite::environment::Environment;

/// The environment in which the suite's Python workers run that name none, with these
/// requirements (`jax==0.5.0`) in place of its own of the same packages, and its name.
///
/// # Errors
/// When no worker of the suite would run in it.
pub fn released(
    suite: &Suite,
    default: Option<&str>,
    requirements: &[String],
) -> Result<(String, Environment), NoCommand> {
    let asked = requirements.join(",");
    let declared = replaced(suite, default, &format!("pypi:{asked}"))?;
    let name = plain_name(&asked).replace("--", "-");
    Ok((name, with(&declared, requirements)))
}

/// The same of exactly these requirements, which are all that is installed in it, whatever they
/// say that they depend on. `spec` is what asked for it, and `name` what it is called.
///
/// # Errors
/// When no worker of the suite would run in it.
pub fn locked(
    suite: &Suite,
    default: Option<&str>,
    spec: &str,
    requirements: &[String],
) -> Result<Environment, NoCommand> {
    Ok(Environment {
        requirements: requirements.to_vec(),
        alone: true,
        workers: Vec::new(),
        ..replaced(suite, default, spec)?
    })
}

/// The environment that another would take the place of.
fn replaced(suite: &Suite, default: Option<&str>, spec: &str) -> Result<Environment, NoCommand> {
    let mut variants = suite.cases.iter().map(|case| &case.variant);
    let python =
        variants.find(|variant| variant.environment.is_none() && is_python(&variant.worker, suite));
    let Some(variant) = python else {
        return Err(NoCommand(format!(
            "{spec} changes nothing: no variant of suite {} is of a Python worker that \
             leaves its environment open",
            suite.name
        )));
    };
    let (_, declared) = environment_of(&variant.worker, suite, default)?;
    Ok(declared)
}

/// An environment with these requirements before its own, of which those of the same packages
/// go.
fn with(declared: &Environment, requirements: &[String]) -> Environment {
    let named: Vec<String> = requirements.iter().map(|line| package(line)).collect();
    let kept = declared.requirements.iter();
    let kept = kept.filter(|line| !named.contains(&package(line)));
    Environment {
        requirements: requirements.iter().chain(kept).cloned().collect(),
        workers: Vec::new(),
        ..declared.clone()
    }
}

/// The package of a requirement, as indexes compare names (PEP 503).
fn package(line: &str) -> String {
    let name = line
        .split(['=', '<', '>', '!', '~', ' ', '[', ';', '@'])
        .next();
    let name = name.unwrap_or_default().to_ascii_lowercase();
    let parts: Vec<&str> = name
        .split(['-', '_', '.'])
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use regatta_worker::attention::Case;

    fn suite(variant: &str) -> Suite {
        let case: Case = format!("{variant}:s64,d64").parse().unwrap();
        let declared = Environment {
            interpreter: Some("/opt/python".to_owned()),
            requirements: vec!["Flash_Attn==2.8.3".to_owned(), "torch==2.11.0".to_owned()],
            workers: vec!["torch".to_owned()],
            ..Environment::default()
        };
        Suite {
            name: "mine".to_owned(),
            cases: vec![case],
            environments: BTreeMap::from([("libraries".to_owned(), declared)]),
            ..Suite::default()
        }
    }

    #[test]
    fn a_release_takes_the_place_of_the_one_that_is_declared() {
        let asked = ["flash-attn==2.7.4".to_owned()];
        let (name, made) = released(&suite("torch/sdpa"), None, &asked).unwrap();
        assert_eq!(name, "flash-attn-2.7.4");
        assert_eq!(made.requirements, ["flash-attn==2.7.4", "torch==2.11.0"]);
        assert_eq!(made.interpreter.as_deref(), Some("/opt/python"));
        let two = ["jax==0.5.0".to_owned(), "jaxlib==0.5.0".to_owned()];
        let (name, _) = released(&suite("jax/sdpa"), None, &two).unwrap();
        assert_eq!(name, "jax-0.5.0-jaxlib-0.5.0");
    }

    #[test]
    fn a_lock_is_all_that_is_installed_and_what_nobody_would_import_is_refused() {
        let lines = ["jax==0.5.0".to_owned(), "jaxlib==0.5.1".to_owned()];
        let made = locked(&suite("jax/sdpa"), None, "lock:a.txt", &lines).unwrap();
        assert_eq!((&made.requirements[..], made.alone), (&lines[..], true));
        let error = locked(&suite("cpu/flash"), None, "lock:a.txt", &lines).unwrap_err();
        assert!(
            error.to_string().starts_with("lock:a.txt changes nothing"),
            "{error}"
        );
        for variant in ["cpu/flash", "torch/sdpa@old"] {
            let error = released(&suite(variant), None, &["jax==1".to_owned()]).unwrap_err();
            assert!(error.to_string().contains("changes nothing"), "{error}");
        }
    }
}
