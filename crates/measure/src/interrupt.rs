//! A stopped harness takes its workers along, and what they started.

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

/// The limit for printing the message: its reader may have stopped reading.
const SAYING: Duration = Duration::from_millis(300);

static WATCHING: AtomicBool = AtomicBool::new(false);

static STOPPING: AtomicBool = AtomicBool::new(false);

/// Files and folders that are of no use once this process has ended.
static LEFT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Waits on a thread for the signals that stop a program, ends every worker with its
/// children, has `rest` said, and exits with 128 plus the signal's number. Call before any other
/// thread is started: threads inherit that these signals are not theirs.
///
/// Nothing can be done here about SIGKILL: the supervisors of the workers see to that.
pub fn watch_for(rest: &'static str, say: fn(String)) {
    // The children of a supervisor that was itself killed are adopted by this process.
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
        // First: what is killed now did not fail.
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
        // SAFETY: ends the process. Its usual end would write out buffers, for which it
        // might wait for ever.
        unsafe { libc::_exit(128 + signal as i32) }
    });
}

/// At the end of a command that [`watch_for`]ed: whatever is left over, a worker's whose
/// supervisor was killed, ends with it.
pub fn end() {
    hold_if_stopping();
    if WATCHING.load(Ordering::Relaxed) {
        descendants::kill_own();
    }
}

/// Does not return once a stop was asked for: what comes of work whose worker was killed
/// for it must be neither kept nor reported.
pub fn hold_if_stopping() {
    while STOPPING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// Has a file or folder removed where a signal keeps this process from doing so itself.
pub fn leaves(folder: PathBuf) {
    if let Ok(mut left) = LEFT.lock() {
        left.push(folder);
    }
}

/// Those that this process takes as a wish that it stop. A hangup that the caller has
/// ignored, as `nohup` does, does not count.
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
    // SAFETY: only asks, into a structure that is plain memory.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal as i32, std::ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}
