//! Workers that are forked are in every respect as those that are started, and where they
//! cannot be forked they are started, and the run says why.

use std::collections::BTreeSet;
use std::fs;

use crate::common::{Place, all_gone, lives, soon};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use regatta_core::record::{Fault, How, Outcome, Run};

/// Found by Python when it starts: stands in for library `torch`, and tells of each import and
/// of each process. What a test adds stands at `AT_IMPORT` and at `AT_PREPARE`.
const STAND_IN: &str = r#"
import importlib.abc, importlib.machinery, json, os, sys, time

class Worker:
    def hello(self):
        fds = sorted(int(name) for name in os.listdir("/proc/self/fd"))
        with open("/proc/self/status") as f:
            blocked = next(line.split()[1] for line in f if line.startswith("SigBlk"))
        me = {"pid": os.getpid(), "parent": os.getppid(), "group": os.getpgid(0),
              "fds": [fd for fd in fds if os.path.exists(f"/proc/self/fd/{fd}")],
              "stdin": os.readlink("/proc/self/fd/0"), "blocked": blocked,
              "env": {k: v for k, v in os.environ.items() if k.startswith("MINE")},
              "random": __import__("random").random()}
        with open("processes", "a") as f:
            f.write(json.dumps(me) + "\n")
        print("a worker's own words", flush=True)
        return {"worker": "torch", "versions": {},
                "device": {"kind": "cpu", "name": "x", "memory_bytes": 1 << 40, "facts": {}},
                "variants": [{"name": "flash", "dtypes": ["f32"], "directions": ["forward"]}]}
    def prepare(self, request):
        AT_PREPARE
        return {"effective": {}, "errors": {"out": {"relative_l2": 1e-7, "max_abs": 1e-7}},
                "probes": {"out": [0.5] * 16}, "first_call_ns": 1e9}
    def measure(self, request):
        return {"device_ns": [1e9] * request["samples"]}
    def call(self): pass
    def census(self): return {"launches": [], "counts": {}}
    def release(self): pass

class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name == "regatta_worker.libraries.torch":
            return importlib.machinery.ModuleSpec(name, self)
    def exec_module(self, module):
        with open("imports", "a") as f:
            f.write(f"{os.getpid()}\n")
        module.WORKER = Worker
        AT_IMPORT

sys.meta_path.insert(0, Finder())
"#;

/// A stand-in for NVML, of one GPU.
const SEES_A_GPU: &str = r#"
import ctypes
class Nvml:
    def nvmlInit_v2(self): return 0
    def nvmlShutdown(self): return 0
    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = 1
        return 0
real = ctypes.CDLL
ctypes.CDLL = lambda name, *a, **k: Nvml() if "nvidia-ml" in str(name) else real(name, *a, **k)
"#;

/// A place with a suite of three invocations on it.
fn place(fork: &str, at_import: &str, at_prepare: &str) -> Place {
    let place = Place::new();
    let text = STAND_IN
        .replace("AT_IMPORT", at_import)
        .replace("AT_PREPARE", at_prepare);
    place.write("sitecustomize.py", &text);
    let fork = match fork {
        "auto" => String::new(),
        word => format!(", REGATTA_FORK = {word:?}"),
    };
    let python = std::env::var("REGATTA_TEST_PYTHON").unwrap_or("python3".to_owned());
    place.write(
        "s.toml",
        &format!(
            "description = \"d\"\n\
             [measure]\ninvocations = 3\nsamples = 5\ntimeout_s = 60\n\
             [environments.default]\npython = {python:?}\npaths = [\".\"]\n\
             env = {{ MINE = \"1\"{fork} }}\n\
             [[sweep]]\nvariants = \"torch/flash\"\nseq = [4096, 8192]\nhead_dim = 64\n"
        ),
    );
    place
}

/// Changes a place as if a GPU were seen there.
fn sees_a_gpu(place: &Place) {
    let insert = "sys.meta_path.insert";
    place.edit("sitecustomize.py", insert, &format!("{SEES_A_GPU}{insert}"));
    place.edit("s.toml", "MINE =", "CUDA_VISIBLE_DEVICES = \"0\", MINE =");
}

/// The start of each entry's process.
fn starts(run: &Run) -> Vec<How> {
    let starts = run.entries.iter().map(|entry| entry.start.as_ref());
    starts.map(|start| start.unwrap().how).collect()
}

/// The reasons why they were not forked, where they are recorded.
fn reasons(run: &Run) -> Vec<String> {
    let starts = run.entries.iter().filter_map(|entry| entry.start.clone());
    starts.filter_map(|start| start.because).collect()
}

/// The lines of a file in a place, as numbers or as JSON.
fn lines(place: &Place, name: &str) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(place.path().join(name)).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_forked_worker_is_as_one_that_was_started() {
    let forked = place("always", "pass", "pass");
    exits!(forked, 0, ["run", "./s.toml", "--set", "input_sets=1"]);
    let run = forked.run("s");
    assert_eq!(starts(&run), [How::Forked; 6]);
    assert!(reasons(&run).is_empty());
    assert_eq!(lines(&forked, "imports").len(), 1, "imported once");
    let started = place("no", "pass", "pass");
    exits!(started, 0, ["run", "./s.toml", "--set", "input_sets=1"]);
    assert_eq!(starts(&started.run("s")), [How::Exec; 6]);
    // The worker of the introduction serves the first invocation.
    assert_eq!(lines(&started, "imports").len(), 3);
    let (theirs, ours) = (lines(&started, "processes"), lines(&forked, "processes"));
    assert_eq!((theirs.len(), ours.len()), (3, 3));
    let unlike = |name: &str| {
        let values = ours.iter().map(|process| process[name].to_string());
        assert_eq!(values.collect::<BTreeSet<_>>().len(), 3, "{name}: {ours:?}");
    };
    unlike("pid");
    unlike("parent");
    unlike("random");
    for process in &ours {
        assert_eq!(process["group"], process["pid"]);
        for same in ["fds", "stdin", "blocked", "env"] {
            assert_eq!(process[same], theirs[0][same], "{same}");
        }
    }
    let log = fs::read_to_string(forked.path().join("reports/s/logs/torch.log")).unwrap();
    assert_eq!(log.matches("a worker's own words").count(), 2, "{log}");
}

#[test]
fn how_a_forked_worker_ended_is_told_and_the_next_one_is_forked() {
    let dies = "\n        if not os.path.exists('died'):\n            open('died', 'w').close()\n            print('last words', flush=True)\n            os.kill(os.getpid(), 11)";
    let place = place("always", "pass", dies);
    exits!(place, 1, ["run", "./s.toml", "--set", "input_sets=1"]);
    let run = place.run("s");
    let Outcome::Failed { reason, fault, log } = &run.entries[0].outcome else {
        panic!("{:?}", run.entries[0]);
    };
    assert!(reason.contains("killed by SIGSEGV"), "{reason}");
    assert_eq!(*fault, Fault::Crash);
    assert!(log.contains("last words"), "{log}");
    assert_eq!(starts(&run), [How::Forked; 6]);
    assert_eq!(lines(&place, "imports").len(), 1);
    assert_eq!(lines(&place, "processes").len(), 4);
}

#[test]
fn where_a_fork_would_break_they_are_started_and_the_run_says_why() {
    let thread =
        "__import__('threading').Thread(target=time.sleep, args=(600,), daemon=True).start()";
    let refused = place("always", thread, "pass");
    let (_, stderr) = exits!(refused, 2, ["run", "./s.toml", "--set", "input_sets=1"]);
    for words in [
        "worker torch cannot be forked as requested: importing it starts 1 threads",
        "leave REGATTA_FORK out, or set it to `no`",
    ] {
        assert!(stderr.contains(words), "{stderr}");
    }
    // Without a GPU nothing is imported for it.
    let auto = place("auto", "pass", "pass");
    exits!(auto, 0, ["run", "./s.toml", "--set", "input_sets=1"]);
    let run = auto.run("s");
    assert_eq!(starts(&run), [How::Exec; 6]);
    assert_eq!(lines(&auto, "imports").len(), 3);
    let reasons = reasons(&run);
    assert_eq!(reasons.len(), 3, "recorded once for a process");
    assert!(reasons[0].contains("no GPU is seen"), "{reasons:?}");
}

#[test]
fn a_fork_server_that_died_is_replaced_by_starts() {
    // At its third fork: one on trial, and one for each worker.
    let ends = "
        forks, server = [], os.getpid()
        def count():
            forks.append(os.getpid())
            if forks.count(server) == 3 and os.getpid() == server: os._exit(9)
        os.register_at_fork(before=count)";
    let place = place("auto", ends, "pass");
    sees_a_gpu(&place);
    exits!(place, 0, ["run", "./s.toml", "--set", "input_sets=1"]);
    let run = place.run("s");
    let (forked, exec) = (How::Forked, How::Exec);
    assert_eq!(starts(&run), [forked, forked, exec, exec, exec, exec]);
    let reasons = reasons(&run);
    assert!(reasons[0].contains("forked none: it ended"), "{reasons:?}");
}

#[test]
fn a_worker_that_ended_with_its_fork_server_is_no_fault_of_its_case() {
    let shoots = "
        if len(open('processes').readlines()) == 2 and not os.path.exists('shot'):
            open('shot', 'w').close()
            os.kill(int(open('imports').readline()), 9)
            time.sleep(600)";
    let place = place("auto", "pass", shoots);
    sees_a_gpu(&place);
    exits!(place, 3, ["run", "./s.toml", "--set", "input_sets=1"]);
    let run = place.run("s");
    let (forked, exec) = (How::Forked, How::Exec);
    assert_eq!(starts(&run), [forked, forked, forked, exec, exec, exec]);
    let Outcome::Failed { reason, fault, .. } = &run.entries[2].outcome else {
        panic!("{:?}", run.entries[2]);
    };
    assert_eq!(*fault, Fault::Refused, "{reason}");
    assert!(reason.contains("not by itself"), "{reason}");
}

/// Such as those of a script, which runs to its first case before it answers.
#[test]
fn workers_on_a_gpu_that_are_not_forked_start_before_they_are_wanted() {
    let prepares = "open('processes', 'a').write('\"prepares\"\\n')";
    let place = place("no", "pass", prepares);
    let [cpu, cuda] = ["cpu", "cuda"].map(|kind| format!("\"kind\": \"{kind}\""));
    place.edit("sitecustomize.py", &cpu, &cuda);
    let base = ["--base", "here", "--set", "input_sets=1"];
    exits!(place, 0, [&["compare", "./s.toml"][..], &base].concat());
    let lines = lines(&place, "processes");
    let starts = lines.iter().filter(|line| line.is_object()).count();
    // Both sides introduce themselves, and take turns in five pairs.
    assert_eq!(starts, 2 + 2 * 5, "{lines:?}");
    let waiting = lines.iter().position(|line| line == "prepares").unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    assert!(waiting >= 2 + 2 * (cores / 2).clamp(1, 5), "{lines:?}");
}

#[test]
fn nothing_that_was_forked_outlives_the_harness() {
    // A child with a session of its own, and a daemon whose parent is gone.
    let leaves = "
        import subprocess
        a = subprocess.Popen(['sleep', '3600'], start_new_session=True)
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            open('daemon', 'w').write(str(os.getpid()))
            os.execvp('sleep', ['sleep', '3600'])
        while not (os.path.exists('daemon') and open('daemon').read()): time.sleep(0.01)
        open('left', 'w').write(f'{a.pid}\\n{open(\"daemon\").read()}\\n{os.getpid()}\\n')
        time.sleep(600)";
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let place = place("always", "pass", leaves);
        let mut harness = place.started(&["run", "./s.toml", "--set", "input_sets=1"]);
        let left = soon("nothing was left", || {
            let left = lines(&place, "left");
            (left.len() == 3).then_some(left)
        });
        let number = |pid: &serde_json::Value| pid.as_i64().unwrap() as i32;
        let mut all: Vec<i32> = left.iter().map(number).collect();
        // The process that forks, and the worker's supervisor.
        all.push(number(&lines(&place, "imports")[0]));
        all.push(number(&lines(&place, "processes")[0]["parent"]));
        assert!(all.iter().all(|&pid| lives(pid)), "{all:?}");
        kill(Pid::from_raw(harness.id() as i32), signal).unwrap();
        harness.wait().unwrap();
        all_gone(&all);
    }
}
