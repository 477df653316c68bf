//! `--watch`: measures again when a file is saved, with libraries that stay imported.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use crate::common::{Place, all_gone, lives, python_with_numpy, soon};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;

/// A watch that is running, and what it says.
struct Watch {
    child: Child,
    lines: Receiver<String>,
}

impl Watch {
    /// Starts it, with this for the folder of temporary files.
    fn start(place: &Place, temporary: &Path, args: &[&str]) -> Watch {
        let mut command = place.regatta(args);
        command.env("TMPDIR", temporary);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // SAFETY: signal(2) may be called between a fork and an exec.
        unsafe {
            // Below nohup it would be ignored.
            command.pre_exec(|| Ok(signal(Signal::SIGHUP, SigHandler::SigDfl).map(drop)?))
        };
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (send, lines) = channel();
        thread::spawn(move || {
            stderr
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| send.send(line))
        });
        Watch { child, lines }
    }

    /// Reads until it has said this.
    fn until(&self, words: &str) -> String {
        let mut text = String::new();
        while !text.contains(words) {
            match self.lines.recv_timeout(Duration::from_secs(120)) {
                Ok(line) => text += &format!("{line}\n"),
                Err(_) => panic!("{words:?} was not said:\n{text}"),
            }
        }
        text
    }

    /// Reads until it waits.
    fn answer(&self) -> String {
        self.until("is saved, Ctrl-C ends this")
    }

    /// Ends it, and returns its exit code.
    fn end(mut self, signal: Signal) -> Option<i32> {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

/// Makes a commit of all that is here.
fn commit(place: &Place) {
    place.write(".gitignore", "reports\ncache\nstarts\nseen\n");
    place.git(&["init", "-q", "-b", "main"]);
    place.git(&["add", "-A"]);
    place.git(&["commit", "-q", "-m", "one"]);
}

#[test]
fn each_save_is_measured_and_nothing_stays_behind() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    let temporary = tempfile::tempdir().unwrap();
    // Slow where the file `slow` is there, so that a save comes while it is measured.
    place.script("echo $$ >> seen; [ ! -e slow ] || sleep 3");
    commit(&place);
    for signal in [Signal::SIGINT, Signal::SIGHUP] {
        let watch = Watch::start(&place, temporary.path(), &["run", "./s.toml", "--watch"]);
        let text = watch.answer();
        assert!(
            text.contains("exit code 0; waiting until one of 3 files"),
            "{text}"
        );
        place.edit("worker.sh", "exec", "true\nexec");
        let text = watch.answer();
        assert!(text.contains("saved: worker.sh\n"), "{text}");
        // Nothing is measured for a file that is as it was.
        place.edit("worker.sh", "true", "true");
        let text = watch.until("without a change");
        assert!(
            text.ends_with("saved without a change: worker.sh\n"),
            "{text}"
        );
        place.edit("s.toml", "invocations = 5", "invocations = nine");
        let text = watch.answer();
        assert!(text.contains("error: ./s.toml:3: malformed"), "{text}");
        assert!(text.contains("exit code 2; waiting"), "{text}");
        place.edit("s.toml", "invocations = nine", "invocations = 5");
        watch.answer();
        fs::remove_file(place.path().join("worker.sh")).unwrap();
        let text = watch.answer();
        assert!(text.contains("saved: worker.sh (deleted)"), "{text}");
        place.git(&["checkout", "-q", "main", "--", "worker.sh"]);
        let text = watch.answer();
        assert!(text.contains("saved: worker.sh\n"), "{text}");
        // One is saved while another one is measured, and then measured.
        place.write("slow", "");
        fs::remove_file(place.path().join("seen")).unwrap();
        place.edit("worker.sh", "exec", "true\nexec");
        let seen = || fs::read_to_string(place.path().join("seen")).ok();
        soon("nothing was measured", || {
            seen().filter(|seen| !seen.is_empty())
        });
        place.edit("worker.sh", "exec", "true\nexec");
        let text = watch.until("saved while it was measured");
        assert!(
            text.ends_with("saved while it was measured: worker.sh\n"),
            "{text}"
        );
        fs::remove_file(place.path().join("slow")).unwrap();
        watch.answer();
        // It ends with its workers.
        place.write("slow", "");
        fs::remove_file(place.path().join("seen")).unwrap();
        place.edit("worker.sh", "true\n", "");
        let workers = soon("no worker", || seen().filter(|seen| !seen.is_empty()));
        let workers: Vec<i32> = workers.lines().map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(watch.end(signal), Some(128 + signal as i32));
        all_gone(&workers);
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
        fs::remove_file(place.path().join("slow")).unwrap();
        place.git(&["checkout", "-q", "main", "--", "."]);
    }
}

/// Libraries of an environment, and a checkout whose code imports one. Each tells when it is imported.
fn with_library() -> (Place, tempfile::TempDir) {
    let (place, environment) = (Place::new(), tempfile::tempdir().unwrap());
    let library = environment.path().join("site-packages");
    fs::create_dir(&library).unwrap();
    let log = place.path().join("seen").display().to_string();
    let tells = |what: &str| {
        format!("open({log:?}, 'a').write(f'{what} {{__import__(\"os\").getpid()}}\\n')\n")
    };
    fs::write(library.join("library.py"), tells("library")).unwrap();
    place.write("beside.py", &tells("beside one"));
    place.write(
        "scaled.py",
        &format!(
            "import library\nimport numpy as np\nimport beside\n{}\
             def scaled(x: np.ndarray):\n    return x * 2\n",
            tells("code one")
        ),
    );
    let python = python_with_numpy();
    let paths = [&library];
    place.write(
        "s.toml",
        &format!(
            "description = \"d\"\n[measure]\ninvocations = 2\nsamples = 5\n\
             [environments.default]\npython = {python:?}\npaths = {paths:?}\n\
             env = {{ REGATTA_FORK = \"always\" }}\n\
             [workers]\nmine = \"scaled.py:scaled\"\n\
             [operators.scaled]\ninputs.x = \"64\"\noutputs.y = \"64\"\ndtypes = \"f32\"\n\
             [[sweep]]\noperator = \"scaled\"\nvariants = \"mine/scaled\"\n"
        ),
    );
    commit(&place);
    (place, environment)
}

#[test]
#[ignore = "needs NumPy"]
fn a_server_that_imports_the_users_code_at_its_start_says_so_once() {
    let (place, environment) = with_library();
    place.write("sitecustomize.py", "");
    place.edit("s.toml", "paths = [", "paths = [\".\", ");
    let watch = Watch::start(
        &place,
        environment.path(),
        &["run", "./s.toml", "--structure-only", "--watch"],
    );
    let note = "worker mine imports its libraries for each answer: ";
    let text = watch.answer();
    let file = "sitecustomize.py, code of yours, is imported at its start";
    assert_eq!(text.matches(note).count(), 1, "{text}");
    assert!(text.contains(file), "{text}");
    place.edit("beside.py", "beside one", "beside two");
    let text = watch.answer();
    assert!(!text.contains(note), "{text}");
    watch.end(Signal::SIGINT);
}

#[test]
#[ignore = "needs NumPy"]
fn libraries_stay_imported_and_code_does_not() {
    let (place, environment) = with_library();
    let take = || {
        let path = place.path().join("seen");
        let seen = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, "").unwrap();
        seen
    };
    let count = |seen: &str, what: &str| seen.lines().filter(|line| line.starts_with(what)).count();
    let compare = [
        "compare",
        "./s.toml",
        "--base",
        "git:main",
        "--structure-only",
        "--watch",
    ];
    let watch = Watch::start(&place, environment.path(), &compare);
    let text = watch.answer();
    let seen = take();
    assert!(text.contains("exit code 0"), "{text}");
    for (what, times) in [("library", 2), ("beside one", 2), ("code one", 2)] {
        assert_eq!(count(&seen, what), times, "{what}: {seen}");
    }
    let servers = seen
        .lines()
        .filter_map(|line| line.strip_prefix("library "));
    let servers: Vec<i32> = servers.map(|pid| pid.parse().unwrap()).collect();
    assert!(servers.iter().all(|&pid| lives(pid)), "{servers:?}");
    // A module of the checkout that the file imports is saved.
    place.edit("beside.py", "beside one", "beside two");
    let text = watch.answer();
    let seen = take();
    assert!(
        text.contains("saved: beside.py\n") && text.contains("exit code 0"),
        "{text}"
    );
    for (what, times) in [
        ("library", 0),
        ("beside one", 1),
        ("beside two", 1),
        ("code one", 2),
    ] {
        assert_eq!(count(&seen, what), times, "{what}: {seen}");
    }
    let whole = fs::read_to_string(place.path().join("scaled.py")).unwrap();
    place.edit("scaled.py", "return", "return )");
    let text = watch.answer();
    assert!(text.contains("scaled.py:6: SyntaxError"), "{text}");
    // A server that was killed is replaced, and so is one whose library is another.
    kill(Pid::from_raw(servers[0]), Signal::SIGKILL).unwrap();
    all_gone(&servers[..1]);
    take();
    place.write("scaled.py", &whole.replace("x * 2", "2 * x"));
    let text = watch.answer();
    let again = "worker mine imports its libraries again: ";
    assert_eq!(
        text.matches(&format!("{again}it ended")).count(),
        1,
        "{text}"
    );
    assert!(text.contains("exit code 0"), "{text}");
    assert_eq!(count(&take(), "library"), 1);
    let library = environment.path().join("site-packages/library.py");
    let text = fs::read_to_string(&library).unwrap();
    fs::write(&library, text.replace("library", "upgrade")).unwrap();
    place.write("scaled.py", &whole);
    let text = watch.answer();
    assert_eq!(text.matches(again).count(), 2, "{text}");
    assert!(text.contains("library.py changed"), "{text}");
    let seen = take();
    assert_eq!(
        (count(&seen, "library"), count(&seen, "upgrade")),
        (0, 2),
        "{seen}"
    );
    // Another variable is another environment, of the head alone.
    place.edit("s.toml", "\"always\"", "\"always\", MINE = \"1\"");
    let text = watch.answer();
    assert!(
        text.contains("exit code 0") && !text.contains(again),
        "{text}"
    );
    let more = take();
    assert_eq!(count(&more, "upgrade"), 1, "{more}");
    let seen = seen + &more;
    let last = seen.lines().filter_map(|line| line.rsplit_once(' '));
    let last: Vec<i32> = last.map(|(_, pid)| pid.parse().unwrap()).collect();
    assert!(last.iter().any(|&pid| lives(pid)));
    assert_eq!(watch.end(Signal::SIGKILL), None);
    all_gone(&last);
}
