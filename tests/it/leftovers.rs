//! Processes that workers and programs start end with the harness, however that ends: children in
//! sessions of their own and daemons whose parents are gone included.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};

use crate::common::{Place, all_gone, lives, soon};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;
use regatta_core::record::Outcome;

/// The signals that ask a program to stop.
const STOPPING: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// Perl that starts a child with a session of its own and a daemon that was forked twice,
/// and writes the process of each, and its own, into files.
const LEAVES: &str = r#"
use POSIX ();
use IO::Handle;
sub note { my ($name) = @_;
  open(my $f, '>', "$name.new"); print $f $$; close $f; rename("$name.new", $name); }
sub leave {
  if (fork() == 0) { POSIX::setsid(); note('session'); exec('sleep', '3600'); }
  my $first = fork();
  if ($first == 0) {
    POSIX::setsid();
    POSIX::_exit(0) if fork();
    note('daemon'); exec('sleep', '3600');
  }
  waitpid($first, 0);
  select(undef, undef, undef, 0.01) until -e 'session' && -e 'daemon';
  note('self');
}
"#;

const HELLO: &str = r#"
open(my $in, '<&=', 3); open(my $out, '>&=', 4); $out->autoflush(1);
sub hello { <$in>; print $out '{"id":1,"type":"hello","protocol":1,"worker":"leaver","device":{"kind":"cpu","name":"x","memory_bytes":1000000000},"variants":[{"name":"x","dtypes":["f32"],"directions":["forward"]}]}', "\n"; }
"#;

/// A place with a suite of a worker in Perl that answers `hello` and does this at `prepare`.
fn place(then: &str) -> Place {
    let place = Place::new();
    place.write(
        "leave.pl",
        &format!("{LEAVES}{HELLO}hello(); my $asked = <$in>; exit unless $asked;\n{then}\n"),
    );
    place.write(
        "s.toml",
        "description = \"d\"\n[measure]\ninvocations = 1\ntimeout_s = 60\n\
         [workers]\nleaver = [\"perl\", \"leave.pl\"]\n\
         [[sweep]]\nvariants = \"leaver/x\"\nseq = 8\nhead_dim = 8\n",
    );
    place
}

fn started(place: &Place, arguments: &[&str]) -> Child {
    let mut command = place.regatta(arguments);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: the call is async-signal-safe and touches no memory of the parent.
    unsafe {
        command.pre_exec(heeding_signals);
    }
    command.spawn().unwrap()
}

/// Undoes what the tests were started with, such as `nohup`'s.
fn heeding_signals() -> io::Result<()> {
    for asked in STOPPING {
        // SAFETY: no handler is set.
        unsafe { signal(asked, SigHandler::SigDfl) }?;
    }
    Ok(())
}

/// The processes that were left, once all of them run.
fn left(place: &Place) -> Vec<i32> {
    let read = |name: &str| {
        let path = place.path().join(name);
        soon(name, || fs::read_to_string(&path).ok()?.parse().ok())
    };
    ["self", "session", "daemon"].map(read).to_vec()
}

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

fn end_of(child: &mut Child) -> ExitStatus {
    soon("the harness does not end", || child.try_wait().unwrap())
}

#[test]
fn a_worker_that_died_leaves_nothing() {
    for (end, words) in [
        ("exit 11", "exit code 11"),
        ("kill('SEGV', $$); sleep 60", "killed by SIGSEGV"),
        ("kill('KILL', $$); sleep 60", "killed by SIGKILL"),
        ("kill(40, $$); sleep 60", "killed by signal 40"),
    ] {
        let place = place(&format!("leave(); {end};"));
        let (code, stdout, _) = place.ran(&["run", "./s.toml"]);
        assert!([1, 3].contains(&code), "{stdout}");
        assert!(stdout.contains(words), "{words}: {stdout}");
        all_gone(&left(&place));
    }
}

#[test]
fn a_stopped_harness_leaves_nothing_and_writes_nothing_of_the_case_in_flight() {
    for signal in STOPPING.into_iter().chain([Signal::SIGKILL]) {
        let place = place("leave(); sleep 3600;");
        let mut harness = started(&place, &["run", "./s.toml"]);
        let left = left(&place);
        assert!(left.iter().all(|&pid| lives(pid)));
        send(&harness, signal);
        let status = end_of(&mut harness);
        if signal != Signal::SIGKILL {
            assert_eq!(status.code(), Some(128 + signal as i32), "{signal}");
        }
        all_gone(&left);
        assert!(place.run("s").entries.is_empty(), "{signal}");
    }
}

/// The harness's output has no reader, and the pipe is full.
#[test]
fn a_harness_that_cannot_speak_stops_all_the_same() {
    let place = place("leave(); sleep 3600;");
    let (reader, writer) = std::io::pipe().unwrap();
    let mut full = fs::File::from(OwnedFd::from(writer.try_clone().unwrap()));
    let flags = |flags| fcntl(&writer, FcntlArg::F_SETFL(flags)).unwrap();
    flags(OFlag::O_NONBLOCK);
    while full.write(&[b'x'; 512]).is_ok() {}
    flags(OFlag::empty());
    let mut harness = place
        .regatta(&["run", "./s.toml"])
        .stdout(Stdio::null())
        .stderr(writer)
        .spawn()
        .unwrap();
    let left = left(&place);
    send(&harness, Signal::SIGINT);
    assert_eq!(end_of(&mut harness).code(), Some(130));
    drop(reader);
    all_gone(&left);
    assert!(place.run("s").entries.is_empty());
    // The same command resumes where it stopped: the case was not measured.
    let exits = format!("{LEAVES}{HELLO}hello(); <$in>; exit 12");
    place.write("leave.pl", &exits);
    let (_, stdout, _) = place.ran(&["run", "./s.toml"]);
    assert!(stdout.contains("exit code 12"), "{stdout}");
    let outcome = &place.run("s").entries[0].outcome;
    assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
}

/// The parent of a process.
fn parent(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1;
    fields.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_worker_whose_supervisor_is_killed_ends_and_leaves_nothing() {
    let place = place("leave(); sleep 3600;");
    let mut harness = started(&place, &["run", "./s.toml"]);
    let left = left(&place);
    let supervisor = parent(left[0]);
    assert_ne!(supervisor, harness.id() as i32);
    assert_eq!(parent(left[2]), supervisor, "the daemon was adopted by it");
    kill(Pid::from_raw(supervisor), Signal::SIGKILL).unwrap();
    assert!(!end_of(&mut harness).success());
    all_gone(&left);
    match &place.run("s").entries[0].outcome {
        Outcome::Failed { reason, .. } => assert!(reason.contains("SIGKILL"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn commands_that_only_ask_leave_nothing_either() {
    let commands: [&[&str]; 4] = [
        &["worker", "check", "--", "perl", "leave.pl"],
        &["list"],
        &["doctor"],
        &["env", "make", "slow"],
    ];
    for command in commands {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            let place = Place::new();
            place.write("leave.pl", &format!("{LEAVES}leave(); sleep 3600;"));
            // The substitute for Python hangs as well.
            let script = place.path().join("python");
            fs::write(&script, "#!/bin/sh\nexec perl leave.pl\n").unwrap();
            let mut mode = fs::metadata(&script).unwrap().permissions();
            std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
            fs::set_permissions(&script, mode).unwrap();
            let workers = match command[0] {
                "list" | "doctor" => "[workers]\nmine = [\"perl\", \"leave.pl\"]\n",
                _ => "",
            };
            let config = format!(
                "[environments.slow]\npython = {script:?}\nrequirements = [\"a==1\"]\n\
                 [environments.default]\npython = \"/no/such/python\"\n{workers}"
            );
            place.write("regatta.toml", &config);
            let mut harness = started(&place, command);
            let left = left(&place);
            send(&harness, signal);
            let status = end_of(&mut harness);
            if signal == Signal::SIGTERM {
                assert_eq!(status.code(), Some(128 + 15), "{command:?}");
            }
            all_gone(&left);
        }
    }
}

fn traced(then: &str) -> (Place, Child) {
    let place = Place::new();
    place.write("leave.pl", &format!("{LEAVES}leave();\n{then}\n"));
    let child = started(&place, &["trace", "--", "perl", "leave.pl"]);
    (place, child)
}

#[test]
fn what_a_traced_program_leaves_on_purpose_is_the_users() {
    let (place, mut harness) = traced("exit 5;");
    let left = left(&place);
    assert_eq!(end_of(&mut harness).code(), Some(5));
    for &pid in &left[1..] {
        assert!(lives(pid), "{pid} was ended");
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
}

#[test]
fn a_stopped_trace_leaves_nothing() {
    for (then, signals, code) in [
        ("sleep 3600;", &[Signal::SIGTERM][..], Some(128 + 15)),
        // A program that ignores the first is ended by the second.
        (
            "$SIG{TERM} = sub { note('asked') }; sleep 1 while 1;",
            &[Signal::SIGTERM, Signal::SIGTERM],
            Some(128 + 9),
        ),
        ("sleep 3600;", &[Signal::SIGKILL], None),
    ] {
        let (place, mut harness) = traced(then);
        let left = left(&place);
        for (nth, &signal) in signals.iter().enumerate() {
            if nth > 0 {
                let asked: PathBuf = place.path().join("asked");
                soon("the signal is passed on", || asked.exists().then_some(()));
            }
            send(&harness, signal);
        }
        assert_eq!(end_of(&mut harness).code(), code);
        all_gone(&left);
    }
}

/// `nohup regatta run`: the terminal goes, the measurement continues.
#[test]
fn a_hangup_that_the_caller_ignores_is_none() {
    let place = place("note('self'); select(undef, undef, undef, 0.01) until -e 'go'; exit 11;");
    let regatta = std::path::Path::new(env!("CARGO_BIN_EXE_regatta"));
    let script = format!("trap '' HUP; exec {} run ./s.toml", regatta.display());
    let harness = place
        .command("sh")
        .args(["-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let itself = place.path().join("self");
    soon("the worker is asked", || itself.exists().then_some(()));
    send(&harness, Signal::SIGHUP);
    send(&harness, Signal::SIGHUP);
    place.write("go", "");
    let output = harness.wait_with_output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("exit code 11"), "{stdout}");
}

/// A parent may have its children reaped unasked, which is inherited.
#[test]
fn a_caller_that_ignores_its_children_does_no_harm() {
    let place = place("exit 11;");
    let regatta = std::path::Path::new(env!("CARGO_BIN_EXE_regatta"));
    let output = place
        .command("perl")
        .args(["-e", "$SIG{CHLD} = 'IGNORE'; exec @ARGV"])
        .arg(regatta)
        .args(["run", "./s.toml"])
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("exit code 11"), "{stdout}");
}

#[test]
fn the_folders_of_a_killed_harness_are_removed_by_the_next() {
    let place = Place::new();
    place.write("leave.pl", &format!("{LEAVES}leave(); sleep 3600;"));
    let folder = place.path().join("temporary");
    fs::create_dir(&folder).unwrap();
    let there = || folder.read_dir().unwrap().count();
    let check = ["worker", "check", "--", "perl", "leave.pl"];
    let mut command = place.regatta(&check);
    let command = command.env("TMPDIR", &folder).stderr(Stdio::null());
    let mut harness = command.stdout(Stdio::null()).spawn().unwrap();
    let left = left(&place);
    assert_ne!(there(), 0);
    send(&harness, Signal::SIGKILL);
    end_of(&mut harness);
    all_gone(&left);
    assert_ne!(there(), 0);
    place.write("leave.pl", "exit 1");
    let mut next = place.regatta(&check);
    next.env("TMPDIR", &folder).output().unwrap();
    assert_eq!(there(), 0);
}
