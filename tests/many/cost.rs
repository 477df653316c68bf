//! The cost of a command.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::libc;

/// Processor time in seconds and the most resident memory in bytes of a command.
pub fn cost(command: &mut Command) -> (f64, u64) {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let pid = child.unwrap().id() as libc::pid_t;
    // SAFETY: `usage` and `status` are plain data that the call writes to, and the child is
    // waited for nowhere else.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let mut status = 0;
        assert_eq!(libc::wait4(pid, &mut status, 0, &mut usage), pid);
        assert!(libc::WIFEXITED(status), "it was ended by a signal");
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    (cpu, usage.ru_maxrss as u64 * 1024)
}

/// The size of a file, or of all files of a folder.
pub fn size(path: &Path) -> u64 {
    match fs::read_dir(path) {
        Ok(files) => files.map(|file| size(&file.unwrap().path())).sum(),
        Err(_) => fs::metadata(path).map_or(0, |file| file.len()),
    }
}

/// Bytes as people read them.
pub fn mb(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
