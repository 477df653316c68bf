//! Writes a run's criterion files: where, and what is said of them.

use std::path::Path;

use anyhow::anyhow;

use super::sides::Stored;
use super::{Stop, note, print};
use regatta::report::{criterion, files};
use regatta::suite::{FILE_NAME_RULE, names_a_file};

/// Names that criterion gives a meaning of its own.
const RESERVED: [&str; 3] = ["change", "new", "report"];

/// Finds out before any work whether the files can be written.
///
/// # Errors
/// When the folder cannot be written, or the name cannot be a baseline's: exit code 2.
pub fn check(root: &Path, baseline: &str) -> Result<(), Stop> {
    if !names_a_file(baseline) || RESERVED.contains(&baseline) {
        return Err(Stop::Usage(anyhow!(
            "--criterion-baseline {baseline}: use {FILE_NAME_RULE}, and none of {}, which \
             criterion writes itself",
            RESERVED.join(", ")
        )));
    }
    files::check_writable(&root.join("index.html")).map_err(Stop::usage)
}

/// Writes the files of a run, and says which cases have none.
///
/// # Errors
/// A baseline, or other files in the way: exit code 2; a write that fails: 3.
pub fn write(root: &Path, baseline: &str, head: &Stored) -> Result<(), Stop> {
    if head.is_baseline {
        return Err(Stop::Usage(anyhow!(
            "{} holds no samples; criterion's files are made of a run: regatta report \
             reports/SUITE --criterion {}",
            head.path.display(),
            root.display()
        )));
    }
    let tree = criterion::tree(&head.whole()?, baseline).map_err(Stop::not_judged)?;
    files::write_tree(root, &tree).map_err(|error| match error {
        files::WriteError::Measured { .. } => Stop::usage(error),
        _ => Stop::not_judged(error),
    })?;
    for (case, reason) in &tree.left_out {
        note(format!("{case} is left out: {reason}"));
    }
    let cases = head
        .run
        .header
        .plan
        .len()
        .saturating_sub(tree.left_out.len());
    print(format!(
        "{}\n  {cases} cases as baseline {baseline}\n",
        root.display()
    ))
}
