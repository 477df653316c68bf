//! The processes of a build, as `/proc` shows them: proc_pid_stat(5), proc_pid_statm(5),
//! proc_pid_environ(5).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::unistd::{SysconfVar, sysconf};

use super::cause::{Hint, Tool};
use super::watch::Look;
use crate::input;
use crate::measure::counters::{process_ticks, tick_ns};
use crate::units::{Bytes, Nanoseconds};
use crate::worker::descendants;

/// A command line or an environment.
const WORDS: u64 = 4 << 20;

/// A `setup.py` that is looked into.
const SETUP: u64 = 1 << 20;

/// Everything below a process.
pub(super) struct Tree {
    root: u32,
    /// True where the root itself is a part of the build, and not what holds it.
    with_root: bool,
    tick_ns: f64,
    page: u64,
    /// The processes that were looked at, each under the name that it had.
    known: BTreeMap<u32, Known>,
}

/// Which program a process runs: its name, and where the kernel put its stack, which is
/// elsewhere after each exec.
#[derive(PartialEq, Eq)]
struct Image {
    name: String,
    stack: String,
}

impl Image {
    /// Of a process's `stat`: fields 2 and 28.
    fn of(stat: &str) -> Image {
        let name = stat.split_once('(').map_or("", |(_, rest)| rest);
        let (name, fields) = name.rsplit_once(')').unwrap_or_default();
        Image {
            name: name.to_owned(),
            stack: fields.split_whitespace().nth(25).unwrap_or("").to_owned(),
        }
    }
}

/// What a process is.
struct Known {
    image: Image,
    hints: Vec<Hint>,
    wheel: bool,
}

impl Tree {
    pub(super) fn below(root: u32) -> Tree {
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        Tree {
            root,
            with_root: false,
            tick_ns: tick_ns(),
            page: page.and_then(|page| page.try_into().ok()).unwrap_or(4096),
            known: BTreeMap::new(),
        }
    }

    /// A process and everything below it.
    pub(super) fn with(root: u32) -> Tree {
        Tree {
            with_root: true,
            ..Tree::below(root)
        }
    }

    /// The same with when it was looked, since `began`, and what looking took.
    pub(super) fn look_since(&mut self, began: Instant) -> Look {
        let at = began.elapsed();
        let look = self.look();
        Look {
            at,
            took: began.elapsed() - at,
            ..look
        }
    }

    /// Processor time and memory of all of it until now, and what its processes show.
    pub(super) fn look(&mut self) -> Look {
        let below = descendants::tree(self.root);
        let mut look = Look::default();
        let mut ticks = None;
        for &pid in std::iter::once(&self.root).chain(&below) {
            // One that has ended since is in the time of the one that waited for it.
            let Some(stat) = read(pid, "stat") else {
                continue;
            };
            ticks = process_ticks(&stat)
                .map(|own| own + ticks.unwrap_or(0))
                .or(ticks);
            if pid == self.root && !self.with_root {
                continue;
            }
            let memory = read(pid, "statm").and_then(|text| anonymous(&text, self.page));
            look.memory = look
                .memory
                .into_iter()
                .chain(memory)
                .reduce(|sum, own| sum + own);
            // A process that was started by a fork is soon another program.
            let image = Image::of(&stat);
            if self
                .known
                .get(&pid)
                .is_none_or(|known| known.image != image)
            {
                self.known.insert(pid, met(pid, image));
            }
        }
        self.known.retain(|pid, _| below.contains(pid));
        look.cpu = ticks.map(|ticks| Nanoseconds(ticks as f64 * self.tick_ns));
        look.wheel = self.known.values().any(|known| known.wheel);
        let hints = self
            .known
            .values()
            .flat_map(|known| known.hints.iter().cloned());
        look.hints = hints.collect();
        look
    }
}

/// Looks at a process that is new, or has become another program.
fn met(pid: u32, image: Image) -> Known {
    let mut tool = Tool {
        words: words(pid, "cmdline").unwrap_or_default(),
        variables: environment(pid),
        ..Tool::default()
    };
    let link = |file: &str| fs::read_link(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let setup = || input::text(&link("cwd").join("setup.py"), SETUP).unwrap_or_default();
    // PyTorch's extensions use ninja where it is there, and so do some of others' own accord.
    let wants = |setup: String| {
        ["ninja", "cpp_extension"]
            .iter()
            .any(|word| setup.contains(word))
    };
    if image.name.starts_with("python") && wants(setup()) {
        tool.wants_ninja = true;
        tool.has_ninja = has_ninja(&tool, &link("exe"));
    }
    Known {
        image,
        hints: tool.hints(),
        wheel: tool.builds_wheel(),
    }
}

fn read(pid: u32, file: &str) -> Option<String> {
    let bytes = input::bytes(Path::new(&format!("/proc/{pid}/{file}")), WORDS).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The strings of a file that ends each with a NUL.
fn words(pid: u32, file: &str) -> Option<Vec<String>> {
    let text = read(pid, file)?;
    Some(text.split_terminator('\0').map(str::to_owned).collect())
}

fn environment(pid: u32) -> BTreeMap<String, String> {
    let variables = words(pid, "environ").unwrap_or_default().into_iter();
    variables
        .filter_map(|variable| {
            let (name, value) = variable.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        })
        .collect()
}

/// Memory of a process that no file backs: `resident` less `shared` of its `statm`. Pages of
/// files, such as a compiler's own code, are shared by all that run it.
fn anonymous(statm: &str, page: u64) -> Option<Bytes> {
    let mut fields = statm
        .split_whitespace()
        .skip(1)
        .map(|field| field.parse::<u64>().ok());
    let (resident, shared) = (fields.next()??, fields.next()??);
    Some(Bytes(resident.saturating_sub(shared).saturating_mul(page)))
}

/// True where a Python can start ninja or import it: on `PATH`, or as a module of its own.
fn has_ninja(tool: &Tool, executable: &Path) -> bool {
    let path = tool.variables.get("PATH").map_or("", String::as_str);
    let mut folders = std::env::split_paths(path);
    if folders.any(|folder| folder.join("ninja").exists()) {
        return true;
    }
    let listed = tool.variables.get("PYTHONPATH").map_or("", String::as_str);
    let mut paths: Vec<PathBuf> = std::env::split_paths(listed).collect();
    let named = tool
        .words
        .first()
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    for interpreter in named.into_iter().chain([executable.to_owned()]) {
        if let Some(prefix) = interpreter.parent().and_then(Path::parent) {
            paths.extend(packages(&prefix.join("lib")));
        }
    }
    if let Some(home) = tool.variables.get("HOME") {
        paths.extend(packages(&Path::new(home).join(".local/lib")));
    }
    paths.iter().any(|path| path.join("ninja").exists())
}

/// `python3.11/site-packages` and their like below a folder of libraries.
fn packages(libraries: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(libraries).into_iter().flatten().flatten();
    let pythons = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("python"));
    let folders = |python: fs::DirEntry| {
        ["site-packages", "dist-packages"].map(|name| python.path().join(name))
    };
    pythons.flat_map(folders).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_its_name_and_its_stack() {
        let stat = |name: &str, stack: u32| {
            let between = "0 ".repeat(24);
            Image::of(&format!("12 ({name}) R {between}{stack} 0"))
        };
        assert_eq!(stat("cc1plus", 7).name, "cc1plus");
        assert_eq!(stat("a) (b c", 7).name, "a) (b c");
        assert!(stat("python", 7) == stat("python", 7));
        assert!(stat("python", 7) != stat("python", 8));
        assert_eq!(Image::of("nothing").name, "");
    }

    #[test]
    fn memory_is_what_no_file_backs() {
        assert_eq!(
            anonymous("900 500 100 20 0 60 0", 4096),
            Some(Bytes(400 * 4096))
        );
        assert_eq!(anonymous("900 5 10 20 0 60 0", 4096), Some(Bytes(0)));
        assert_eq!(anonymous("900", 4096), None);
    }

    #[test]
    fn ninja_is_looked_for_on_path_and_beside_the_interpreter() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| place.path().join(path);
        for folder in ["bin", "venv/bin", "venv/lib/python3.11/site-packages"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        let tool = Tool {
            words: vec![
                at("venv/bin/python").display().to_string(),
                "setup.py".to_owned(),
            ],
            variables: [("PATH".to_owned(), at("bin").display().to_string())].into(),
            ..Tool::default()
        };
        assert!(!has_ninja(&tool, Path::new("")));
        fs::create_dir(at("venv/lib/python3.11/site-packages/ninja")).unwrap();
        assert!(has_ninja(&tool, Path::new("")));
        let elsewhere = Tool {
            words: vec!["python3".to_owned()],
            ..tool
        };
        assert!(!has_ninja(&elsewhere, Path::new("")));
        fs::write(at("bin/ninja"), "").unwrap();
        assert!(has_ninja(&elsewhere, Path::new("")));
    }
}
