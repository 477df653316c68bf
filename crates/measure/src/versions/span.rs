//! From two ends to the row of versions between them.

use serde::{Deserialize, Serialize};

use super::commits::{self, Commit, CommitsError};
use super::releases::{self, Index, ReleasesError};
use super::spec::{Pin, Spec};
use crate::git::Git;

/// One of a row of versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// As `regatta compare` takes it: `pypi:jax==0.5.1`, `git:` and a commit in full.
    pub spec: String,
    /// As it is told: `jax 0.5.1`, `1f3c9a0`.
    pub name: String,
    /// Of a commit: the first line of its message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Of a commit: who wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Of a commit: when it was committed, `2026-11-22`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// Of a commit: its parents' ids; more than one for a merge.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<String>,
}

/// Why two ends make no row.
#[derive(Debug, thiserror::Error)]
pub enum SpanError {
    /// Ends of two kinds, or of one that has no order.
    #[error(
        "--good {good} and --bad {bad}: there is nothing to search between them; both are \
         releases of the same packages (pypi:jax==0.4.38), or both are commits (git:v1.0)"
    )]
    Kinds {
        /// As it was given.
        good: String,
        /// As it was given.
        bad: String,
    },
    /// Packages whose versions do not go together from one end to the other.
    #[error(
        "which {package} goes with each release of {lead} is not known: it is {good} at the good \
         end and {bad} at the bad one; leave it out, and pip chooses"
    )]
    Companion {
        /// The first package, whose releases are searched.
        lead: String,
        /// The other one.
        package: String,
        /// Its version at the good end.
        good: String,
        /// Its version at the bad end.
        bad: String,
    },
    /// The releases.
    #[error(transparent)]
    Releases(#[from] ReleasesError),
    /// The commits.
    #[error(transparent)]
    Commits(#[from] CommitsError),
}

/// The versions from `good` to `bad`, both included, the oldest first.
///
/// Of several packages the first one's releases are searched; the others keep their version, or
/// have the first one's where they have it at both ends (`jax==0.5.0,jaxlib==0.5.0`).
///
/// # Errors
/// When they make no row, or it cannot be listed.
pub fn row(
    good: &Spec,
    bad: &Spec,
    index: &dyn Index,
    git: &dyn Git,
) -> Result<Vec<Version>, SpanError> {
    match (good, bad) {
        (Spec::Release(good), Spec::Release(bad)) => {
            let (Some(first), Some(last)) = (good.first(), bad.first()) else {
                return Err(kinds(good.as_slice(), bad));
            };
            let names = |pins: &[Pin]| pins.iter().map(|pin| pin.package.clone()).collect();
            let (ours, theirs): (Vec<String>, Vec<String>) = (names(good), names(bad));
            if ours != theirs {
                return Err(kinds(good, bad));
            }
            let beside = companions(good, bad)?;
            let versions = releases::between(index, &first.package, &first.version, &last.version)?;
            Ok(versions
                .iter()
                .map(|version| release(&first.package, version, &beside))
                .collect())
        }
        (Spec::Revision(good), Spec::Revision(bad)) => {
            let row = commits::between(git, good, bad)?;
            Ok(row.into_iter().map(of_commit).collect())
        }
        _ => Err(SpanError::Kinds {
            good: good.to_string(),
            bad: bad.to_string(),
        }),
    }
}

fn kinds(good: &[Pin], bad: &[Pin]) -> SpanError {
    SpanError::Kinds {
        good: Spec::Release(good.to_vec()).to_string(),
        bad: Spec::Release(bad.to_vec()).to_string(),
    }
}

/// The other packages, each with the version that it keeps; `None`: the first one's.
fn companions(good: &[Pin], bad: &[Pin]) -> Result<Vec<(String, Option<String>)>, SpanError> {
    let lead = &good[0].package;
    let each = good.iter().zip(bad).skip(1);
    each.map(|(ours, theirs)| {
        let package = ours.package.clone();
        let follows = ours.version == good[0].version && theirs.version == bad[0].version;
        match (ours.version == theirs.version, follows) {
            (true, _) => Ok((package, Some(ours.version.clone()))),
            (false, true) => Ok((package, None)),
            (false, false) => Err(SpanError::Companion {
                lead: lead.clone(),
                package,
                good: ours.version.clone(),
                bad: theirs.version.clone(),
            }),
        }
    })
    .collect()
}

fn release(package: &str, version: &str, beside: &[(String, Option<String>)]) -> Version {
    let pin = |package: &str, version: &str| Pin {
        package: package.to_owned(),
        version: version.to_owned(),
    };
    let others = beside
        .iter()
        .map(|(package, own)| pin(package, own.as_deref().unwrap_or(version)));
    let pins = std::iter::once(pin(package, version)).chain(others);
    Version {
        spec: Spec::Release(pins.collect()).to_string(),
        name: format!("{package} {version}"),
        subject: None,
        author: None,
        date: None,
        parents: Vec::new(),
    }
}

/// A commit as one of a row.
pub fn of_commit(commit: Commit) -> Version {
    Version {
        spec: format!("git:{}", commit.id),
        name: commit.short,
        subject: Some(commit.subject),
        author: Some(commit.author),
        date: Some(commit.date),
        parents: commit.parents,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::GitError;

    struct Fake;

    impl Index for Fake {
        fn ask(&self, _: &str, _: bool) -> Result<String, String> {
            Ok("Available versions: 0.5.2, 0.5.1, 0.5.0".to_owned())
        }
    }

    impl Git for Fake {
        fn bytes(&self, _: &[&str]) -> Result<Vec<u8>, GitError> {
            Err(GitError("no checkout".to_owned()))
        }
    }

    fn found(good: &str, bad: &str) -> Result<Vec<String>, String> {
        let (good, bad) = (good.parse().unwrap(), bad.parse().unwrap());
        let row = row(&good, &bad, &Fake, &Fake).map_err(|error| error.to_string())?;
        Ok(row.into_iter().map(|version| version.spec).collect())
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
            let found = found(&good, &good.replace("=0.5.0", "=0.5.2")).unwrap();
            assert_eq!(found.join(" "), row);
        }
        let words = found("pypi:jax==0.5.0,a==1", "pypi:jax==0.5.2,a==3").unwrap_err();
        assert!(
            words.contains("which a goes with each release of jax"),
            "{words}"
        );
    }

    #[test]
    fn ends_without_an_order_are_refused() {
        for (good, bad) in [
            ("env:old", "env:new"),
            ("pypi:jax==0.5.0", "git:HEAD"),
            ("pypi:jax==0.5.0", "pypi:torch==2.0"),
            ("pypi:jax==0.5.0", "pypi:jax==0.5.1,jaxlib==0.5.1"),
            ("here", "git:HEAD"),
        ] {
            let words = found(good, bad).unwrap_err();
            assert!(words.contains("nothing to search"), "{words}");
            assert!(words.contains(bad), "{words}");
        }
        assert!(found("git:a", "git:b").unwrap_err().contains("no checkout"));
    }
}
