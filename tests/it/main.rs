//! Everything through the program, in one binary; `tests/page` is apart, since it takes a browser.

#[macro_use]
mod common;

mod build;
mod examples;
mod files;
mod forks;
mod injection;
mod kills;
mod leftovers;
mod nightly;
mod python_worker;
mod secrets;
mod situations;
mod terminal;
mod transcripts;
