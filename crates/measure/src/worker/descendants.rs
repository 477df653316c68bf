//! Ends a process together with everything it started.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill as signal, killpg};
use nix::unistd::Pid;

/// What a process that is killed may take to be gone. One that is stuck in a driver
/// takes as long as that; nobody waits for it.
const LIMIT: Duration = Duration::from_secs(3);

/// Kills a process, its process group, and its descendants, those that moved to a
/// group or a session of their own included. A descendant whose parents all ended before
/// is found only where they left it to `root` (a child subreaper, such as
/// [`super::supervisor`] is one).
pub fn kill(root: u32) {
    let Ok(process) = i32::try_from(root) else {
        return;
    };
    // Stopped it starts nothing more while what it started is looked for.
    let _ = signal(Pid::from_raw(process), Signal::SIGSTOP);
    end_below(root, LIMIT);
    let _ = killpg(Pid::from_raw(process), Signal::SIGKILL);
    let _ = signal(Pid::from_raw(process), Signal::SIGKILL);
}

/// Kills everything that this process started, itself excepted; false when something
/// does not end.
pub fn kill_own() -> bool {
    end_below(std::process::id(), LIMIT)
}

/// Kills the descendants of `root` until there are none: a process may start another
/// between being seen and being killed.
fn end_below(root: u32, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    let mut empty = 0;
    loop {
        let found = below(root);
        for &pid in &found {
            let _ = signal(Pid::from_raw(pid), Signal::SIGKILL);
        }
        // Reading /proc takes its time, in which a parent may go: once more.
        empty = if found.is_empty() { empty + 1 } else { 0 };
        if empty == 2 {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        if !found.is_empty() {
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

/// Everything that a process started and that lives, without reading of every process of the
/// machine where the kernel lists a thread's children.
pub fn tree(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        match children(found[next]) {
            Some(children) => found.extend(children),
            // One that has ended since; of a kernel without such lists, all are looked at.
            None if next > 0 => {}
            None => {
                let all = below(root).into_iter();
                return all.filter_map(|pid| u32::try_from(pid).ok()).collect();
            }
        }
        next += 1;
    }
    found.split_off(1)
}

/// The children of all threads of a process; `None` where the kernel does not list them.
fn children(process: u32) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{process}/task"))
        .ok()?
        .flatten()
    {
        let listed = fs::read_to_string(thread.path().join("children")).ok()?;
        found.extend(
            listed
                .split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    Some(found)
}

/// The descendants of a process that live.
fn below(root: u32) -> Vec<i32> {
    let Ok(root) = i32::try_from(root) else {
        return Vec::new();
    };
    let parents = parents();
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        let children = parents.iter().filter(|(_, of)| *of == parent);
        found.extend(children.map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

/// `(process, its parent)` of every process that can be seen and lives. A zombie has no
/// children: the kernel gave them away when it ended.
fn parents() -> Vec<(i32, i32)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read(entry.path().join("stat")).ok()?;
            // `pid (name) state ppid ...`, where the name may hold anything.
            let stat = String::from_utf8_lossy(&stat).into_owned();
            let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
            let lives = !matches!(fields.next()?, "Z" | "X" | "x");
            let parent = fields.next()?.parse().ok()?;
            lives.then_some((pid, parent))
        })
        .collect()
}
