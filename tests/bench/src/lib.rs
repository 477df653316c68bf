//! Benchmarks of regatta's own parts: `cargo bench --manifest-path tests/bench/Cargo.toml`.
