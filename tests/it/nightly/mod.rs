//! Tests that are too slow for each change: `cargo test -- --ignored nightly`.

mod detectable;
mod shared_folders;
mod slow_starts;
mod trace_million;
