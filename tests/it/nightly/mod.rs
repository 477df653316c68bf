//! What is too slow for each change: `cargo test -- --ignored nightly`.

mod detectable;
mod trace_million;
