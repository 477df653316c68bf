//! Benchmarks of regatta's own parts: `cargo bench -p regatta-bench`.
