//! Folders that commands made and kept in the cache: environments, and worktrees of revisions.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::environments::requirements_of;
use super::git::{remove_worktree, repository_of};
use regatta_core::cache;
use regatta_core::locked::LockedFolder;
use regatta_worker::units::Bytes;

/// A folder of the cache that a command made.
#[derive(Clone, Debug)]
pub struct Made {
    /// The name by which it is removed: `jax-0.5.0-0123456789abcdef`, `repository-0123456789abcdef/COMMIT`.
    pub name: String,
    /// The folder itself.
    pub folder: PathBuf,
    /// The requirements or the repository that it was made from.
    pub source: String,
    is_revision: bool,
}

/// Everything that commands made, environments first.
///
/// # Errors
/// The cache cannot be found.
pub fn all() -> io::Result<Vec<Made>> {
    Ok(all_in(&cache::folder()?))
}

fn all_in(cache: &Path) -> Vec<Made> {
    let environments = folders(&cache.join("environments")).into_iter();
    let environments = environments.map(|(name, folder)| Made {
        source: requirements_of(&folder).join(", "),
        name,
        folder,
        is_revision: false,
    });
    let checkouts = folders(&cache.join("revisions")).into_iter();
    let revisions = checkouts.flat_map(|(checkout, folder)| {
        folders(&folder).into_iter().map(move |(commit, folder)| {
            let repository = repository_of(&folder);
            let root = repository.as_deref().map(|git| {
                let whole = git.parent().filter(|_| git.ends_with(".git"));
                whole.unwrap_or(git)
            });
            Made {
                name: format!("{checkout}/{commit}"),
                source: root.map_or("a repository that is gone".to_owned(), |root| {
                    root.display().to_string()
                }),
                folder,
                is_revision: true,
            }
        })
    });
    environments.chain(revisions).collect()
}

/// The folders in a folder, with their names.
fn folders(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let name = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut folders: Vec<_> = folders.map(|entry| (name(&entry), entry.path())).collect();
    folders.sort();
    folders
}

impl Made {
    /// The size on disk.
    pub fn size(&self) -> Bytes {
        Bytes(size(&self.folder))
    }

    /// Removes it. Returns false if a process uses it.
    ///
    /// # Errors
    /// A part of it cannot be removed.
    pub fn remove(&self) -> io::Result<bool> {
        let Some(lock) = LockedFolder::try_alone(&self.folder)? else {
            return Ok(false);
        };
        if self.is_revision {
            remove_worktree(&self.folder)?;
        }
        lock.remove()?;
        if self.is_revision
            && let Some(checkout) = self.folder.parent()
        {
            remove_free_locks(checkout)?;
            // Succeeds only for the last worktree of a checkout, as a folder that is not empty
            // stays.
            if fs::remove_dir(checkout).is_ok() {
                LockedFolder::try_alone(checkout)?.map_or(Ok(()), LockedFolder::remove)?;
            }
        }
        Ok(true)
    }
}

/// Removes the locks of worktrees that were never made or are gone.
fn remove_free_locks(checkout: &Path) -> io::Result<()> {
    let entries = fs::read_dir(checkout)?.flatten();
    let locks = entries.map(|entry| entry.path());
    let locks = locks.filter(|path| path.extension().is_some_and(|ending| ending == "lock"));
    let gone = locks
        .map(|lock| lock.with_extension(""))
        .filter(|folder| !folder.exists());
    for folder in gone {
        LockedFolder::try_alone(&folder)?.map_or(Ok(()), LockedFolder::remove)?;
    }
    Ok(())
}

fn size(path: &Path) -> u64 {
    let Ok(facts) = fs::symlink_metadata(path) else {
        return 0;
    };
    // Links are not followed; only folders have entries.
    let folder = facts.is_dir().then(|| fs::read_dir(path));
    let entries = folder.into_iter().flatten().flatten().flatten();
    let below: u64 = entries.map(|entry| size(&entry.path())).sum();
    facts.blocks() * 512 + below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_listed_with_its_size_and_removed_unless_it_is_used() {
        let cache = tempfile::tempdir().unwrap();
        let environment = cache.path().join("environments/jax-1");
        let revision = cache.path().join("revisions/repo-1/abc");
        for folder in [&environment, &revision] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("data"), vec![1; 1 << 20]).unwrap();
        }
        fs::write(
            environment.join("requirements.txt"),
            "jax==0.5.0\njaxlib==0.5.0\n",
        )
        .unwrap();
        fs::write(revision.with_extension("built"), "{}").unwrap();
        fs::write(revision.with_file_name("abc-2.lock"), "").unwrap();
        let made = all_in(cache.path());
        let names: Vec<&str> = made.iter().map(|made| made.name.as_str()).collect();
        assert_eq!(names, ["jax-1", "repo-1/abc"]);
        assert_eq!(made[0].source, "jax==0.5.0, jaxlib==0.5.0");
        assert!(made.iter().all(|made| made.size().0 >= 1 << 20));
        let used = LockedFolder::shared(&environment).unwrap();
        assert!(!made[0].remove().unwrap());
        assert!(environment.join("data").is_file());
        drop(used);
        for made in &made {
            assert!(made.remove().unwrap());
        }
        assert!(all_in(cache.path()).is_empty());
        for folder in ["environments", "revisions"] {
            let left = fs::read_dir(cache.path().join(folder)).unwrap().count();
            assert_eq!(left, 0, "{folder}");
        }
    }
}
