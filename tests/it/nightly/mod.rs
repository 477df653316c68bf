//! What is too slow for each change: `cargo test -- --ignored nightly`.

mod trace_million;
