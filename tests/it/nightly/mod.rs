//! What is too slow for each change: `cargo test -- --ignored nightly`.

mod guide;
mod trace_million;
