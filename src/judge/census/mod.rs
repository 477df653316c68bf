//! A recording in figures: where its time went, the part of it that repeats, and the kernels
//! of two recordings, one beside the other. Nothing here says what any of it means.

mod align;
mod idle;
mod launches;
mod sides;
mod steady;
mod summary;

pub use idle::{Idle, gaps_of};
pub use launches::{Became, KernelChange, LaunchChange, Launches, changes};
pub use sides::{Scope, SideFigures, Sides};
pub use steady::{Steady, SteadyPart, steady};
pub use summary::{CopyRow, KernelRow, Shape, Summary, calls, summarise};
