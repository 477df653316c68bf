//! `regatta worker check` on workers of all kinds.

use std::path::Path;

use crate::common::{Place, fake_worker};

fn check(command: &[&str]) -> (i32, String, String) {
    let args = [&["worker", "check", "--"], command].concat();
    Place::new().ran(&args)
}

#[test]
fn a_worker_in_perl_conforms() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/workers/naive.pl");
    let (code, stdout, stderr) = check(&["perl", path]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("conforms:"), "{stdout}");
}

#[test]
fn a_worker_in_rust_conforms() {
    let regatta = Path::new(Path::new(env!("CARGO_BIN_EXE_regatta")));
    let worker = regatta.with_file_name("examples").join("naive-worker");
    let (code, stdout, stderr) = check(&[worker.to_str().unwrap()]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("conforms:"), "{stdout}");
}

#[test]
fn the_built_in_worker_conforms() {
    let regatta = Path::new(env!("CARGO_BIN_EXE_regatta"));
    let regatta = regatta.to_str().unwrap();
    let (code, stdout, stderr) = check(&[regatta, "worker", "serve", "cpu"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
}

#[test]
fn what_is_wrong_is_said() {
    let fake = fake_worker();
    let (code, stdout, stderr) = check(&[
        fake.to_str().unwrap(),
        "--variants",
        "steady,unsupported,wrong,lying,dead",
    ]);
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("exit code 7"), "{stdout}");
    assert!(stderr.contains("an illegal memory access"), "{stderr}");
    assert!(stdout.contains("relative L2 error 2.5e-1"), "{stdout}");
    assert!(
        stdout.contains("found by regatta's own float64 check"),
        "{stdout}"
    );
    let (code, stdout, _) = check(&[fake.to_str().unwrap(), "--variants", "stale,stale-lying"]);
    assert_eq!(code, 1, "{stdout}");
    assert!(
        stdout.contains("wrong result after timing: out"),
        "{stdout}"
    );
    let says = "wrong result after timing, found by regatta's own float64";
    assert!(stdout.contains(says), "{stdout}");
    // A worker that was written before it was asked for is no worse than it was.
    let (code, stdout, _) = check(&[fake.to_str().unwrap(), "--variants", "older"]);
    assert_eq!(code, 0, "{stdout}");
    assert!(
        stdout.contains("does not check the last timed call"),
        "{stdout}"
    );
    let (code, stdout, _) = check(&[
        fake.to_str().unwrap(),
        "--variants",
        "steady",
        "--kind",
        "quantum",
    ]);
    assert_eq!(code, 1, "{stdout}");
    assert!(
        stdout.contains(r#""quantum" is none of cpu, cuda"#),
        "{stdout}"
    );
    // A library that is not there is no fault of its worker.
    let (code, stdout, stderr) = check(&[fake.to_str().unwrap(), "--start", "absent"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("there is no libattention here"), "{stdout}");
    let (code, _, stderr) = check(&["./no-such-worker"]);
    assert_eq!(code, 2, "{stderr}");
    let (code, _, stderr) = check(&[fake.to_str().unwrap(), "--start", "version"]);
    assert_eq!(code, 2, "{stderr}");
}
