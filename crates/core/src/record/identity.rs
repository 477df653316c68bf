//! The identity of a run's code: everything that must stay the same within one run.
//!
//! A stopped run is resumed only if all of this agrees with the present state. Otherwise parts
//! measured on different code would be judged as one run.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::text::is_listed;

/// The identity of a run's code and environment: checksums, commands and variables.
///
/// The revision of the checkout and its uncommitted changes are in [`Git`](super::Git), versions
/// and devices in [`WorkerRecord`](super::WorkerRecord).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Identity {
    /// Checksum of the regatta executable.
    pub executable: String,
    /// The workers, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub workers: BTreeMap<String, WorkerIdentity>,
    /// Checksum of all other environment variables, except those of the caller's session or job.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variables: String,
}

/// The command of a worker, and its files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct WorkerIdentity {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Checksums of its program, of the files its command names and loads, and of the code in
    /// their folders and in those that it imports from: `src/**`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// Variables that the suite sets for it, and others on which its speed may depend
    /// ([`is_kept`]), without secrets ([`secrets`](crate::secrets)).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

/// The suffix of a folder's name that stands for all code in it and below.
pub const BELOW: &str = "/**";

/// Beginnings of the names of variables that libraries of threads, compilers and GPUs read.
const SPEED: &str = include_str!("../speed_variables.txt");

/// Names of variables that change from one session or job to the next, and beginnings of names,
/// where `*` stands. Names that a program under test may read, such as `BUILD_TYPE`, are left out.
const SESSION: &str = "
    BUILD_ID BUILD_NUMBER BUILD_TAG BUILD_URL BUILD_DISPLAY_NAME BUILDKITE_* CI CI_API_* CI_BUILD_*
    CI_COMMIT_* CI_CONCURRENT_* CI_JOB_* CI_MERGE_REQUEST_* CI_PIPELINE_* CI_PROJECT_* CI_RUNNER_*
    CI_SERVER_* COLORTERM COLUMNS CLICOLOR CLICOLOR_FORCE DBUS_* DISPLAY EDITOR FORCE_COLOR
    GITHUB_* GITLAB_* GIT_ASKPASS GIT_AUTHOR_* GIT_BRANCH GIT_COMMIT GIT_COMMITTER_* GIT_EDITOR
    GIT_LOCAL_BRANCH GIT_PAGER GIT_PREVIOUS_* GIT_SSH GIT_SSH_COMMAND GIT_URL GH_* GPG_* HISTCONTROL
    HISTFILE HISTFILESIZE HISTSIZE INVOCATION_ID JOB_BASE_NAME JOB_COMPLETION_INDEX JOB_DISPLAY_URL
    JOB_ID JOB_NAME JOB_URL JOURNAL_STREAM KONSOLE_* LESS LESSCLOSE LESSOPEN LINES LS_COLORS LSB_*
    MAIL NO_COLOR OLDPWD PAGER PBS_* PROMPT PROMPT_COMMAND PS1 PWD RUNNER_* SESSION_* SHLVL SLURM_*
    SLURMD_* SSH_* STY TERM TERMINFO TERM_PROGRAM TERM_PROGRAM_VERSION TERM_SESSION_ID TMUX
    TMUX_PANE VSCODE_* WAYLAND_DISPLAY WINDOWID XDG_*";

/// True for a variable of the caller's session or job, which no program under test reads.
pub fn is_of_session(name: &str) -> bool {
    let mut session = SESSION.split_whitespace();
    name == "_"
        || session.any(|known| match known.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == known,
        })
}

/// Variables that name a place, or choose one of several equal devices.
const PLACES: &str = "
    CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES LD_LIBRARY_PATH
    PYTHONPATH FLASHINFER_WORKSPACE_BASE";

/// Endings of the names of further such variables, and of variables that an image's maker sets.
const PLACE_ENDINGS: &str = "
    _HOME _PATH _DIR _CACHE _VERSION _BUILD _ID _URL _NAME";

/// True for an environment variable that is recorded: a worker's speed may depend on it, or it
/// names a place (`is_place`).
pub fn is_kept(name: &str) -> bool {
    let mut speed = SPEED.split_whitespace();
    speed.any(|beginning| name.starts_with(beginning)) || is_listed(name, PLACES)
}

/// True for a variable by which two runs are not of one configuration.
pub fn decides_speed(name: &str) -> bool {
    is_kept(name) && !is_place(name)
}

/// True for a variable that names a place. A change of one starts a new run; it does not make two
/// runs incomparable, since versions, devices and files identify the contents of that place.
fn is_place(name: &str) -> bool {
    let mut endings = PLACE_ENDINGS.split_whitespace();
    is_listed(name, PLACES) || endings.any(|ending| name.ends_with(ending))
}

impl Identity {
    /// The identity without variables that name places: shards of a run use the paths of their
    /// machines and the devices that are assigned to them.
    pub fn placeless(&self) -> Identity {
        let mut identity = self.clone();
        identity.variables.clear();
        for worker in identity.workers.values_mut() {
            worker.environment.retain(|name, _| decides_speed(name));
        }
        identity
    }

    /// The differences between two identities, as sentences; empty if they are the same.
    pub fn differences(&self, now: &Identity) -> Vec<String> {
        let mut differences = Vec::new();
        let rebuilt = self.executable != now.executable;
        if rebuilt {
            differences.push("the regatta executable changed".to_owned());
        }
        if self.variables != now.variables {
            differences.push("an environment variable of the caller changed".to_owned());
        }
        let names: BTreeSet<&String> = self.workers.keys().chain(now.workers.keys()).collect();
        for name in names {
            match (self.workers.get(name), now.workers.get(name)) {
                // The Python worker is a part of the executable.
                (Some(then), Some(now)) if rebuilt => {
                    differences.extend(then.with_tool_of(now).differences(name, now));
                }
                (Some(then), Some(now)) => differences.extend(then.differences(name, now)),
                (None, _) => differences.push(format!("worker {name} is new")),
                (_, None) => differences.push(format!("worker {name} is gone")),
            }
        }
        differences
    }
}

/// True for a path of regatta's own program or worker.
fn is_tool(word: &str) -> bool {
    word.ends_with("/regatta") || word.contains("/regatta_worker")
}

impl WorkerIdentity {
    /// The same worker with regatta's own paths taken from `now`.
    pub fn with_tool_of(&self, now: &WorkerIdentity) -> WorkerIdentity {
        let mut worker = self.clone();
        for (was, is) in worker.command.iter_mut().zip(&now.command) {
            if is_tool(was) && is_tool(is) {
                was.clone_from(is);
            }
        }
        let tool = now.files.clone().into_iter();
        worker.files.retain(|file, _| !is_tool(file));
        worker.files.extend(tool.filter(|(file, _)| is_tool(file)));
        worker
    }

    /// The files that changed. A folder is listed only if no file in it is.
    pub fn changed_files<'a>(&'a self, now: &'a WorkerIdentity) -> BTreeSet<&'a String> {
        let all = changed(&self.files, &now.files);
        let has_listed = |folder: &str| {
            let mut files = all.iter().filter(|file| !file.ends_with(BELOW));
            files.any(|file| match folder {
                "." => !file.starts_with('/'),
                _ => file
                    .strip_prefix(folder)
                    .is_some_and(|rest| rest.starts_with('/')),
            })
        };
        let is_listed = |file: &&&String| !file.strip_suffix(BELOW).is_some_and(has_listed);
        all.iter().filter(is_listed).copied().collect()
    }

    /// The differences between two ways to start a worker, as sentences.
    pub fn differences(&self, name: &str, now: &WorkerIdentity) -> Vec<String> {
        let mut differences = Vec::new();
        if self.command != now.command {
            let (then, now) = (self.command.join(" "), now.command.join(" "));
            differences.push(format!(
                "the command of worker {name} was `{then}`, is `{now}`"
            ));
        }
        for file in self.changed_files(now) {
            differences.push(format!("{file} of worker {name} changed"));
        }
        for variable in changed(&self.environment, &now.environment) {
            let value = |side: &BTreeMap<String, String>| match side.get(variable) {
                Some(value) => format!("`{value}`"),
                None => "not set".to_owned(),
            };
            differences.push(format!(
                "{variable} of worker {name} was {}, is {}",
                value(&self.environment),
                value(&now.environment)
            ));
        }
        differences
    }
}

/// Keys whose values differ, or that only one side has.
fn changed<'a>(
    then: &'a BTreeMap<String, String>,
    now: &'a BTreeMap<String, String>,
) -> BTreeSet<&'a String> {
    let names = then.keys().chain(now.keys());
    names
        .filter(|name| then.get(*name) != now.get(*name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn what_a_program_may_read_is_not_of_a_session() {
        for name in "BUILD_TYPE CI_MODE JOB_SIZE GIT_LAYOUT TERMS SESSIONS LINES_OF".split(' ') {
            assert!(!is_of_session(name), "{name}");
        }
        for name in "CI CI_JOB_ID GITHUB_RUN_ID JOB_ID TERM SSH_CONNECTION PWD _".split(' ') {
            assert!(is_of_session(name), "{name}");
        }
    }

    #[test]
    fn a_rebuilt_regatta_is_one_difference() {
        let identity = |build: &str| {
            let package = format!("/cache/python-{build}/regatta_worker");
            let worker = WorkerIdentity {
                command: ["python3", &package, "--file", "mine.py"]
                    .map(str::to_owned)
                    .into(),
                files: map(&[
                    (&format!("{package}/main.py"), build),
                    (&format!("{package}/case.py"), "the same"),
                    ("mine.py", "a"),
                ]),
                environment: BTreeMap::new(),
            };
            Identity {
                executable: build.to_owned(),
                workers: BTreeMap::from([("mine".to_owned(), worker)]),
                variables: String::new(),
            }
        };
        let (then, mut now) = (identity("1"), identity("2"));
        let rebuilt = "the regatta executable changed";
        assert_eq!(then.differences(&now), [rebuilt]);
        let files = &mut now.workers.get_mut("mine").unwrap().files;
        files.insert("mine.py".to_owned(), "b".to_owned());
        let differences = [rebuilt, "mine.py of worker mine changed"];
        assert_eq!(then.differences(&now), differences);
    }

    #[test]
    fn every_difference_is_named() {
        let worker = WorkerIdentity {
            command: vec!["perl".to_owned(), "worker.pl".to_owned()],
            files: map(&[("worker.pl", "a"), ("./**", "a"), ("lib/**", "a")]),
            environment: map(&[("OMP_NUM_THREADS", "1")]),
        };
        let then = Identity {
            executable: "a".to_owned(),
            workers: BTreeMap::from([("mine".to_owned(), worker.clone())]),
            variables: "1".to_owned(),
        };
        assert!(then.differences(&then).is_empty());
        let now = Identity {
            executable: "b".to_owned(),
            workers: BTreeMap::from([
                (
                    "mine".to_owned(),
                    WorkerIdentity {
                        command: vec!["perl".to_owned(), "other.pl".to_owned()],
                        files: map(&[("worker.pl", "b"), ("./**", "b"), ("lib/**", "b")]),
                        environment: BTreeMap::new(),
                    },
                ),
                ("other".to_owned(), worker),
            ]),
            variables: "2".to_owned(),
        };
        assert_eq!(
            then.differences(&now),
            [
                "the regatta executable changed",
                "an environment variable of the caller changed",
                "the command of worker mine was `perl worker.pl`, is `perl other.pl`",
                "lib/** of worker mine changed",
                "worker.pl of worker mine changed",
                "OMP_NUM_THREADS of worker mine was `1`, is not set",
                "worker other is new",
            ]
        );
    }
}
