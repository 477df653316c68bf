//! Packages that moved together, and how they are tried apart.
//!
//! A release of one package brings others along: jax brings jaxlib. Which of them made it slower
//! is tried in environments that no resolver would make: all packages as they were, and one of
//! those that moved as it is. They are installed as the locks have them, without dependencies.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::bisect::{CaseReading, TriedOutcome};
use regatta_judge::judgement::Word;
use regatta_worker::attention::CaseId;
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

/// An environment that tries one package apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The package that is as it is after the step.
    pub package: String,
    /// What it is: `jaxlib 0.5.1 with jax 0.5.0`.
    pub name: String,
    /// All that is installed, a requirement each, to be installed without dependencies.
    pub requirements: Vec<String>,
}

/// What came of a trial: it against all as it was before the step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PackageVerdict {
    /// The package that was as it is after the step.
    pub package: String,
    /// What was tried: `jaxlib 0.5.1 with jax 0.5.0`.
    pub name: String,
    /// What the comparison said of the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<CaseReading>,
    /// Why there is no comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// More packages than these are not tried, each alone.
const MOST: usize = 4;

/// The packages of a lock, by name as indexes compare them: its name there, its version, and its
/// line.
fn packages(lock: &str) -> BTreeMap<String, (String, String, String)> {
    let lines = lock.lines().map(str::trim);
    let read = lines.filter_map(|line| {
        let (name, version) = line.split_once("==").or_else(|| line.split_once(" @ "))?;
        let (name, version) = (name.trim(), version.trim());
        let known = name.to_ascii_lowercase().replace(['_', '.'], "-");
        let told = (name.to_owned(), version.to_owned(), line.to_owned());
        (!name.starts_with(['#', '-'])).then_some((known, told))
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
        let version = |of: Option<&(String, String, String)>| of.map(|of| of.1.clone());
        MovedPackage {
            package: is.or(was).map_or_else(String::new, |of| of.0.clone()),
            from: version(was),
            to: version(is),
        }
    });
    each.filter(|moved| moved.from != moved.to).collect()
}

/// The environments that try apart what moved, `lead`'s first: none where it moved alone, or
/// where more moved than can be tried.
pub fn trials(before: &str, after: &str, lead: &str) -> Vec<Trial> {
    let mut moved = moved(before, after);
    let both = |moved: &MovedPackage| moved.from.is_some() && moved.to.is_some();
    moved.retain(both);
    moved.sort_by_key(|moved| !moved.package.eq_ignore_ascii_case(lead));
    if !(2..=MOST).contains(&moved.len()) {
        return Vec::new();
    }
    let (before, after) = (packages(before), packages(after));
    let line = |of: &BTreeMap<String, (String, String, String)>, package: &str| {
        let lines = of.values().filter(|(name, ..)| name == package);
        lines.map(|(.., line)| line.clone()).next()
    };
    let trial = |new: &MovedPackage| {
        let name = |package: &MovedPackage, version: &Option<String>| {
            format!(
                "{} {}",
                package.package,
                version.clone().unwrap_or_default()
            )
        };
        let rest = moved.iter().filter(|other| other.package != new.package);
        let rest: Vec<String> = rest.map(|other| name(other, &other.from)).collect();
        let kept = before
            .values()
            .filter(|(package, ..)| !package.eq_ignore_ascii_case(&new.package));
        let kept = kept.map(|(.., line)| line.clone());
        Trial {
            package: new.package.clone(),
            name: format!("{} with {}", name(new, &new.to), rest.join(", ")),
            requirements: kept.chain(line(&after, &new.package)).collect(),
        }
    };
    moved.iter().map(trial).collect()
}

impl Trial {
    /// What came of it, for the case that is followed.
    pub fn verdict(&self, outcome: &TriedOutcome, case: &CaseId) -> PackageVerdict {
        let found = outcome.cases().iter().find(|of| of.case == *case);
        let measured = found.filter(|of| of.reading.is_some());
        let reason = match (outcome, found) {
            (TriedOutcome::Unusable { reason, .. }, _) => Some(reason.clone()),
            (TriedOutcome::Measured { .. }, Some(of)) if of.reading.is_none() => {
                let unsaid = || "it gave no time".to_owned();
                Some(of.reason.clone().unwrap_or_else(unsaid))
            }
            (TriedOutcome::Measured { .. }, Some(_)) => None,
            (TriedOutcome::Measured { .. }, None) => Some("it gave no time".to_owned()),
        };
        PackageVerdict {
            package: self.package.clone(),
            name: self.name.clone(),
            case: measured.cloned(),
            reason,
        }
    }
}

impl PackageVerdict {
    /// The word of its comparison.
    pub fn word(&self) -> Option<Word> {
        let reading = self.case.as_ref()?.reading?;
        Some(reading.word)
    }
}

impl fmt::Display for PackageVerdict {
    /// `jaxlib 0.5.1 with jax 0.5.0: 72.0 % slower, regressed`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reading = self.case.as_ref().and_then(|case| case.reading);
        f.write_str(&self.name)?;
        match (reading, &self.reason) {
            (Some(of), _) => write!(f, ": {}, {}", of.ratio.told(), of.word.text()),
            (None, Some(reason)) => write!(f, " does not run: {reason}"),
            (None, None) => f.write_str(" was not measured"),
        }
    }
}

/// What follows from all trials, where a change of this word was looked for; `None` where
/// nothing was tried.
pub fn concluded(verdicts: &[PackageVerdict], word: Word) -> Option<String> {
    if verdicts.is_empty() {
        return None;
    }
    let with = |found: Option<Word>| -> Vec<&str> {
        let those = verdicts.iter().filter(|of| of.word() == found);
        those.map(|of| of.package.as_str()).collect()
    };
    let (bring, dumb) = (with(Some(word)), with(None));
    let decided = |of: &PackageVerdict| {
        matches!(
            of.word(),
            Some(Word::Same) | Some(Word::Regressed) | Some(Word::Improved)
        )
    };
    Some(match bring.as_slice() {
        [one] if verdicts.iter().all(decided) => format!("{one} alone brings it"),
        [one] if !dumb.is_empty() => {
            format!(
                "{one} is enough; {} could not be tried alone",
                dumb.join(", ")
            )
        }
        [one] => format!("{one} is enough; of the others it is not decided"),
        [] if verdicts.iter().all(decided) => {
            "none of them alone: they bring it together".to_owned()
        }
        [] if dumb.len() == verdicts.len() => {
            "none of them runs with the others as they were: they go together".to_owned()
        }
        [] => "which of them brings it is not known".to_owned(),
        several => format!("each of {} brings it alone", several.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::case_reading;
    use regatta_core::record::header::TurnSide;

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

    #[test]
    fn each_of_those_that_moved_is_tried_with_the_others_as_they_were() {
        let found = trials(OLD, NEW, "jaxlib");
        let names: Vec<&str> = found.iter().map(|trial| trial.name.as_str()).collect();
        let wanted = ["jaxlib 0.5.1 with jax 0.5.0", "jax 0.5.1 with jaxlib 0.5.0"];
        assert_eq!(names, wanted);
        let mut lines = found[0].requirements.clone();
        lines.sort();
        let wanted = "jax==0.5.0 jaxlib==0.5.1 mine @ file:///w/mine-1.whl ml_dtypes==0.4.0 \
                      numpy==2.1.0";
        assert_eq!(lines.join(" "), wanted);
        // One that moved alone needs no trial, and ten would be ten environments.
        assert!(trials("a==1\n", "a==2\n", "a").is_empty());
        let many =
            |version: u32| -> String { (0..10).map(|n| format!("p{n}=={version}\n")).collect() };
        assert!(trials(&many(1), &many(2), "p0").is_empty());
    }

    fn verdict(package: &str, word: Option<Word>) -> PackageVerdict {
        let trial = Trial {
            package: package.to_owned(),
            name: format!("new {package}"),
            requirements: Vec::new(),
        };
        let case = CaseId("case".to_owned());
        let found = case_reading("case", word.map(|word| (1.5, 1.07, word)));
        trial.verdict(&TriedOutcome::Measured { cases: vec![found] }, &case)
    }

    #[test]
    fn what_follows_is_no_more_than_was_shown() {
        use Word::{Inconclusive, Regressed, Same};
        let (same, slower) = (Some(Same), Some(Regressed));
        #[rustfmt::skip]
        let all = [
            (same, slower, "b alone brings it"),
            (None, slower, "b is enough; a could not be tried alone"),
            (Some(Inconclusive), slower, "b is enough; of the others it is not decided"),
            (same, same, "none of them alone: they bring it together"),
            (same, None, "which of them brings it is not known"),
            (slower, slower, "each of a, b brings it alone"),
            (None, None, "none of them runs with the others as they were: they go together"),
        ];
        for (a, b, said) in all {
            let verdicts = [verdict("a", a), verdict("b", b)];
            assert_eq!(concluded(&verdicts, Regressed).unwrap(), said);
        }
        assert_eq!(concluded(&[], Regressed), None);
    }

    #[test]
    fn what_does_not_run_says_why() {
        let trial = &trials(OLD, NEW, "jax")[1];
        let outcome = TriedOutcome::Unusable {
            side: TurnSide::Head,
            reason: "jaxlib version 0.5.1 is newer than jax 0.5.0".to_owned(),
        };
        let told = trial
            .verdict(&outcome, &CaseId("case".to_owned()))
            .to_string();
        assert_eq!(
            told,
            "jaxlib 0.5.1 with jax 0.5.0 does not run: jaxlib version 0.5.1 is newer than jax 0.5.0"
        );
        assert!(verdict("a", None).to_string().contains("it gave no time"));
        let told = verdict("a", Some(Word::Regressed)).to_string();
        assert_eq!(told, "new a: 50.0 % slower, regressed");
    }
}
