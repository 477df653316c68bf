//! How a trace and the difference of two are shown: text for the terminal, a page,
//! and what Perfetto opens.

mod compared;
mod difference;
mod page;
mod perfetto;
mod table;
mod view;
mod words;

pub use compared::compared;
pub use difference::difference;
pub use page::page;
pub use perfetto::perfetto;
pub use table::table;
