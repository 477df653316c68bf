//! Ends a process together with everything it started.

use std::fs;

use nix::sys::signal::{Signal, kill as signal, killpg};
use nix::unistd::Pid;

/// Kills a process, its process group, and its descendants, those that moved to a
/// group of their own included. A descendant whose parents all ended before is
/// out of reach: it belongs to init.
pub fn kill(root: u32) {
    let Ok(root) = i32::try_from(root) else {
        return;
    };
    let mut found = vec![root];
    let parents = parents();
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        let children = parents.iter().filter(|(_, of)| *of == parent);
        found.extend(children.map(|(pid, _)| *pid));
        next += 1;
    }
    let _ = killpg(Pid::from_raw(root), Signal::SIGKILL);
    for pid in found {
        let _ = signal(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Kills everything that this process started, itself excepted.
pub fn kill_own() {
    let own = std::process::id() as i32;
    for (child, _) in parents().into_iter().filter(|(_, parent)| *parent == own) {
        kill(child as u32);
    }
}

/// `(process, its parent)` of every process that can be seen.
fn parents() -> Vec<(i32, i32)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // `pid (name) state ppid ...`, where the name may hold anything.
            let fields = stat.rsplit_once(')')?.1;
            let parent = fields.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect()
}
