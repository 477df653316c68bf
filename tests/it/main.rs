//! Everything through the program, in one binary.

#[path = "../common/mod.rs"]
mod common;
mod situations;
