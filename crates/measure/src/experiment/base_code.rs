//! Where the code of a baseline is: here, at a revision, or in releases that a lock lists.

use std::path::Path;

use super::request::Request;
use crate::declared::OWN;
use crate::versions::spec::Spec;
use regatta_core::names::plain_name;
use regatta_core::output;
use regatta_core::record::header::RunHeader;
use regatta_worker::attention::Case;

/// The code of a baseline.
pub struct Code {
    /// How to have it.
    pub specs: Vec<Spec>,
    /// What to call it.
    pub told: String,
    /// Values that were set for it.
    set: Vec<String>,
}

impl Code {
    /// True where it is the code of the head.
    pub fn is_here(&self) -> bool {
        self.specs == [Spec::Here]
    }

    /// What is asked for, with the values that the baseline was measured with.
    pub fn request(&self, request: &Request) -> Request {
        let switches = request.set.iter().filter(|set| !set.contains('/'));
        Request {
            set: switches.chain(&self.set).cloned().collect(),
            ..request.clone()
        }
    }
}

/// The code of a baseline, where it can be had for a comparison with `head`, whose reports go to
/// `directory`: there a lock is written.
///
/// # Errors
/// Why it cannot, in a line.
pub fn at_hand(base: &RunHeader, head: &RunHeader, directory: &Path) -> Result<Code, String> {
    let words = base.suite.arguments.windows(2);
    let set = words
        .filter(|two| two[0] == "--set")
        .map(|two| two[1].clone());
    let code = |specs: Vec<Spec>, told: &str| Code {
        specs,
        told: told.to_owned(),
        set: set.clone().collect(),
    };
    let git = |header: &RunHeader| {
        let git = header.git.as_ref();
        git.map(|git| (git.revision.clone(), git.dirty, git.changes.clone()))
    };
    let (Some(was), Some(is)) = (&base.identity, &head.identity) else {
        return Err("the baseline does not tell which files it is of".to_owned());
    };
    let changed = was.differences(is);
    let mut packages = Vec::new();
    for worker in &base.workers {
        let now = head.workers.iter().find(|now| now.name == worker.name);
        if now.is_some_and(|now| now.packages != worker.packages) {
            packages.push(worker);
        }
    }
    // Variants of this program are all in its file. Of other code much stays unseen: a variable of
    // the environment, a file beside it. If that made it slower, it is as slow beside itself.
    let own = |case: &Case| OWN.contains(&case.variant.worker.as_str());
    let own_alone = (head.plan.iter()).all(|id| id.case().is_ok_and(|case| own(&case)));
    if changed.is_empty() && packages.is_empty() {
        if own_alone {
            return Ok(code(vec![Spec::Here], "the same program"));
        }
        if git(base) == git(head) {
            return Err(
                "no change of the code is known, so pairs would measure it beside itself"
                    .to_owned(),
            );
        }
    }
    let mut specs = Vec::new();
    let mut told = Vec::new();
    if git(base) != git(head) || !changed.is_empty() {
        let Some(git) = base.git.as_ref().filter(|git| !git.dirty) else {
            let first = changed.first().cloned();
            let first = first.unwrap_or_else(|| "the checkout changed".to_owned());
            return Err(format!("{first}, and the baseline is of no clean revision"));
        };
        specs.push(Spec::Revision(git.revision.clone()));
        told.push(format!(
            "revision {}",
            base.git
                .as_ref()
                .map(regatta_judge::revision_text)
                .unwrap_or_default()
        ));
    }
    match packages.as_slice() {
        [] => {}
        [worker] => {
            if worker.packages.is_empty() {
                return Err(format!(
                    "the baseline does not list the packages of {}",
                    worker.name
                ));
            }
            let path = directory.join(format!("baseline-{}.txt", plain_name(&worker.name)));
            let lines = worker
                .packages
                .iter()
                .map(|(name, version)| format!("{name}=={version}\n"));
            let text: String = lines.collect();
            output::write(&path, text.as_bytes()).map_err(|error| error.to_string())?;
            specs.push(Spec::Lock(path.display().to_string()));
            told.push(format!("the packages of {}", worker.name));
        }
        several => {
            let names: Vec<&str> = several.iter().map(|worker| worker.name.as_str()).collect();
            return Err(format!(
                "the packages of {} changed, and one lock is made",
                names.join(", ")
            ));
        }
    }
    Ok(code(specs, &told.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::record::header::{Git, WorkerRecord};
    use regatta_core::record::identity::{Identity, WorkerIdentity};
    use regatta_core::record::testing::header;
    use regatta_worker::attention::CaseId;

    type Change = fn(&mut RunHeader);

    /// A run of two Python workers at a clean revision.
    fn measured(change: Change) -> RunHeader {
        let worker = |name: &str| WorkerRecord {
            name: name.to_owned(),
            packages: [("numpy".to_owned(), "2.0".to_owned())].into(),
            ..header().workers.remove(0)
        };
        let mut header = header();
        header.workers = ["torch@old", "jax"].map(worker).into();
        header.plan = vec![CaseId("torch/sdpa@old:s64,d64".to_owned())];
        header.git = Some(Git {
            revision: "a".repeat(40),
            dirty: false,
            changes: None,
        });
        header.identity = Some(Identity {
            executable: "1".to_owned(),
            workers: [("jax".to_owned(), WorkerIdentity::default())].into(),
        });
        change(&mut header);
        header
    }

    fn git(header: &mut RunHeader) -> &mut Git {
        header.git.as_mut().unwrap()
    }

    fn package(header: &mut RunHeader, worker: usize) {
        let packages = &mut header.workers[worker].packages;
        packages.insert("numpy".to_owned(), "2.1".to_owned());
    }

    /// What the code of a baseline is called, or why it cannot be had.
    fn told(base: &RunHeader, head: &RunHeader) -> String {
        let folder = tempfile::tempdir().unwrap();
        match at_hand(base, head, folder.path()) {
            Ok(code) => {
                assert_eq!(code.is_here(), code.told == "the same program");
                code.told
            }
            Err(why) => why,
        }
    }

    #[test]
    fn a_baselines_code_is_here_at_a_revision_or_in_a_lock() {
        let elsewhere = |header: &mut RunHeader| git(header).revision = "b".repeat(40);
        let dirty = |header: &mut RunHeader| git(header).dirty = true;
        let built = |header: &mut RunHeader| {
            header.identity.as_mut().unwrap().executable = "2".to_owned();
        };
        let unknown = "no change of the code is known, so pairs would measure it beside itself";
        let revision = "revision aaaaaaaaaaaa";
        let rows: [(Change, Change, &str); 13] = [
            (|_| {}, |_| {}, unknown),
            (dirty, dirty, unknown),
            (|_| {}, elsewhere, revision),
            (|_| {}, dirty, revision),
            (|_| {}, built, revision),
            (
                dirty,
                |_| {},
                "the checkout changed, and the baseline is of no clean revision",
            ),
            (
                |header| header.git = None,
                built,
                "the regatta executable changed, and the baseline is of no clean revision",
            ),
            (
                |_| {},
                |header| package(header, 0),
                "the packages of torch@old",
            ),
            (
                |_| {},
                |header| {
                    git(header).dirty = true;
                    package(header, 1);
                },
                "revision aaaaaaaaaaaa and the packages of jax",
            ),
            (
                |_| {},
                |header| {
                    package(header, 0);
                    package(header, 1);
                },
                "the packages of torch@old, jax changed, and one lock is made",
            ),
            (
                |header| header.workers[1].packages.clear(),
                |_| {},
                "the baseline does not list the packages of jax",
            ),
            (
                |header| header.identity = None,
                |_| {},
                "the baseline does not tell which files it is of",
            ),
            // A revision that changed nothing that is measured.
            (
                |_| {},
                |header| {
                    git(header).revision = "b".repeat(40);
                    header.plan = vec![CaseId("cpu/flash:s64,d64".to_owned())];
                },
                "the same program",
            ),
        ];
        for (place, (base, head, wanted)) in rows.into_iter().enumerate() {
            assert_eq!(told(&measured(base), &measured(head)), wanted, "{place}");
        }
    }

    #[test]
    fn a_lock_lists_what_the_baseline_had_and_its_values_are_set_again() {
        let folder = tempfile::tempdir().unwrap();
        let base = measured(|header| {
            let words = ["quick", "--set", "torch/sdpa@old.n=2"];
            header.suite.arguments = words.map(str::to_owned).into();
        });
        let head = measured(|header| package(header, 0));
        let code = at_hand(&base, &head, folder.path()).ok().unwrap();
        let path = folder.path().join("baseline-torch-old.txt");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "numpy==2.0\n");
        assert_eq!(code.specs, [Spec::Lock(path.display().to_string())]);
        assert_eq!(code.set, ["torch/sdpa@old.n=2"]);
    }
}
