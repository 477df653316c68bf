//! A simulated device: a queue, a gate that really blocks, and clocks that only advance with work.
//! It tests the timing method without a GPU and without wall time.

use crate::Error;
use crate::Result;
use crate::clock::{EMPTY_KERNEL_NS, Mark, TimedDevice};
use crate::gate::TicketWord;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The clock's calls of the device, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MockCall {
    Flush,
    Synchronise,
    CloseGate,
    Record(Mark),
    Reach(Mark),
    HostClock,
    Kernel,
    NullKernel,
    OpenGate,
    Elapsed,
    SmClock,
}

/// Queued work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueuedWork {
    Flush,
    Wait(u32),
    Record(Mark),
    Kernel(u64),
    NullKernel,
}

/// The host's time to queue anything, and the device's time for an event pair.
pub const ISSUE_NS: u64 = 5_000;
pub const PAIR_NS: u64 = 1_280;
/// The device's part of launching any kernel.
pub const LAUNCH_NS: u64 = 900;
const FLUSH_NS: u64 = 40_000;

/// A kernel that finds its inputs in the cache takes this part less: a quarter.
pub const HOT_SHARE: u64 = 4;

/// Turns a gate that stays closed into a failed test instead of a hung one.
const DEADLOCK: Duration = Duration::from_secs(20);

type CallTrace = Arc<Mutex<Vec<MockCall>>>;

struct TracedWord {
    word: AtomicU32,
    trace: CallTrace,
}

impl TicketWord for TracedWord {
    fn raise(&self, ticket: u32) {
        if self.word.fetch_max(ticket, Ordering::Release) < ticket {
            self.trace.lock().unwrap().push(MockCall::OpenGate);
        }
    }
}

/// The simulated device. Tests set its fields.
pub struct Mock {
    word: Arc<TracedWord>,
    trace: CallTrace,
    queue: VecDeque<QueuedWork>,
    device_ns: u64,
    host_ns: u64,
    marks: [u64; 3],
    cached: bool,
    tickets: u32,
    clock_reads: u32,
    /// The step that fails from now on.
    pub fails: Option<MockCall>,
}

impl Mock {
    pub fn new() -> Self {
        let trace = CallTrace::default();
        Self {
            word: Arc::new(TracedWord {
                word: AtomicU32::new(0),
                trace: Arc::clone(&trace),
            }),
            trace,
            queue: VecDeque::new(),
            device_ns: 0,
            host_ns: 0,
            marks: [0; 3],
            cached: false,
            tickets: 0,
            clock_reads: 0,
            fails: None,
        }
    }

    /// Returns the trace so far, and starts an empty one.
    pub fn take_trace(&self) -> Vec<MockCall> {
        std::mem::take(&mut *self.trace.lock().unwrap())
    }

    /// True if every gate that was closed is open again.
    pub fn gate_is_open(&self) -> bool {
        self.word.word.load(Ordering::Acquire) >= self.tickets
    }

    /// Queues a kernel that takes `ns` nanoseconds.
    pub fn kernel(&mut self, ns: u64) -> Result<()> {
        self.step(MockCall::Kernel)?;
        self.queue(QueuedWork::Kernel(ns));
        Ok(())
    }

    fn step(&mut self, step: MockCall) -> Result<()> {
        self.trace.lock().unwrap().push(step);
        if self.fails == Some(step) {
            return Err(failure());
        }
        Ok(())
    }

    fn queue(&mut self, work: QueuedWork) {
        self.host_ns += ISSUE_NS;
        // An idle device begins when the host's command arrives.
        if self.queue.is_empty() {
            self.device_ns = self.device_ns.max(self.host_ns);
        }
        self.queue.push_back(work);
    }

    fn work(&mut self, work: QueuedWork) {
        match work {
            QueuedWork::Flush => {
                self.device_ns += FLUSH_NS;
                self.cached = false;
            }
            QueuedWork::Wait(ticket) => {
                let begin = Instant::now();
                while self.word.word.load(Ordering::Acquire) < ticket {
                    assert!(begin.elapsed() < DEADLOCK, "the gate stays closed");
                    thread::sleep(Duration::from_micros(50));
                }
                // The gate opened no earlier than this time of the host.
                self.device_ns = self.device_ns.max(self.host_ns);
            }
            QueuedWork::Record(mark) => {
                self.device_ns += PAIR_NS / 2;
                self.marks[mark as usize] = self.device_ns;
                // The other half of the start event comes after its time stamp.
                if mark == Mark::Start {
                    self.device_ns += PAIR_NS / 2;
                }
            }
            QueuedWork::Kernel(ns) => {
                let saved = if self.cached { ns / HOT_SHARE } else { 0 };
                self.device_ns += LAUNCH_NS + ns - saved;
                self.cached = true;
            }
            QueuedWork::NullKernel => self.device_ns += LAUNCH_NS + EMPTY_KERNEL_NS as u64,
        }
    }
}

/// The error of every failing step.
pub fn failure() -> Error {
    Error::Cuda {
        function: "mock",
        code: 719,
        name: "CUDA_ERROR_LAUNCH_FAILED".to_owned(),
    }
}

impl TimedDevice for Mock {
    fn word(&self) -> Arc<dyn TicketWord> {
        Arc::clone(&self.word) as Arc<dyn TicketWord>
    }

    fn flush(&mut self) -> Result<()> {
        self.step(MockCall::Flush)?;
        self.queue(QueuedWork::Flush);
        Ok(())
    }

    fn synchronise(&mut self) -> Result<()> {
        self.step(MockCall::Synchronise)?;
        while let Some(work) = self.queue.pop_front() {
            self.work(work);
        }
        self.host_ns = self.host_ns.max(self.device_ns);
        Ok(())
    }

    fn wait(&mut self, ticket: u32) -> Result<()> {
        self.step(MockCall::CloseGate)?;
        self.tickets = ticket;
        self.queue(QueuedWork::Wait(ticket));
        Ok(())
    }

    fn record(&mut self, mark: Mark) -> Result<()> {
        self.step(MockCall::Record(mark))?;
        self.queue(QueuedWork::Record(mark));
        Ok(())
    }

    fn reach(&mut self, mark: Mark) -> Result<()> {
        self.step(MockCall::Reach(mark))?;
        while let Some(work) = self.queue.pop_front() {
            self.work(work);
            if work == QueuedWork::Record(mark) {
                break;
            }
        }
        self.host_ns = self.host_ns.max(self.device_ns);
        Ok(())
    }

    fn elapsed_ns(&mut self) -> Result<f64> {
        self.step(MockCall::Elapsed)?;
        Ok((self.marks[1] - self.marks[0]) as f64)
    }

    fn host_ns(&mut self) -> u64 {
        self.trace.lock().unwrap().push(MockCall::HostClock);
        self.host_ns
    }

    fn clock_mhz(&mut self) -> Option<f64> {
        self.clock_reads += 1;
        self.step(MockCall::SmClock).ok()?;
        Some(1_979.0 + f64::from(self.clock_reads))
    }

    fn null_kernel(&mut self) -> Result<bool> {
        self.step(MockCall::NullKernel)?;
        self.queue(QueuedWork::NullKernel);
        Ok(true)
    }
}
