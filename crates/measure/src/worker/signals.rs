//! The signals by which a program is asked to stop.

use nix::libc;
use nix::sys::signal::{SigSet, Signal};

/// Those that this process takes as a wish that it stop. A hangup that the caller has
/// ignored, as `nohup` does, is none.
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
