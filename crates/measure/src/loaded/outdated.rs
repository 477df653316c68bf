//! Libraries that were compiled in a checkout before its sources were edited.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{Roots, installed_in, is_code_of_user, is_elf, library_name, root};
use crate::files::is_compiled;
use crate::git;

impl Roots {
    /// The newest loaded library or program of this checkout, and a source that differs on the
    /// other side and was edited after the library was compiled.
    pub(crate) fn outdated(&self, files: &BTreeSet<PathBuf>) -> Option<(PathBuf, PathBuf)> {
        let library = Library::newest(&self.own, files, || self.tracked().cloned().collect())?;
        // A clone writes tracked files in any order, so file times do not show edits.
        let is_edited = |source: &Path| library.is_ignored || git::is_edited(&self.own, source);
        let mut newer = library.newer.into_iter();
        let source = newer.find(|source| self.differs(source) && is_edited(source))?;
        Some((library.path, source))
    }
}

/// The newest loaded library or program of the checkout in which regatta was started, and a source
/// that was edited after it was compiled.
pub(crate) fn outdated_here(files: &BTreeSet<PathBuf>) -> Option<(PathBuf, PathBuf)> {
    outdated_in(&root(Path::new("."))?, files)
}

fn outdated_in(own: &Path, files: &BTreeSet<PathBuf>) -> Option<(PathBuf, PathBuf)> {
    let library = Library::newest(own, files, || git::tracked(own))?;
    // A CI cache restores a library that is older than the whole checkout.
    let edited = git::edited_since(own, library.built);
    let source = library
        .newer
        .into_iter()
        .find(|source| edited.contains(source))?;
    Some((library.path, source))
}

/// A library or program that was compiled in a checkout, or installed from it.
struct Library {
    path: PathBuf,
    built: SystemTime,
    /// True for one that git ignores, or that lies in an environment.
    is_ignored: bool,
    /// Sources that changed after it was compiled, relative to the checkout's root.
    newer: Vec<PathBuf>,
}

impl Library {
    /// The newest loaded library that is older than a source. `tracked` returns the files of the
    /// checkout.
    fn newest(
        own: &Path,
        files: &BTreeSet<PathBuf>,
        tracked: impl FnOnce() -> Vec<PathBuf>,
    ) -> Option<Library> {
        let changed = |path: &Path| fs::metadata(path).and_then(|facts| facts.modified()).ok();
        let compiled = files.iter().filter(|file| file.starts_with(own));
        let compiled = compiled.filter(|file| is_code_of_user(file) && is_elf(file));
        let compiled: Vec<&PathBuf> = compiled.collect();
        let mut installed = installed_from(own, files);
        installed.retain(|file| is_elf(file));
        if compiled.is_empty() && installed.is_empty() {
            return None;
        }
        let mut sources = tracked();
        // A source that a worker reads itself, such as `kernel.cu`, is compiled in each run.
        sources.retain(|path| is_compiled(path) && !files.contains(&own.join(path)));
        // A library that git tracks is vendored, unless a source of the same name exists.
        let ignored = git::ignored(own, &compiled);
        let has_source = |file: &Path| {
            let name = library_name(file);
            let mut stems = sources.iter().filter_map(|path| path.file_stem());
            stems.any(|stem| *stem == *name)
        };
        let made = compiled
            .into_iter()
            .filter(|file| ignored.contains(*file) || has_source(file))
            .chain(&installed);
        let (built, path) = made.filter_map(|file| Some((changed(file)?, file))).max()?;
        sources.retain(|source| changed(&own.join(source)).is_some_and(|time| time > built));
        (!sources.is_empty()).then(|| Library {
            path: path.clone(),
            built,
            is_ignored: ignored.contains(path) || installed.contains(path),
            newer: sources,
        })
    }
}

/// Those of these files that pip installed from a folder of this checkout, such as the extensions of
/// an editable install. `direct_url.json` of a distribution names the folder, `RECORD` its files.
fn installed_from(own: &Path, files: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let sites: BTreeSet<&Path> = files.iter().filter_map(|file| installed_in(file)).collect();
    let mut installed = BTreeSet::new();
    for site in sites {
        let entries = fs::read_dir(site).into_iter().flatten().flatten();
        for distribution in entries.map(|entry| entry.path()) {
            let origin = origin(&distribution).and_then(|folder| fs::canonicalize(folder).ok());
            if !origin.is_some_and(|folder| folder.starts_with(own)) {
                continue;
            }
            let record = fs::read_to_string(distribution.join("RECORD")).unwrap_or_default();
            let names = record.lines().filter_map(|line| line.split(',').next());
            installed.extend(names.map(|name| site.join(name)));
        }
    }
    installed.retain(|file| files.contains(file));
    installed
}

/// The folder that a distribution was installed from.
fn origin(distribution: &Path) -> Option<PathBuf> {
    let text = fs::read(distribution.join("direct_url.json")).ok()?;
    let value: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let mut parts = value["url"].as_str()?.strip_prefix("file://")?.split('%');
    let mut path = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        path.push(u8::from_str_radix(digits, 16).ok()?);
        path.extend(rest.as_bytes());
    }
    Some(OsString::from_vec(path).into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            // The source has another name, or is unchanged since its commit.
            ("head/vendored.so", 1, false),
            ("head/libk.so", 1, false),
        ] {
            age("head/csrc/k.cu", minutes);
            let source = wanted.then(|| PathBuf::from("csrc/k.cu"));
            assert_eq!(outdated(name), source, "{name} {minutes}");
        }
        fs::write(at("head/csrc/k.cu"), "three").unwrap();
        assert_eq!(outdated("head/libk.so"), Some("csrc/k.cu".into()));
        // The other side has the same contents.
        fs::write(at("base/csrc/k.cu"), "three").unwrap();
        assert_eq!(outdated("head/build/lib.so"), None);
    }

    #[test]
    fn a_library_alone_is_older_than_what_was_edited_or_committed_since() {
        let library = "head/build/lib.so";
        let (_folder, at) = with_checkouts(&[(library, "\u{7f}ELF")]);
        let head = at("head");
        let git = |words: &[&str]| {
            let words = [&["-c", "user.name=a", "-c", "user.email=a"], words].concat();
            git::ask(&head, &words).unwrap();
        };
        let changed = |name: &str, seconds: u64| {
            let time = SystemTime::now() + Duration::from_secs(seconds);
            let file = fs::File::options().append(true).open(at(name)).unwrap();
            file.set_modified(time).unwrap();
        };
        let outdated = || {
            let loaded = BTreeSet::from([at(library), at("head/mine.py")]);
            outdated_in(&head, &loaded).map(|(_, source)| source)
        };
        let source = Some(PathBuf::from("csrc/k.cu"));
        git(&["init", "-q"]);
        fs::write(at("head/.gitignore"), "build\n").unwrap();
        git(&["add", "."]);
        let file = fs::File::options().append(true).open(at(library)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(outdated(), None, "without a commit");
        git(&["commit", "-q", "-m", "one"]);
        assert_eq!(outdated(), source, "committed since");
        changed(library, 100);
        assert_eq!(outdated(), None, "built since");
        changed("head/csrc/k.cu", 200);
        assert_eq!(outdated(), None, "written again, as it was committed");
        fs::write(at("head/csrc/k.cu"), "three").unwrap();
        changed("head/csrc/k.cu", 200);
        assert_eq!(outdated(), source, "edited since");
        let loaded = BTreeSet::from([at(library), at("head/csrc/k.cu")]);
        assert_eq!(outdated_in(&head, &loaded), None, "compiled in each run");
    }

    #[test]
    fn a_library_that_was_installed_from_the_checkout_is_outdated_as_well() {
        let library = "a b/site-packages/sk/_fast.so";
        let record = "a b/site-packages/sk-1.0.dist-info/RECORD";
        let listed = "sk/_fast.so,sha256=x,1\nsk-1.0.dist-info/RECORD,,\n";
        let (_folder, at) = with_checkouts(&[(library, "\u{7f}ELF"), (record, listed)]);
        let git = |words: &[&str]| {
            let words = [&["-c", "user.name=a", "-c", "user.email=a"], words].concat();
            git::ask(&at("head"), &words).unwrap();
        };
        git(&["init", "-q"]);
        git(&["add", "."]);
        git(&["commit", "-q", "-m", "one"]);
        fs::write(at("head/csrc/k.cu"), "three").unwrap();
        let changed = |name: &str, seconds: u64| {
            let time = SystemTime::now() + Duration::from_secs(seconds);
            let file = fs::File::options().append(true).open(at(name)).unwrap();
            file.set_modified(time).unwrap();
        };
        let loaded = BTreeSet::from([at(library)]);
        let outdated = || outdated_in(&at("head"), &loaded).map(|(_, source)| source);
        changed("head/csrc/k.cu", 100);
        assert_eq!(outdated(), None, "installed from an index");
        let source = Some(PathBuf::from("csrc/k.cu"));
        for (folder, wanted) in [("base", None), ("head", source)] {
            let path = at(folder).display().to_string().replace('e', "%65");
            let url = format!("file://{path}");
            let url = serde_json::json!({"url": url, "dir_info": {"editable": true}});
            let file = at("a b/site-packages/sk-1.0.dist-info/direct_url.json");
            fs::write(file, url.to_string()).unwrap();
            assert_eq!(outdated(), wanted, "{folder}");
        }
        changed(library, 200);
        assert_eq!(outdated(), None, "installed again");
    }
}
