//! The gate: a word in memory that the host writes and the stream waits for.
//!
//! While the gate is closed, the host can queue start event, call and stop event at its own pace.
//! Once it opens, the device passes from one to the next without waiting for the host. nvbench's
//! blocking kernel does the same with a spinning kernel; a stream memory operation leaves every SM
//! free and needs no kernel.
//!
//! Tickets only grow, and the stream waits for *at least* its ticket. So opening twice, late, or
//! from two threads is harmless, and nothing has to be reset.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A ticket that never decreases. The host writes it, and a stream waits for it.
pub trait TicketWord: Send + Sync {
    /// Releases every wait for this ticket or an earlier one.
    fn raise(&self, ticket: u32);
}

impl TicketWord for AtomicU32 {
    /// Release ordering: earlier writes of the host are visible to work behind the gate.
    fn raise(&self, ticket: u32) {
        self.fetch_max(ticket, Ordering::Release);
    }
}

/// State that the watchdog thread and the clock share.
struct SharedGate {
    word: Arc<dyn TicketWord>,
    state: Mutex<GateState>,
}

#[derive(Default)]
struct GateState {
    /// The closed gate's ticket, and the time at which to open it in any case.
    closed: Option<(u32, Instant)>,
    /// The last ticket that the watchdog released in place of the clock.
    forced: u32,
    ending: bool,
}

impl SharedGate {
    fn state(&self) -> MutexGuard<'_, GateState> {
        // A panic elsewhere must not keep the gate closed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the gate if a call takes too long. A call that synchronises waits for the device, which
/// waits for the gate: a deadlock (nvbench ends the process there, nvbench#240).
pub struct Watchdog {
    shared: Arc<SharedGate>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts the thread. It checks every `limit / 4`, so a gate is closed for at most
    /// `1.25 · limit`. Such checks need no wake-up for each sample, which would disturb the call on
    /// a machine with few cores.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(word: Arc<dyn TicketWord>, limit: Duration) -> std::io::Result<Self> {
        let shared = Arc::new(SharedGate {
            word,
            state: Mutex::default(),
        });
        let pause = (limit / 4).max(Duration::from_micros(100));
        let watched = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("regatta-gate".to_owned())
            .spawn(move || watch(&watched, pause))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Registers a gate that is about to be closed. From here on it will be opened: by
    /// [`ClosedGate::open`], by dropping the guard, or at `deadline`.
    #[must_use]
    pub fn close(&self, ticket: u32, deadline: Instant) -> ClosedGate {
        self.shared.state().closed = Some((ticket, deadline));
        ClosedGate {
            shared: Arc::clone(&self.shared),
            ticket,
        }
    }
}

impl Drop for Watchdog {
    /// Waits for the thread, which must not write to a word whose memory is freed next.
    fn drop(&mut self) {
        {
            let mut state = self.shared.state();
            state.ending = true;
            if let Some((ticket, _)) = state.closed.take() {
                self.shared.word.raise(ticket);
            }
        }
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does not panic; if it did, nothing would be left to do here.
            let _ = thread.join();
        }
    }
}

fn watch(shared: &SharedGate, pause: Duration) {
    loop {
        thread::park_timeout(pause);
        let mut state = shared.state();
        if let Some((ticket, deadline)) = state.closed
            && Instant::now() >= deadline
        {
            shared.word.raise(ticket);
            state.forced = ticket;
            state.closed = None;
        }
        if state.ending {
            return;
        }
    }
}

/// A gate that is closed or about to be closed. Dropping it opens it.
///
/// No exit from a sample may leave the gate closed, neither an error nor a panic in the timed call:
/// the stream, everything that is queued on it later, and the driver at the end of the process
/// would wait forever.
pub struct ClosedGate {
    shared: Arc<SharedGate>,
    ticket: u32,
}

impl ClosedGate {
    /// Opens the gate. Returns true if the watchdog has already opened it.
    pub fn open(self) -> bool {
        self.release()
    }

    fn release(&self) -> bool {
        self.shared.word.raise(self.ticket);
        let mut state = self.shared.state();
        // Clears only its own ticket: a guard that outlives its sample must not disarm the next
        // one.
        if matches!(state.closed, Some((ticket, _)) if ticket == self.ticket) {
            state.closed = None;
        }
        state.forced == self.ticket
    }
}

impl Drop for ClosedGate {
    fn drop(&mut self) {
        self.release();
    }
}
