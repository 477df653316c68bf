//! A few seconds of what the fuzzers do for hours: every seed, and small changes of each that
//! are the same in every run.

mod targets;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rand::prelude::*;
use rand::rngs::ChaCha8Rng;
use targets::{TARGETS, target};

/// Changed seeds of each target.
const CHANGED: usize = 50;

/// Texts that break readers: numbers at the ends of types, separators, control characters of terminals.
const PIECES: [&str; 24] = [
    "0",
    "-1",
    "1e308",
    "1e-320",
    "18446744073709551615",
    "9223372036854775807",
    "-9223372036854775808",
    "4294967295",
    "99999999999999999999999",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "[[[[[[[[",
    "\"=1\"",
    "\\u0000",
    "\\u001b[2J",
    "\u{202e}",
    ",",
    ":",
    "=",
    "\n",
    "\0",
];

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seeds = files(&root.join("tests/fuzz/seeds").join(name));
    if name == "suite" {
        seeds.extend(files(&root.join("suites")));
    }
    assert!(!seeds.is_empty(), "{name} has no seed");
    seeds.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// A number or a word of the text, so that what replaces it stands where a value stood.
fn word(data: &[u8], random: &mut ChaCha8Rng) -> (usize, usize) {
    let at = random.random_range(0..=data.len());
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"-.+_".contains(byte);
    let from = data[..at].iter().rposition(|byte| !is_word(byte));
    let to = data[at..].iter().position(|byte| !is_word(byte));
    (
        from.map_or(0, |from| from + 1),
        to.map_or(data.len(), |to| at + to),
    )
}

fn changed(data: &[u8], other: &[u8], random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut data = data.to_vec();
    for _ in 0..random.random_range(1..4) {
        let (from, to) = word(&data, random);
        match random.random_range(0..7) {
            0 => drop(data.splice(from..to, PIECES.choose(random).unwrap().bytes())),
            1 => data.truncate(from),
            2 => drop(data.drain(from..to)),
            3 => {
                let again = data[from..to].repeat(random.random_range(2..200));
                data.splice(from..to, again);
            }
            4 if !data.is_empty() => {
                let at = random.random_range(0..data.len());
                data[at] ^= 1 << random.random_range(0..8);
            }
            5 => {
                let (a, b) = word(other, random);
                data.splice(from..to, other[a..b].iter().copied());
            }
            _ => {
                let lines: Vec<&[u8]> = data.split_inclusive(|byte| *byte == b'\n').collect();
                let line = lines
                    .choose(random)
                    .map_or(Vec::new(), |line| line.to_vec());
                data.extend(line);
            }
        }
    }
    data
}

#[test]
fn no_reader_breaks_on_its_seeds_or_near_them() {
    for (name, _) in TARGETS {
        let begun = Instant::now();
        let seeds = seeds(name);
        for seed in &seeds {
            target(name, seed);
        }
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..CHANGED {
            let (one, other) = (seeds.choose(&mut random), seeds.choose(&mut random));
            let data = changed(one.unwrap(), other.unwrap(), &mut random);
            target(name, &data);
        }
        println!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
    }
}

#[test]
fn every_target_has_a_fuzzer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("tests/fuzz/Cargo.toml")).unwrap();
    for (name, _) in TARGETS {
        assert!(
            manifest.contains(&format!(
                "name = \"{name}\"
"
            )),
            "{name}"
        );
    }
}
