//! How a trace and the difference of two are shown: text for the terminal, a page,
//! and what Perfetto opens.

mod difference;
mod perfetto;
mod recorded;

pub use difference::{compared, difference};
pub use perfetto::perfetto;
pub use recorded::{page, table};
