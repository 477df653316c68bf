//! `include/regatta_probe.h` declares exactly the library's functions.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn sources(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => sources(&path, into),
            path => *into += &fs::read_to_string(path).unwrap(),
        }
    }
}

/// The words after each `before` in a text that begin with `regatta_probe_`.
fn named<'a>(text: &'a str, before: &str) -> BTreeSet<&'a str> {
    let word = |rest: &'a str| {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        &rest[..end.unwrap_or(rest.len())]
    };
    let places = text.match_indices(before);
    let words = places.map(|(at, _)| word(&text[at + before.len()..]));
    words
        .filter(|word| word.starts_with("regatta_probe_"))
        .collect()
}

#[test]
fn it_declares_every_function_and_no_other() {
    let header = fs::read_to_string(here("include/regatta_probe.h")).unwrap();
    let code: String = header
        .split("/*")
        .map(|part| part.rsplit("*/").next().unwrap())
        .collect();
    let declared: BTreeSet<&str> = code
        .split(';')
        .filter_map(|statement| statement.split_once('('))
        .filter_map(|(head, _)| {
            head.rsplit(|c: char| !(c.is_alphanumeric() || c == '_'))
                .next()
        })
        .filter(|name| name.starts_with("regatta_probe_"))
        .collect();
    let mut text = String::new();
    sources(&here("src"), &mut text);
    let exported: BTreeSet<&str> = text
        .split("#[unsafe(no_mangle)]")
        .skip(1)
        .flat_map(|rest| named(rest.lines().nth(1).unwrap_or_default(), "fn "))
        .collect();
    assert!(exported.len() > 15, "{exported:?}");
    assert_eq!(declared, exported);
}

/// Uses the compiler that callers of this crate need anyway.
#[test]
fn c_and_c_plus_plus_read_it_and_its_structs_lie_the_same() {
    const PROGRAM: &str = r#"
#include "regatta_probe.h"
#include <stddef.h>
typedef char state_size[sizeof(regatta_probe_state_t) == 32 ? 1 : -1];
typedef char state_sm[offsetof(regatta_probe_state_t, sm_mhz) == 8 ? 1 : -1];
int timed(regatta_probe *probe, double *ns) {
  if (regatta_probe_sample_begin(probe, 1)) return REGATTA_PROBE_CUDA_FAILED;
  return regatta_probe_sample_end(probe, ns, 0, 0, 0);
}
"#;
    for (compiler, ending, standard) in [("cc", "c", "-std=c99"), ("c++", "cc", "-std=c++11")] {
        if Command::new(compiler).arg("--version").output().is_err() {
            eprintln!("no {compiler} here: not tried");
            continue;
        }
        let file = std::env::temp_dir().join(format!("header-{}.{ending}", std::process::id()));
        fs::write(&file, PROGRAM).unwrap();
        let output = Command::new(compiler)
            .args([
                "-fsyntax-only",
                "-Wall",
                "-Wextra",
                "-Wno-unused",
                "-Werror",
                standard,
            ])
            .arg("-I")
            .arg(here("include"))
            .arg(&file)
            .output()
            .unwrap();
        let _ = fs::remove_file(&file);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{compiler}: {words}");
    }
}
