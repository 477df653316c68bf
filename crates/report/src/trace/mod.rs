//! Reports of a trace and of the difference of two traces: text for the terminal, a page,
//! and a file for Perfetto.

mod difference;
mod perfetto;
mod recorded;

pub use difference::{compared, difference};
pub use perfetto::perfetto;
pub use recorded::{page, table};
