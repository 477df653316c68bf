//! Temporary folders of a process. The folders of a killed process are removed by the next one.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Once;

use tempfile::{Builder, TempDir};

use crate::checksum::Checksum;

const PREFIX: &str = "regatta-";

/// Creates a folder in the system's temporary folder, with `purpose` in its name. The first call
/// removes folders of processes that have ended.
///
/// # Errors
/// When it cannot be made, or has no space.
pub fn folder(purpose: &str) -> io::Result<TempDir> {
    static REMOVED: Once = Once::new();
    let place = std::env::temp_dir();
    REMOVED.call_once(|| remove_left(&place, &processes()));
    make_in(&place, purpose)
}

fn make_in(place: &Path, purpose: &str) -> io::Result<TempDir> {
    let prefix = format!("{PREFIX}{}-{}-{purpose}-", processes(), std::process::id());
    let folder = Builder::new().prefix(&prefix).tempdir_in(place);
    // A folder takes no space: the logs of workers would lack their first line.
    let folder = folder.and_then(|folder| {
        let file = folder.path().join("space");
        fs::write(&file, [0; 4096])?;
        fs::remove_file(&file).map(|()| folder)
    });
    folder.map_err(|error| {
        let words = "name another folder for temporary files in TMPDIR";
        let place = place.display();
        io::Error::new(
            error.kind(),
            format!("{place} cannot be written ({}); {words}", error.kind()),
        )
    })
}

/// An id of this boot and container, in which process ids are unique. Another host or container may
/// share the temporary folder.
fn processes() -> String {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let container = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    Checksum::new([&boot[..], container.as_os_str().as_encoded_bytes()]).name()
}

/// Removes this user's folders of processes that have ended. Errors are ignored.
fn remove_left(place: &Path, processes: &str) {
    let Ok(user) = fs::metadata("/proc/self").map(|own| own.uid()) else {
        return;
    };
    for entry in place.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let process = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.strip_prefix(processes)?.strip_prefix('-'))
            .and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        let is_gone = process.is_some_and(|id| !Path::new("/proc").join(id.to_string()).exists());
        if is_gone && entry.metadata().is_ok_and(|there| there.uid() == user) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_folder_that_cannot_be_written_is_named_with_the_fix() {
        let place = tempfile::tempdir().unwrap();
        let folder = make_in(place.path(), "logs").unwrap();
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        let absent = place.path().join("absent");
        let error = make_in(&absent, "logs").unwrap_err().to_string();
        let absent = absent.display();
        assert_eq!(
            error,
            format!(
                "{absent} cannot be written (entity not found); name another folder for temporary \
                 files in TMPDIR"
            )
        );
    }

    #[test]
    fn folders_of_processes_that_are_gone_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let own = std::process::id();
        let here = processes();
        let make = |name: String| {
            fs::create_dir_all(place.path().join(&name).join("logs")).unwrap();
            name
        };
        let gone = make(format!("regatta-{here}-{}-logs-x", ended.id()));
        let kept = [
            make(format!("regatta-{here}-{own}-logs-x")),
            make(format!("regatta-elsewhere-{}-logs-x", ended.id())),
            make(format!("regatta-{}", ended.id())),
            make(format!("other-{here}-{}-logs-x", ended.id())),
        ];
        remove_left(place.path(), &here);
        assert!(!place.path().join(gone).exists());
        assert!(kept.iter().all(|name| place.path().join(name).exists()));
    }
}
