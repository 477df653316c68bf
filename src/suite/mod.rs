//! What to measure: a suite as written in TOML, and the plan it becomes.

pub mod rules;
