//! Ends a process together with everything it started.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::{Signal, kill as signal, killpg};
use nix::unistd::Pid;

/// The time that a killed process may take to disappear. A process that is stuck in a driver may
/// take longer; it is not waited for.
const LIMIT: Duration = Duration::from_secs(3);

/// Kills a process, its process group, and its descendants, including those that moved to another
/// group or session. A descendant whose parents all ended earlier is found only if the kernel gave
/// it to `root`, which then has to be a child subreaper, such as [`super::supervisor`].
pub fn kill(root: u32) {
    let Ok(process) = i32::try_from(root) else {
        return;
    };
    // A stopped process starts no other while its descendants are looked for.
    let _ = signal(Pid::from_raw(process), Signal::SIGSTOP);
    end_below(root, LIMIT);
    let _ = killpg(Pid::from_raw(process), Signal::SIGKILL);
    let _ = signal(Pid::from_raw(process), Signal::SIGKILL);
}

/// Kills everything that this process started. Returns false if a process does not end.
pub fn kill_own() -> bool {
    end_below(std::process::id(), LIMIT)
}

/// Kills the descendants of `root` until none is left, since a process may start another one before
/// it is killed.
fn end_below(root: u32, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    let mut empty = 0;
    loop {
        let descendants = below(root);
        descendants.iter().for_each(Seen::kill);
        // A parent may end while /proc is read, so this is checked twice.
        empty = if descendants.is_empty() { empty + 1 } else { 0 };
        if empty == 2 {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        if !descendants.is_empty() {
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

/// All running descendants of a process. If the kernel lists the children of a thread, this does
/// not read every process of the machine.
pub fn tree(root: u32) -> Vec<u32> {
    let mut processes = vec![root];
    let mut next = 0;
    while next < processes.len() {
        match children(processes[next]) {
            Some(children) => processes.extend(children),
            // The process has ended since. Without such lists, all processes are read.
            None if next > 0 => {}
            None => {
                let all = below(root).into_iter();
                return all
                    .filter_map(|seen| u32::try_from(seen.pid).ok())
                    .collect();
            }
        }
        next += 1;
    }
    processes.split_off(1)
}

/// The children of all threads of a process; `None` if the kernel does not list them.
fn children(process: u32) -> Option<Vec<u32>> {
    let mut children = Vec::new();
    for thread in fs::read_dir(format!("/proc/{process}/task"))
        .ok()?
        .flatten()
    {
        let listed = fs::read_to_string(thread.path().join("children")).ok()?;
        children.extend(
            listed
                .split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    Some(children)
}

/// The running descendants of a process.
fn below(root: u32) -> Vec<Seen> {
    let Ok(root) = i32::try_from(root) else {
        return Vec::new();
    };
    let all = all();
    let (mut descendants, mut parents) = (Vec::new(), vec![root]);
    while let Some(parent) = parents.pop() {
        let children = all.iter().filter(|process| process.parent == parent);
        for child in children {
            parents.push(child.pid);
            descendants.push(*child);
        }
    }
    descendants
}

/// A process at the time it was read. Its id may belong to another process later, which has another
/// start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    pid: i32,
    parent: i32,
    /// The start time in ticks since the machine booted.
    began: u64,
}

impl Seen {
    /// Reads a running process. Zombies are left out, since the kernel has already reparented their
    /// children.
    fn look(pid: i32) -> Option<Seen> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The format is `pid (name) state ppid ...`; the name may contain anything.
        let stat = String::from_utf8_lossy(&stat).into_owned();
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let lives = !matches!(fields.next()?, "Z" | "X" | "x");
        let parent = fields.next()?.parse().ok()?;
        // Field 22 of proc_pid_stat(5); the parent is field 4.
        let began = fields.nth(17)?.parse().ok()?;
        lives.then_some(Seen { pid, parent, began })
    }

    /// Kills this process, and no later one with its id.
    fn kill(&self) {
        // SAFETY: the call takes two numbers and returns a new descriptor.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid, 0) };
        let Ok(fd @ 0..) = i32::try_from(fd) else {
            // Linux before 5.3 does not support such descriptors.
            if io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
                let _ = signal(Pid::from_raw(self.pid), Signal::SIGKILL);
            }
            return;
        };
        // SAFETY: just opened, and not shared.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // The descriptor refers to one process for good: the one that was read, if its start time
        // is the same.
        if Seen::look(self.pid).is_some_and(|now| now.began == self.began) {
            let (fd, none) = (fd.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
            // SAFETY: the descriptor is open. A null pointer sends the signal as kill(2) does.
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, none, 0) };
        }
    }
}

/// Every visible running process.
fn all() -> Vec<Seen> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(Seen::look).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_has_the_number_of_another_is_left_alone() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let seen = Seen::look(pid).unwrap();
        assert!(below(std::process::id()).contains(&seen));
        let before = Seen {
            began: seen.began - 1,
            ..seen
        };
        before.kill();
        thread::sleep(Duration::from_millis(20));
        assert_eq!(child.try_wait().unwrap(), None);
        seen.kill();
        assert!(!child.wait().unwrap().success());
    }
}
