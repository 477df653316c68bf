//! Ends the workers, and everything they started, when a signal stops the harness.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use nix::libc;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};

use crate::worker::descendants;

/// The time limit for printing the message: its reader may have stopped reading.
const SAYING: Duration = Duration::from_millis(300);

static WATCHING: AtomicBool = AtomicBool::new(false);

static STOPPING: AtomicBool = AtomicBool::new(false);

/// Files and folders to remove when a signal ends this process.
static LEFT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Starts a thread that waits for the signals that stop a program. On one, it ends every worker
/// with its children, prints a message that ends with `rest`, and exits with 128 plus the signal's
/// number. Call this before any other thread is started: threads inherit the mask that blocks these
/// signals.
///
/// SIGKILL cannot be handled here; the workers' supervisors handle it.
pub fn watch_for(rest: &'static str, say: fn(String)) {
    // If a supervisor is killed, this process adopts the supervisor's children.
    let _ = prctl::set_child_subreaper(true);
    if WATCHING.swap(true, Ordering::Relaxed) {
        return;
    }
    let signals = stopping();
    if signals.thread_block().is_err() {
        return;
    }
    thread::spawn(move || {
        let Ok(signal) = signals.wait() else { return };
        // Set first, so that workers killed from here on do not count as failed.
        STOPPING.store(true, Ordering::SeqCst);
        descendants::kill_own();
        for folder in LEFT.lock().iter().flat_map(|left| left.iter()) {
            let _ = std::fs::remove_dir_all(folder).or_else(|_| std::fs::remove_file(folder));
        }
        let (said, heard) = channel();
        thread::spawn(move || {
            say(format!("stopped by {signal}{rest}"));
            let _ = said.send(());
        });
        let _ = heard.recv_timeout(SAYING);
        // SAFETY: ends the process. A normal exit would flush buffers, which might block forever.
        unsafe { libc::_exit(128 + signal as i32) }
    });
}

/// Ends what is left at the end of a command that called [`watch_for`], such as a worker whose
/// supervisor was killed.
pub fn end() {
    hold_if_stopping();
    if WATCHING.load(Ordering::Relaxed) {
        descendants::kill_own();
    }
}

/// Does not return once the process is stopping: results of a killed worker must be neither kept
/// nor reported.
pub fn hold_if_stopping() {
    while STOPPING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// Registers a file or folder to be removed if a signal ends this process before it removes it
/// itself.
pub fn leaves(folder: PathBuf) {
    if let Ok(mut left) = LEFT.lock() {
        left.push(folder);
    }
}

/// The signals that ask this process to stop. A hangup that the caller ignores, as `nohup` does, is
/// left out.
pub fn stopping() -> SigSet {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGQUIT] {
        signals.add(signal);
    }
    if !ignored(Signal::SIGHUP) {
        signals.add(Signal::SIGHUP);
    }
    signals
}

fn ignored(signal: Signal) -> bool {
    // SAFETY: only reads the action, into plain memory.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal as i32, std::ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}
