//! The checkout that a run is started in: its revision, and what is changed in it.

use std::path::Path;

use super::git::{Checkout, Git as _};
use super::identity::checksum;
use regatta_core::record::types::Git;

/// Patterns by which git leaves out what a run writes, and Python beside its sources: no change
/// of the code that is measured.
const WRITTEN: [&str; 4] = [
    ":(exclude)reports",
    ":(exclude)baselines",
    ":(exclude,glob)**/__pycache__/**",
    ":(exclude,glob)**/*.pyc",
];

/// The state of the checkout this was started in, if it is one. What lies in `output` is no
/// change of it.
pub fn checkout(output: &Path) -> Option<Git> {
    let git = Checkout::at(".");
    let revision = git.ask(&["rev-parse", "HEAD"]).ok()?;
    let changed_files = git.ask(&["status", "--porcelain", "--untracked-files=no"]);
    let dirty = !changed_files.ok()?.is_empty();
    let written = output
        .is_relative()
        .then(|| format!(":(exclude){}", output.display()));
    let changed = |what: &[&str]| {
        let but = WRITTEN.into_iter().chain(written.as_deref());
        git.bytes(&what.iter().copied().chain(but).collect::<Vec<_>>())
            .ok()
    };
    let changes = changed(&["diff", "HEAD", "--binary", "--no-ext-diff", "--", ":/"])?;
    let untracked = changed(&[
        "ls-files",
        "--others",
        "--exclude-standard",
        "-z",
        "--",
        ".",
    ])?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&changes);
    for name in untracked.split(|byte| *byte == 0).filter(|n| !n.is_empty()) {
        hasher.update(name);
        let path = String::from_utf8_lossy(name);
        hasher.update(checksum(Path::new(path.as_ref())).as_bytes());
    }
    let clean = changes.is_empty() && untracked.is_empty();
    Some(Git {
        revision,
        dirty,
        changes: (!clean).then(|| format!("{:08x}", hasher.finalize())),
    })
}
