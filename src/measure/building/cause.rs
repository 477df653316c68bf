//! Why a build leaves cores idle: only what was seen of its processes, never a guess.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A build leaves cores idle where it uses at most this part of them.
const IDLE: f64 = 0.6;

/// A limit of so many jobs explains a build that used up to so much more of the cores, since
/// what is around the jobs works too, and at least half of them.
const AROUND: f64 = 0.5;

/// What a process of a build shows about how many jobs there are at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hint {
    /// A `setup.py` runs that would hand its files to ninja, and there is none.
    NoNinja,
    /// ninja runs.
    Ninja,
    /// There are at most so many jobs, because of this.
    Jobs {
        /// `MAX_JOBS=1`, `make -j1`.
        words: String,
        /// How many.
        most: u32,
    },
    /// make runs, one job after another.
    SerialMake,
    /// make runs, with several jobs.
    ParallelMake,
}

/// A process of a build.
#[derive(Clone, Debug, Default)]
pub(super) struct Tool {
    /// Its command line.
    pub(super) words: Vec<String>,
    /// Its environment, as it was started.
    pub(super) variables: BTreeMap<String, String>,
    /// True where it is a Python in a folder whose `setup.py` uses ninja where it is there.
    pub(super) wants_ninja: bool,
    /// True where ninja can be started or imported by it.
    pub(super) has_ninja: bool,
}

impl Tool {
    /// The name of its program, or of the script that an interpreter runs.
    pub(super) fn is(&self, name: &str) -> bool {
        let mut words = self.words.iter().take(2).map(Path::new);
        words.any(|word| word.file_name().is_some_and(|file| file == name))
    }

    /// True where pip builds a wheel in it, by a build backend or as it did before.
    pub(super) fn builds_wheel(&self) -> bool {
        let mut words = self.words.iter();
        words.any(|word| ["build_wheel", "bdist_wheel"].contains(&word.as_str()))
    }

    /// What it shows.
    pub(super) fn hints(&self) -> Vec<Hint> {
        let mut hints = Vec::new();
        if self.wants_ninja && !self.has_ninja {
            hints.push(Hint::NoNinja);
        }
        // What PyTorch's and others' extensions hand on to ninja.
        if self.wants_ninja && self.has_ninja {
            hints.extend(self.variable("MAX_JOBS"));
        }
        if self.is("cmake") {
            hints.extend(self.variable("CMAKE_BUILD_PARALLEL_LEVEL"));
        }
        let jobs = jobs(self.words.iter().map(String::as_str));
        let asked = |tool: &str| match jobs {
            Some(Some(most)) => vec![Hint::Jobs {
                words: format!("{tool} -j{most}"),
                most,
            }],
            _ => Vec::new(),
        };
        if self.is("ninja") {
            hints.push(Hint::Ninja);
            hints.extend(asked("ninja"));
        }
        if self.is("cargo") {
            match asked("cargo") {
                asked if asked.is_empty() => hints.extend(self.variable("CARGO_BUILD_JOBS")),
                asked => hints.extend(asked),
            }
        }
        if self.is("make") || self.is("gmake") {
            let flags = self.variables.get("MAKEFLAGS").map_or("", String::as_str);
            let handed_on = self::jobs(flags.split_whitespace());
            match jobs.or(handed_on) {
                None => hints.push(Hint::SerialMake),
                Some(most) => {
                    hints.push(Hint::ParallelMake);
                    let words = |most: u32| format!("make -j{most}");
                    hints.extend(most.map(|most| Hint::Jobs {
                        words: words(most),
                        most,
                    }));
                }
            }
        }
        hints
    }

    /// A number of jobs that a variable sets.
    fn variable(&self, name: &str) -> Option<Hint> {
        let most = self.variables.get(name)?.trim().parse().ok()?;
        Some(Hint::Jobs {
            words: format!("{name}={most}"),
            most,
        })
    }
}

/// The jobs that make, ninja or cargo are asked for: `Some(None)` for as many as there are.
fn jobs<'a>(words: impl Iterator<Item = &'a str>) -> Option<Option<u32>> {
    let words: Vec<&str> = words.collect();
    let (at, value) = words.iter().enumerate().find_map(|(at, word)| {
        let value = word
            .strip_prefix("-j")
            .or_else(|| word.strip_prefix("--jobs"))?;
        Some((at, value.trim_start_matches('=')))
    })?;
    let next = || words.get(at + 1)?.parse().ok();
    match value.is_empty() {
        true => Some(next()),
        // `--jobserver-auth`, or a word that only begins so.
        false => Some(value.parse().ok()),
    }
}

/// How often what was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    looks: u32,
    hints: BTreeMap<Hint, u32>,
}

impl Seen {
    /// Adds one look at a build.
    pub(super) fn add(&mut self, hints: &BTreeSet<Hint>) {
        self.looks += 1;
        for hint in hints {
            *self.hints.entry(hint.clone()).or_default() += 1;
        }
    }

    /// True for what was there for half of the time: what came and went is no cause of it all.
    fn mostly(&self, hint: &Hint) -> bool {
        self.hints
            .get(hint)
            .is_some_and(|count| 2 * count >= self.looks)
    }

    fn ever(&self, hint: &Hint) -> bool {
        self.hints.contains_key(hint)
    }

    /// Why so few of the cores were busy, where they were few and it was seen.
    pub(super) fn cause(&self, busy: f64, cores: u32) -> Option<String> {
        if busy > IDLE * f64::from(cores) {
            return None;
        }
        if self.mostly(&Hint::NoNinja) && !self.ever(&Hint::Ninja) {
            return Some("ninja is not there".to_owned());
        }
        let limits = self.hints.keys().filter(|hint| self.mostly(hint));
        let limit = limits.filter_map(|hint| match hint {
            Hint::Jobs { words, most } => Some((*most, words)),
            _ => None,
        });
        // The tightest; of equals a variable, by whose name it is found again.
        let limit = limit.min_by_key(|(most, words)| (*most, words.contains(' ')));
        if let Some((most, words)) = limit
            && most < cores
            && (f64::from(most) / 2.0..=f64::from(most) + AROUND).contains(&busy)
        {
            return Some(words.clone());
        }
        let serial = self.mostly(&Hint::SerialMake) && !self.ever(&Hint::ParallelMake);
        (serial && busy <= 1.0 + AROUND).then(|| "make runs without -j".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(words: &[&str], variables: &[(&str, &str)]) -> Tool {
        let owned = |word: &&str| (*word).to_owned();
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Tool {
            words: words.iter().map(owned).collect(),
            variables: variables.iter().map(pair).collect(),
            ..Tool::default()
        }
    }

    /// What is said of a build of these processes on 64 cores, of which so many were busy.
    fn said(busy: f64, tools: &[Tool]) -> Option<String> {
        let mut seen = Seen::default();
        seen.add(&tools.iter().flat_map(Tool::hints).collect());
        seen.cause(busy, 64)
    }

    fn setup_py(has_ninja: bool, variables: &[(&str, &str)]) -> Tool {
        Tool {
            wants_ninja: true,
            has_ninja,
            ..tool(&["python3", "setup.py", "bdist_wheel"], variables)
        }
    }

    #[test]
    fn ninja_is_missed_only_where_a_build_would_use_it_and_it_is_not_there() {
        let missing = said(1.0, &[setup_py(false, &[])]);
        assert_eq!(missing.as_deref(), Some("ninja is not there"));
        assert_eq!(said(1.0, &[setup_py(true, &[])]), None);
        assert_eq!(said(1.0, &[tool(&["python3", "setup.py"], &[])]), None);
        // It came from somewhere after all.
        let found = tool(&["/tmp/overlay/bin/ninja", "-v"], &[]);
        assert_eq!(said(1.0, &[setup_py(false, &[]), found]), None);
        // And nothing is wrong with a build that keeps the cores busy.
        assert_eq!(said(40.0, &[setup_py(false, &[])]), None);
    }

    #[test]
    fn a_limit_on_jobs_is_named_where_it_was_the_limit() {
        let one = |tool: Tool, busy| said(busy, &[tool]);
        let jobs = || setup_py(true, &[("MAX_JOBS", "2")]);
        assert_eq!(one(jobs(), 1.9).as_deref(), Some("MAX_JOBS=2"));
        for other in [0.6, 9.0] {
            assert_eq!(one(jobs(), other), None);
        }
        let cmake = || {
            tool(
                &["cmake", "--build", "."],
                &[("CMAKE_BUILD_PARALLEL_LEVEL", "1")],
            )
        };
        let called = said(1.0, &[cmake(), tool(&["/usr/bin/make", "-j1"], &[])]);
        assert_eq!(called.as_deref(), Some("CMAKE_BUILD_PARALLEL_LEVEL=1"));
        let cargo = |words: &[&str]| one(tool(words, &[("CARGO_BUILD_JOBS", "1")]), 1.0);
        assert_eq!(
            cargo(&["cargo", "build"]).as_deref(),
            Some("CARGO_BUILD_JOBS=1")
        );
        assert_eq!(
            cargo(&["cargo", "build", "-j", "2"]).as_deref(),
            Some("cargo -j2")
        );
        let ninja = one(tool(&["ninja", "-j1"], &[]), 1.0);
        assert_eq!(ninja.as_deref(), Some("ninja -j1"));
        assert_eq!(one(tool(&["ninja", "-j64"], &[]), 1.0), None);
    }

    #[test]
    fn make_is_serial_unless_somebody_says_otherwise() {
        let make = |words: &[&str], flags: &str| said(1.0, &[tool(words, &[("MAKEFLAGS", flags)])]);
        assert_eq!(
            make(&["make", "all"], "").as_deref(),
            Some("make runs without -j")
        );
        assert_eq!(make(&["gmake", "-j", "1"], "").as_deref(), Some("make -j1"));
        assert_eq!(make(&["make", "--jobs=1"], "").as_deref(), Some("make -j1"));
        assert_eq!(make(&["make", "-j"], ""), None);
        assert_eq!(make(&["make"], " -j16 --jobserver-auth=3,4 -- A=1"), None);
        assert_eq!(make(&["make"], "--jobserver-auth=fifo:/tmp/x"), None);
        assert_eq!(said(3.0, &[tool(&["make"], &[])]), None);
    }

    #[test]
    fn what_was_there_for_a_moment_is_no_cause() {
        let mut seen = Seen::default();
        for look in 0..10 {
            let hints = if look < 4 {
                vec![Hint::SerialMake]
            } else {
                Vec::new()
            };
            seen.add(&hints.into_iter().collect());
        }
        assert_eq!(seen.cause(1.0, 64), None);
        seen.add(&[Hint::SerialMake].into());
        seen.add(&[Hint::SerialMake].into());
        assert_eq!(seen.cause(1.0, 64).as_deref(), Some("make runs without -j"));
    }

    #[test]
    fn pip_builds_a_wheel_by_its_backend_or_as_it_did() {
        let hook = ["python", "/x/_in_process.py", "build_wheel", "/tmp/y"];
        assert!(tool(&hook, &[]).builds_wheel());
        assert!(tool(&["python", "-c", "..", "bdist_wheel", "-d"], &[]).builds_wheel());
        let metadata = [
            "python",
            "/x/_in_process.py",
            "prepare_metadata_for_build_wheel",
        ];
        assert!(!tool(&metadata, &[]).builds_wheel());
    }
}
