//! Errors, and how an entry point of the C interface ends: a code, and a text to ask for.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The reason why the clock has no reading. Every failure is an answer; none is a panic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// No driver, no device, or a driver without what the clock needs.
    Unavailable(String),
    /// No CUPTI, or one that is of no use here.
    NoCensus(String),
    /// No hardware counters: no CUPTI that counts, or no permission.
    NoCounters(String),
    /// A driver function failed.
    Cuda {
        /// The function's name, as in cuda.h.
        function: &'static str,
        /// The `CUresult`.
        code: i32,
        /// The driver's word for the code, where it has one.
        name: String,
    },
    /// An argument out of range, or a null pointer.
    Argument(String),
    /// A sample ended that was not begun, or begun twice.
    Order(&'static str),
    /// The timed call said that it failed.
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

/// All went well.
pub const OK: c_int = 0;
/// No driver, no device, no stream memory operations; for the census and counters, no CUPTI or no
/// permission.
pub const UNAVAILABLE: c_int = 1;
/// The driver failed, or the timed call's work did.
pub const CUDA_FAILED: c_int = 2;
/// A null or out-of-range argument.
pub const BAD_ARGUMENT: c_int = 3;
/// `sample_end` without `sample_begin`.
pub const WRONG_ORDER: c_int = 4;
/// The callback said that the call failed.
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
    // A thread that is ending has no last error, and none can ask for it.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = words);
}

/// Runs an entry: an error becomes a code and words, and no panic leaves this library
/// (unwinding into a caller in another language is undefined).
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

/// Words of this thread's last failure; valid until its next one.
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
        // SAFETY: a string of this thread, copied before its next failure.
        let words = unsafe { CStr::from_ptr(regatta_probe_last_error()) };
        words.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_stays_inside() {
        assert_eq!(entry(|| panic!("a bug")), PANICKED);
        assert!(words().starts_with("panic inside the clock"));
    }
}
