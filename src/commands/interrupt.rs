//! A stopped harness takes its workers along, and what they started.

use std::thread;

use nix::sys::signal::{SigSet, Signal};

use super::note;
use crate::worker::descendants;

/// Waits on a thread for the signals that stop a program, ends every worker with its
/// children, and exits with 128 plus the signal's number. Call before any other
/// thread is started: threads inherit that these signals are not theirs.
///
/// Nothing can be done about SIGKILL: the kernel then ends the workers, but not
/// what they started.
pub fn watch() {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    if signals.thread_block().is_err() {
        return;
    }
    thread::spawn(move || {
        let Ok(signal) = signals.wait() else { return };
        descendants::kill_own();
        note(format!(
            "stopped by {signal}; what was measured is kept, and the same command goes on"
        ));
        std::process::exit(128 + signal as i32);
    });
}
