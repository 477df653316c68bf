//! Libraries that were compiled in a checkout before its sources were edited.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Roots, is_code_of_user, is_elf, library_name};
use crate::files::is_compiled;
use crate::git;

impl Roots {
    /// The newest library or program of this checkout that was loaded, and a source that the other
    /// side has otherwise and that was edited after it was compiled.
    pub(crate) fn outdated(&self, files: &BTreeSet<PathBuf>) -> Option<(PathBuf, PathBuf)> {
        let changed = |path: &Path| fs::metadata(path).and_then(|facts| facts.modified()).ok();
        let compiled = files
            .iter()
            .filter(|file| self.is_own(file) && is_code_of_user(file) && is_elf(file));
        let compiled: Vec<&PathBuf> = compiled.collect();
        if compiled.is_empty() {
            return None;
        }
        // One that git tracks is the project's own only if its source is beside it by name: others
        // are vendored.
        let ignored = git::ignored(&self.own, &compiled);
        let has_source = |file: &Path| {
            let name = library_name(file);
            let mut sources = self.tracked().filter(|path| is_compiled(path));
            sources.any(|path| path.file_stem().is_some_and(|stem| *stem == *name))
        };
        let made = compiled
            .into_iter()
            .filter(|file| ignored.contains(*file) || has_source(file));
        let (built, library) = made.map(|file| (changed(file), file)).max()?;
        // A clone writes what it tracks in any order.
        let is_edited =
            |source: &Path| ignored.contains(library) || git::is_edited(&self.own, source);
        let mut newer = self
            .tracked()
            .filter(|path| is_compiled(path) && changed(&self.own.join(path)) > built);
        let source = newer.find(|path| self.differs(path) && is_edited(path))?;
        Some((library.clone(), source.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::super::tests::{both_roots, with_checkouts};
    use super::*;

    #[test]
    fn a_library_that_is_older_than_its_edited_source_is_outdated() {
        let libraries = ["head/build/lib.so", "head/vendored.so", "head/libk.so"];
        let (_folder, at) = with_checkouts(&libraries.map(|name| (name, "\u{7f}ELF")));
        let git = |words: &[&str]| {
            let words = [&["-c", "user.name=a", "-c", "user.email=a"], words].concat();
            git::ask(&at("head"), &words).unwrap();
        };
        git(&["init", "-q"]);
        fs::write(at("head/.gitignore"), "build\n").unwrap();
        git(&["add", "."]);
        git(&["commit", "-q", "-m", "one"]);
        let age = |name: &str, minutes: u64| {
            let time = SystemTime::now() - Duration::from_secs(60 * minutes);
            let file = fs::File::options().append(true).open(at(name)).unwrap();
            file.set_modified(time).unwrap();
        };
        let outdated = |name: &str| {
            let loaded = BTreeSet::from([at(name), at("head/mine.py")]);
            let (_, head) = both_roots(&at);
            head.outdated(&loaded).map(|(_, source)| source)
        };
        for name in libraries {
            age(name, 2);
        }
        for (name, minutes, wanted) in [
            ("head/build/lib.so", 1, true),
            ("head/build/lib.so", 3, false),
            // The source has another name, or is as it was committed.
            ("head/vendored.so", 1, false),
            ("head/libk.so", 1, false),
        ] {
            age("head/csrc/k.cu", minutes);
            let source = wanted.then(|| PathBuf::from("csrc/k.cu"));
            assert_eq!(outdated(name), source, "{name} {minutes}");
        }
        fs::write(at("head/csrc/k.cu"), "three").unwrap();
        assert_eq!(outdated("head/libk.so"), Some("csrc/k.cu".into()));
        // The other side has the same.
        fs::write(at("base/csrc/k.cu"), "three").unwrap();
        assert_eq!(outdated("head/build/lib.so"), None);
    }
}
