//! The files of [criterion](https://docs.rs/criterion), as version 0.8 writes
//! them: `GROUP/FUNCTION/BASELINE/{benchmark,estimates,sample,tukey}.json`.
//!
//! A case is the benchmark `worker/variant` / `problem[:parameters]`. Folders are
//! named after both, mangled and cut to 64 bytes, so the id is read from
//! `benchmark.json` alone.

mod files;
mod read;

use std::collections::BTreeSet;

pub use files::{ConfidenceInterval, Estimate, Estimates, Identity, Sample, Throughput};
pub use read::{Benchmark, baselines, read};

use crate::attention::{Case, CaseId};

/// Longest name of a folder, in bytes.
const LONGEST_FOLDER: usize = 64;

/// Longest title, in bytes.
const LONGEST_TITLE: usize = 100;

/// The group and the function of a case: what stands before and after the first
/// colon of its id.
pub fn names(case: &CaseId) -> (String, String) {
    let (variant, rest) = case.0.split_once(':').unwrap_or((&case.0, ""));
    (variant.to_owned(), rest.to_owned())
}

impl Identity {
    /// The identity of a case that does `flops` operations a call, where that is known.
    /// `taken` holds the folders and titles of the others; its own are added. Criterion
    /// numbers those that are the same once cut, and so does this, in the same order.
    pub fn of(case: &CaseId, flops: Option<f64>, taken: &mut BTreeSet<String>) -> Identity {
        let (group, function) = names(case);
        let full_id = format!("{group}/{function}");
        let folder = format!("{}/{}", folder(&group), folder(&function));
        let mut title = cut(&full_id, LONGEST_TITLE).to_owned();
        if title != full_id {
            title.push_str("...");
        }
        Identity {
            directory_name: unique(folder, "_", taken),
            title: unique(title, " #", taken),
            group_id: group,
            function_id: Some(function),
            value_str: None,
            throughput: flops.map(|flops| Throughput::Elements {
                elements: flops as u64,
            }),
            full_id,
        }
    }

    /// The case that was benchmarked, its id in canonical form: the group and the rest
    /// with a colon between, as regatta writes them, or all of it as one id.
    ///
    /// # Errors
    /// Why it is none, as a sentence.
    pub fn case(&self) -> Result<CaseId, String> {
        let rest: Vec<&str> = [&self.function_id, &self.value_str]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        let readings = [
            format!("{}:{}", self.group_id, rest.join(":")),
            self.full_id.clone(),
        ];
        let case = readings.iter().find_map(|id| id.parse::<Case>().ok());
        case.map(|case| case.id()).ok_or_else(|| {
            format!(
                "`{}` is no case id; one is the group `cpu/flash` with the function \
                 `h8,s2048,d64,causal`",
                self.full_id
            )
        })
    }
}

/// A name as criterion makes a folder of it.
fn folder(name: &str) -> String {
    let safe = name.replace(['?', '"', '/', '\\', '*', '<', '>', ':', '|', '^'], "_");
    cut(&safe, LONGEST_FOLDER).to_owned()
}

/// At most so many bytes of a text, whole characters.
fn cut(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
}

fn unique(name: String, mark: &str, taken: &mut BTreeSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name}{mark}{number}"));
    let mut candidates = std::iter::once(name.clone()).chain(numbered);
    let free = candidates.find(|candidate| !taken.contains(candidate));
    let free = free.unwrap_or(name);
    taken.insert(free.clone());
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(group: &str, function: Option<&str>, value: Option<&str>) -> Identity {
        let parts = [Some(group), function, value];
        Identity {
            group_id: group.to_owned(),
            function_id: function.map(str::to_owned),
            value_str: value.map(str::to_owned),
            throughput: None,
            full_id: parts.into_iter().flatten().collect::<Vec<_>>().join("/"),
            directory_name: String::new(),
            title: String::new(),
        }
    }

    #[test]
    fn ids_come_back_however_they_were_cut() {
        let ragged = format!("v{}1:{}7", "100+".repeat(30), "200+".repeat(30));
        let mut taken = BTreeSet::new();
        let mut folders = BTreeSet::new();
        for id in [
            "cpu/flash:s64,d32".to_owned(),
            "torch/efficient@old:b2,s64,d32,bwd:num_splits_key=1".to_owned(),
            format!("cpu/flash:{ragged},d64"),
            format!("cpu/flash:{ragged},d64,causal-br"),
        ] {
            let case: Case = id.parse().unwrap();
            let identity = Identity::of(&case.id(), Some(1.0), &mut taken);
            assert_eq!(identity.case(), Ok(case.id()), "{id}");
            let parts: Vec<&str> = identity.directory_name.split('/').collect();
            assert_eq!(parts.len(), 2, "{}", identity.directory_name);
            assert!(!identity.directory_name.contains([':', '@', '"']) || id.contains('@'));
            assert!(folders.insert(identity.directory_name));
        }
        assert!(folders.iter().any(|folder| folder.ends_with("_2")));
    }

    #[test]
    fn other_ways_to_write_a_case_are_understood() {
        for (group, function, value) in [
            ("cpu/flash", Some("s64,d32"), Some("num_splits_key=2")),
            ("cpu", Some("flash:s64,d32:num_splits_key=2"), None),
            ("cpu/flash:s64,d32:num_splits_key=2", None, None),
            ("cpu/flash", Some("b1,s64,d32:num_splits_key=2"), None),
        ] {
            let case = identity(group, function, value).case();
            let expected = CaseId("cpu/flash:s64,d32:num_splits_key=2".to_owned());
            assert_eq!(case, Ok(expected));
        }
        let error = identity("sort", Some("quick"), Some("1000")).case();
        let error = error.unwrap_err();
        assert!(error.contains("`sort/quick/1000` is no case id"), "{error}");
    }
}
