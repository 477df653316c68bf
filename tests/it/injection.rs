//! The census injected into programs without a GPU: whatever is missing, they run on, and
//! one line says why they are not recorded.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// Does what the CUDA driver does with the library that `CUDA_INJECTION64_PATH` names.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **arguments) {
    void *library = dlopen(arguments[1], RTLD_NOW);
    if (!library) { puts(dlerror()); return 3; }
    int (*initialise)(void) = (int (*)(void))dlsym(library, "InitializeInjection");
    if (!initialise) return 4;
    int answer = initialise();
    if (count > 2 && fork() == 0) return 0;
    puts("ran on");
    return answer == 1 ? 0 : 5;
}
"#;

struct Place {
    folder: TempDir,
    program: PathBuf,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("main.c"), folder.path().join("main"));
        fs::write(&source, PROGRAM).unwrap();
        let compiled = Command::new("cc")
            .args([&source, Path::new("-o"), &program, Path::new("-ldl")])
            .status()
            .expect("a C compiler is installed");
        assert!(compiled.success());
        Place { folder, program }
    }

    fn trace(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    fn command(&self, trace: Option<&Path>) -> Command {
        let library = regatta_measure::command::install_probe().unwrap();
        let mut command = Command::new(&self.program);
        command.arg(library.expect("built with the library"));
        for name in [
            "REGATTA_TRACE",
            "REGATTA_CUPTI",
            "REGATTA_CUDA",
            "CUDA_HOME",
            "CUDA_PATH",
        ] {
            command.env_remove(name);
        }
        if let Some(trace) = trace {
            command.env("REGATTA_TRACE", trace);
        }
        command
    }
}

/// The program ran on; its lines on standard error.
fn ran_on(output: &Output) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{:?}: {stdout}{stderr}",
        output.status
    );
    assert!(stdout.contains("ran on"), "{stdout}");
    stderr.lines().map(str::to_owned).collect()
}

#[test]
fn without_a_folder_one_line_says_so() {
    let place = Place::new();
    let lines = ran_on(&place.command(None).output().unwrap());
    assert_eq!(
        lines,
        ["regatta: this process is not recorded: REGATTA_TRACE names no folder"]
    );
}

/// On a machine with a GPU it is recorded, on any other it is not; it runs on either way.
#[test]
fn without_cupti_or_a_driver_one_line_says_so() {
    let place = Place::new();
    let lines = ran_on(&place.command(Some(&place.trace())).output().unwrap());
    if let [line] = &lines[..] {
        assert!(
            line.starts_with("regatta: this process is not recorded: "),
            "{line}"
        );
    } else {
        assert!(lines.is_empty(), "{lines:?}");
        assert!(place.trace().is_dir());
    }
}

#[test]
fn a_folder_that_cannot_be_is_named() {
    let place = Place::new();
    let taken = place.folder.path().join("taken");
    fs::write(&taken, "a file").unwrap();
    let lines = ran_on(&place.command(Some(&taken)).output().unwrap());
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("taken"), "{}", lines[0]);
}

#[test]
fn two_processes_at_once_and_a_fork_run_on() {
    let place = Place::new();
    let start = || {
        place
            .command(Some(&place.trace()))
            .arg("fork")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    for process in [start(), start()] {
        let lines = ran_on(&process.wait_with_output().unwrap());
        assert!(lines.len() <= 1, "{lines:?}");
    }
}
