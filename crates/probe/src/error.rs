//! Errors, and their form in the C interface: a code, and a text that can be queried.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The reason for which the clock has no reading. Failures never panic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The driver or the device is missing, or the driver lacks functions that the clock needs.
    Unavailable(String),
    /// CUPTI is missing, or cannot be used here.
    NoCensus(String),
    /// Hardware counters are not available: CUPTI cannot count, or lacks permission.
    NoCounters(String),
    /// A driver function failed.
    Cuda {
        /// The function's name, as in cuda.h.
        function: &'static str,
        /// The `CUresult`.
        code: i32,
        /// The driver's name for the code, if it has one.
        name: String,
    },
    /// An argument out of range, or a null pointer.
    Argument(String),
    /// A sample ended that was not begun, or was begun twice.
    Order(&'static str),
    /// The timed call reported a failure.
    Call(String),
}

/// The result of every operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => write!(f, "no GPU clock: {why}"),
            Self::NoCensus(why) => write!(f, "no launch census: {why}"),
            Self::NoCounters(why) => write!(f, "no hardware counters: {why}"),
            Self::Cuda {
                function,
                code,
                name,
            } => write!(f, "{function} failed: {name} ({code})"),
            Self::Argument(what) => write!(f, "wrong argument: {what}"),
            Self::Order(what) => f.write_str(what),
            Self::Call(what) => write!(f, "the timed call failed: {what}"),
        }
    }
}

impl std::error::Error for Error {}

/// Success.
pub const OK: c_int = 0;
/// The driver, the device or stream memory operations are missing; for the census and counters,
/// CUPTI or permission.
pub const UNAVAILABLE: c_int = 1;
/// The driver failed, or the timed call's work.
pub const CUDA_FAILED: c_int = 2;
/// A null or out-of-range argument.
pub const BAD_ARGUMENT: c_int = 3;
/// `sample_end` without `sample_begin`.
pub const WRONG_ORDER: c_int = 4;
/// The callback reported that the call failed.
pub const CALL_FAILED: c_int = 5;
/// A bug in the clock.
pub const PANICKED: c_int = 7;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

fn code(error: &Error) -> c_int {
    match error {
        Error::Unavailable(_) | Error::NoCensus(_) | Error::NoCounters(_) => UNAVAILABLE,
        Error::Cuda { .. } => CUDA_FAILED,
        Error::Argument(_) => BAD_ARGUMENT,
        Error::Order(_) => WRONG_ORDER,
        Error::Call(_) => CALL_FAILED,
    }
}

fn remember(words: String) {
    let words = CString::new(words.replace('\0', " ")).unwrap_or_default();
    // A thread that is ending has no last error, and cannot query it.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = words);
}

/// Runs an entry point. Converts an error to a code and a text, and catches panics, because
/// unwinding into a caller in another language is undefined.
pub fn entry(work: impl FnOnce() -> Result<()>) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => OK,
        Ok(Err(error)) => {
            remember(error.to_string());
            code(&error)
        }
        Err(_) => {
            remember("panic inside the clock; its message is on standard error".to_owned());
            PANICKED
        }
    }
}

/// The text of this thread's last failure, valid until its next failure.
#[unsafe(no_mangle)]
pub extern "C" fn regatta_probe_last_error() -> *const c_char {
    LAST_ERROR
        .try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn words() -> String {
        // SAFETY: a string of this thread, which is copied before its next failure.
        let words = unsafe { CStr::from_ptr(regatta_probe_last_error()) };
        words.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_stays_inside() {
        assert_eq!(entry(|| panic!("a bug")), PANICKED);
        assert!(words().starts_with("panic inside the clock"));
    }
}
