//! Records any process: the CUDA driver loads the library in `CUDA_INJECTION64_PATH`, which is this
//! one, while it initialises, and calls [`InitializeInjection`].
//!
//! The recording is a file for each process in the folder `REGATTA_TRACE`, with one JSON object a
//! line. It is appended to five times a second. On any error, one line is printed to standard
//! error, and the process continues unrecorded.

use super::calls::CallCounts;
use super::cupti::{Cupti, kind};
use super::json;
use super::operation::Linker;
use super::{Way, record, switch, take};
use crate::Error;
use std::ffi::c_int;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

/// Environment variable with the folder of recordings.
pub const VARIABLE: &str = "REGATTA_TRACE";

/// The time between two appends. A process that dies without ending loses about this much.
const PERIOD: Duration = Duration::from_millis(200);

/// The maximum number of call times in a line.
const MOMENTS: usize = 10_000;

unsafe extern "C" {
    fn atexit(handler: extern "C" fn()) -> c_int;
    fn sigfillset(set: *mut SignalSet) -> c_int;
    fn pthread_sigmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
}

const SIG_SETMASK: c_int = 2;

/// `sigset_t` of glibc and of musl.
#[repr(C, align(8))]
struct SignalSet([u8; 128]);

/// The id of the process that is recorded; 0 for none. A forked process has a copy of these
/// variables, but not the thread that writes, which may have left [`RECORDING`] locked forever.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The recording of this process.
static RECORDING: Mutex<Option<ProcessRecording>> = Mutex::new(None);

struct ProcessRecording {
    library: &'static Cupti,
    file: RecordingFile,
    linker: Linker,
    /// The number of names that are already in the file.
    named: usize,
    /// The number of operators that are already in the file.
    operators: usize,
    counts: CallCounts,
}

/// The recording file of one process.
struct RecordingFile {
    path: PathBuf,
    file: File,
    /// The time of its creation, in ns of CUPTI's clock, which is the system's.
    start: u128,
}

impl RecordingFile {
    fn create(folder: &Path) -> Result<Self, String> {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let start = now.unwrap_or_default().as_nanos();
        let path = folder.join(format!("{}-{start}.jsonl", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options.append(true).create_new(true).open(&path);
        let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { path, file, start })
    }

    fn append(&mut self, text: &str) -> Result<(), String> {
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

/// Called by the CUDA driver, which continues whatever this returns.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn InitializeInjection() -> c_int {
    let begun = catch_unwind(|| {
        if let Err(why) = begin() {
            let why = why.replace('\n', " ");
            // A single write, because other processes use the same standard error.
            let line = format!("regatta: this process is not recorded: {why}\n");
            let _ = io::stderr().write_all(line.as_bytes());
        }
    });
    // The message of a panic is already on standard error.
    drop(begun);
    1
}

fn begin() -> Result<(), String> {
    let folder = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty());
    let folder = folder.map(PathBuf::from);
    let folder = folder.ok_or_else(|| format!("{VARIABLE} names no folder"))?;
    // The folder is first, so that an unusable one is reported on any machine.
    let mut file = RecordingFile::create(&folder)?;
    let path = file.path.clone();
    let begun = record_into(&mut file).and_then(|library| {
        *recorded() = Some(ProcessRecording::new(library, file));
        PROCESS.store(std::process::id(), Ordering::SeqCst);
        spawn().map_err(|error| format!("no thread to write with: {error}"))?;
        // SAFETY: the handler is in a library that is never unloaded.
        match unsafe { atexit(end) } {
            0 => Ok(()),
            _ => Err("no handler can be set for the end of the process".to_owned()),
        }
    });
    begun.inspect_err(|_| abandon(&path))
}

/// Gives the recording up: switches everything off and removes the file.
fn abandon(path: &Path) {
    PROCESS.store(0, Ordering::SeqCst);
    if let Some(recording) = recorded().take() {
        // CUPTI's records so far have no file.
        let _ = switch(recording.library, false);
        let _ = recording.library.switch(kind::DEVICE, false);
        recording.library.flush(true);
        record::drain(recording.library, |_| ());
    }
    let _ = fs::remove_file(path);
}

/// Starts CUPTI's recording, and writes the line that identifies this process.
fn record_into(file: &mut RecordingFile) -> Result<&'static Cupti, String> {
    let library = Cupti::get().map_err(words)?;
    take(library, Way::Injected).map_err(words)?;
    // CUPTI reports devices after the driver has initialised. A failure here is ignored.
    let _ = library.switch(kind::DEVICE, true);
    switch(library, true)
        .and_then(|()| library.record_counted_calls())
        .map_err(words)?;
    let head = head(file.start, &library.version());
    // An empty list of call times shows that they are recorded.
    file.append(&(head + &json::moments(&[])))?;
    Ok(library)
}

fn words(error: Error) -> String {
    match error {
        Error::NoCensus(why) => why,
        other => other.to_string(),
    }
}

fn recorded() -> std::sync::MutexGuard<'static, Option<ProcessRecording>> {
    RECORDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread that writes. It blocks all signals, which are for the program.
fn spawn() -> std::io::Result<()> {
    let (mut all, mut before) = (SignalSet([0; 128]), SignalSet([0; 128]));
    // SAFETY: the pointers are to live sets. A thread inherits the signal mask of the thread that
    // starts it.
    unsafe {
        sigfillset(&raw mut all);
        pthread_sigmask(SIG_SETMASK, &raw const all, &raw mut before);
    }
    let started = thread::Builder::new()
        .name("regatta-census".to_owned())
        .spawn(|| {
            let written = catch_unwind(AssertUnwindSafe(|| while write(false) {}));
            drop(written);
        });
    // SAFETY: as above.
    unsafe { pthread_sigmask(SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    started.map(drop)
}

/// Waits, and then appends the available records. Returns false once writing has ended.
fn write(last: bool) -> bool {
    if !last {
        record::wait(PERIOD);
    }
    // Checked before any lock, because a forked process may have inherited a locked one.
    if PROCESS.load(Ordering::SeqCst) != std::process::id() {
        return false;
    }
    let Some(library) = recorded().as_ref().map(|recording| recording.library) else {
        return false;
    };
    // Without holding the recording, because CUPTI may take long.
    library.flush(last);
    let mut recording = recorded();
    let Some(open) = recording.as_mut() else {
        return false;
    };
    let appended = open.append(last);
    if let Err(error) = &appended {
        eprintln!("regatta: the recording of this process ends here: {error}");
    }
    if last || appended.is_err() {
        // This switches nothing off: at the end of a process, the driver may already be gone.
        *recording = None;
    }
    appended.is_ok()
}

extern "C" fn end() {
    drop(catch_unwind(|| write(true)));
}

impl ProcessRecording {
    fn new(library: &'static Cupti, file: RecordingFile) -> Self {
        Self {
            library,
            file,
            linker: Linker::default(),
            named: 0,
            operators: 0,
            counts: CallCounts::default(),
        }
    }

    /// Appends all records that CUPTI has returned.
    fn append(&mut self, last: bool) -> Result<(), String> {
        let mut out = String::new();
        let damaged = record::drain(self.library, |record| self.linker.add(record));
        let operations = self.linker.settle(last);
        out.extend(
            self.linker
                .devices
                .drain(..)
                .map(|device| json::device(&device)),
        );
        let (names, operators) = (self.linker.names.all(), self.linker.ranges.operators());
        for (kind, all, written) in [
            ("name", names, &mut self.named),
            ("operator", operators, &mut self.operators),
        ] {
            for (id, name) in all.iter().enumerate().skip(*written) {
                let name = json::quoted(name);
                out += &format!("{{\"kind\":\"{kind}\",\"id\":{id},\"name\":{name}}}\n");
            }
            *written = all.len();
        }
        for operation in &operations {
            out += &json::operation(operation, |id| id, |id| id);
            out.push('\n');
        }
        let incomplete = std::mem::take(&mut self.linker.incomplete);
        let dropped = self.library.dropped() + incomplete + damaged;
        if dropped > 0 {
            out += &format!("{{\"kind\":\"dropped\",\"records\":{dropped}}}\n");
        }
        let moments = std::mem::take(&mut self.linker.moments);
        out.extend(moments.chunks(MOMENTS).map(json::moments));
        let now = self.library.now();
        if self.counts != self.linker.counts || last {
            self.counts = self.linker.counts;
            let counts = json::counts(&self.counts);
            out += &format!("{{\"kind\":\"calls\",\"at\":{now},{counts}}}\n");
        }
        if last {
            out += &format!("{{\"kind\":\"end\",\"at\":{now}}}\n");
        }
        self.file.append(&out)
    }
}

/// The first line, which identifies this process.
fn head(start: u128, version: &str) -> String {
    let (pid, ppid) = (std::process::id(), std::os::unix::process::parent_id());
    let argv = std::env::args_os();
    let argv = argv.map(|argument| json::quoted(&String::from_utf8_lossy(argument.as_bytes())));
    format!(
        "{{\"kind\":\"process\",\"pid\":{pid},\"ppid\":{ppid},\"argv\":{},\"start\":{start},\
         \"cupti\":\"{version}\",\"devices\":[]}}\n",
        json::array(argv)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_which_process_it_is() {
        let head = head(5, "13.0");
        assert!(head.starts_with(&format!(
            "{{\"kind\":\"process\",\"pid\":{}",
            std::process::id()
        )));
        assert!(
            head.ends_with("\"start\":5,\"cupti\":\"13.0\",\"devices\":[]}\n"),
            "{head}"
        );
        assert!(head.contains("regatta_probe"), "the arguments: {head}");
    }
}
