//! What workers print, and what is said of those that do not come up.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::Place;

const HELLO: &str = r#"
open(my $in, '<&=', 3); open(my $out, '>&=', 4); $out->autoflush(1); <$in>;
print $out '{"id":1,"type":"hello","protocol":1,"worker":"mine","device":{"kind":"cpu","name":"x","memory_bytes":1000000000},"variants":[{"name":"x","dtypes":["f32"],"directions":["forward"]}]}', "\n";
"#;

fn suite(place: &Place, command: &str) {
    place.write(
        "s.toml",
        &format!(
            "description = \"d\"\n[measure]\ninvocations = 1\ntimeout_s = 2\n\
             [workers]\nmine = [{command}]\n\
             [[sweep]]\nvariants = \"mine/x\"\nseq = 8\nhead_dim = 8\n"
        ),
    );
}

/// A place with a suite of a worker in Perl that answers `hello` and goes on like this.
fn place(then: &str) -> Place {
    let place = Place::new();
    place.write("w.pl", &format!("{HELLO}{then}\n"));
    suite(&place, "\"perl\", \"-MIO::Handle\", \"w.pl\"");
    place
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_fault_is_told_and_not_the_last_line() {
    let place = place(
        "exit unless <$in>; $| = 1;\n\
         print \"RuntimeError: CUDA error: an illegal memory access was encountered\\n\";\n\
         print \"[rank $_] destroying process group\\n\" for 1 .. 30; exit 7;",
    );
    let (_, stdout, _) = place.ran(&["run", "./s.toml"]);
    let said = words(&stdout);
    assert!(
        said.contains("RuntimeError: CUDA error: an illegal memory access"),
        "{stdout}"
    );
    assert!(!said.contains("[rank 30]"), "{stdout}");
    let run = fs::read_to_string(place.path().join("reports/s/run.jsonl")).unwrap();
    assert!(
        run.contains("RuntimeError") && run.contains("[rank 30]"),
        "{run}"
    );
    assert!(!run.contains("[rank 3]"), "an excerpt, not the log: {run}");
}

#[test]
fn each_run_begins_its_logs_anew_and_a_resumed_one_goes_on() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    let log = || fs::read_to_string(place.path().join("reports/s/logs/fake.log")).unwrap();
    let args = ["run", "./s.toml", "--invocations", "2"];
    exits!(place, 0, [args[0], args[1], args[2], args[3]]);
    let first = log();
    assert_eq!(first.matches("preparing").count(), 12);
    exits!(place, 0, [args[0], args[1], args[2], args[3]]);
    assert_eq!(log().len(), first.len());
    // The last entry and the end are torn off, as when it was killed.
    let path = place.path().join("reports/s/run.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    fs::write(&path, lines[..lines.len() - 2].join("\n") + "\n").unwrap();
    exits!(place, 0, [args[0], args[1], args[2], args[3]]);
    assert_eq!(log().matches("preparing").count(), 13);
}

#[test]
fn what_keeps_a_worker_from_starting_is_named() {
    let place = Place::new();
    let file = |name: &str, text: &str, mode: u32| {
        place.write(name, text);
        let path = place.path().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    file("plain", "text", 0o644);
    file("script", "#!/no/such/perl\n", 0o755);
    fs::create_dir(place.path().join("folder")).unwrap();
    for (command, says) in [
        (
            "./plain",
            "./plain is not executable; try `chmod +x ./plain`",
        ),
        (
            "./script",
            "./script wants /no/such/perl, which is not there",
        ),
        ("./folder", "./folder is a folder, not a program"),
        ("./none", "cannot start ./none: there is no such file"),
        (
            "no-such-program",
            "cannot start no-such-program: no folder of PATH has it",
        ),
    ] {
        suite(&place, &format!("{command:?}"));
        let (_, stderr) = exits!(place, 2, ["run", "./s.toml"]);
        assert!(stderr.contains(says), "{command}: {stderr}");
        let (_, stderr) = exits!(place, 2, ["worker", "check", "--", command]);
        assert!(stderr.contains(says), "{command}: {stderr}");
        let (_, stderr) = exits!(place, 2, ["trace", "--", command]);
        assert!(stderr.contains(says), "{command}: {stderr}");
    }
}

#[test]
fn a_file_in_place_of_the_logs_is_named() {
    let place = place("exit;");
    fs::create_dir_all(place.path().join("reports/s")).unwrap();
    place.write("reports/s/logs", "");
    let (_, stderr) = exits!(place, 2, ["run", "./s.toml"]);
    assert!(
        stderr.contains("its log reports/s/logs cannot be written") && !stderr.contains("start"),
        "{stderr}"
    );
}

/// The folder that everything happens in was removed by somebody.
#[test]
fn a_folder_that_is_gone_is_named() {
    let place = Place::new();
    let regatta = std::path::Path::new(env!("CARGO_BIN_EXE_regatta"));
    let script = format!(
        "mkdir gone && cd gone && rmdir ../gone && exec {} worker check -- ./w",
        regatta.display()
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(place.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("the folder this was started in is gone"),
        "{stderr}"
    );
}
