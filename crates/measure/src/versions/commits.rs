//! The commits between two, as rows that can be searched.
//!
//! Git's own bisect halves whatever can be reached from the bad end and not from the good one.
//! Merged branches are among that, and a commit of a branch that began before the good end has
//! neither what the good end has nor what came on the main line since: its time says nothing
//! about a change after. That is harmless to the question whether a bug is there; it is not to a
//! search that compares levels. So a row here holds only commits each of which has all that the
//! one before it has: a path from the good end to the bad one, by the first parents as far as
//! these lead there. Where a merge is named, what it brought is a row of its own, from where the
//! branch began: [`brought`].

use std::collections::BTreeMap;

use super::Version;
use crate::SetupError;
use crate::git::{GitCommands, commit};

/// The commits from `good` to `bad`, both included, each a parent of the next.
///
/// # Errors
/// When git does not know an end, or the good one is no ancestor of the bad one.
pub fn commits_between(
    git: &dyn GitCommands,
    good: &str,
    bad: &str,
) -> Result<Vec<Version>, SetupError> {
    let [first, last] = [good, bad].map(|revision| {
        if revision.ends_with('+') || revision.ends_with("-dirty") {
            return Err(SetupError(format!(
                "git:{revision} is a commit with uncommitted changes, which are in no commit: \
                 commit them, or name the commit itself"
            )));
        }
        commit(git, revision).map_err(|error| git_failed(revision, error))
    });
    let (first, last) = (first?, last?);
    if first == last {
        return Err(SetupError(format!(
            "git:{good} and git:{bad} are the same commit: there is nothing between them"
        )));
    }
    // Fails where they have nothing in common.
    let base = git.ask(&["merge-base", &first, &last]).ok();
    if base.as_deref() != Some(&first) {
        let fix = match base {
            Some(base) if base == last => "it is the newer of the two; the good end is the older \
                 one, and --fixed searches the same range for the commit that is good again"
                .to_owned(),
            Some(base) => format!(
                "their histories part at {0}; give --good git:{0}, or merge them first",
                base.get(..12).unwrap_or(&base)
            ),
            None => "they have no history in common".to_owned(),
        };
        return Err(SetupError(format!(
            "git:{good} (--good) is no ancestor of git:{bad} (--bad): {fix}"
        )));
    }
    path(git, &first, &last)
}

/// What a merge brought: for each parent but `low`, the commits from where its line parted from
/// `low` to that parent. A parent whose line `low` has in full brought nothing.
///
/// # Errors
/// When git fails.
pub fn brought(
    git: &dyn GitCommands,
    low: &Version,
    merge: &Version,
) -> Result<Vec<Vec<Version>>, SetupError> {
    let mut rows = Vec::new();
    for parent in merge.parents.iter().filter(|&parent| parent != id(low)) {
        let Ok(base) = git.ask(&["merge-base", id(low), parent]) else {
            continue;
        };
        if base != *parent {
            rows.push(path(git, &base, parent)?);
        }
    }
    Ok(rows)
}

/// How a commit is told: fields that are split again at [`FIELD`].
const FORMAT: &str = "--format=%H%x1f%P%x1f%h%x1f%an%x1f%cs%x1f%s";
const FIELD: char = '\u{1f}';

/// A path from an ancestor to a commit.
fn path(git: &dyn GitCommands, low: &str, high: &str) -> Result<Vec<Version>, SetupError> {
    let range = format!("{low}..{high}");
    let between = [
        "rev-list",
        "--no-commit-header",
        "--ancestry-path",
        FORMAT,
        &range,
    ];
    let alone = [
        "rev-list",
        "--no-commit-header",
        "--max-count=1",
        FORMAT,
        low,
    ];
    let mut commits = BTreeMap::new();
    for arguments in [between.as_slice(), &alone] {
        let text = git
            .ask(arguments)
            .map_err(|error| git_failed(high, error))?;
        let read = text.lines().filter_map(read);
        commits.extend(read.map(|commit| (id(&commit).to_owned(), commit)));
    }
    let mut row = Vec::new();
    let mut at = high.to_owned();
    loop {
        let Some(commit) = commits.remove(&at) else {
            let error = SetupError(format!("its history down to {low} cannot be read"));
            return Err(git_failed(high, error));
        };
        // Only ancestors that descend from `low` were listed.
        let next = commit.parents.iter().find(|id| commits.contains_key(*id));
        let next = next.cloned();
        let done = id(&commit) == low;
        row.push(commit);
        match next {
            Some(parent) if !done => at = parent,
            _ => break,
        }
    }
    row.reverse();
    Ok(row)
}

fn read(line: &str) -> Option<Version> {
    let fields: Vec<&str> = line.splitn(6, FIELD).collect();
    let [id, parents, short, author, date, subject] = fields[..] else {
        return None;
    };
    Some(Version {
        spec: format!("git:{id}"),
        name: short.to_owned(),
        subject: Some(subject.to_owned()),
        author: Some(author.to_owned()),
        date: Some(date.to_owned()),
        parents: parents.split_whitespace().map(str::to_owned).collect(),
    })
}

/// The id of a commit in full.
fn id(commit: &Version) -> &str {
    commit.spec.trim_start_matches("git:")
}

fn git_failed(revision: &str, error: SetupError) -> SetupError {
    SetupError(format!("git:{revision}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A history: each commit with its parents, older ones first. Ids are their names.
    struct Fake(Vec<(&'static str, Vec<&'static str>)>);

    impl Fake {
        fn parents(&self, id: &str) -> &[&'static str] {
            let found = self.0.iter().find(|(name, _)| *name == id);
            found.map_or(&[], |(_, parents)| parents)
        }

        fn has(&self, id: &str, ancestor: &str) -> bool {
            id == ancestor || self.parents(id).iter().any(|p| self.has(p, ancestor))
        }

        fn line(&self, id: &str) -> String {
            let parents = self.parents(id).join(" ");
            [
                id,
                &parents,
                id,
                "Ann",
                "2026-11-22",
                &format!("Change {id}"),
                "!\n",
            ]
            .join("\u{1f}")
        }
    }

    impl GitCommands for Fake {
        fn bytes(&self, arguments: &[&str]) -> Result<Vec<u8>, SetupError> {
            let ids = || self.0.iter().map(|(id, _)| *id);
            let found = match arguments {
                ["rev-parse", .., revision] => {
                    let name = revision.trim_end_matches("^{commit}");
                    ids().find(|id| *id == name).map(str::to_owned)
                }
                ["merge-base", one, other] => {
                    let mut common = ids().filter(|id| self.has(one, id) && self.has(other, id));
                    common.next_back().map(str::to_owned)
                }
                ["rev-list", _, "--ancestry-path", _, range] => {
                    let (low, high) = range.split_once("..").unwrap();
                    let between = ids().filter(|id| *id != low && self.has(high, id));
                    let between = between.filter(|id| self.has(id, low));
                    Some(between.map(|id| self.line(id)).collect())
                }
                ["rev-list", _, "--max-count=1", _, id] => Some(self.line(id)),
                _ => None,
            };
            let refused = || SetupError(format!("git {}: no", arguments.join(" ")));
            found.map(String::into_bytes).ok_or_else(refused)
        }
    }

    /// `a - b ------ m - n`, where `m` merges `x - y`, which began at `a`.
    fn merged() -> Fake {
        Fake(vec![
            ("a", vec![]),
            ("b", vec!["a"]),
            ("x", vec!["a"]),
            ("y", vec!["x"]),
            ("m", vec!["b", "y"]),
            ("n", vec!["m"]),
        ])
    }

    fn ids(row: &[Version]) -> String {
        let ids: Vec<&str> = row.iter().map(id).collect();
        ids.join(" ")
    }

    #[test]
    fn a_row_holds_only_what_has_all_before_it_and_a_merge_brings_another() {
        let git = merged();
        // From x, the good end is on the branch: the main line does not have it.
        for (good, bad, row) in [
            ("a", "n", "a b m n"),
            ("b", "n", "b m n"),
            ("x", "n", "x y m n"),
        ] {
            assert_eq!(ids(&commits_between(&git, good, bad).unwrap()), row);
        }
        let row = commits_between(&git, "a", "b").unwrap();
        assert_eq!(row[1].subject.as_deref(), Some("Change b\u{1f}!"));
        assert_eq!(row[1].author.as_deref(), Some("Ann"));
        for (good, brings) in [("a", "a x y"), ("x", "a b")] {
            let row = commits_between(&git, good, "n").unwrap();
            let at = row.len() - 2;
            let rows = brought(&git, &row[at - 1], &row[at]).unwrap();
            assert_eq!(
                rows.iter().map(|row| ids(row)).collect::<Vec<_>>(),
                [brings]
            );
            assert!(brought(&git, &row[at], &row[at + 1]).unwrap().is_empty());
        }
    }

    #[test]
    fn ends_that_are_no_range_are_refused_with_what_to_do() {
        let mut git = merged();
        git.0.push(("lone", vec![]));
        for (good, bad, words) in [
            ("n", "a", "it is the newer of the two"),
            ("y", "b", "part at a; give --good git:a"),
            ("a", "lone", "no history in common"),
            ("b", "b", "the same commit"),
            ("none", "a", "git:none"),
            ("a", "b+", "git:b+ is a commit with uncommitted changes"),
            ("a-dirty", "b", "commit them"),
        ] {
            let told = commits_between(&git, good, bad).unwrap_err().to_string();
            assert!(told.contains(words), "{good} {bad}: {told}");
        }
    }
}
