//! Files that a checkout has renamed since a revision.

use std::path::{Path, PathBuf};

use crate::git::ask;

/// A file of a revision that has another name in this checkout.
pub(crate) struct Renamed {
    /// The path in the revision, relative to the folder that regatta runs in; starts with `../` if
    /// it is outside.
    pub(crate) path: PathBuf,
    /// The share of the file that is unchanged, in percent.
    pub(crate) similarity: u32,
}

impl Renamed {
    /// The likeliest old path of `file`, a suite or a script, in the commit of a worktree.
    pub(crate) fn find(worktree: &Path, file: &str) -> Option<Renamed> {
        let here = Path::new(".");
        let commit = ask(worktree, &["rev-parse", "HEAD"]).ok()?;
        let prefix = ask(here, &["rev-parse", "--show-prefix"]).ok()?;
        let words = "diff --no-ext-diff --find-renames=1% --diff-filter=R --name-status";
        let listed = ask(here, words.split(' ').chain([commit.as_str()])).ok()?;
        listed.lines().find_map(|line| {
            let mut fields = line.split('\t');
            let similarity = fields.next()?.strip_prefix('R')?.parse().ok()?;
            let (old, new) = (fields.next()?, fields.next()?);
            let of_its_kind = Path::new(old).extension() == Path::new(new).extension();
            (new.strip_prefix(&prefix) == Some(file) && of_its_kind).then(|| {
                let path = match Path::new(old).strip_prefix(&prefix) {
                    Ok(below) => below.to_owned(),
                    Err(_) => Path::new(&"../".repeat(prefix.matches('/').count())).join(old),
                };
                Renamed { path, similarity }
            })
        })
    }

    /// True if git's own default would call it renamed.
    pub(crate) fn is_sure(&self) -> bool {
        self.similarity >= 50
    }
}
