//! Packages that moved together: a release of one brings others along.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use regatta_worker::units::ARROW;

/// A package whose version is another one after the step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MovedPackage {
    /// Its name, as pip lists it.
    pub package: String,
    /// Its version before; `None`: it was not there.
    pub from: Option<String>,
    /// Its version after; `None`: it is gone.
    pub to: Option<String>,
}

impl fmt::Display for MovedPackage {
    /// `jaxlib 0.5.0 → 0.5.1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.package)?;
        match (&self.from, &self.to) {
            (Some(from), Some(to)) => write!(f, " {from} {ARROW} {to}"),
            (None, Some(to)) => write!(f, " {to} added"),
            (Some(from), None) => write!(f, " {from} removed"),
            (None, None) => Ok(()),
        }
    }
}

/// The packages of a lock, by name as indexes compare them: its name there and its version.
fn packages(lock: &str) -> BTreeMap<String, (&str, &str)> {
    let lines = lock.lines().map(str::trim);
    let read = lines.filter_map(|line| {
        let (name, version) = line.split_once("==").or_else(|| line.split_once(" @ "))?;
        let (name, version) = (name.trim(), version.trim());
        let known = name.to_ascii_lowercase().replace(['_', '.'], "-");
        (!name.starts_with(['#', '-'])).then_some((known, (name, version)))
    });
    read.collect()
}

/// What moved from one lock to another, by name.
pub fn moved(before: &str, after: &str) -> Vec<MovedPackage> {
    let (before, after) = (packages(before), packages(after));
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let each = names.into_iter().map(|name| {
        let (was, is) = (before.get(name), after.get(name));
        let version = |of: Option<&(&str, &str)>| of.map(|of| of.1.to_owned());
        MovedPackage {
            package: is.or(was).map_or_else(String::new, |of| of.0.to_owned()),
            from: version(was),
            to: version(is),
        }
    });
    each.filter(|moved| moved.from != moved.to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "# comment\njax==0.5.0\njaxlib==0.5.0\nml_dtypes==0.4.0\nnumpy==2.1.0\n\
                       mine @ file:///w/mine-1.whl\n";
    const NEW: &str = "jax==0.5.1\njaxlib==0.5.1\nml-dtypes==0.4.0\nnumpy==2.1.0\n\
                       opt==1\nmine @ file:///w/mine-1.whl\n";

    #[test]
    fn what_moved_is_what_another_version_has() {
        let told: Vec<String> = moved(OLD, NEW).iter().map(ToString::to_string).collect();
        assert_eq!(
            told.join(", "),
            "jax 0.5.0 → 0.5.1, jaxlib 0.5.0 → 0.5.1, opt 1 added"
        );
        assert!(moved(OLD, OLD).is_empty());
        assert_eq!(moved(NEW, OLD)[2].to_string(), "opt 1 removed");
    }
}
