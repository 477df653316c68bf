//! Hardware counters of each kernel that a call launches, by CUPTI's range profiler.
//!
//! Each kernel is a range of its own (auto range), and CUPTI runs it once for each pass that
//! the metrics take (kernel replay), putting back what it wrote: the call is made once,
//! whatever is counted. Kernels run one after another meanwhile, and their times mean
//! nothing. The profiler numbers kernels and does not name them: names are those of a census
//! of the same call, in the same order. Which counts are exact is not known beforehand;
//! counting the same call again tells.
//!
//! A census and a counting exclude each other: one is to have ended before the other begins.

mod call;
mod profiler;
mod steps;

pub use call::{Counted, Counting};
