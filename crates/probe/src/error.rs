use std::fmt;

/// What keeps the clock from a reading. Every failure is an answer; none is a panic.
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
        /// Its name, as in cuda.h.
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
    /// The call does something that a CUDA graph cannot hold.
    NotCapturable(String),
}

/// What every operation of this crate gives.
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
            Self::NotCapturable(why) => {
                write!(f, "the call cannot be captured into a CUDA graph: {why}")
            }
        }
    }
}

impl std::error::Error for Error {}
