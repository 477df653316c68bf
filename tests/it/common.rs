//! A folder to run regatta in, with a suite on the fake worker.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use regatta_core::record::{Run, run_file};

/// Runs regatta and asserts the exit code, showing everything when it differs.
macro_rules! exits {
    ($place:expr, $code:expr, $args:expr) => {{
        let (code, stdout, stderr) = $place.ran(&$args);
        assert_eq!(code, $code, "stdout:\n{stdout}\nstderr:\n{stderr}");
        (stdout, stderr)
    }};
}

/// The program under test; `REGATTA_PROGRAM` names another than the one that was built.
pub fn regatta() -> PathBuf {
    let built = || Path::new(env!("CARGO_BIN_EXE_regatta")).to_owned();
    std::env::var_os("REGATTA_PROGRAM").map_or_else(built, PathBuf::from)
}

/// The interpreter of a test that is ignored unless asked for, since it needs NumPy.
pub fn python_with_numpy() -> OsString {
    let python = std::env::var_os("REGATTA_TEST_PYTHON");
    python.expect("REGATTA_TEST_PYTHON names a Python with NumPy")
}

/// The fake worker's executable, which `cargo test` builds among the examples.
pub fn fake_worker() -> PathBuf {
    let regatta = Path::new(env!("CARGO_BIN_EXE_regatta"));
    let path = regatta.with_file_name("examples").join("fake-worker");
    assert!(
        path.exists(),
        "{} is missing; build it: cargo build --example fake-worker",
        path.display()
    );
    path
}

/// Copies a folder with all that is in it.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// A temporary working directory.
pub struct Place {
    folder: tempfile::TempDir,
    /// Counts the starts of the fake worker, which draws other noise at each, by side.
    starts: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place {
            folder: tempfile::tempdir().unwrap(),
            starts: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The output of git here.
    pub fn git(&self, words: &[&str]) -> String {
        let output = std::process::Command::new("git")
            .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.org"])
            .args(["-c", "commit.gpgsign=false"])
            .args(words)
            .current_dir(self.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    /// Writes a suite of these variants on the fake worker, started with `args`.
    pub fn suite(&self, name: &str, variants: &[&str], args: &[&str], more: &str) {
        // Short where something is to hang; else long enough for a machine that is busy.
        let hangs = |word: &&str| word.ends_with("silent") || word.ends_with("forking");
        let hangs = variants.iter().chain(args).any(hangs);
        let timeout_s = if hangs { 1 } else { 60 };
        let worker = fake_worker().display().to_string();
        let command = [&[worker.as_str()], args].concat();
        self.write(
            &format!("{name}.toml"),
            &format!(
                "description = \"{name}\"\n\
                 [measure]\ninvocations = 5\nsamples = 10\ntimeout_s = {timeout_s}\n\
                 [policy]\nthreshold = 0.02\n\
                 [workers]\nfake = {command:?}\n\
                 [[sweep]]\nvariants = {variants:?}\nseq = [32, 48, 64]\nhead_dim = 16\n\
                 direction = [\"forward\", \"backward\"]\n{more}"
            ),
        );
    }

    /// A place with a suite `s` of these variants, and a baseline of it.
    pub fn with_baseline(variants: &[&str], args: &[&str], more: &str) -> Place {
        let place = Place::new();
        place.suite("s", variants, args, more);
        exits!(place, 0, ["run", "./s.toml"]);
        exits!(place, 0, ["baseline", "save", "s"]);
        place
    }

    /// Changes the text of a file.
    pub fn edit(&self, name: &str, from: &str, to: &str) {
        let path = self.path().join(name);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{name} has no {from:?}");
        fs::write(&path, text.replace(from, to)).unwrap();
    }

    /// Puts a shell script in place of suite `s`'s fake worker, which gets the script's
    /// arguments; before it `then` is run with `$n` the number of the start, from 1: that of
    /// the introduction, which serves the first invocation.
    pub fn script(&self, then: &str) {
        let worker = fake_worker();
        let worker = worker.display();
        let script = format!(
            "n=$(cat starts 2>/dev/null || echo 0); n=$((n + 1)); echo $n > starts\n\
             {then}\nexec {worker} \"$@\"\n"
        );
        self.write("worker.sh", &script);
        let own = format!("fake = [\"{worker}\"");
        self.edit("s.toml", &own, "fake = [\"sh\", \"worker.sh\"");
    }

    /// A program to be run here, without the variables of a job that these tests may be a part
    /// of, and of what its user wants of colours: where `CI` is set even a dumb terminal is
    /// given them.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.path())
            .env("XDG_CACHE_HOME", self.path().join("cache"))
            .env("FAKE_STARTS", self.starts.path().join("starts"))
            .env_remove("REGATTA_PYTHON")
            // The tests here must not depend on other load of this machine.
            .env("REGATTA_WATCH", "no");
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let of_a_job = ["GITHUB_", "GITLAB_", "GH_", "CI_", "CLICOLOR"];
            let word = ["CI", "NO_COLOR", "FORCE_COLOR"].contains(&&*text);
            if word || of_a_job.iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command
    }

    /// regatta, to be run here.
    pub fn regatta(&self, args: &[&str]) -> Command {
        let mut command = self.command(regatta());
        command.args(args);
        command
    }

    /// regatta, started here without a reader of its output.
    pub fn started(&self, args: &[&str]) -> Child {
        let mut command = self.regatta(args);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).spawn().unwrap()
    }

    /// Runs regatta and gives `(exit code, standard output, standard error)`.
    pub fn ran(&self, args: &[&str]) -> (i32, String, String) {
        let output = self.regatta(args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| text(bytes));
        (output.status.code().unwrap_or(-1), stdout, stderr)
    }

    /// The run of a suite, read back.
    pub fn run(&self, suite: &str) -> Run {
        run_file::read(&self.path().join("reports").join(suite).join("run.jsonl")).unwrap()
    }
}

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Looks until something is found.
pub fn soon<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// True while a process runs; a zombie that was not reaped yet is as dead as one that is gone.
pub fn lives(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Waits until these processes have ended.
pub fn all_gone(processes: &[i32]) {
    for &process in processes {
        let gone = || (!lives(process)).then_some(());
        soon(&format!("process {process} lives on"), gone);
    }
}
