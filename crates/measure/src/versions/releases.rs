//! The releases of a package between two, as the environment's own pip lists them.
//!
//! Pip knows the user's indexes, mirrors and credentials, and the releases that support this Python
//! and platform. It lists them in PEP 440 order, so versions are not parsed here. A listed release
//! may still not install; the search then skips it.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{Pin, Spec, Version};
use crate::SetupError;
use crate::environments::{interpreter_of, released};
use crate::worker::program::why;
use regatta_core::suite::Suite;
use regatta_core::suite::environment::Environment;

/// Returns pip's list of the versions of a package, with pre-releases if true. If pip fails,
/// returns the last line of its output.
type Ask<'a> = &'a dyn Fn(&str, bool) -> Result<String, String>;

/// The versions of a suite from `good` to `bad`, inclusive, oldest first. `default` is the
/// environment of workers that name none.
///
/// With several packages, the releases of the first one are searched. The others keep their
/// version, or follow the first one's version if they have it at both ends
/// (`jax==0.5.0,jaxlib==0.5.0`).
///
/// # Errors
/// The versions do not form a row, or pip cannot list them.
pub fn row(
    good: &Spec,
    bad: &Spec,
    suite: &Suite,
    default: Option<&str>,
) -> Result<Vec<Version>, SetupError> {
    let packages =
        |pins: &[Pin]| -> Vec<String> { pins.iter().map(|pin| pin.package.clone()).collect() };
    match (good, bad) {
        (Spec::Release(ours), Spec::Release(theirs)) if packages(ours) == packages(theirs) => {
            let requirements: Vec<String> = ours.iter().map(Pin::to_string).collect();
            let (_, environment) = released(suite, default, &requirements)?;
            let ask = |package: &str, pre| ask_pip(&environment, package, pre);
            between(ours, theirs, &ask)
        }
        _ => Err(SetupError(format!(
            "--good {good} and --bad {bad}: there is nothing to search between them; write two \
             releases of the same packages (pypi:jax==0.4.38)"
        ))),
    }
}

fn ask_pip(environment: &Environment, package: &str, pre: bool) -> Result<String, String> {
    let interpreter = interpreter_of(environment);
    let mut pip = Command::new(&interpreter);
    let arguments = "-m pip --disable-pip-version-check --no-input index versions";
    pip.args(arguments.split(' '));
    pip.args(pre.then_some("--pre"));
    // Options that name the package sources.
    pip.args(environment.pip_options().flat_map(str::split_whitespace));
    let printed = pip.arg(package).stdin(Stdio::null()).output();
    let printed = printed.map_err(|error| {
        let why = why(Path::new(&interpreter), &error);
        format!("cannot start {interpreter}: {why}")
    })?;
    if printed.status.success() {
        Ok(String::from_utf8_lossy(&printed.stdout).into_owned())
    } else {
        let words = String::from_utf8_lossy(&printed.stderr);
        Err(last_line(&words).map_or_else(|| printed.status.to_string(), str::to_owned))
    }
}

/// The versions between two that pin the same packages.
fn between(good: &[Pin], bad: &[Pin], ask: Ask<'_>) -> Result<Vec<Version>, SetupError> {
    let lead = &good[0];
    // The other packages, each with the version that it keeps. `None` if it follows the first
    // one's.
    let mut beside: Vec<(&str, Option<&str>)> = Vec::new();
    for (ours, theirs) in good.iter().zip(bad).skip(1) {
        let follows = ours.version == lead.version && theirs.version == bad[0].version;
        beside.push(match (ours.version == theirs.version, follows) {
            (true, _) => (&ours.package, Some(&ours.version)),
            (false, true) => (&ours.package, None),
            (false, false) => {
                return Err(SetupError(format!(
                    "which {} goes with each release of {} is not known: it is {} at the good \
                     end and {} at the bad one; leave it out, and pip chooses",
                    ours.package, lead.package, ours.version, theirs.version
                )));
            }
        });
    }
    let versions = releases_between(ask, &lead.package, &lead.version, &bad[0].version)?;
    let version = |version: String| {
        let pin = |(package, own): (&str, Option<&str>)| Pin {
            package: package.to_owned(),
            version: own.unwrap_or(&version).to_owned(),
        };
        let all = std::iter::once((&*lead.package, None)).chain(beside.clone());
        Version {
            spec: Spec::Release(all.map(pin).collect()),
            name: format!("{} {version}", lead.package),
        }
    };
    Ok(versions.into_iter().map(version).collect())
}

/// The last line that is not empty.
fn last_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty())
}

/// The releases from `good` to `bad`, inclusive, oldest first. Pre-releases are included only if an
/// end is one.
fn releases_between(
    ask: Ask<'_>,
    package: &str,
    good: &str,
    bad: &str,
) -> Result<Vec<String>, SetupError> {
    let mut listed = listed(ask, package, false)?;
    let place = |listed: &[String], version: &str| listed.iter().position(|other| other == version);
    if [good, bad].iter().any(|end| place(&listed, end).is_none()) {
        listed = self::listed(ask, package, true)?;
    }
    let place_of = |version: &str| {
        place(&listed, version).ok_or_else(|| {
            SetupError(format!(
                "pip lists no {package} {version} for this Python (yanked, or only for others?); \
                 name one that it lists: {}",
                some(&listed)
            ))
        })
    };
    let (first, last) = (place_of(good)?, place_of(bad)?);
    if first < last {
        Ok(listed[first..=last].to_vec())
    } else {
        Err(SetupError(format!(
            "{package} {good} (--good) is not older than {bad} (--bad); the good end is the older \
             one, and --fixed searches the same range for the version that is good again"
        )))
    }
}

/// Precedes the versions in pip's output, which are listed newest first.
const MARK: &str = "Available versions:";

fn listed(ask: Ask<'_>, package: &str, pre: bool) -> Result<Vec<String>, SetupError> {
    let unlisted = |problem: String| {
        SetupError(format!(
            "pip does not list the releases of {package}: {problem}"
        ))
    };
    let text = ask(package, pre).map_err(unlisted)?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix(MARK));
    let versions = line.into_iter().flat_map(|line| line.split(','));
    let mut versions: Vec<String> = versions
        .map(|version| version.trim().to_owned())
        .filter(|version| !version.is_empty())
        .collect();
    versions.reverse();
    if versions.is_empty() {
        Err(unlisted("it names none".to_owned()))
    } else {
        Ok(versions)
    }
}

/// A text with the newest releases.
fn some(listed: &[String]) -> String {
    const MAX_LISTED: usize = 12;
    let newest: Vec<&str> = listed
        .iter()
        .rev()
        .take(MAX_LISTED)
        .map(String::as_str)
        .collect();
    let more = if listed.len() > MAX_LISTED {
        ", ..."
    } else {
        ""
    };
    format!("{}{more}", newest.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index of one package.
    fn index(package: &str, pre: bool) -> Result<String, String> {
        let lines = match (package, pre) {
            ("jax", false) => "jax (0.5.3)\nAvailable versions: 0.5.3, 0.5.2, 0.5.1, 0.5.0",
            ("jax", true) => "Available versions: 0.6.0rc1, 0.5.3, 0.5.2, 0.5.1, 0.5.0",
            ("empty", _) => "nothing",
            _ => return Err("ERROR: No matching distribution found for none".to_owned()),
        };
        Ok(lines.to_owned())
    }

    #[test]
    fn releases_are_listed_from_the_good_end_on() {
        let releases = releases_between(&index, "jax", "0.5.0", "0.5.2").unwrap();
        assert_eq!(releases, ["0.5.0", "0.5.1", "0.5.2"]);
        // Pre-releases are requested only if an end is one.
        let releases = releases_between(&index, "jax", "0.5.3", "0.6.0rc1").unwrap();
        assert_eq!(releases, ["0.5.3", "0.6.0rc1"]);
    }

    #[test]
    fn what_is_not_there_is_refused_with_what_is() {
        for (package, good, bad, words) in [
            ("jax", "0.5.0", "0.5.9", "no jax 0.5.9 for this Python"),
            ("jax", "0.5.0", "0.5.9", "0.6.0rc1, 0.5.3, 0.5.2"),
            ("jax", "0.5.3", "0.5.0", "0.5.3 (--good) is not older"),
            ("jax", "0.5.3", "0.5.3", "not older"),
            ("none", "1", "2", "No matching distribution"),
            ("empty", "1", "2", "it names none"),
        ] {
            let error = releases_between(&index, package, good, bad)
                .unwrap_err()
                .to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    fn found(good: &str, bad: &str) -> Result<Vec<String>, String> {
        let pins = |spec: &str| match spec.parse() {
            Ok(Spec::Release(pins)) => pins,
            other => panic!("{other:?}"),
        };
        let row = between(&pins(good), &pins(bad), &index).map_err(|error| error.to_string())?;
        Ok(row.iter().map(|version| version.spec.to_string()).collect())
    }

    #[test]
    fn packages_beside_the_first_follow_it_or_stay() {
        for (rest, row) in [
            (
                "",
                ["pypi:jax==0.5.0", "pypi:jax==0.5.1", "pypi:jax==0.5.2"].join(" "),
            ),
            (
                ",jaxlib==0.5.0,numpy==2.1.0",
                "pypi:jax==0.5.0,jaxlib==0.5.0,numpy==2.1.0 \
                 pypi:jax==0.5.1,jaxlib==0.5.1,numpy==2.1.0 \
                 pypi:jax==0.5.2,jaxlib==0.5.2,numpy==2.1.0"
                    .to_owned(),
            ),
        ] {
            let good = format!("pypi:jax==0.5.0{rest}");
            let listed = found(&good, &good.replace("=0.5.0", "=0.5.2")).unwrap();
            assert_eq!(listed.join(" "), row);
        }
        let words = found("pypi:jax==0.5.0,a==1", "pypi:jax==0.5.2,a==3").unwrap_err();
        let unknown = "which a goes with each release of jax";
        assert!(words.contains(unknown), "{words}");
    }

    #[test]
    fn ends_without_an_order_are_refused() {
        for (good, bad) in [
            ("env:old", "env:new"),
            ("pypi:jax==0.5.0", "pypi:torch==2.0"),
            ("pypi:jax==0.5.0", "pypi:jax==0.5.1,jaxlib==0.5.1"),
        ] {
            let ends = [good, bad].map(|end| end.parse().unwrap());
            let row = row(&ends[0], &ends[1], &Suite::default(), None);
            let words = row.unwrap_err().to_string();
            assert!(words.contains("nothing to search"), "{words}");
            assert!(words.contains(bad), "{words}");
        }
    }
}
