//! The serving side: turns a [`Worker`] into a process that speaks the protocol.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::protocol::{
    Census, Hello, Measure, Measured, PROTOCOL_VERSION, Peak, Prepare, Prepared, REPLY_FD,
    REQUEST_FD, Repeat, Reply, ReplyBody, Request, RequestBody, SOCKET_VARIABLE,
};
use crate::case::Dtype;
use crate::units::Nanoseconds;

/// The reason for which a case was not prepared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The variant does not support the case.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// It should have worked, but failed.
    #[error("{0}")]
    Failed(String),
    /// The machine lacks something that it needs, such as memory or a compiler.
    #[error("{0}")]
    Unavailable(String),
    /// It failed, and everything else in this process will: the device is lost.
    #[error("{0}")]
    Lost(String),
}

impl From<String> for Refusal {
    fn from(reason: String) -> Refusal {
        Refusal::Failed(reason)
    }
}

impl From<&str> for Refusal {
    fn from(reason: &str) -> Refusal {
        Refusal::Failed(reason.to_owned())
    }
}

impl From<Refusal> for ReplyBody {
    fn from(refusal: Refusal) -> ReplyBody {
        match refusal {
            Refusal::Unsupported(reason) => ReplyBody::Unsupported { reason },
            Refusal::Failed(reason) => ReplyBody::Failed { reason },
            Refusal::Unavailable(reason) => ReplyBody::Unavailable { reason },
            Refusal::Lost(reason) => ReplyBody::Lost { reason },
        }
    }
}

/// Sends the times of a turn to the harness, and returns when the measurement continues: true if
/// the next turn is the last. Fails if the harness sends another request.
pub type Pause<'a> = &'a mut dyn FnMut(Vec<Nanoseconds>) -> Result<bool, Refusal>;

/// The operations of a worker process, which holds at most one prepared case.
pub trait Worker {
    /// Introduces the worker.
    ///
    /// # Errors
    /// The reason for which it cannot work here.
    fn hello(&mut self) -> Result<Hello, Refusal>;

    /// Prepares a case and drops the one before: makes inputs from the seed, makes a first call on
    /// poisoned outputs, and checks the results against float64.
    ///
    /// # Errors
    /// The reason for which this case cannot be timed.
    fn prepare(&mut self, request: &Prepare) -> Result<Prepared, Refusal>;

    /// Times the prepared case. Calls `pause` whenever the number of samples in
    /// `request.pause_every` is reached.
    ///
    /// # Errors
    /// No case is prepared, or the call fails.
    fn measure(&mut self, request: &Measure, pause: Pause<'_>) -> Result<Measured, Refusal>;

    /// Makes calls of the prepared case, which the harness times by its own clock.
    ///
    /// # Errors
    /// No case is prepared, the call fails, or the worker does not support this.
    fn repeat(&mut self, request: Repeat) -> Result<(), Refusal> {
        let _ = request;
        let reason = "this worker repeats no calls for the harness's clock";
        Err(Refusal::Unsupported(reason.to_owned()))
    }

    /// Counts what a call of the prepared case does: its structure, the device's operations with
    /// their times (also in calls that are recorded in the way the last samples were taken), and
    /// the hardware counters in `metrics`.
    ///
    /// # Errors
    /// No case is prepared, or the call fails.
    fn census(&mut self, metrics: &[String]) -> Result<Census, Refusal>;

    /// Measures the device's peak performance; needs no prepared case.
    ///
    /// # Errors
    /// The reason for which it is unknown.
    fn peak(&mut self, dtypes: &[Dtype]) -> Result<Peak, Refusal> {
        let _ = dtypes;
        Err(Refusal::Unsupported(
            "this worker measures no peak".to_owned(),
        ))
    }

    /// Drops the prepared case.
    fn release(&mut self);
}

/// Serves requests on descriptors 3 and 4 until `Shutdown` or end of input. In a container, where
/// these descriptors do not exist, a connection to the socket in `REGATTA_SOCKET` replaces both.
///
/// # Errors
/// The descriptors are not open (this process was not started as a worker), or the channel breaks.
pub fn serve_on_descriptors(worker: &mut dyn Worker) -> io::Result<()> {
    let (requests, mut replies) = match (open(REQUEST_FD), std::env::var_os(SOCKET_VARIABLE)) {
        (Err(_), Some(path)) => {
            let connection = File::from(OwnedFd::from(UnixStream::connect(path)?));
            (connection.try_clone()?, connection)
        }
        (requests, _) => (requests?, open(REPLY_FD)?),
    };
    let requests = BufReader::new(requests);
    // Identifies the replying process before any code under test runs.
    if replies.metadata()?.file_type().is_socket() {
        replies.write_all(b"\n")?;
    }
    serve(worker, requests, replies)
}

fn open(fd: RawFd) -> io::Result<File> {
    nix::fcntl::fcntl(
        // SAFETY: only asks whether the descriptor is open; it is not kept.
        unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) },
        nix::fcntl::FcntlArg::F_GETFD,
    )
    .map_err(|_| {
        io::Error::other(format!(
            "descriptor {fd} is not open: this command is started by regatta, not by hand \
             (try `regatta worker check`)"
        ))
    })?;
    // SAFETY: the descriptor is open, the harness gave it to this process for this purpose, and
    // nothing else in the process uses it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Serves requests from `requests`, with replies to `replies`.
///
/// # Errors
/// The channel breaks. A malformed request is not an error; it gets a reply.
pub fn serve(
    worker: &mut dyn Worker,
    requests: impl BufRead,
    mut replies: impl Write,
) -> io::Result<()> {
    let mut send = |reply: &Reply| {
        let mut text = serde_json::to_string(reply)?;
        text.push('\n');
        replies.write_all(text.as_bytes())?;
        replies.flush()
    };
    let mut lines = requests.lines();
    while let Some(line) = lines.next() {
        let reply = match serde_json::from_str::<Request>(&line?) {
            Ok(Request { mut id, body }) => {
                let mut pause = |device_ns| resumed(&mut id, device_ns, &mut lines, &mut send);
                let body = answer(worker, body, &mut pause);
                Reply { id, body }
            }
            Err(error) => Reply {
                id: 0,
                body: ReplyBody::Failed {
                    reason: format!("malformed request: {error}"),
                },
            },
        };
        send(&reply)?;
        if reply.body == ReplyBody::Bye {
            break;
        }
    }
    Ok(())
}

/// Replies to request `id` that the measurement is paused, and waits for `Resume`. `id` becomes
/// that of `Resume`, which the next reply answers.
fn resumed(
    id: &mut u64,
    device_ns: Vec<Nanoseconds>,
    lines: &mut dyn Iterator<Item = io::Result<String>>,
    send: &mut dyn FnMut(&Reply) -> io::Result<()>,
) -> Result<bool, Refusal> {
    let body = ReplyBody::Paused { device_ns };
    send(&Reply { id: *id, body }).map_err(|error| error.to_string())?;
    let line = lines.next().unwrap_or_else(|| Ok(String::new()));
    let line = line.map_err(|error| error.to_string())?;
    let request: Request = serde_json::from_str(&line)
        .map_err(|error| format!("a paused measurement got no `resume`: {error}"))?;
    *id = request.id;
    match request.body {
        RequestBody::Resume { last } => Ok(last),
        other => Err(format!("a paused measurement got `{}`", other.name()).into()),
    }
}

/// Answers one request. If a kernel panics, only the case fails, not the worker.
fn answer(worker: &mut dyn Worker, body: RequestBody, pause: Pause<'_>) -> ReplyBody {
    let answered = catch_unwind(AssertUnwindSafe(|| dispatch(worker, body, pause)));
    answered.unwrap_or_else(|panic| {
        worker.release();
        ReplyBody::Failed {
            reason: format!("panicked: {}", panic_text(panic.as_ref())),
        }
    })
}

fn dispatch(worker: &mut dyn Worker, body: RequestBody, pause: Pause<'_>) -> ReplyBody {
    let failed = |reason| ReplyBody::Failed { reason };
    match body {
        RequestBody::Hello { protocol } if protocol != PROTOCOL_VERSION => failed(format!(
            "the harness speaks protocol {protocol}, this worker {PROTOCOL_VERSION}"
        )),
        RequestBody::Hello { .. } => reply(worker.hello(), ReplyBody::Hello),
        RequestBody::List => failed("this worker lists no calls of a script".to_owned()),
        RequestBody::Prepare(request) => reply(worker.prepare(&request), ReplyBody::Prepared),
        RequestBody::Measure(request) => {
            reply(worker.measure(&request, pause), ReplyBody::Measured)
        }
        RequestBody::Resume { .. } => failed("no measurement is paused".to_owned()),
        RequestBody::Census { metrics } => reply(worker.census(&metrics), ReplyBody::Census),
        RequestBody::Repeat(request) => reply(worker.repeat(request), |()| ReplyBody::Repeated {
            errors: BTreeMap::new(),
        }),
        RequestBody::Peak { dtypes } => reply(worker.peak(&dtypes), ReplyBody::Peak),
        RequestBody::Compare(_) => failed("this process serves no reference".to_owned()),
        RequestBody::Release => {
            worker.release();
            ReplyBody::Released { files: Vec::new() }
        }
        RequestBody::Shutdown => ReplyBody::Bye,
    }
}

fn reply<T>(answer: Result<T, Refusal>, body: fn(T) -> ReplyBody) -> ReplyBody {
    answer.map_or_else(ReplyBody::from, body)
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
