//! What a device did and how it was, in calls, runs and recordings alike.
//!
//! The types of one call are those of the worker crate, which tells them; here are the
//! recording of a whole program, its figures, the part of it that repeats, and the kernels of
//! two sides, one beside the other. Nothing here says what any of it means.

mod align;
mod asked;
mod calls;
mod changes;
mod divided;
mod recording;
mod sides;
mod steady;
mod summary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use align::{Alignment, align};
pub use asked::{in_each, in_steady};
pub use calls::{Calls, Moments};
pub use changes::{Became, KernelChange, LaunchChange, Launches, of_calls, of_recordings};
pub use divided::{repetition, whole};
pub use recording::{Device, Process, Recorded, Recording};
pub use regatta_worker::machine::*;
pub use sides::{Scope, SideFigures, Sides};
pub use steady::{Steady, SteadyPart, steady};
pub use summary::{CopyRow, KernelRow, Shape, Summary, calls, summarise};
