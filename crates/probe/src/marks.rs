//! Where a sample waits for the marker that ends its computation, whichever thread runs
//! that. What a marker is, xla.rs says.

use crate::Error;
use crate::Result;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What to do when the next marker runs.
pub(crate) type Record = Box<dyn FnOnce() -> Result<()> + Send>;

/// Where markers and samples meet.
pub(crate) struct Marks {
    state: Mutex<State>,
    marked: Condvar,
}

struct State {
    /// What XLA handed the last marker, or why it handed nothing.
    stream: Option<std::result::Result<usize, String>>,
    ticket: u64,
    waiting: Option<Waiting>,
    /// The last marker that was waited for: its ticket, and the host's time before the
    /// stop event was queued.
    mark: Option<(u64, Result<Instant>)>,
}

struct Waiting {
    ticket: u64,
    stream: usize,
    /// Markers until the one that counts.
    before: u32,
    record: Record,
}

/// A sample that waits for its marker. Dropped, it waits no more: no marker that runs
/// later touches the sample's event.
pub(crate) struct Awaited {
    marks: &'static Marks,
    ticket: u64,
}

impl Marks {
    pub(crate) const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                stream: None,
                ticket: 0,
                waiting: None,
                mark: None,
            }),
            marked: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in one sample must not end all later ones.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The `calls`-th marker from now on runs `record`, which queues the stop event on
    /// `stream`.
    pub(crate) fn wait_for(&'static self, stream: usize, calls: u32, record: Record) -> Awaited {
        let mut state = self.state();
        state.ticket += 1;
        let ticket = state.ticket;
        state.waiting = Some(Waiting {
            ticket,
            stream,
            before: calls.saturating_sub(1),
            record,
        });
        Awaited {
            marks: self,
            ticket,
        }
    }

    /// A marker ran. The lock is held while the event is recorded, so that whoever gives
    /// up a sample knows that nobody is recording its event.
    pub(crate) fn mark(&self, stream: std::result::Result<usize, String>) {
        let mut state = self.state();
        let at = Instant::now();
        if let Some(mut waiting) = state.waiting.take() {
            let recorded = match &stream {
                Ok(found) if *found == waiting.stream && waiting.before > 0 => {
                    waiting.before -= 1;
                    state.waiting = Some(waiting);
                    return;
                }
                Ok(found) if *found == waiting.stream => (waiting.record)(),
                Ok(found) => Err(Error::Call(format!(
                    "XLA queued its work on stream {found:#x}, and the clock is on {:#x}",
                    waiting.stream
                ))),
                Err(words) => Err(Error::Call(words.clone())),
            };
            state.mark = Some((waiting.ticket, recorded.map(|()| at)));
            self.marked.notify_all();
        }
        state.stream = Some(stream);
    }

    /// What the last marker was handed.
    pub(crate) fn stream(&self) -> Result<usize> {
        match &self.state().stream {
            Some(Ok(stream)) => Ok(*stream),
            Some(Err(words)) => Err(Error::Unavailable(words.clone())),
            None => Err(Error::Order("no computation has run its marker yet")),
        }
    }
}

impl Awaited {
    /// The host's time when the computation's work was queued, before the stop event.
    pub(crate) fn wait(self, limit: Duration) -> Result<Instant> {
        let pending =
            |state: &mut State| !matches!(&state.mark, Some((ticket, _)) if *ticket == self.ticket);
        let (mut state, _) = self
            .marks
            .marked
            .wait_timeout_while(self.marks.state(), limit, pending)
            .unwrap_or_else(PoisonError::into_inner);
        match state.mark.take() {
            Some((ticket, mark)) if ticket == self.ticket => mark,
            _ => Err(Error::Call(
                "XLA did not reach the marker at the computation's end".to_owned(),
            )),
        }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let mut state = self.marks.state();
        if matches!(&state.waiting, Some(waiting) if waiting.ticket == self.ticket) {
            state.waiting = None;
        }
    }
}
