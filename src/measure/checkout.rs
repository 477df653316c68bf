//! The checkout that a run is started in: its revision, and what is changed in it.

use std::path::Path;
use std::process::{Command, Stdio};

use super::identity::checksum;
use crate::record::types::Git;

/// What a run writes, or Python beside its sources: no change of the code that is measured.
const WRITTEN: [&str; 4] = ["reports", "baselines", "**/__pycache__/**", "**/*.pyc"];

/// The state of the checkout this was started in, if it is one. What lies in `output` is no
/// change of it.
pub fn checkout(output: &Path) -> Option<Git> {
    let revision = text(git(&["rev-parse", "HEAD"])?);
    let mut tracked = vec!["status", "--porcelain", "--untracked-files=no"];
    let dirty = !git(&tracked)?.is_empty();
    let excluded = excluded(output);
    let paths = excluded.iter().map(String::as_str);
    tracked = vec!["diff", "HEAD", "--binary", "--no-ext-diff", "--", ":/"];
    let changes = git(&[tracked, paths.clone().collect()].concat())?;
    let untracked = [
        "ls-files",
        "--others",
        "--exclude-standard",
        "-z",
        "--",
        ".",
    ];
    let untracked = git(&[untracked.to_vec(), paths.collect()].concat())?;
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

/// Patterns by which git leaves out what is written while measuring.
fn excluded(output: &Path) -> Vec<String> {
    let fixed = WRITTEN.map(|pattern| format!(":(exclude,glob){pattern}"));
    let folders = WRITTEN[..2]
        .iter()
        .map(|folder| format!(":(exclude){folder}"));
    let mut patterns: Vec<String> = fixed[2..].iter().cloned().chain(folders).collect();
    if output.is_relative() {
        patterns.push(format!(":(exclude){}", output.display()));
    }
    patterns
}

fn git(args: &[&str]) -> Option<Vec<u8>> {
    let mut command = Command::new("git");
    // Options of the caller's own git must not run programs or page.
    command.args(["-c", "core.quotepath=off", "-c", "core.fsmonitor=false"]);
    command.args(args).stdin(Stdio::null());
    let output = command.output().ok()?;
    output.status.success().then_some(output.stdout)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).trim().to_owned()
}
