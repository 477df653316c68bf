//! The shards of a suite as work for a scheduler: the texts that it is given.
//!
//! Nothing is run here. [`slurm`] makes the scripts of a job array and of the job behind it,
//! [`queue`] reads what Slurm's commands print, and [`kubernetes`] makes manifests. Each shard is
//! measured by `regatta gate SUITE --shard I/N`, what has something left is asked of
//! `regatta next`, and `regatta merge` judges: the scheduler is told of nothing else.

pub mod devices;
pub mod kubernetes;
pub mod queue;
pub mod slurm;
mod yaml;

use crate::record::shards::SHARDS;
use crate::report::text::shell_quoted;

/// Most rounds of fresh invocations. A suite bounds its batches far below that: this is for a
/// shard that would ask for ever.
const ROUNDS: u32 = 100;

/// What is measured in shards and judged as a whole. Words are a command line's after the
/// program's name, without what this room adds itself: shard and folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The suite's name.
    pub suite: String,
    /// In how many shards, at least 1.
    pub shards: u32,
    /// What measures: `gate quick --filter cpu*`.
    pub measure: Vec<String>,
    /// What is added to `next`: `--baselines DIR`.
    pub next: Vec<String>,
    /// What is added to `merge`: `--strict`, and the same.
    pub merge: Vec<String>,
    /// Where the whole's run and reports go.
    pub out: String,
    /// How often shards that died are begun again.
    pub tries: u32,
    /// GPUs of each task.
    pub gpus: u64,
    /// Processor cores of each task, where that is said.
    pub cores: Option<u32>,
}

impl Plan {
    /// The folder of the shards, within that of the whole.
    pub fn shards_folder(&self) -> String {
        format!("{}/{SHARDS}", self.out.trim_end_matches('/'))
    }
}

/// A program and its words as one line for a POSIX shell, each exactly as it is: this is run, and
/// not only shown.
fn command(program: &str, words: &[String]) -> String {
    let words = std::iter::once(program).chain(words.iter().map(String::as_str));
    words.map(shell_quoted).collect::<Vec<_>>().join(" ")
}

/// `quick` as a part of a name in any of these systems: at most 30 lower-case letters, digits and
/// dashes, which neither begins nor ends with a dash.
fn label(text: &str) -> String {
    let mut label = String::new();
    for c in text.to_ascii_lowercase().chars() {
        match c.is_ascii_alphanumeric() {
            true => label.push(c),
            false if label.is_empty() || label.ends_with('-') => {}
            false => label.push('-'),
        }
    }
    label.truncate(30);
    let label = label.trim_matches('-');
    match label.is_empty() {
        true => "suite".to_owned(),
        false => label.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_one_whatever_the_suite_is_called() {
        for (name, expected) in [
            ("quick", "quick"),
            ("xformers-0.0.26", "xformers-0-0-26"),
            ("My suite: ü", "my-suite"),
            ("--", "suite"),
            ("", "suite"),
        ] {
            assert_eq!(label(name), expected);
        }
        let long = label(&"a-".repeat(60));
        assert!(long.len() <= 30 && long.ends_with('a'), "{long}");
    }
}
