//! Finds the code of a baseline, if it is available: here, at a revision, or in releases that a
//! lock lists.

use std::path::Path;

use super::MeasureOptions;
use crate::versions::Spec;
use crate::workers::OWN;
use regatta_core::output;
use regatta_core::record::identity::WorkerIdentity;
use regatta_core::record::{RunHeader, Side};
use regatta_core::suite::Metric;
use regatta_core::text::plain_name;
use regatta_judge as judge;
use regatta_worker::case::CaseId;

/// The available code of a baseline.
pub(super) struct BaseCode {
    /// The versions with which to measure it.
    pub(super) specs: Vec<Spec>,
    /// The label.
    pub(super) name: String,
    /// Values of parameters that were set for it.
    set: Vec<String>,
}

impl BaseCode {
    /// True if it is also the head's code.
    pub(super) fn is_here(&self) -> bool {
        self.specs == [Spec::Here]
    }

    /// The request, with the parameter values of the baseline.
    pub(super) fn request(&self, request: &MeasureOptions) -> MeasureOptions {
        let switches = request.set.iter().filter(|set| !set.contains('/'));
        MeasureOptions {
            set: switches.chain(&self.set).cloned().collect(),
            ..request.clone()
        }
    }
}

/// Finds the code of the baseline `base` for a comparison with `head`. `directory` is the folder of
/// the head's reports; a lock is written there.
///
/// # Errors
/// The reason for which the code is not available, in a line.
pub(super) fn base_code(
    base: &RunHeader,
    head: &RunHeader,
    directory: &Path,
) -> Result<BaseCode, String> {
    let words = base.suite.arguments.windows(2);
    let set = words
        .filter(|two| two[0] == "--set")
        .map(|two| two[1].clone());
    let code = |specs: Vec<Spec>, name: &str| BaseCode {
        specs,
        name: name.to_owned(),
        set: set.clone().collect(),
    };
    let git = |header: &RunHeader| {
        let git = header.git.as_ref();
        git.map(|git| (git.revision.clone(), git.dirty, git.changes.clone()))
    };
    let is_own = |id: &CaseId| {
        let case = id.case();
        case.is_ok_and(|case| OWN.contains(&case.variant.worker.as_str()))
    };
    let (Some(was), Some(is)) = (&base.identity, &head.identity) else {
        return Err("the baseline does not tell which files it is of".to_owned());
    };
    let mut changed = Vec::new();
    for (name, was) in &was.workers {
        let Some(is) = is.workers.get(name) else {
            continue;
        };
        let was = was.with_tool_of(is);
        let files = was.changed_files(is);
        // Relative paths are below the revision's root. Other files are the same on both sides.
        let elsewhere = files.iter().find(|file| Path::new(file).is_absolute());
        let started = WorkerIdentity {
            files: is.files.clone(),
            ..was.clone()
        };
        if let Some(file) = elsewhere {
            return Err(format!(
                "{file} of worker {name} changed, which no revision has"
            ));
        }
        if let Some(first) = started.differences(name, is).into_iter().next() {
            return Err(format!("{first}, which no revision changes back"));
        }
        changed.extend(
            files
                .into_iter()
                .map(|file| format!("{file} of worker {name} changed")),
        );
    }
    // Variants of this executable have all of their code in its file.
    if was.executable != is.executable && head.plan.iter().any(is_own) {
        changed.push("the regatta executable changed".to_owned());
    }
    let mut packages = Vec::new();
    for worker in &base.workers {
        let now = head.workers.iter().find(|now| now.name == worker.name);
        if now.is_some_and(|now| now.packages != worker.packages) {
            packages.push(worker);
        }
    }
    if changed.is_empty() && packages.is_empty() {
        if head.plan.iter().all(is_own) {
            return Ok(code(vec![Spec::Here], "the same program"));
        }
        // A variable may have caused the slowdown, and would then slow both sides.
        return Err(
            "no change of the code is known, so pairs would measure it beside itself".to_owned(),
        );
    }
    let mut specs = Vec::new();
    let mut names = Vec::new();
    if git(base) != git(head) || !changed.is_empty() {
        let Some(git) = base.git.as_ref().filter(|git| !git.dirty) else {
            let first = changed.first().cloned();
            let first = first.unwrap_or_else(|| "the checkout changed".to_owned());
            return Err(format!("{first}, and the baseline is of no clean revision"));
        };
        specs.push(Spec::Revision(git.revision.clone()));
        names.push(format!("revision {}", judge::revision_text(git)));
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
            names.push(format!("the packages of {}", worker.name));
        }
        several => {
            let several: Vec<&str> = several.iter().map(|worker| worker.name.as_str()).collect();
            return Err(format!(
                "the packages of {} changed, and one lock is made",
                several.join(", ")
            ));
        }
    }
    Ok(code(specs, &names.join(" and ")))
}

/// The base of a pair may be slower than the stored run of its revision by this many thresholds,
/// and at least by this share. A smaller difference may come from another day or from other
/// programs, and does not show that the code differs.
const MAX_THRESHOLDS: f64 = 10.0;
const MIN_SHARE: f64 = 0.5;

/// The reason for which the base of a pair is not the code of the stored run of the same revision.
/// `None` if it may be. The code differs if a case takes far longer than in the stored run while
/// the head's time hardly changes: the worktree then lacks something that made the revision fast,
/// such as an extension that was built in place. The arguments are the stored run and the base in
/// pairs, then the head alone and in pairs.
pub(super) fn not_as_stored([stored, base]: [&Side; 2], heads: [&Side; 2]) -> Option<String> {
    let metric = Metric::Device;
    let median = |side: &Side, case: &CaseId| side.cases.get(case)?.median(metric);
    let threshold = stored.header.rules.policy.threshold_of(metric).0;
    let limit = 1.0 + (MAX_THRESHOLDS * threshold).max(MIN_SHARE);
    base.cases.keys().find_map(|case| {
        let (was, is) = (median(stored, case)?, median(base, case)?);
        // Other programs slow the head down too.
        let [alone, in_pairs] = heads.map(|head| median(head, case));
        let load = alone
            .zip(in_pairs)
            .map_or(1.0, |(alone, pairs)| pairs / alone);
        (is > limit * was * load.max(1.0)).then(|| {
            format!(
                "{case} takes {} in the base's worktree, and took {} in the stored run of the same \
                 revision, so the worktree runs other code; give the suite a [build] that makes \
                 what is missing there",
                metric.value(is),
                metric.value(was)
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use regatta_core::record::identity::Identity;
    use regatta_core::record::testing::header;
    use regatta_core::record::{Git, WorkerRecord};

    /// A run of two Python workers at a clean revision.
    fn measured(change: impl FnOnce(&mut RunHeader)) -> RunHeader {
        let worker = |name: &str| WorkerRecord {
            name: name.to_owned(),
            packages: [("numpy".to_owned(), "2.0".to_owned())].into(),
            ..header().workers.remove(0)
        };
        let mut header = header();
        header.workers = ["torch@old", "jax"].map(worker).into();
        header.plan = vec![CaseId("torch/sdpa@old:s64,d64".into())];
        header.git = Some(Git {
            revision: "a".repeat(40),
            dirty: false,
            changes: None,
        });
        header.identity = Some(Identity {
            executable: "1".to_owned(),
            workers: [("jax".to_owned(), WorkerIdentity::default())].into(),
            ..Identity::default()
        });
        change(&mut header);
        header
    }

    fn worker(header: &mut RunHeader) -> &mut WorkerIdentity {
        let identity = header.identity.as_mut().unwrap();
        identity.workers.get_mut("jax").unwrap()
    }

    fn git(header: &mut RunHeader) -> &mut Git {
        header.git.as_mut().unwrap()
    }

    fn package(header: &mut RunHeader, worker: usize) {
        let packages = &mut header.workers[worker].packages;
        packages.insert("numpy".to_owned(), "2.1".to_owned());
    }

    /// The label of a baseline's code, or the reason for which it cannot be measured.
    fn name_or_reason(base: &RunHeader, head: &RunHeader) -> String {
        let folder = tempfile::tempdir().unwrap();
        match base_code(base, head, folder.path()) {
            Ok(code) => {
                assert_eq!(code.is_here(), code.name == "the same program");
                code.name
            }
            Err(why) => why,
        }
    }

    /// Applies a named change to a run.
    fn change(header: &mut RunHeader, word: &str) {
        let set = |of: &mut BTreeMap<String, String>, name: &str| {
            of.insert(name.to_owned(), "2".to_owned());
        };
        match word {
            "elsewhere" => git(header).revision = "b".repeat(40),
            "dirty" => git(header).dirty = true,
            "no-git" => header.git = None,
            "own" => header.plan = vec![CaseId("cpu/flash:s64,d64".into())],
            "tool" => header.identity.as_mut().unwrap().executable = "2".to_owned(),
            "no-identity" => header.identity = None,
            "edited" => set(&mut worker(header).files, "a.py"),
            "outside" => set(&mut worker(header).files, "/lib/a.py"),
            "variable" => set(&mut worker(header).environment, "SCALE"),
            "command" => worker(header).command.push("--slow".to_owned()),
            "torch" => package(header, 0),
            "jax" => package(header, 1),
            "no-packages" => header.workers[1].packages.clear(),
            _ => panic!("{word}"),
        }
    }

    /// Changes of the base's run and of the head's run, then the label of the base's code or the
    /// reason why it is unknown. `elsewhere own` is another revision in which no measured code
    /// changed.
    const CODE: &str = "
        ; => no change of the code is known, so pairs would measure it beside itself
        dirty; dirty => no change of the code is known, so pairs would measure it beside itself
        ; elsewhere => no change of the code is known, so pairs would measure it beside itself
        ; dirty => no change of the code is known, so pairs would measure it beside itself
        ; tool => no change of the code is known, so pairs would measure it beside itself
        ; tool own => revision aaaaaaaaaaaa
        ; edited => revision aaaaaaaaaaaa
        ; outside => /lib/a.py of worker jax changed, which no revision has
        ; edited variable => SCALE of worker jax was not set, is `2`, which no revision changes back
        ; command => the command of worker jax was ``, is `--slow`, which no revision changes back
        dirty; edited => a.py of worker jax changed, and the baseline is of no clean revision
        no-git; tool own => the regatta executable changed, and the baseline is of no clean revision
        ; torch => the packages of torch@old
        ; dirty jax => revision aaaaaaaaaaaa and the packages of jax
        ; torch jax => the packages of torch@old, jax changed, and one lock is made
        no-packages; => the baseline does not list the packages of jax
        no-identity; => the baseline does not tell which files it is of
        ; elsewhere own => the same program";

    #[test]
    fn a_baselines_code_is_here_at_a_revision_or_in_a_lock() {
        for line in CODE.trim().lines() {
            let (changes, wanted) = line.split_once("=> ").unwrap();
            let run = |words: &str| {
                let words = words.split_whitespace();
                measured(|header| words.for_each(|word| change(header, word)))
            };
            let (base, head) = changes.split_once(';').unwrap();
            assert_eq!(name_or_reason(&run(base), &run(head)), wanted, "{changes}");
        }
    }

    #[test]
    fn a_base_far_slower_than_its_stored_run_is_other_code_unless_the_head_is_as_well() {
        let side = |ns: f64| {
            use regatta_core::record::testing::{around, side};
            side("", vec![("mine/f:s64,d64", around(ns))])
        };
        let reason = |[stored, base, alone, pairs]: [f64; 4]| {
            not_as_stored([&side(stored), &side(base)], [&side(alone), &side(pairs)])
        };
        // Three times as slow; an unchanged base; a slow machine; a slow machine and other code.
        let words = reason([100e3, 300e3, 150e3, 150e3]).unwrap();
        assert!(words.contains("takes 300.0 µs in the base's"), "{words}");
        assert!(words.contains("took 100.0 µs in the stored"), "{words}");
        assert_eq!(reason([100e3, 140e3, 150e3, 150e3]), None);
        assert_eq!(reason([100e3, 300e3, 150e3, 450e3]), None);
        assert!(reason([100e3, 600e3, 150e3, 300e3]).is_some());
        assert_eq!(reason([100e3, 20e3, 100e3, 100e3]), None);
    }

    #[test]
    fn a_lock_lists_what_the_baseline_had_and_its_values_are_set_again() {
        let folder = tempfile::tempdir().unwrap();
        let base = measured(|header| {
            let words = ["quick", "--set", "torch/sdpa@old.n=2"];
            header.suite.arguments = words.map(str::to_owned).into();
        });
        let head = measured(|header| package(header, 0));
        let code = base_code(&base, &head, folder.path()).ok().unwrap();
        let path = folder.path().join("baseline-torch-old.txt");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "numpy==2.0\n");
        assert_eq!(code.specs, [Spec::Lock(path.display().to_string())]);
        assert_eq!(code.set, ["torch/sdpa@old.n=2"]);
    }
}
