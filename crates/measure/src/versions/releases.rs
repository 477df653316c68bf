//! The releases of a package between two, as the environment's own pip lists them, and the packages
//! that moved together from one to another.
//!
//! Pip knows the user's indexes, mirrors and credentials, and which releases have something for
//! this Python and platform; and it lists them in the order of PEP 440, so that no version is
//! parsed here. What it lists may still not be installable: that is a version that is skipped.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;

use serde::Serialize;

use crate::SetupError;
use crate::worker::program::{Program, Streams, why};
use regatta_worker::units::ARROW;

/// What lists releases.
pub trait PackageIndex {
    /// What pip prints about the versions of a package; with `pre`, of pre-releases too.
    ///
    /// # Errors
    /// Its last line where it fails, or why it was not started.
    fn ask(&self, package: &str, pre: bool) -> Result<String, String>;
}

/// The pip of an interpreter.
#[derive(Clone, Debug)]
pub struct Pip {
    /// The Python whose pip is asked.
    pub interpreter: PathBuf,
    /// Its options that say where packages come from.
    pub options: Vec<String>,
}

impl PackageIndex for Pip {
    fn ask(&self, package: &str, pre: bool) -> Result<String, String> {
        let arguments = "-m pip --disable-pip-version-check --no-input index versions";
        let mut args: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        if pre {
            args.push("--pre".to_owned());
        }
        args.extend(self.options.iter().cloned());
        args.push(package.to_owned());
        let streams = Streams {
            stdin: Stdio::null(),
            stdout: Stdio::piped(),
            stderr: Stdio::piped(),
        };
        let program = Program::new(&self.interpreter, args);
        let started = program.start(streams, Vec::new());
        let mut started = started.map_err(|error| {
            let shown = self.interpreter.display();
            format!("cannot start {shown}: {}", why(&self.interpreter, &error))
        })?;
        // Both at once: a pipe that nobody reads holds up who writes into it.
        let words = started.stderr().map(|pipe| thread::spawn(|| all_of(pipe)));
        let printed = started.stdout().map(all_of).unwrap_or_default();
        let words = words
            .and_then(|words| words.join().ok())
            .unwrap_or_default();
        match started.wait() {
            Ok(status) if status.success() => Ok(String::from_utf8_lossy(&printed).into_owned()),
            Ok(status) => {
                let words = String::from_utf8_lossy(&words);
                Err(last_line(&words).map_or_else(|| status.to_string(), str::to_owned))
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

fn all_of(mut pipe: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    // What came before an error is what there is.
    let _ = pipe.read_to_end(&mut bytes);
    bytes
}

/// The last line that says something.
pub fn last_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty())
}

/// The releases from `good` to `bad`, both included, the oldest first. Pre-releases are among
/// them only where an end is one.
///
/// # Errors
/// When pip does not list an end, or they are the wrong way round.
pub fn releases_between(
    index: &dyn PackageIndex,
    package: &str,
    good: &str,
    bad: &str,
) -> Result<Vec<String>, SetupError> {
    let mut listed = listed(index, package, false)?;
    let place = |listed: &[String], version: &str| {
        let version = normal(version);
        listed.iter().position(|other| normal(other) == version)
    };
    if [good, bad].iter().any(|end| place(&listed, end).is_none()) {
        listed = self::listed(index, package, true)?;
    }
    let found = |version: &str| {
        place(&listed, version).ok_or_else(|| {
            SetupError(format!(
                "pip lists no {package} {version} for this Python (yanked, or only for others?); \
                 name one that it lists: {}",
                some(&listed)
            ))
        })
    };
    let (first, last) = (found(good)?, found(bad)?);
    match first < last {
        true => Ok(listed[first..=last].to_vec()),
        false => Err(SetupError(format!(
            "{package} {good} (--good) is no older than {bad} (--bad); the good end is the older \
             one, and --fixed searches the same range for the version that is good again"
        ))),
    }
}

/// Before the versions in what pip prints, the newest first.
const MARK: &str = "Available versions:";

fn listed(index: &dyn PackageIndex, package: &str, pre: bool) -> Result<Vec<String>, SetupError> {
    let unlisted = |problem: String| {
        SetupError(format!(
            "pip does not list the releases of {package}: {problem}"
        ))
    };
    let text = index.ask(package, pre).map_err(unlisted)?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix(MARK));
    let versions = line.into_iter().flat_map(|line| line.split(','));
    let mut versions: Vec<String> = versions
        .map(|version| version.trim().to_owned())
        .filter(|version| !version.is_empty())
        .collect();
    versions.reverse();
    match versions.is_empty() {
        true => Err(unlisted("it names none".to_owned())),
        false => Ok(versions),
    }
}

/// The newest ones, in words.
fn some(listed: &[String]) -> String {
    const MOST: usize = 12;
    let newest: Vec<&str> = listed.iter().rev().take(MOST).map(String::as_str).collect();
    let more = if listed.len() > MOST { ", ..." } else { "" };
    format!("{}{more}", newest.join(", "))
}

/// A version as others that are equal to it are written, by PEP 440: `v1.0` is `1`, `1.0RC1` is
/// `1rc1`, and `1.0+CPU` is `1+cpu`.
fn normal(version: &str) -> String {
    let lower = version.trim().to_ascii_lowercase();
    let plain = lower.strip_prefix('v').unwrap_or(&lower);
    let (public, local) = match plain.split_once('+') {
        Some((public, local)) => (public, format!("+{local}")),
        None => (plain, String::new()),
    };
    let numbers = |c: char| !(c.is_ascii_digit() || c == '.' || c == '!');
    let end = public.find(numbers).unwrap_or(public.len());
    let (mut release, rest) = public.split_at(end);
    release = release.trim_end_matches('.');
    while let Some(shorter) = release.strip_suffix(".0") {
        release = shorter;
    }
    let rest = rest.trim_start_matches(['.', '-', '_']);
    format!("{release}{rest}{local}")
}

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

    /// An index of one package.
    struct Fake;

    impl PackageIndex for Fake {
        fn ask(&self, package: &str, pre: bool) -> Result<String, String> {
            let lines = match (package, pre) {
                ("jax", false) => "jax (0.5.3)\nAvailable versions: 0.5.3, 0.5.2, 0.5.1, 0.5.0",
                ("jax", true) => "Available versions: 0.6.0rc1, 0.5.3, 0.5.2, 0.5.1, 0.5.0",
                ("empty", _) => "nothing",
                _ => return Err("ERROR: No matching distribution found for none".to_owned()),
            };
            Ok(lines.to_owned())
        }
    }

    #[test]
    fn releases_are_listed_from_the_good_end_on() {
        let found = releases_between(&Fake, "jax", "0.5", "v0.5.2").unwrap();
        assert_eq!(found, ["0.5.0", "0.5.1", "0.5.2"]);
        // A pre-release is asked for only where an end is one.
        let found = releases_between(&Fake, "jax", "0.5.3", "0.6.0RC1").unwrap();
        assert_eq!(found, ["0.5.3", "0.6.0rc1"]);
    }

    #[test]
    fn what_is_not_there_is_refused_with_what_is() {
        for (package, good, bad, words) in [
            ("jax", "0.5.0", "0.5.9", "no jax 0.5.9 for this Python"),
            ("jax", "0.5.0", "0.5.9", "0.6.0rc1, 0.5.3, 0.5.2"),
            ("jax", "0.5.3", "0.5.0", "0.5.3 (--good) is no older"),
            ("jax", "0.5.3", "0.5.3", "no older"),
            ("none", "1", "2", "No matching distribution"),
            ("empty", "1", "2", "it names none"),
        ] {
            let error = releases_between(&Fake, package, good, bad)
                .unwrap_err()
                .to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn versions_that_are_equal_are_written_alike() {
        for (one, other, same) in [
            ("1.0", "1", true),
            ("v1.2.0", "1.2", true),
            ("2.11.0+CPU", "2.11+cpu", true),
            ("1.0-rc1", "1.0rc1", true),
            ("1!2.0", "1!2", true),
            ("1.0", "1.0.1", false),
            ("1.0", "1.0rc1", false),
            ("1.0", "10", false),
            ("1.0", "1.0+c", false),
        ] {
            assert_eq!(normal(one) == normal(other), same, "{one} {other}");
        }
    }

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
